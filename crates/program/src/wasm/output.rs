//! Output of a module: strict parsing, validation, conversion to a program output.

use orlog_model::{Failure, Name, Status, Transition};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::limits::{MAX_TEXT_BYTES, MAX_TRANSITION_ITEMS};
use super::manifest::ModuleManifest;
use super::requests::{self, TaskRequest, TimerRequest, WaitRequest, WorkRequest};
use crate::contract::{Context, Migration, ProgramError, ProgramInput, ProgramOutput};
use crate::limits::{MAX_JSON_DEPTH, MAX_PAYLOAD_BYTES, PayloadTooLarge};

/// Output of `apply`: a new state with its transition, or one of three reasons for no transition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleOutput<'a> {
    ignored: Option<String>,
    rejected: Option<String>,
    #[serde(rename = "deadLetter")]
    dead_letter: Option<String>,
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    status: Option<Status>,
    #[serde(default)]
    work: Vec<WorkRequest>,
    #[serde(default)]
    timers: Vec<TimerRequest>,
    #[serde(default)]
    tasks: Vec<TaskRequest>,
    #[serde(default)]
    waits: Vec<WaitRequest>,
    reference: Option<String>,
    failure: Option<FailureOutput>,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureOutput {
    code: String,
    message: String,
}

/// Output of `migrate`: the new state, or the obstacles to the migration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrationOutput<'a> {
    #[serde(default)]
    blocked: Vec<String>,
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    status: Option<Status>,
    #[serde(default)]
    timers: Vec<TimerRequest>,
    #[serde(default)]
    tasks: Vec<TaskRequest>,
    #[serde(default)]
    waits: Vec<WaitRequest>,
    reference: Option<String>,
    /// Renamed tags of pending work and tasks.
    #[serde(default)]
    tags: Vec<TagRename>,
    /// Whether something was renamed or removed.
    #[serde(default)]
    mapped: bool,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TagRename {
    from: Name,
    to: Name,
}

/// Parses the output of `apply`.
pub(super) fn parse_output(
    bytes: &[u8],
    declared: &ModuleManifest,
    program_input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let output: ModuleOutput<'_> = read(bytes)?;
    // Before the conversion: these texts become parts of history entries, dead letters and log
    // records.
    check_texts(&output).map_err(ProgramError::Crashed)?;
    match (
        &output.state,
        &output.ignored,
        &output.rejected,
        &output.dead_letter,
    ) {
        (Some(state), None, None, None) => {
            let state = state_bytes(state).map_err(ProgramError::Crashed)?;
            let transition = transition(state, output, declared, program_input, context);
            Ok(ProgramOutput::Applied(Box::new(
                transition.map_err(ProgramError::Crashed)?,
            )))
        }
        (None, Some(reason), None, None) => Ok(ProgramOutput::Ignored(reason.clone().into())),
        (None, None, Some(reason), None) => Ok(ProgramOutput::Rejected(reason.clone().into())),
        (None, None, None, Some(reason)) => Err(ProgramError::SchemaMismatch(reason.clone())),
        // What the module intended is unknown, so no later input may be applied.
        _ => Err(ProgramError::Crashed(
            "its output must contain exactly one of `state`, `ignored`, `rejected` and \
             `deadLetter`"
                .to_owned(),
        )),
    }
}

/// Parses the output of `migrate`.
pub(super) fn parse_migration(
    bytes: &[u8],
    context: &Context<'_>,
) -> Result<Migration, Vec<String>> {
    let output: MigrationOutput<'_> = read(bytes).map_err(|error| vec![error.to_string()])?;
    let tags: Vec<_> = output
        .tags
        .into_iter()
        .map(|TagRename { from, to }| (from, to))
        .collect();

    let (state, status) = match (output.blocked.is_empty(), output.state, output.status) {
        (true, Some(state), Some(status)) => {
            (state_bytes(state).map_err(|reason| vec![reason])?, status)
        }
        (false, None, None) => return Err(output.blocked),
        _ => {
            return Err(vec![
                "its output must contain either `state` and `status`, or `blocked`".to_owned(),
            ]);
        }
    };

    let tasks: Result<_, _> = output.tasks.into_iter().map(requests::task).collect();
    let transition = Transition {
        run: orlog_model::RunChange::default(),
        state,
        status,
        work: Vec::new(),
        timers: output
            .timers
            .into_iter()
            .map(|request| requests::timer(request, context))
            .collect(),
        tasks: tasks.map_err(|reason| vec![reason])?,
        waits: output.waits.into_iter().map(requests::wait).collect(),
        reference: output.reference.map(Into::into),
        variables: Vec::new(),
        failure: None,
        note: output.note.unwrap_or_else(|| "migrated".to_owned()),
    };

    Ok(Migration {
        is_mapped: output.mapped || !tags.is_empty(),
        transition,
        tags,
    })
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ProgramError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ProgramError::Crashed(format!("its output is invalid: {error}")))
}

/// Returns the bytes of the state.
fn state_bytes(state: &RawValue) -> Result<Vec<u8>, String> {
    // The content belongs to the module; only size and depth are checked.
    let bytes = state.get().as_bytes();
    if bytes.len() > MAX_PAYLOAD_BYTES {
        return Err(format!(
            "its state is {} bytes long, the limit is {MAX_PAYLOAD_BYTES}",
            bytes.len()
        ));
    }
    if depth(bytes) > MAX_JSON_DEPTH {
        return Err(format!("its state: {}", PayloadTooLarge::TooDeep));
    }
    Ok(bytes.to_vec())
}

/// Returns the nesting depth of arrays and objects. The bytes are well-formed JSON.
fn depth(json: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut in_text = false;
    let mut escaped = false;

    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn check_texts(output: &ModuleOutput<'_>) -> Result<(), String> {
    let failure = output.failure.as_ref();
    let texts = [
        ("ignored", output.ignored.as_deref()),
        ("rejected", output.rejected.as_deref()),
        ("deadLetter", output.dead_letter.as_deref()),
        ("reference", output.reference.as_deref()),
        ("failure.code", failure.map(|failure| failure.code.as_str())),
        (
            "failure.message",
            failure.map(|failure| failure.message.as_str()),
        ),
        ("note", output.note.as_deref()),
    ];
    for (field, text) in texts {
        if let Some(length) = text.map(str::len).filter(|length| *length > MAX_TEXT_BYTES) {
            return Err(format!(
                "the `{field}` of its output is {length} bytes long, the limit is {MAX_TEXT_BYTES}"
            ));
        }
    }

    let counts = [
        ("work", output.work.len()),
        ("timers", output.timers.len()),
        ("tasks", output.tasks.len()),
        ("waits", output.waits.len()),
    ];
    match counts
        .into_iter()
        .find(|(_, count)| *count > MAX_TRANSITION_ITEMS)
    {
        Some((field, count)) => Err(format!(
            "its output has {count} {field}, the limit is {MAX_TRANSITION_ITEMS}"
        )),
        None => Ok(()),
    }
}

fn transition(
    state: Vec<u8>,
    output: ModuleOutput<'_>,
    declared: &ModuleManifest,
    program_input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<Transition, String> {
    let work = output
        .work
        .into_iter()
        .map(|request| requests::work(request, declared, context));
    let failure = output
        .failure
        .map(|FailureOutput { code, message }| Failure { code, message }.into());

    Ok(Transition {
        // Only a step machine can start a new run within a transition (ADR 0066).
        run: orlog_model::RunChange::default(),
        state,
        status: output.status.unwrap_or(Status::Running),
        work: work.collect::<Result<_, _>>()?,
        timers: output
            .timers
            .into_iter()
            .map(|request| requests::timer(request, context))
            .collect(),
        tasks: output
            .tasks
            .into_iter()
            .map(requests::task)
            .collect::<Result<_, _>>()?,
        waits: output.waits.into_iter().map(requests::wait).collect(),
        reference: output.reference.map(Into::into),
        variables: Vec::new(),
        failure,
        note: output.note.unwrap_or_else(|| program_input.label()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_ignores_brackets_in_strings() {
        #[track_caller]
        fn check(json: &str, deepest: usize) {
            assert_eq!(depth(json.as_bytes()), deepest, "{json}");
        }
        check("1", 0);
        check(r#"{"a":[1,[2]],"b":[]}"#, 3);
        check(r#"["[[[\"[[[", "\\", {}]"#, 2);
    }
}
