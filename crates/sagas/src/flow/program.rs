//! Saga of flows: applies the inputs of an instance with the step machine.

use orlog_model::{Event, Fact, Failure, Status, Work, WorkOutcome, json_length};
use orlog_program::flow::{CompiledFlow, FlowJob, Rerun};
use orlog_program::{
    Context, EventSubscription, MAX_PAYLOAD_BYTES, Manifest, NativeProgram, NativeResult,
    NativeSaga, NativeWorkResult, ProgramError, ProgramInput, ProgramOutput, SagaDecision,
    TransitionBuilder, event_data,
};
use serde_json::{Map, Value, json};

use super::cache::FlowCache;
use super::state::{FlowState, SubmitFlow, check_id};
use super::{FINISHED, RERUN, RETRY, SAGA, SUBMIT};
use crate::event_types::event_type;

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

/// Saga of flows. The correlation id of an instance is the id of the flow.
#[derive(Debug, Default)]
pub struct FlowSaga {
    cache: FlowCache,
}

/// Returns the program of flows.
#[must_use]
pub fn program() -> NativeProgram<FlowSaga> {
    NativeProgram::new(SAGA, 1, FlowSaga::default()).expect("the name is valid")
}

impl NativeSaga for FlowSaga {
    type State = FlowState;
    const NOUN: &'static str = "flow";

    fn manifest(&self) -> Manifest {
        Manifest {
            subscriptions: vec![EventSubscription {
                kind: event_type(SUBMIT),
                starts: true,
            }],
            started_by_signal: Some(event_type(SUBMIT)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<FlowState>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        let Some(state) = state else {
            return self.submit(None, event, transition);
        };

        match event.kind.as_str() {
            SUBMIT => self.submit(Some(state), event, transition),
            RETRY => self.rerun(state, Rerun::Failed, transition),
            RERUN => match event.data["job"].as_str() {
                Some(job) => self.rerun(state, Rerun::From(job), transition),
                None => SagaDecision::reject("`job` is missing"),
            },
            _ => SagaDecision::ignore("a flow does not handle this event"),
        }
    }

    fn on_work_result(
        &self,
        mut state: FlowState,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        let context = transition.context();
        state.count_attempts(result.tag, context.attempts);

        let flow = self.cache.of(&state)?;
        let job = JobResult {
            flow: &flow,
            machine: &state.machine,
            tag: result.tag,
            context,
        };
        let output = job.apply(result.outcome)?;
        store(state, output, &flow, transition)
    }

    fn on_timer(
        &self,
        state: FlowState,
        name: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        self.advance(state, &ProgramInput::Timer { name }, transition)
    }

    fn on_cancel(
        &self,
        state: FlowState,
        reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        self.advance(state, &ProgramInput::Cancel { reason }, transition)
    }

    /// Returns the flow as JSON: `name`, `labels`, `user`, `graph` (for each job `id`, `type`,
    /// `prerequisites`, `dependencies`, `failure`, `attempts`), and `steps`, `failure` and `flow`
    /// as the state of a definition with jobs.
    fn view(&self, state: &FlowState) -> Option<Value> {
        let flow = self.cache.of(state).ok()?;
        let mut view = flow.view(&state.machine)?;

        let spec = flow.spec();
        let graph: Vec<_> = spec
            .jobs
            .iter()
            .map(|job| job_view(state, job, &view["flow"]["jobs"]))
            .collect();

        let fields = [
            ("name", json!(spec.name)),
            ("labels", json!(spec.labels)),
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

impl FlowSaga {
    fn submit(
        &self,
        state: Option<FlowState>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        let submitted: SubmitFlow = event_data(event)?;
        let invalid = |error: String| ProgramError::SchemaMismatch(format!("{SUBMIT}: {error}"));
        check_id(transition.context().key.correlation.as_str()).map_err(invalid)?;

        match state {
            None => {
                let state = FlowState::new(submitted);

                // A text that does not compile must not start an instance.
                self.cache
                    .of(&state)
                    .map_err(|error| invalid(error.to_string()))?;
                let start = without_data(event);
                self.advance(state, &ProgramInput::Event(&start), transition)
            }
            Some(state) if state.source == submitted.source => {
                SagaDecision::ignore("the flow exists")
            }
            Some(_) => SagaDecision::reject("a flow with this id and another content exists"),
        }
    }

    fn rerun(
        &self,
        mut state: FlowState,
        selection: Rerun<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        let flow = self.cache.of(&state)?;
        let output = flow.rerun(&state.machine, selection, transition.context())?;

        if let ProgramOutput::Applied(next) = &output {
            let view = flow.view(&next.state).unwrap_or_default();
            state
                .failures
                .retain(|job, _| view["flow"]["jobs"][job] == "error");
        }
        store(state, output, &flow, transition)
    }

    fn advance(
        &self,
        state: FlowState,
        input: &ProgramInput<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<FlowState> {
        let flow = self.cache.of(&state)?;
        let machine = Some(state.machine.as_slice()).filter(|machine| !machine.is_empty());
        let output = flow.apply(machine, input, transition.context())?;
        store(state, output, &flow, transition)
    }
}

/// Result of a job, before the step machine applies it.
struct JobResult<'a> {
    flow: &'a CompiledFlow,
    machine: &'a [u8],
    tag: &'a str,
    context: &'a Context<'a>,
}

impl JobResult<'_> {
    /// Applies the result. One that the state cannot contain fails its job: as a dead letter, the
    /// flow would wait for it without an end.
    fn apply(&self, outcome: &WorkOutcome) -> Result<ProgramOutput, ProgramError> {
        match outcome {
            WorkOutcome::Succeeded { payload, .. } if self.exceeds(payload) => {
                self.fail(too_large())
            }
            WorkOutcome::Succeeded { .. } => match self.advance(outcome) {
                Ok(ProgramOutput::Applied(next)) if next.state.len() > MAX_MACHINE_BYTES => {
                    self.fail(too_large())
                }
                Err(ProgramError::SchemaMismatch(message) | ProgramError::Evaluation(message)) => {
                    self.fail(Failure {
                        code: "invalid_result".to_owned(),
                        message,
                    })
                }
                output => output,
            },
            // The payload of a failure has no effect.
            WorkOutcome::Failed { failure, .. } => self.fail(failure.clone()),
            WorkOutcome::TimedOut { failure } => self.advance(&WorkOutcome::TimedOut {
                failure: shortened(failure.clone(), self.flow),
            }),
            WorkOutcome::Accepted => self.advance(outcome),
        }
    }

    fn fail(&self, failure: Failure) -> Result<ProgramOutput, ProgramError> {
        self.advance(&WorkOutcome::Failed {
            event: None,
            failure: shortened(failure, self.flow),
            payload: Value::Null,
        })
    }

    fn advance(&self, outcome: &WorkOutcome) -> Result<ProgramOutput, ProgramError> {
        let input = ProgramInput::WorkResult {
            tag: self.tag,
            outcome,
        };
        self.flow.apply(Some(self.machine), &input, self.context)
    }

    fn exceeds(&self, payload: &Value) -> bool {
        // The state grows by about the size of the result in JSON.
        let bytes = json_length(payload);
        self.machine.len().saturating_add(bytes) > MAX_RESULTS_BYTES
    }
}

/// Stores the state of the flow, with what the step machine decided.
fn store(
    mut state: FlowState,
    output: ProgramOutput,
    flow: &CompiledFlow,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<FlowState> {
    let mut next = match output {
        ProgramOutput::Applied(next) => *next,
        ProgramOutput::Ignored(reason) => return SagaDecision::ignore(reason),
        ProgramOutput::Rejected(reason) => return SagaDecision::reject(reason),
    };

    if let Some(failed) = &next.failure
        && let Some(job) = &failed.step
    {
        let failure = shortened(failed.failure.clone(), flow);
        state.failures.insert(job.to_string(), failure);
    }

    state.machine = std::mem::take(&mut next.state);

    // The last fact of the transition that ends an instance is its result, which the parent
    // receives.
    if state.returns_results && next.status == Status::Completed {
        let mut view = flow.view(&state.machine).unwrap_or_default();
        let results = view["flow"]["results"].take();
        next.work
            .push(Work::Fact(Fact::new(event_type(FINISHED), results)));
    }

    next.reference = flow
        .spec()
        .name
        .as_ref()
        .map(|name| name.to_string().into());
    transition.replace(next);
    Ok(SagaDecision::Transition(state))
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
    let share = MAX_FAILURES_BYTES / flow.spec().jobs.len().max(1);
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
