//! Programs for tests of a runtime, and their expected results.

pub mod composite;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{
    CorrelationId, DefinitionRef, Event, EventId, EventType, InstanceKey, SagaName, Status,
    TenantId, Timestamp, Transition,
};
use orlog_program::{
    Context, EventSubscription, Manifest, Program, ProgramError, ProgramInput, ProgramOutput,
    compile_yaml,
};
use serde_json::{Value, json};

use crate::fake_upstreams::{FakeBehavior, event};

/// Order and its plan.
pub type PlannedOrder = (InstanceKey, Value);

/// Steps of [`order`], in order.
pub const STEPS: [&str; 4] = ["reserve", "charge", "ship", "notify"];

/// Definition of [`order`]. `TIMEOUT` is replaced.
const ORDER: &str = "\
saga: order
version: 1
start: OrderPlaced
vars: { plan: =event.plan }
steps:
  - id: reserve
    do: { command: inventory.Reserve, data: { tag: reserve, plan: =vars.plan } }
    ok: StockReserved
    fail: StockRejected
    timeout: TIMEOUT
    undo:
      command: inventory.Release
      data: { tag: compensate:reserve, plan: =vars.plan }
      ok: StockReleased
  - id: charge
    do: { effect: payments.charge, data: { tag: charge, plan: =vars.plan } }
    undo: { effect: payments.refund, data: { tag: compensate:charge, plan: =vars.plan } }
  - id: ship
    do: { command: shipping.Ship, data: { tag: ship, plan: =vars.plan } }
    undo: { command: shipping.Recall, data: { tag: compensate:ship, plan: =vars.plan } }
  - id: notify
    do: { effect: mail.send, data: { tag: notify, plan: =vars.plan } }
    undo: { effect: mail.retract, data: { tag: compensate:notify, plan: =vars.plan } }
completed: { fact: OrderCompleted, data: {} }
failed: { fact: OrderFailed, data: {} }
";

/// Returns a saga of four steps, one of each kind. The steps are a command completed by an event, an
/// effect, a command completed by its acceptance, and another effect. Each step has a compensation.
/// `timeout` is the time limit of the first step.
#[must_use]
pub fn order(timeout: Duration) -> Arc<dyn Program> {
    let timeout = format!("{}ms", timeout.as_millis());
    let text = ORDER.replace("TIMEOUT", &timeout);
    Arc::new(compile_yaml(&text, "order.saga.yaml").expect("the definition is valid"))
}

/// Returns the key of the order with that number.
#[must_use]
pub fn order_key(tenant: &TenantId, number: usize) -> InstanceKey {
    InstanceKey {
        tenant: tenant.clone(),
        saga: SagaName::new("order").expect("a valid name"),
        correlation: CorrelationId::new(format!("o{number}")).expect("a valid name"),
    }
}

/// Returns the event that starts an order.
#[must_use]
pub fn order_placed(key: &InstanceKey, plan: &Value, time: Timestamp) -> Event {
    Event {
        id: EventId::new(format!("placed:{}", key.correlation)).expect("a valid name"),
        kind: EventType::new("OrderPlaced").expect("a valid name"),
        data: json!({ "plan": plan }),
        ..event(key, time)
    }
}

/// Returns the expected result of an order with that plan: final status and executed actions, in order.
#[must_use]
pub fn expected_order_end(plan: &Value) -> (Status, Vec<String>) {
    let mut actions = Vec::new();
    let mut done = Vec::new();
    for step in STEPS {
        let behavior = FakeBehavior::of(plan, step);
        if behavior != FakeBehavior::Reject {
            actions.push(step.to_owned());
        }
        if matches!(
            behavior,
            FakeBehavior::Reject | FakeBehavior::FailureEvent | FakeBehavior::NoEvent
        ) {
            // A step without a response may have been executed, so it is compensated first.
            done.extend((behavior == FakeBehavior::NoEvent).then_some(step));
            return compensated_order(plan, actions, &done);
        }
        done.push(step);
    }
    (Status::Completed, actions)
}

fn compensated_order(
    plan: &Value,
    mut actions: Vec<String>,
    done: &[&str],
) -> (Status, Vec<String>) {
    for step in done.iter().rev() {
        let compensation = format!("compensate:{step}");
        if FakeBehavior::of(plan, &compensation) == FakeBehavior::Reject {
            return (Status::Stuck, actions);
        }
        actions.push(compensation);
    }
    (Status::Failed, actions)
}

/// Returns a random plan: about half of the orders complete, the others fail in some step. With
/// `with_timeouts`, some fail by timeout.
#[must_use]
pub fn random_plan(rng: &mut Rng, with_timeouts: bool) -> Value {
    let mut plan = serde_json::Map::new();
    for step in STEPS {
        for tag in [step.to_owned(), format!("compensate:{step}")] {
            let behavior = ["ok", "ok", "lost", "down", "slow"][rng.usize(..5)];
            plan.insert(tag, json!(behavior));
        }
    }
    if rng.bool() {
        let step = STEPS[rng.usize(..4)];
        let behavior = match step {
            "reserve" if with_timeouts && rng.bool() => "silent",
            "reserve" if rng.bool() => "reject",
            _ => "error",
        };
        plan.insert(step.to_owned(), json!(behavior));
    }
    Value::Object(plan)
}

/// Program that records the number of every event in the order of delivery, and requests no work.
///
/// `Opened` starts an instance, `Noted` adds the number `n` of its data.
pub struct EventRecorder {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl EventRecorder {
    /// Returns the program.
    #[must_use]
    pub fn program() -> Arc<dyn Program> {
        let kind = |kind| EventType::new(kind).expect("a valid name");
        let subscriptions = vec![
            EventSubscription {
                kind: kind("Noted"),
                starts: false,
            },
            EventSubscription {
                kind: kind("Opened"),
                starts: true,
            },
        ];
        let reference = DefinitionRef {
            saga: SagaName::new("ledger").expect("a valid name"),
            version: 1,
            hash: [7; 16],
        };
        Arc::new(Self {
            reference,
            manifest: Manifest {
                subscriptions,
                ..Manifest::default()
            },
        })
    }

    /// Returns the key of the instance with that number.
    #[must_use]
    pub fn key(tenant: &TenantId, number: usize) -> InstanceKey {
        InstanceKey {
            tenant: tenant.clone(),
            saga: SagaName::new("ledger").expect("a valid name"),
            correlation: CorrelationId::new(format!("l{number}")).expect("a valid name"),
        }
    }

    /// Returns the start event (number 0), or an event that adds a number.
    #[must_use]
    pub fn event(key: &InstanceKey, number: u32, time: Timestamp) -> Event {
        let kind = if number == 0 { "Opened" } else { "Noted" };
        Event {
            id: EventId::new(format!("{}:{number}", key.correlation)).expect("a valid name"),
            kind: EventType::new(kind).expect("a valid name"),
            data: json!({ "n": number }),
            ..event(key, time)
        }
    }

    /// Returns the numbers in a state.
    #[must_use]
    pub fn numbers(state: &[u8]) -> Vec<u32> {
        serde_json::from_slice(state).unwrap_or_default()
    }
}

impl Program for EventRecorder {
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
        _: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let ProgramInput::Event(event) = input else {
            return Ok(ProgramOutput::Ignored("only events are recorded".into()));
        };
        let number = event.data["n"].as_u64().and_then(|n| u32::try_from(n).ok());
        let number = number
            .ok_or_else(|| ProgramError::SchemaMismatch("the event has no number".to_owned()))?;
        let mut numbers = Self::numbers(state.unwrap_or_default());
        numbers.push(number);
        Ok(ProgramOutput::Applied(Box::new(Transition {
            run: orlog_model::RunChange::default(),
            state: serde_json::to_vec(&numbers)
                .map_err(|error| ProgramError::InvalidState(error.to_string()))?,
            status: Status::Running,
            work: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            waits: Vec::new(),
            reference: None,
            variables: Vec::new(),
            failure: None,
            note: format!("noted {number}"),
        })))
    }
}
