//! Programs to test a runtime with, and what they must come to.

pub mod composite;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, ProgramRef, SagaName, Status, TenantId, Timestamp,
    Transition,
};
use orlog_program::{Context, Definition, Do, Fault, Manifest, Program, Reaction, Stimulus, Trigger};
use serde_json::{Value, json};

use crate::fake_upstreams::{Way, event};

/// An order and the plan it was placed with.
pub type Order = (InstanceKey, Value);

/// The steps of [`order`], in order.
pub const STEPS: [&str; 4] = ["reserve", "charge", "ship", "notify"];

/// A saga of four steps, one of each kind: a command answered by an event, an effect, a command that is done when it is
/// accepted, and another effect. Each has an undo. `timeout` is the time allowed for the first.
#[must_use]
pub fn order(timeout: Duration) -> Arc<dyn Program> {
    let data = |tag: &str| json!({ "tag": tag, "plan": "=vars.plan" });
    let saga = Definition::builder("order")
        .start("OrderPlaced")
        .var("plan", json!("=event.plan"))
        .step("reserve", Do::command("inventory.Reserve").data(data("reserve")))
        .ok("StockReserved")
        .fail("StockRejected")
        .timeout(timeout)
        .undo(Do::command("inventory.Release").data(data("undo:reserve")).confirmed_by("StockReleased"))
        .step("charge", Do::effect("payments.charge").data(data("charge")))
        .undo(Do::effect("payments.refund").data(data("undo:charge")))
        .step("ship", Do::command("shipping.Ship").data(data("ship")))
        .undo(Do::command("shipping.Recall").data(data("undo:ship")))
        .step("notify", Do::effect("mail.send").data(data("notify")))
        .undo(Do::effect("mail.retract").data(data("undo:notify")))
        .completed("OrderCompleted", json!({}))
        .failed("OrderFailed", json!({}))
        .build();
    Arc::new(saga.expect("the saga of the tests is well formed"))
}

/// The order of that number.
#[must_use]
pub fn order_key(tenant: &TenantId, number: usize) -> InstanceKey {
    InstanceKey {
        tenant: tenant.clone(),
        saga: SagaName::new("order").expect("a short word"),
        correlation: CorrelationId::new(format!("o{number}")).expect("a short word"),
    }
}

/// The event that begins an order.
#[must_use]
pub fn order_placed(key: &InstanceKey, plan: &Value, time: Timestamp) -> Event {
    Event {
        id: EventId::new(format!("placed:{}", key.correlation)).expect("a short word"),
        kind: EventType::new("OrderPlaced").expect("a short word"),
        data: json!({ "plan": plan }),
        ..event(key, time)
    }
}

/// What an order with that plan must come to: its last status and what the world did for it, in order.
#[must_use]
pub fn order_end(plan: &Value) -> (Status, Vec<String>) {
    let mut deeds = Vec::new();
    let mut done = Vec::new();
    for step in STEPS {
        let way = Way::of(plan, step);
        if way != Way::Refuse {
            deeds.push(step.to_owned());
        }
        if matches!(way, Way::Refuse | Way::Reject | Way::Silent) {
            return unwound(plan, deeds, &done);
        }
        done.push(step);
    }
    (Status::Completed, deeds)
}

fn unwound(plan: &Value, mut deeds: Vec<String>, done: &[&str]) -> (Status, Vec<String>) {
    for step in done.iter().rev() {
        let undo = format!("undo:{step}");
        if Way::of(plan, &undo) == Way::Refuse {
            return (Status::Stuck, deeds);
        }
        deeds.push(undo);
    }
    (Status::Failed, deeds)
}

/// A plan drawn by lot: about half of the orders complete, the others fail somewhere. With `silence`, some fail because no
/// answer comes in time.
#[must_use]
pub fn random_plan(rng: &mut Rng, silence: bool) -> Value {
    let mut plan = serde_json::Map::new();
    for step in STEPS {
        for tag in [step.to_owned(), format!("undo:{step}")] {
            let way = ["ok", "ok", "lost", "down", "slow"][rng.usize(..5)];
            plan.insert(tag, json!(way));
        }
    }
    if rng.bool() {
        let step = STEPS[rng.usize(..4)];
        let way = match step {
            "reserve" if silence && rng.bool() => "silent",
            "reserve" if rng.bool() => "reject",
            _ => "refuse",
        };
        plan.insert(step.to_owned(), json!(way));
    }
    Value::Object(plan)
}

/// A program that notes the number of every event in the order in which it is shown them, and asks for nothing.
///
/// `Opened` begins a ledger, `Noted` adds the number `n` of its data.
pub struct Ledger {
    reference: ProgramRef,
    manifest: Manifest,
}

impl Ledger {
    /// The program.
    #[must_use]
    pub fn program() -> Arc<dyn Program> {
        let kind = |kind| EventType::new(kind).expect("a short word");
        let triggers = vec![
            Trigger { kind: kind("Noted"), starts: false },
            Trigger { kind: kind("Opened"), starts: true },
        ];
        let reference =
            ProgramRef { saga: SagaName::new("ledger").expect("a short word"), version: 1, hash: [7; 16] };
        Arc::new(Self { reference, manifest: Manifest { triggers, ..Manifest::default() } })
    }

    /// The ledger of that number.
    #[must_use]
    pub fn key(tenant: &TenantId, number: usize) -> InstanceKey {
        InstanceKey {
            tenant: tenant.clone(),
            saga: SagaName::new("ledger").expect("a short word"),
            correlation: CorrelationId::new(format!("l{number}")).expect("a short word"),
        }
    }

    /// The event that opens a ledger (number 0), or one to note.
    #[must_use]
    pub fn event(key: &InstanceKey, number: u32, time: Timestamp) -> Event {
        let kind = if number == 0 { "Opened" } else { "Noted" };
        Event {
            id: EventId::new(format!("{}:{number}", key.correlation)).expect("a short word"),
            kind: EventType::new(kind).expect("a short word"),
            data: json!({ "n": number }),
            ..event(key, time)
        }
    }

    /// The numbers in a ledger's state.
    #[must_use]
    pub fn numbers(state: &[u8]) -> Vec<u32> {
        serde_json::from_slice(state).unwrap_or_default()
    }
}

impl Program for Ledger {
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
        _: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        let Stimulus::Event(event) = stimulus else {
            return Ok(Reaction::Ignored("only events count".into()));
        };
        let number = event.data["n"].as_u64().and_then(|n| u32::try_from(n).ok());
        let number = number.ok_or_else(|| Fault::Schema("it has no number".to_owned()))?;
        let mut numbers = Self::numbers(state.unwrap_or_default());
        numbers.push(number);
        Ok(Reaction::Applied(Box::new(Transition {
            state: serde_json::to_vec(&numbers).map_err(|error| Fault::State(error.to_string()))?,
            status: Status::Running,
            work: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            waits: Vec::new(),
            reference: None,
            failure: None,
            note: format!("noted {number}"),
        })))
    }
}
