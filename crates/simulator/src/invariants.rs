//! Invariants of every definition in every run, checked at each decision.
//!
//! - The same input on the same snapshot produces the same commit.
//! - A completed step with a compensation is compensated once, in reverse order, one step after
//!   another. No other step is compensated. No step before a completed pivot is compensated. No
//!   success is lost.
//! - Work in doubt is not requested again before an operator reports that it was not executed, if
//!   the definition requires this.
//! - After compensation starts, only compensations are requested.
//! - At the end nothing is left open; the final fact is emitted once. If the saga did not complete,
//!   none of its changes remains, unless a comment of the definition allows it.
//! - An effect that may have been executed is requested again only under its idempotency key.
//! - A second result of the same work changes nothing.
//! - An event that a step waits for later is kept.
//! - Timers are armed only for work in progress; the size of the state is bounded.
//! - The invariants that the definition, or the test file, states hold.

pub(crate) mod defined;
mod idempotency_keys;
mod in_doubt;
mod invariant;
mod ledger;
mod lost_event;
mod step_states;
mod transition;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_engine::{Decision, decide};
use orlog_model::{Input, Instance, InstanceKey, SagaName};
use orlog_program::{CompiledDefinition, MAX_PAYLOAD_BYTES, Program, SagaInvariant};
use uuid::Uuid;

use crate::simulator::{DecisionObserver, ObservedDecision};
use crate::state_key::KeyHasher;
use defined::{DefinedInvariants, Stated};
pub use invariant::{Invariant, Violation};
use ledger::WorkLedger;
use lost_event::check_event_kept;
pub(crate) use step_states::{
    StepStates, is_compensation, is_in_doubt, is_in_progress, was_completed,
};

/// Checker of all instances of a simulator.
#[derive(Clone, Debug, Default)]
pub struct InvariantChecker {
    ledgers: BTreeMap<InstanceKey, WorkLedger>,
    defined: DefinedInvariants,
    of_test: Option<TestInvariants>,
    violations: Vec<Violation>,
}

/// Invariants of a test file about the runs of its saga.
#[derive(Clone, Debug)]
struct TestInvariants {
    saga: SagaName,
    invariants: Arc<[SagaInvariant]>,
}

impl InvariantChecker {
    /// Creates a checker without observed decisions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds invariants of a test file about the runs of a saga.
    #[must_use]
    pub fn with_invariants(self, saga: SagaName, invariants: Arc<[SagaInvariant]>) -> Self {
        Self {
            of_test: Some(TestInvariants { saga, invariants }),
            ..self
        }
    }

    /// Returns the violations in the order of detection.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Hashes the records of all instances without ids that differ between equal runs.
    /// Work counts only if it `has_result`.
    pub(crate) fn hash_without_ids(&self, key: &mut KeyHasher, has_result: &dyn Fn(&str) -> bool) {
        self.ledgers
            .values()
            .for_each(|ledger| ledger.hash_without_ids(key, has_result));
        self.defined.hash(key);
    }

    /// Checks the invariants that the definition and the test file state after a transition of an
    /// instance with these step states.
    fn check_defined(
        &mut self,
        seen: &ObservedDecision<'_>,
        after: &Instance,
        states: &StepStates,
        is_end: bool,
    ) {
        let of_definition = seen.context.program.as_compiled();
        let of_definition = of_definition.map_or(&[][..], CompiledDefinition::invariants);
        let of_test = self.of_test.as_ref();
        let of_test = of_test
            .filter(|of_test| of_test.saga == seen.context.key.saga)
            .map_or(&[][..], |of_test| &of_test.invariants);
        if of_definition.is_empty() && of_test.is_empty() {
            return;
        }

        let all = [
            Stated {
                invariants: of_definition,
                first: 0,
            },
            Stated {
                invariants: of_test,
                first: u16::try_from(of_definition.len()).unwrap_or(u16::MAX),
            },
        ];
        let violations = self.defined.record(
            seen.context.key,
            seen.context.program,
            after,
            states,
            is_end,
            &all,
        );
        let violations = violations.into_iter().map(|found| found.violation);
        self.violations.extend(violations);
    }

    /// Returns the states of the steps of an instance after its last transition.
    pub(crate) fn step_states(&self, instance: &InstanceKey) -> Option<&StepStates> {
        self.ledgers
            .get(instance)
            .and_then(WorkLedger::step_states_after)
    }

    /// Returns the states of the steps of an instance; those after its last transition are known.
    pub(crate) fn step_states_of(
        &self,
        key: Option<&InstanceKey>,
        program: &dyn Program,
        instance: Option<&Instance>,
    ) -> Arc<StepStates> {
        let ledger = key.and_then(|key| self.ledgers.get(key));
        ledger.map_or_else(
            || Arc::new(StepStates::of(program, instance)),
            |ledger| ledger.step_states(program, instance),
        )
    }

    /// Returns whether the result of this work of an instance has not arrived.
    pub(crate) fn awaits_result(&self, key: &InstanceKey, work_id: Uuid) -> bool {
        let ledger = self.ledgers.get(key);
        ledger.is_some_and(|ledger| ledger.awaits_result(work_id))
    }

    fn report(&mut self, rule: Invariant, message: String) {
        self.violations.push(Violation { rule, message });
    }
}

impl DecisionObserver for InvariantChecker {
    fn on_decision(&mut self, seen: &ObservedDecision<'_>) {
        // A second decision about the same input must not depend on anything else.
        if decide(&seen.context, seen.input) != *seen.decision {
            let message = format!("two decisions about {} differ", seen.input.label());
            self.report(Invariant::Deterministic, message);
        }

        if is_second_result(seen) {
            let message = format!(
                "{} changed the instance although it has its result",
                seen.input.label()
            );
            self.report(Invariant::SecondResultHarmless, message);
        }

        // Before the ledger records the new run.
        if let Some(ended) = seen.run_end {
            let states = StepStates::of(seen.context.program, Some(ended));
            let ledger = self.ledgers.get(seen.context.key);
            let is_end = !ledger.is_some_and(WorkLedger::was_forced);
            self.check_defined(seen, ended, &states, is_end);
        }

        // The ledger is changed while violations are found, so they are collected beside it.
        let ledger = self.ledgers.entry(seen.context.key.clone()).or_default();
        let mut violations = Vec::new();
        match seen.decision {
            Decision::Commit(commit) => {
                if let Some(after) = &commit.instance {
                    if after.state.len() > MAX_PAYLOAD_BYTES {
                        let message = format!("the state has {} bytes", after.state.len());
                        violations.push(Violation {
                            rule: Invariant::Bounded,
                            message,
                        });
                    }
                    ledger.record(seen, commit, after, &mut violations);
                }
            }
            Decision::Ignore { reason, .. } => ledger.check_ignored(seen, reason, &mut violations),
            // A rejection changes nothing, so there is nothing to check.
            Decision::Reject(_) => {}
        }
        check_event_kept(seen, &mut violations);

        self.violations.extend(violations);
        if let Decision::Commit(commit) = seen.decision
            && let Some(after) = &commit.instance
        {
            let Some(ledger) = self.ledgers.get(seen.context.key) else {
                return;
            };
            let Some(states) = ledger.step_states_after().cloned() else {
                return;
            };
            // An operator who ends an instance, or skips a compensation, accepts what remains.
            let is_end = after.status.is_final() && !ledger.was_forced();
            self.check_defined(seen, after, &states, is_end);
        }
    }
}

/// Returns whether a result of work that is not pending changes the instance.
fn is_second_result(seen: &ObservedDecision<'_>) -> bool {
    let Input::WorkResult(result) = seen.input else {
        return false;
    };

    let mut pending = seen
        .context
        .instance
        .iter()
        .flat_map(|instance| &instance.pending_work);
    // A commit without a snapshot only cleans up the row of the work.
    let changes = matches!(seen.decision, Decision::Commit(commit) if commit.instance.is_some());
    changes && !pending.any(|work| work.id == result.work_id)
}
