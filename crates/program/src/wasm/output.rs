//! What a module answers: read strictly, checked in everything, and turned into a reaction.

use orlog_model::{Failure, Name, Status, Transition};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::manifest::Declared;
use super::requests::{self, Order, TaskOrder, TimerOrder, WaitOrder};
use crate::contract::{Context, Fault, Migration, Reaction, Stimulus};
use crate::limits::{MAX_JSON_DEPTH, MAX_ORDERS, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES, TooLarge};

/// A new state with what follows from it, or one of three reasons why there is none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    ignored: Option<String>,
    refused: Option<String>,
    rejected: Option<String>,
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    status: Option<Status>,
    #[serde(default)]
    work: Vec<Order>,
    #[serde(default)]
    timers: Vec<TimerOrder>,
    #[serde(default)]
    tasks: Vec<TaskOrder>,
    #[serde(default)]
    waits: Vec<WaitOrder>,
    reference: Option<String>,
    failure: Option<WrittenFailure>,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFailure {
    code: String,
    message: String,
}

/// The answer of `migrate`: where the instance stands now, or what keeps it from moving.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Migrated<'a> {
    #[serde(default)]
    blocked: Vec<String>,
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    status: Option<Status>,
    #[serde(default)]
    timers: Vec<TimerOrder>,
    #[serde(default)]
    tasks: Vec<TaskOrder>,
    #[serde(default)]
    waits: Vec<WaitOrder>,
    reference: Option<String>,
    /// Tags of open work and tasks that go by another name.
    #[serde(default)]
    tags: Vec<Renamed>,
    /// Something goes by another name, or is no more.
    #[serde(default)]
    mapped: bool,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renamed {
    from: Name,
    to: Name,
}

/// The answer of `apply` as a reaction.
pub(super) fn reaction(
    bytes: &[u8],
    declared: &Declared,
    stimulus: &Stimulus<'_>,
    context: &Context<'_>,
) -> Result<Reaction, Fault> {
    let answer: Answer<'_> = read(bytes)?;
    check_texts(&answer).map_err(Fault::Broken)?;
    match (&answer.state, &answer.ignored, &answer.refused, &answer.rejected) {
        (Some(state), None, None, None) => {
            let state = state_bytes(state).map_err(Fault::Broken)?;
            let transition = transition(state, answer, declared, stimulus, context);
            Ok(Reaction::Applied(Box::new(transition.map_err(Fault::Broken)?)))
        }
        (None, Some(why), None, None) => Ok(Reaction::Ignored(why.clone().into())),
        (None, None, Some(why), None) => Ok(Reaction::Refused(why.clone().into())),
        (None, None, None, Some(why)) => Err(Fault::Schema(why.clone())),
        _ => Err(Fault::Broken(
            "its answer must hold exactly one of `state`, `ignored`, `refused` and `rejected`".to_owned(),
        )),
    }
}

/// The answer of `migrate`.
pub(super) fn migration(bytes: &[u8], context: &Context<'_>) -> Result<Migration, Vec<String>> {
    let answer: Migrated<'_> = read(bytes).map_err(|fault| vec![fault.to_string()])?;
    let tags: Vec<_> = answer.tags.into_iter().map(|Renamed { from, to }| (from, to)).collect();
    let (state, status) = match (answer.blocked.is_empty(), answer.state, answer.status) {
        (true, Some(state), Some(status)) => (state_bytes(state).map_err(|why| vec![why])?, status),
        (false, None, None) => return Err(answer.blocked),
        _ => return Err(vec!["its answer must hold either `state` and `status`, or `blocked`".to_owned()]),
    };
    let tasks: Result<_, _> = answer.tasks.into_iter().map(requests::task).collect();
    let transition = Transition {
        state,
        status,
        work: Vec::new(),
        timers: answer.timers.into_iter().map(|order| requests::timer(order, context)).collect(),
        tasks: tasks.map_err(|why| vec![why])?,
        waits: answer.waits.into_iter().map(requests::wait).collect(),
        reference: answer.reference,
        failure: None,
        note: answer.note.unwrap_or_else(|| "migrated".to_owned()),
    };
    Ok(Migration { mapped: answer.mapped || !tags.is_empty(), transition, tags })
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes)
        .map_err(|error| Fault::Broken(format!("its answer is not what it should be: {error}")))
}

/// The state is the module's own; only its size and depth are looked at.
fn state_bytes(state: &RawValue) -> Result<Vec<u8>, String> {
    let bytes = state.get().as_bytes();
    if bytes.len() > MAX_PAYLOAD_BYTES {
        return Err(format!("its state would be {} bytes, the limit is {MAX_PAYLOAD_BYTES}", bytes.len()));
    }
    if depth(bytes) > MAX_JSON_DEPTH {
        return Err(format!("its state: {}", TooLarge::Deep));
    }
    Ok(bytes.to_vec())
}

/// How deep arrays and objects stand in one another. The bytes are well-formed JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
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

fn check_texts(answer: &Answer<'_>) -> Result<(), String> {
    let failure = answer.failure.as_ref();
    let texts = [
        ("ignored", answer.ignored.as_deref()),
        ("refused", answer.refused.as_deref()),
        ("rejected", answer.rejected.as_deref()),
        ("reference", answer.reference.as_deref()),
        ("failure.code", failure.map(|failure| failure.code.as_str())),
        ("failure.message", failure.map(|failure| failure.message.as_str())),
        ("note", answer.note.as_deref()),
    ];
    for (field, text) in texts {
        if let Some(length) = text.map(str::len).filter(|length| *length > MAX_TEXT_BYTES) {
            return Err(format!(
                "the `{field}` of its answer is {length} bytes long, the limit is {MAX_TEXT_BYTES}"
            ));
        }
    }
    let counts = [
        ("work", answer.work.len()),
        ("timers", answer.timers.len()),
        ("tasks", answer.tasks.len()),
        ("waits", answer.waits.len()),
    ];
    match counts.into_iter().find(|(_, count)| *count > MAX_ORDERS) {
        Some((field, count)) => Err(format!("its answer has {count} {field}, the limit is {MAX_ORDERS}")),
        None => Ok(()),
    }
}

fn transition(
    state: Vec<u8>,
    answer: Answer<'_>,
    declared: &Declared,
    stimulus: &Stimulus<'_>,
    context: &Context<'_>,
) -> Result<Transition, String> {
    let work = answer.work.into_iter().map(|order| requests::work(order, declared, context));
    let failure = answer.failure.map(|WrittenFailure { code, message }| Failure { code, message });
    Ok(Transition {
        state,
        status: answer.status.unwrap_or(Status::Running),
        work: work.collect::<Result<_, _>>()?,
        timers: answer.timers.into_iter().map(|order| requests::timer(order, context)).collect(),
        tasks: answer.tasks.into_iter().map(requests::task).collect::<Result<_, _>>()?,
        waits: answer.waits.into_iter().map(requests::wait).collect(),
        reference: answer.reference,
        failure,
        note: answer.note.unwrap_or_else(|| stimulus.label()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_texts() {
        #[track_caller]
        fn check(json: &str, deepest: usize) {
            assert_eq!(depth(json.as_bytes()), deepest, "{json}");
        }
        check("1", 0);
        check(r#"{"a":[1,[2]],"b":[]}"#, 3);
        check(r#"["[[[\"[[[", "\\", {}]"#, 2);
    }
}
