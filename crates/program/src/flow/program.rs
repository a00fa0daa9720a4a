//! Program of flows: applies the inputs of an instance with the step machine.

use orlog_model::{CorrelationId, DefinitionRef, Event, Failure, WorkOutcome};
use serde_json::{Map, Value, json};

use super::cache::FlowCache;
use super::spec::{CompiledFlow, FlowJob, check_id, compile};
use super::state::{FlowState, SubmitFlow};
use super::{RERUN, RETRY, SAGA, SUBMIT};
use crate::built_in::{encode, event_type, reference};
use crate::contract::{Context, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::machine::{self, Rerun};
use crate::program::Program;

/// Number of history entries of a flow, of which each job has one or two for each run.
const HISTORY_LIMIT: u64 = 10_000;
/// Maximum size of the state of the step machine with the results of the jobs, in bytes. A rest is left for the states of the jobs.
const MAX_RESULTS_BYTES: usize = MAX_PAYLOAD_BYTES / 4 * 3;

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
            started_by_signal: Some(event_type(SUBMIT)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        };
        Self { reference: reference(SAGA), manifest, cache: FlowCache::default() }
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
        Err(ProgramError::SchemaMismatch(format!("{} is a signal, not an event", event.kind)))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let state = state.map(FlowState::decode).transpose()?;
        match (state, input) {
            (state, ProgramInput::Event(event)) if event.kind.as_str() == SUBMIT => {
                self.submit(state, event, context)
            }
            (None, _) => Ok(ProgramOutput::Rejected("the flow does not exist".into())),
            (Some(state), ProgramInput::Event(event)) => self.rerun(state, event, context),
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a flow is never stuck".into()))
            }
            (
                Some(state),
                ProgramInput::WorkResult { tag, outcome: WorkOutcome::Succeeded { payload, .. } },
            ) if exceeds(&state, payload) => {
                let failed = WorkOutcome::Failed { event: None, failure: too_large(), payload: Value::Null };
                self.advance(state, &ProgramInput::WorkResult { tag, outcome: &failed }, context)
            }
            (
                Some(state),
                ProgramInput::WorkResult { .. } | ProgramInput::Timer { .. } | ProgramInput::Cancel { .. },
            ) => self.advance(state, input, context),
        }
    }

    /// Returns the flow as JSON: `name`, `labels`, `user`, `graph` (for each job `id`, `type`, `prerequisites`,
    /// `dependencies`, `failure`), and `steps`, `failure` and `flow` as the state of a definition with jobs.
    fn view_state(&self, state: &[u8]) -> Option<Value> {
        let state = FlowState::decode(state).ok()?;
        let flow = self.cache.of(&state).ok()?;
        let mut view = machine::view(&flow.saga, &state.machine)?;
        let graph: Vec<_> = flow.spec.jobs.iter().map(|job| job_view(&state, job)).collect();
        let fields = [
            ("name", json!(flow.spec.name)),
            ("labels", json!(flow.spec.labels)),
            ("user", json!(state.user)),
            ("graph", Value::Array(graph)),
        ];
        let all = view.as_object_mut()?;
        all.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
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
        let submitted: SubmitFlow =
            serde_json::from_value(event.data.clone()).map_err(|error| invalid(error.to_string()))?;
        check_id(context.key.correlation.as_str()).map_err(invalid)?;
        match state {
            None => {
                let state = FlowState::new(submitted);
                compile(&state.source, "flow").map_err(|diagnostics| {
                    invalid(diagnostics.first().map(ToString::to_string).unwrap_or_default())
                })?;
                let start = Event { data: Value::Null, ..event.clone() };
                self.advance(state, &ProgramInput::Event(&start), context)
            }
            Some(state) if state.source == submitted.source => {
                Ok(ProgramOutput::Ignored("the flow exists".into()))
            }
            Some(_) => Ok(ProgramOutput::Rejected("a flow with this id and another content exists".into())),
        }
    }

    fn rerun(
        &self,
        mut state: FlowState,
        event: &Event,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let flow = self.cache.of(&state)?;
        let which = match event.kind.as_str() {
            RETRY => Rerun::Failed,
            RERUN => match event.data["job"].as_str() {
                Some(job) => Rerun::From(job),
                None => return Ok(ProgramOutput::Rejected("`job` is missing".into())),
            },
            _ => return Ok(ProgramOutput::Ignored("a flow does not handle this event".into())),
        };
        let output = machine::rerun(&flow.saga, &state.machine, which, context)?;
        state.failures.retain(|job, _| {
            let is_again = |transition: &orlog_model::Transition| !has_failed(&flow, &transition.state, job);
            !matches!(&output, ProgramOutput::Applied(transition) if is_again(transition))
        });
        stored(state, output, &flow)
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
        stored(state, output, &flow)
    }
}

/// Replaces the state of the step machine in an output by the state of the flow.
fn stored(
    mut state: FlowState,
    output: ProgramOutput,
    flow: &CompiledFlow,
) -> Result<ProgramOutput, ProgramError> {
    let ProgramOutput::Applied(mut transition) = output else { return Ok(output) };
    if let Some(failed) = &transition.failure
        && let Some(job) = &failed.step
    {
        state.failures.insert(job.to_string(), failed.failure.clone());
    }
    state.machine = std::mem::take(&mut transition.state);
    transition.state = encode(&state)?;
    transition.reference = flow.spec.name.as_ref().map(|name| name.to_string().into());
    Ok(ProgramOutput::Applied(transition))
}

fn exceeds(state: &FlowState, payload: &Value) -> bool {
    let bytes = serde_json::to_vec(payload).map_or(usize::MAX, |text| text.len());
    state.machine.len().saturating_add(bytes) > MAX_RESULTS_BYTES
}

fn too_large() -> Failure {
    let message = format!(
        "the results of the jobs of a flow have at most {MAX_RESULTS_BYTES} bytes in all; store the data elsewhere, and return its location"
    );
    Failure { code: "result_too_large".to_owned(), message }
}

fn has_failed(flow: &CompiledFlow, machine: &[u8], job: &str) -> bool {
    let view = machine::view(&flow.saga, machine).unwrap_or_default();
    view["flow"]["jobs"][job] == "error"
}

fn job_view(state: &FlowState, job: &FlowJob) -> Value {
    let mut fields = Map::new();
    fields.insert("id".to_owned(), json!(job.id));
    fields.insert("type".to_owned(), json!(job.kind));
    fields.insert("prerequisites".to_owned(), json!(job.prerequisites));
    fields.insert("dependencies".to_owned(), json!(job.dependencies));
    fields.insert("failure".to_owned(), json!(state.failures.get(job.id.as_str())));
    Value::Object(fields)
}
