//! Composite saga with all external inputs: early events, a human task, a child saga.
//!
//! `CompositeOpened` starts it. `Noted` adds a number, also before the start. It opens a task and
//! starts a child saga; when both are completed, it completes. The child saga waits for a short delay
//! and completes with a fact.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    CorrelationId, DefinitionRef, Event, EventId, EventType, Fact, InstanceKey, Name,
    ParentEndPolicy, SagaName, StartChild, Status, TaskChange, TaskSpec, TenantId, TimerChange,
    Timestamp, Transition, Work, WorkOutcome,
};
use orlog_program::{
    Context, EventSubscription, Manifest, Program, ProgramError, ProgramInput, ProgramOutput,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fake_upstreams::event;

/// Delay of a child saga.
const CHILD_DELAY: Duration = Duration::from_millis(5);

/// State of a composite saga.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompositeState {
    /// Received numbers in order.
    pub notes: Vec<u32>,
    /// Outcome of the task.
    pub chosen: Option<String>,
    /// Result of the child saga.
    pub brought: Option<Value>,
}

/// Returns the programs of the composite saga and of its child saga.
#[must_use]
pub fn programs() -> [Arc<dyn Program>; 2] {
    let parent = [("CompositeOpened", true), ("Noted", false)];
    [
        Arc::new(FunctionProgram {
            reference: reference("composite", 21),
            manifest: manifest(&parent),
            step_fn: composite,
        }),
        Arc::new(FunctionProgram {
            reference: reference("child", 22),
            manifest: manifest(&[("Wanted", true)]),
            step_fn: child,
        }),
    ]
}

/// Returns the key of the instance with that number.
#[must_use]
pub fn parent_key(tenant: &TenantId, number: usize) -> InstanceKey {
    named(tenant, "composite", &format!("h{number}"))
}

/// Returns the key of the child saga of an instance.
#[must_use]
pub fn child_key(composite: &InstanceKey) -> InstanceKey {
    named(&composite.tenant, "child", composite.correlation.as_str())
}

/// Returns the start event (number 0), or an event that adds a number.
///
/// # Panics
/// Never: all its names are valid.
#[must_use]
pub fn note_event(key: &InstanceKey, number: u32, time: Timestamp) -> Event {
    let kind = if number == 0 {
        "CompositeOpened"
    } else {
        "Noted"
    };
    Event {
        id: EventId::new(format!("{}:{number}", key.correlation)).expect("a valid name"),
        kind: event_type(kind),
        data: json!({ "n": number }),
        ..event(key, time)
    }
}

/// Decodes the state of a composite saga.
///
/// # Panics
/// If the bytes are not the state of a composite saga.
#[must_use]
pub fn decode_state(state: &[u8]) -> CompositeState {
    serde_json::from_slice(state).expect("the state of a composite saga")
}

type StepFn =
    fn(Option<&[u8]>, &ProgramInput<'_>, &Context<'_>) -> Result<ProgramOutput, ProgramError>;

/// Program that calls a function.
struct FunctionProgram {
    reference: DefinitionRef,
    manifest: Manifest,
    step_fn: StepFn,
}

impl Program for FunctionProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        event.correlation.clone().ok_or_else(|| {
            ProgramError::SchemaMismatch("the event has no correlation id".to_owned())
        })
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        (self.step_fn)(state, input, context)
    }
}

fn composite(
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let known = state
        .map(serde_json::from_slice::<CompositeState>)
        .transpose();
    let known = known.map_err(|error| ProgramError::InvalidState(error.to_string()))?;
    let (mut composite_state, mut next) = (known.clone().unwrap_or_default(), step());
    match input {
        ProgramInput::Event(event) if event.kind.as_str() == "Noted" => {
            composite_state
                .notes
                .extend(event.data["n"].as_u64().and_then(|n| u32::try_from(n).ok()));
        }
        ProgramInput::Event(_) if known.is_none() => {
            next.tasks.push(TaskChange::Open(task_spec()));
            next.work.push(Work::StartChild(StartChild {
                round: 0,
                tag: name("child"),
                saga: child_key(context.key).saga,
                correlation: context.key.correlation.clone(),
                event: None,
                data: json!({ "for": context.key.correlation.as_str() }),
                on_parent_end: ParentEndPolicy::default(),
            }));
        }
        ProgramInput::WorkResult {
            tag: "approve",
            outcome: WorkOutcome::Succeeded { event, .. },
        } => {
            composite_state.chosen = event.as_ref().map(ToString::to_string);
        }
        ProgramInput::WorkResult {
            tag: "child",
            outcome: WorkOutcome::Succeeded { payload, .. },
        } => {
            composite_state.brought = Some(payload.clone());
        }
        ProgramInput::WorkResult {
            tag: "child",
            outcome: WorkOutcome::Failed { failure, .. },
        } => {
            composite_state.brought = Some(json!(failure.code));
        }
        _ => {
            return Ok(ProgramOutput::Ignored(
                "the composite saga does not consume the input".into(),
            ));
        }
    }
    if composite_state.chosen.is_some() && composite_state.brought.is_some() {
        next.status = Status::Completed;
        let closed = known.is_some_and(|known| known.chosen.is_none() || known.brought.is_none());
        let fact = Fact::new(
            event_type("CompositeClosed"),
            json!({ "notes": composite_state.notes }),
        );
        next.work.extend(closed.then_some(Work::Fact(fact)));
    }
    next.state = serde_json::to_vec(&composite_state)
        .map_err(|error| ProgramError::InvalidState(error.to_string()))?;
    Ok(ProgramOutput::Applied(Box::new(next)))
}

fn child(
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let mut next = step();
    match input {
        ProgramInput::Event(event) if state.is_none() => {
            let of = event.data["for"]
                .as_str()
                .ok_or_else(|| ProgramError::SchemaMismatch("`for` is missing".to_owned()))?;
            next.state = json!(of).to_string().into_bytes();
            next.timers.push(TimerChange::Arm {
                name: name("delay"),
                due: context.now.saturating_add(CHILD_DELAY),
            });
        }
        ProgramInput::Timer { .. } => {
            next.status = Status::Completed;
            next.work.push(Work::Fact(Fact::new(
                event_type("ChildDone"),
                json!({ "milk": 2 }),
            )));
        }
        ProgramInput::Cancel { .. } => next.status = Status::Cancelled,
        _ => {
            return Ok(ProgramOutput::Ignored(
                "the child saga does not consume the input".into(),
            ));
        }
    }
    Ok(ProgramOutput::Applied(Box::new(next)))
}

fn task_spec() -> TaskSpec {
    TaskSpec {
        not_by: Vec::new(),
        is_in_doubt: false,
        round: 0,
        tag: name("approve"),
        title: "Approve the move".to_owned(),
        roles: vec!["landlord".to_owned()],
        assignee: None,
        due: None,
        outcomes: vec![event_type("Approved"), event_type("Rejected")],
        data: Value::Null,
    }
}

fn step() -> Transition {
    Transition {
        run: orlog_model::RunChange::default(),
        state: Vec::new(),
        status: Status::Running,
        work: Vec::new(),
        timers: Vec::new(),
        tasks: Vec::new(),
        waits: Vec::new(),
        reference: None,
        variables: Vec::new(),
        failure: None,
        note: String::new(),
    }
}

fn manifest(triggers: &[(&str, bool)]) -> Manifest {
    let trigger = |(kind, starts): &(&str, bool)| EventSubscription {
        kind: event_type(kind),
        starts: *starts,
    };
    let triggers = triggers.iter().map(trigger).collect();
    Manifest {
        subscriptions: triggers,
        early_event_ttl: Duration::from_hours(24 * 365),
        ..Manifest::default()
    }
}

fn reference(saga: &str, number: u8) -> DefinitionRef {
    DefinitionRef {
        saga: SagaName::new(saga).expect("a valid name"),
        version: 1,
        hash: [number; 16],
    }
}

fn named(tenant: &TenantId, saga: &str, correlation: &str) -> InstanceKey {
    InstanceKey {
        tenant: tenant.clone(),
        saga: SagaName::new(saga).expect("a valid name"),
        correlation: CorrelationId::new(correlation).expect("a valid name"),
    }
}

fn event_type(text: &str) -> EventType {
    EventType::new(text).expect("a valid name")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}
