//! A saga with everything that comes from elsewhere: events before it begins, a task for a person, a child saga.
//!
//! `HouseholdOpened` begins it, `Noted` adds a number, also before. It asks a person and begins an errand; once both are done,
//! it completes. The errand waits a moment and completes with a fact.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Fact, InstanceKey, Name, ProgramRef, SagaName, Start, Status,
    TaskChange, TaskForm, TenantId, TimerChange, Timestamp, Transition, Verdict, Work,
};
use orlog_program::{Context, Fault, Manifest, Program, Reaction, Stimulus, Trigger};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fake_upstreams::event;

/// How long an errand takes.
const ERRAND: Duration = Duration::from_millis(5);

/// What a household knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Household {
    /// The numbers it was told, in order.
    pub notes: Vec<u32>,
    /// What the person chose.
    pub chosen: Option<String>,
    /// What the errand brought.
    pub brought: Option<Value>,
}

/// The household's program and that of its errands.
#[must_use]
pub fn programs() -> [Arc<dyn Program>; 2] {
    let parent = [("HouseholdOpened", true), ("Noted", false)];
    [
        Arc::new(Told {
            reference: reference("household", 21),
            manifest: manifest(&parent),
            tell: household,
        }),
        Arc::new(Told {
            reference: reference("errand", 22),
            manifest: manifest(&[("Wanted", true)]),
            tell: errand,
        }),
    ]
}

/// The household of that number.
#[must_use]
pub fn key(tenant: &TenantId, number: usize) -> InstanceKey {
    named(tenant, "household", &format!("h{number}"))
}

/// The errand of a household.
#[must_use]
pub fn errand_key(household: &InstanceKey) -> InstanceKey {
    named(&household.tenant, "errand", household.correlation.as_str())
}

/// The event that opens a household (number 0), or one to note.
///
/// # Panics
/// Never: its words are short.
#[must_use]
pub fn told(key: &InstanceKey, number: u32, time: Timestamp) -> Event {
    let kind = if number == 0 { "HouseholdOpened" } else { "Noted" };
    Event {
        id: EventId::new(format!("{}:{number}", key.correlation)).expect("a short word"),
        kind: word(kind),
        data: json!({ "n": number }),
        ..event(key, time)
    }
}

/// What a household's state says.
///
/// # Panics
/// When it is not the state of a household.
#[must_use]
pub fn read(state: &[u8]) -> Household {
    serde_json::from_slice(state).expect("it is the state of a household")
}

type Tell = fn(Option<&[u8]>, &Stimulus<'_>, &Context<'_>) -> Result<Reaction, Fault>;

/// A program made of a function.
struct Told {
    reference: ProgramRef,
    manifest: Manifest,
    tell: Tell,
}

impl Program for Told {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        event.correlation.clone().ok_or_else(|| Fault::Schema("it has no correlation id".to_owned()))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        (self.tell)(state, stimulus, context)
    }
}

fn household(
    state: Option<&[u8]>,
    stimulus: &Stimulus<'_>,
    context: &Context<'_>,
) -> Result<Reaction, Fault> {
    let known = state.map(serde_json::from_slice::<Household>).transpose();
    let known = known.map_err(|error| Fault::State(error.to_string()))?;
    let (mut house, mut next) = (known.clone().unwrap_or_default(), step());
    match stimulus {
        Stimulus::Event(event) if event.kind.as_str() == "Noted" => {
            house.notes.extend(event.data["n"].as_u64().and_then(|n| u32::try_from(n).ok()));
        }
        Stimulus::Event(_) if known.is_none() => {
            next.tasks.push(TaskChange::Open(form()));
            next.work.push(Work::Start(Start {
                tag: name("errand"),
                saga: errand_key(context.key).saga,
                correlation: context.key.correlation.clone(),
                event: None,
                data: json!({ "for": context.key.correlation.as_str() }),
            }));
        }
        Stimulus::Outcome { tag: "approve", verdict: Verdict::Succeeded { event, .. } } => {
            house.chosen = event.as_ref().map(ToString::to_string);
        }
        Stimulus::Outcome { tag: "errand", verdict: Verdict::Succeeded { payload, .. } } => {
            house.brought = Some(payload.clone());
        }
        Stimulus::Outcome { tag: "errand", verdict: Verdict::Failed { failure, .. } } => {
            house.brought = Some(json!(failure.code));
        }
        _ => return Ok(Reaction::Ignored("a household has no use for it".into())),
    }
    if house.chosen.is_some() && house.brought.is_some() {
        next.status = Status::Completed;
        let closed = known.is_some_and(|known| known.chosen.is_none() || known.brought.is_none());
        let fact = Fact { kind: word("HouseholdClosed"), data: json!({ "notes": house.notes }) };
        next.work.extend(closed.then_some(Work::Fact(fact)));
    }
    next.state = serde_json::to_vec(&house).map_err(|error| Fault::State(error.to_string()))?;
    Ok(Reaction::Applied(Box::new(next)))
}

fn errand(state: Option<&[u8]>, stimulus: &Stimulus<'_>, context: &Context<'_>) -> Result<Reaction, Fault> {
    let mut next = step();
    match stimulus {
        Stimulus::Event(event) if state.is_none() => {
            let of = event.data["for"].as_str().ok_or_else(|| Fault::Schema("for whom?".to_owned()))?;
            next.state = json!(of).to_string().into_bytes();
            next.timers.push(TimerChange::Arm { name: name("way"), due: context.now.after(ERRAND) });
        }
        Stimulus::Timer { .. } => {
            next.status = Status::Completed;
            next.work.push(Work::Fact(Fact { kind: word("ErrandDone"), data: json!({ "milk": 2 }) }));
        }
        Stimulus::Cancel { .. } => next.status = Status::Cancelled,
        _ => return Ok(Reaction::Ignored("an errand has no use for it".into())),
    }
    Ok(Reaction::Applied(Box::new(next)))
}

fn form() -> TaskForm {
    TaskForm {
        tag: name("approve"),
        title: "Let them move in".to_owned(),
        roles: vec!["landlord".to_owned()],
        assignee: None,
        due: None,
        outcomes: vec![word("Approved"), word("Rejected")],
        data: Value::Null,
    }
}

fn step() -> Transition {
    Transition {
        state: Vec::new(),
        status: Status::Running,
        work: Vec::new(),
        timers: Vec::new(),
        tasks: Vec::new(),
        waits: Vec::new(),
        reference: None,
        failure: None,
        note: String::new(),
    }
}

fn manifest(triggers: &[(&str, bool)]) -> Manifest {
    let trigger = |(kind, starts): &(&str, bool)| Trigger { kind: word(kind), starts: *starts };
    let triggers = triggers.iter().map(trigger).collect();
    Manifest { triggers, early: Duration::from_hours(24 * 365), ..Manifest::default() }
}

fn reference(saga: &str, number: u8) -> ProgramRef {
    ProgramRef { saga: SagaName::new(saga).expect("a short word"), version: 1, hash: [number; 16] }
}

fn named(tenant: &TenantId, saga: &str, correlation: &str) -> InstanceKey {
    InstanceKey {
        tenant: tenant.clone(),
        saga: SagaName::new(saga).expect("a short word"),
        correlation: CorrelationId::new(correlation).expect("a short word"),
    }
}

fn word(text: &str) -> EventType {
    EventType::new(text).expect("a short word")
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a short word")
}
