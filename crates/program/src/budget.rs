//! Cost budget of one transition: all its expressions and templates and its module together.
//!
//! Each expression has a limit of its own, but a transition evaluates as many as its definition has
//! steps, elements and handlers. Within [`within`], they share one budget. If it is exceeded, each
//! further evaluation fails at once, and the caller discards the result: a transition is a pure
//! function, so the caller can run it again with a larger budget.
//!
//! The unit is that of an expression: an element that is read, or 64 bytes of text
//! ([`MAX_EVALUATION_COST`](crate::MAX_EVALUATION_COST)). [`FUEL_PER_UNIT`] converts the fuel of a
//! module. Native programs are not metered.
//!
//! The budget is a thread-local for the same reason as that of an expression
//! (`expression/cost.rs`). Without [`within`], a thread has no budget: tools, tests and filters
//! evaluate single expressions.

use std::cell::{Cell, RefCell};

/// Fuel of a module that costs as much as one unit.
pub const FUEL_PER_UNIT: u64 = 50;

/// Bytes of text or JSON that cost one unit.
const BYTES_PER_UNIT: usize = 64;

/// Value of work that did not exceed its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metered<T> {
    /// The value.
    pub value: T,
    /// Used units.
    pub units: u64,
}

/// The work exceeded its budget; its value must not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceeded {
    /// Step whose evaluation exceeded the budget, if it belongs to a step.
    pub step: Option<String>,
    /// Expression whose evaluation exceeded the budget. `None`: a template as a whole, the module,
    /// or the compilation of a flow.
    pub expression: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Meter {
    remaining: u64,
    is_exceeded: bool,
}

thread_local! {
    /// Budget of the current work; `None` if it has none.
    static METER: Cell<Option<Meter>> = const { Cell::new(None) };
    /// First place at which the budget was exceeded.
    static PLACE: RefCell<Option<Exceeded>> = const { RefCell::new(None) };
}

/// Restores the outer budget, also after a panic: the thread serves other work afterwards.
struct OuterMeter(Option<Meter>);

impl Drop for OuterMeter {
    fn drop(&mut self) {
        METER.set(self.0);
    }
}

/// Runs `work` with a budget of `units`.
///
/// # Errors
/// If the work exceeded the budget.
pub fn within<T>(units: u64, work: impl FnOnce() -> T) -> Result<Metered<T>, Exceeded> {
    let own = Meter {
        remaining: units,
        is_exceeded: false,
    };
    let outer = OuterMeter(METER.replace(Some(own)));
    // The thread may have a place of earlier work that exceeded its own budget.
    PLACE.set(None);
    let value = work();
    let meter = METER.get().unwrap_or(own);
    drop(outer);

    if meter.is_exceeded {
        return Err(PLACE.take().unwrap_or_default());
    }
    Ok(Metered {
        value,
        units: units - meter.remaining,
    })
}

/// Spends units; returns false, now and later, once the budget is exceeded.
#[must_use]
pub fn spend(units: u64) -> bool {
    record(units);
    !is_exceeded()
}

/// Spends units of work that is done. The next check finds a budget that they exceed.
pub(crate) fn record(units: u64) {
    let Some(meter) = METER.get() else {
        return;
    };

    let left = meter.remaining.checked_sub(units);
    METER.set(Some(Meter {
        remaining: left.unwrap_or_default(),
        is_exceeded: meter.is_exceeded || left.is_none(),
    }));
}

/// Spends the units of a text or of JSON.
pub(crate) fn spend_bytes(bytes: usize) -> bool {
    spend(1 + (bytes / BYTES_PER_UNIT) as u64)
}

/// Returns the remaining units; `None` if the work has no budget.
pub(crate) fn remaining() -> Option<u64> {
    METER.get().map(|meter| meter.remaining)
}

/// Returns whether the budget is exceeded.
pub(crate) fn is_exceeded() -> bool {
    METER.get().is_some_and(|meter| meter.is_exceeded)
}

/// Records that the work exceeded its budget.
pub(crate) fn exceed() {
    // Nothing remains, so that each further evaluation of the transition fails at once.
    let exceeded = METER.get().map(|_| Meter {
        remaining: 0,
        is_exceeded: true,
    });
    METER.set(exceeded);
}

/// Records the place at which the budget was exceeded, if it was.
pub(crate) fn record_place(step: Option<&str>, expression: Option<&str>) {
    if !is_exceeded() {
        return;
    }
    PLACE.with_borrow_mut(|place| {
        // Later evaluations fail because of the first one.
        place.get_or_insert_with(|| Exceeded {
            step: step.map(str::to_owned),
            expression: expression.map(str::to_owned),
        });
    });
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::{Context, Program, ProgramError, ProgramInput, ProgramOutput, compile_yaml};

    /// Applies the start event of a saga with these steps.
    fn start(steps: &str) -> Result<ProgramOutput, ProgramError> {
        let text = format!("saga: order\nversion: 3\nstart: Placed\nsteps:\n{steps}");
        let program = compile_yaml(&text, "order.saga.yaml").expect("the definition is valid");
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new("order").expect("the name is valid"),
            correlation: CorrelationId::new("o-1").expect("the id is valid"),
        };
        let placed = Event {
            id: EventId::new("e-1").expect("the id is valid"),
            tenant: TenantId::default(),
            kind: EventType::new("Placed").expect("the type is valid"),
            source: "urn:shop".to_owned(),
            subject: None,
            time: Timestamp::from_millis(7),
            correlation: Some(key.correlation.clone()),
            causation: None,
            trace: None,
            schema_version: 1,
            data: json!({}),
            user: None,
            attributes: None,
        };
        let context = Context {
            key: &key,
            version: 1,
            now: Timestamp::from_millis(1_000),
            pending_work: &[],
            attempts: 0,
        };
        program.apply(None, &ProgramInput::Event(&placed), &context)
    }

    /// Returns steps that are skipped; the condition of each reads some thousand elements.
    fn costly_steps(count: usize) -> String {
        let step = |index: usize| {
            format!(
                "  - {{ id: s{index}, do: {{ effect: x.y }}, when: '=lists.range(1000).exists(i, i < 0)' }}\n"
            )
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn conditions_of_a_transition_share_a_budget() {
        let one = within(1_000_000, || start(&costly_steps(1))).expect("the budget is large");
        let ten = within(1_000_000, || start(&costly_steps(10))).expect("the budget is large");
        assert!(one.units > 1_000, "{}", one.units);
        assert!(ten.units > 9 * one.units, "{} and {}", ten.units, one.units);

        let exceeded = within(4 * one.units, || start(&costly_steps(10)))
            .expect_err("the budget suffices for about four steps");
        assert!(
            matches!(exceeded.step.as_deref(), Some("s3" | "s4")),
            "{exceeded:?}"
        );
        assert_eq!(
            exceeded.expression.as_deref(),
            Some("lists.range(1000).exists(i, i < 0)")
        );
    }

    #[test]
    fn budget_changes_no_transition() {
        let steps = costly_steps(3);
        let metered = within(1_000_000, || start(&steps)).expect("the budget is large");
        assert_eq!(metered.value, start(&steps));
    }

    #[test]
    fn payloads_are_charged() {
        let data = json!("x".repeat(64_000));
        let step = format!("  - {{ id: a, do: {{ effect: x.y, data: {data} }} }}\n");
        let metered = within(100_000, || start(&step)).expect("the budget is large");
        assert!(metered.units >= 1_000, "{}", metered.units);
        assert!(within(500, || start(&step)).is_err());
    }

    #[test]
    fn limit_of_an_expression_is_no_exceeded_budget() {
        let step = "  - { id: a, do: { effect: x.y, data: '=lists.range(60000).size()' } }\n";
        let metered = within(1_000_000, || start(step)).expect("the budget is large");
        assert_eq!(metered.value, start(step));
    }

    #[test]
    fn budget_ends_with_its_work() {
        assert!(within(0, || spend(1)).is_err());
        assert!(spend(u64::MAX), "no budget applies");
        let outer = within(10, || {
            let inner = within(5, || spend(6));
            (inner.is_err(), spend(10))
        });
        let expected = Metered {
            value: (true, true),
            units: 10,
        };
        assert_eq!(outer, Ok(expected));
        let unwound = std::panic::catch_unwind(|| within(1, || -> Value { panic!("a bug") }));
        assert!(unwound.is_err() && remaining().is_none());
    }
}
