//! Program of flows: applies the inputs of an instance with the step machine.

use orlog_model::{CorrelationId, DefinitionRef, Event, Fact, Failure, Status, Work, WorkOutcome};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::cache::FlowCache;
use super::spec::{CompiledFlow, FlowJob, check_id};
use super::state::{FlowState, SubmitFlow};
use super::{FINISHED, RERUN, RETRY, SAGA, SUBMIT};
use crate::built_in::{encode, event_type, reference};
use crate::contract::{
    Context, EventSubscription, Manifest, ProgramError, ProgramInput, ProgramOutput,
};
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::machine::{self, Rerun};
use crate::program::Program;

/// Number of history entries of a flow, of which each job has one or two for each run.
const HISTORY_LIMIT: u64 = 10_000;
/// Maximum size of the state of the step machine with the results of the jobs, in bytes. A rest is
/// left for the states of the jobs.
const MAX_RESULTS_BYTES: usize = MAX_PAYLOAD_BYTES / 4 * 3;
/// Maximum size of the state of the step machine after a result, in bytes: its encoding can be
/// larger than JSON, and a failure must always have space.
const MAX_MACHINE_BYTES: usize = MAX_PAYLOAD_BYTES / 16 * 15;
/// Maximum size of the failures of all jobs, in bytes.
const MAX_FAILURES_BYTES: usize = MAX_PAYLOAD_BYTES / 2;
/// Maximum size of the message of a failure, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// Size that the message of a failure has at least, in bytes.
const MIN_MESSAGE_BYTES: usize = 64;
/// Maximum size of the code of a failure, in bytes.
const MAX_CODE_BYTES: usize = 64;

/// Program of flows. The correlation id of an instance is the id of the flow.
#[derive(Debug)]
pub struct FlowProgram {
    reference: DefinitionRef,
    manifest: Manifest,
    cache: FlowCache,
}

impl Default for FlowProgram {
    fn default() -> Self {
        let manifest = Manifest {
            subscriptions: vec![EventSubscription {
                kind: event_type(SUBMIT),
                starts: true,
            }],
            started_by_signal: Some(event_type(SUBMIT)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        };
        Self {
            reference: reference(SAGA),
            manifest,
            cache: FlowCache::default(),
        }
    }
}

impl Program for FlowProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        Err(ProgramError::SchemaMismatch(format!(
            "only a request or a parent saga submits a flow, not the event {}",
            event.kind
        )))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let mut state = state.map(FlowState::decode).transpose()?;
        if let (Some(state), ProgramInput::WorkResult { tag, .. }) = (&mut state, input) {
            state.count_attempts(tag, context.attempts);
        }

        match (state, input) {
            (state, ProgramInput::Event(event)) if event.kind.as_str() == SUBMIT => {
                self.submit(state, event, context)
            }
            (None, _) => Ok(ProgramOutput::Rejected("the flow does not exist".into())),
            (Some(state), ProgramInput::Event(event)) => self.rerun(state, event, context),
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a flow is never stuck".into()))
            }
            (Some(state), ProgramInput::WorkResult { tag, outcome }) => {
                self.result(state, tag, outcome, context)
            }
            (Some(state), ProgramInput::Timer { .. } | ProgramInput::Cancel { .. }) => {
                self.advance(state, input, context)
            }
        }
    }

    /// Returns the flow as JSON: `name`, `labels`, `user`, `graph` (for each job `id`, `type`,
    /// `prerequisites`, `dependencies`, `failure`, `attempts`), and `steps`, `failure` and `flow`
    /// as the state of a definition with jobs.
    fn view_state(&self, state: &[u8]) -> Option<Value> {
        let state = FlowState::decode(state).ok()?;
        let flow = self.cache.of(&state).ok()?;
        let mut view = machine::view(&flow.saga, &state.machine)?;

        let graph: Vec<_> = flow
            .spec
            .jobs
            .iter()
            .map(|job| job_view(&state, job, &view["flow"]["jobs"]))
            .collect();

        let fields = [
            ("name", json!(flow.spec.name)),
            ("labels", json!(flow.spec.labels)),
            ("user", json!(state.user)),
            ("graph", Value::Array(graph)),
        ];

        let all = view.as_object_mut()?;
        all.extend(
            fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
        all.remove("vars");
        Some(view)
    }
}

impl FlowProgram {
    fn submit(
        &self,
        state: Option<FlowState>,
        event: &Event,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let invalid = |error: String| ProgramError::SchemaMismatch(format!("{SUBMIT}: {error}"));
        let submitted =
            SubmitFlow::deserialize(&event.data).map_err(|error| invalid(error.to_string()))?;
        check_id(context.key.correlation.as_str()).map_err(invalid)?;

        match state {
            None => {
                let state = FlowState::new(submitted);

                // A text that does not compile must not start an instance.
                self.cache
                    .of(&state)
                    .map_err(|error| invalid(error.to_string()))?;
                self.advance(state, &ProgramInput::Event(&without_data(event)), context)
            }
            Some(state) if state.source == submitted.source => {
                Ok(ProgramOutput::Ignored("the flow exists".into()))
            }
            Some(_) => Ok(ProgramOutput::Rejected(
                "a flow with this id and another content exists".into(),
            )),
        }
    }

    fn rerun(
        &self,
        mut state: FlowState,
        event: &Event,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let flow = self.cache.of(&state)?;
        let selection = match event.kind.as_str() {
            RETRY => Rerun::Failed,
            RERUN => match event.data["job"].as_str() {
                Some(job) => Rerun::From(job),
                None => return Ok(ProgramOutput::Rejected("`job` is missing".into())),
            },
            _ => {
                return Ok(ProgramOutput::Ignored(
                    "a flow does not handle this event".into(),
                ));
            }
        };

        let output = machine::rerun(&flow.saga, &state.machine, selection, context)?;
        if let ProgramOutput::Applied(transition) = &output {
            let view = machine::view(&flow.saga, &transition.state).unwrap_or_default();
            state
                .failures
                .retain(|job, _| view["flow"]["jobs"][job] == "error");
        }
        with_flow_state(state, output, &flow)
    }

    /// Applies the result of a job.
    fn result(
        &self,
        state: FlowState,
        tag: &str,
        outcome: &WorkOutcome,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let flow = self.cache.of(&state)?;
        let apply = |outcome: &WorkOutcome| {
            let input = ProgramInput::WorkResult { tag, outcome };
            machine::apply(&flow.saga, Some(&state.machine), &input, context)
        };

        let fail = |failure: Failure| {
            let failure = shortened(failure, &flow);
            apply(&WorkOutcome::Failed {
                event: None,
                failure,
                payload: Value::Null,
            })
        };

        // A result that the state cannot contain fails its job: as a dead letter, the flow would
        // wait for it without an end.
        let output = match outcome {
            WorkOutcome::Succeeded { payload, .. } if exceeds(&state, payload) => {
                fail(too_large())?
            }
            WorkOutcome::Succeeded { .. } => match apply(outcome) {
                Ok(ProgramOutput::Applied(next)) if next.state.len() > MAX_MACHINE_BYTES => {
                    fail(too_large())?
                }
                Err(ProgramError::SchemaMismatch(message) | ProgramError::Evaluation(message)) => {
                    fail(Failure {
                        code: "invalid_result".to_owned(),
                        message,
                    })?
                }
                output => output?,
            },
            // The payload of a failure has no effect.
            WorkOutcome::Failed { failure, .. } => fail(failure.clone())?,
            WorkOutcome::TimedOut { failure } => apply(&WorkOutcome::TimedOut {
                failure: shortened(failure.clone(), &flow),
            })?,
            WorkOutcome::Accepted => apply(outcome)?,
        };

        with_flow_state(state, output, &flow)
    }

    fn advance(
        &self,
        state: FlowState,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let flow = self.cache.of(&state)?;
        let machine = Some(state.machine.as_slice()).filter(|machine| !machine.is_empty());
        let output = machine::apply(&flow.saga, machine, input, context)?;
        with_flow_state(state, output, &flow)
    }
}

/// Replaces the state of the step machine in an output by the state of the flow.
fn with_flow_state(
    mut state: FlowState,
    output: ProgramOutput,
    flow: &CompiledFlow,
) -> Result<ProgramOutput, ProgramError> {
    let ProgramOutput::Applied(mut transition) = output else {
        return Ok(output);
    };

    if let Some(failed) = &transition.failure
        && let Some(job) = &failed.step
    {
        state
            .failures
            .insert(job.to_string(), shortened(failed.failure.clone(), flow));
    }

    state.machine = std::mem::take(&mut transition.state);

    // The last fact of the transition that ends an instance is its result, which the parent
    // receives.
    if state.returns_results && transition.status == Status::Completed {
        let mut view = machine::view(&flow.saga, &state.machine).unwrap_or_default();
        transition.work.push(Work::Fact(Fact::new(
            event_type(FINISHED),
            view["flow"]["results"].take(),
        )));
    }

    transition.state = encode(&state)?;
    transition.reference = flow.spec.name.as_ref().map(|name| name.to_string().into());
    Ok(ProgramOutput::Applied(transition))
}

/// Returns the event of a submission without the text of the flow, which the state contains.
fn without_data(event: &Event) -> Event {
    Event {
        id: event.id.clone(),
        tenant: event.tenant.clone(),
        kind: event.kind.clone(),
        source: event.source.clone(),
        subject: event.subject.clone(),
        time: event.time,
        correlation: event.correlation.clone(),
        causation: event.causation.clone(),
        trace: event.trace.clone(),
        schema_version: event.schema_version,
        data: Value::Null,
        user: event.user.clone(),
        attributes: event.attributes.clone(),
    }
}

fn exceeds(state: &FlowState, payload: &Value) -> bool {
    // The state grows by about the size of the result in JSON.
    let bytes = serde_json::to_vec(payload).map_or(usize::MAX, |text| text.len());
    state.machine.len().saturating_add(bytes) > MAX_RESULTS_BYTES
}

fn too_large() -> Failure {
    let message = format!(
        "the results of the jobs of a flow have at most {MAX_RESULTS_BYTES} bytes in all; store \
         the data elsewhere, and return its location"
    );
    Failure {
        code: "result_too_large".to_owned(),
        message,
    }
}

/// Returns a failure with a message that is short enough for the failures of all jobs.
fn shortened(failure: Failure, flow: &CompiledFlow) -> Failure {
    let share = MAX_FAILURES_BYTES / flow.spec.jobs.len().max(1);
    let limit = share.clamp(MIN_MESSAGE_BYTES, MAX_MESSAGE_BYTES);
    Failure {
        code: cut(failure.code, MAX_CODE_BYTES),
        message: cut(failure.message, limit),
    }
}

fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// Returns the view of a job. `statuses` are those of all jobs of the flow.
fn job_view(state: &FlowState, job: &FlowJob, statuses: &Value) -> Value {
    let id = job.id.as_str();
    let failure = state
        .failures
        .get(id)
        .cloned()
        .or_else(|| prerequisite_failed(job, statuses));

    let mut fields = Map::new();
    fields.insert("id".to_owned(), json!(job.id));
    fields.insert("type".to_owned(), json!(job.kind));
    fields.insert("prerequisites".to_owned(), json!(job.prerequisites));
    fields.insert("dependencies".to_owned(), json!(job.dependencies));
    fields.insert("failure".to_owned(), json!(failure));
    fields.insert(
        "attempts".to_owned(),
        json!(state.attempts.get(id).unwrap_or(&0)),
    );
    Value::Object(fields)
}

/// Returns the failure of a job that cannot start because a job that it follows has failed; `None`
/// if it is another job.
fn prerequisite_failed(job: &FlowJob, statuses: &Value) -> Option<Failure> {
    if statuses[job.id.as_str()] != "error" {
        return None;
    }

    let mut followed = job.prerequisites.iter().chain(&job.dependencies);
    let failed = followed.find(|before| statuses[before.as_str()] == "error")?;
    Some(Failure {
        code: "prerequisite_failed".to_owned(),
        message: format!("the job cannot start, because the job \"{failed}\" has failed"),
    })
}
