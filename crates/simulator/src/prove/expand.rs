//! Expansion of a state: every move from it, each result checked against the invariants.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog_model::Status;
use orlog_program::Program;

use super::graph::{Reached, StateGraph};
use super::liveness::LiveVariables;
use super::moves::{MoveClass, Moves};
use super::state::{Move, ProofState};
use super::timing::schedule;
use crate::explore::{Counterexample, replay};
use crate::findings::step_without_value;
use crate::invariants::{Invariant, Violation, was_completed};
use crate::simulator::SimulatorPrograms;
use crate::state_key::{KeyHasher, StateKey};
use crate::step::SimulationStep;

/// Which states a search visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exploration {
    /// One of the states that later inputs cannot distinguish; see ADR 0072.
    Reduced,
    /// All states. Tests compare the results.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "only tests search without reductions")
    )]
    Full,
}

/// Definition under proof.
pub(super) struct Prover<'p> {
    pub(super) program: &'p Arc<dyn Program>,
    pub(super) programs: &'p Arc<SimulatorPrograms>,
    pub(super) moves: Moves<'p>,
    /// Steps whose change remains if the saga fails after it.
    pub(super) irreversible: Vec<String>,
    pub(super) live: LiveVariables,
    pub(super) exploration: Exploration,
}

/// Moves that a search makes.
#[derive(Clone, Copy)]
pub(super) struct MoveLimits {
    pub(super) disturbances: u8,
    pub(super) only_progress: bool,
}

/// State after a move.
pub(super) struct ReachedState {
    pub(super) reached: Reached,
    pub(super) status: Option<Status>,
    /// `None` if the state was visited before, which most are: then only its key is needed.
    pub(super) after: Option<ProofState>,
}

/// Moves from one state.
#[derive(Default)]
pub(super) struct Expansion {
    pub(super) reached: Vec<ReachedState>,
    pub(super) completed: BTreeSet<String>,
    /// Steps without a compensation that completed although the saga did not.
    pub(super) remaining: BTreeSet<String>,
    /// Steps whose compensation waits for a value that no result has set.
    pub(super) without_value: BTreeSet<String>,
    /// First violation, and the moves from the state to it.
    pub(super) violation: Option<(Violation, Vec<Move>)>,
    /// A move whose consequences do not end; the search stops.
    pub(super) endless: Option<String>,
}

impl Prover<'_> {
    pub(super) fn key(&self, state: &ProofState) -> StateKey {
        // Both searches build the same key; the hasher leaves out what a reduction omits.
        let hasher = match self.exploration {
            Exploration::Reduced => KeyHasher::default(),
            Exploration::Full => KeyHasher::full(),
        };
        state.key(
            |timer: &str| self.moves.is_absolute(timer),
            |tag| self.moves.has_result(tag),
            &self.live,
            hasher,
        )
    }

    /// Makes every move from a state and checks the result. `visited` may be incomplete.
    pub(super) fn expand(
        &self,
        state: &ProofState,
        disturbances: u8,
        limits: MoveLimits,
        visited: &StateGraph,
    ) -> Expansion {
        let step_states = self.moves.step_states(state);
        let completed = step_states
            .iter()
            .filter(|(_, state)| was_completed(state))
            .map(|(tag, _)| tag.to_owned())
            .collect();
        let mut expansion = Expansion {
            completed,
            ..Expansion::default()
        };

        // Steps that completed before the failure are checked by an invariant; others can complete
        // late.
        let is_compensated = state
            .instance()
            .is_some_and(|i| matches!(i.status, Status::Failed | Status::Cancelled));
        if is_compensated {
            expansion.remaining = self
                .irreversible
                .iter()
                .filter(|step| expansion.completed.contains(*step))
                .cloned()
                .collect();
        }

        // Second results change nothing, so they are checked here and are no moves that reach
        // states.
        if let Some((violation, second)) = self.check_second_results(state, None) {
            expansion.violation = Some((violation, vec![second]));
            return expansion;
        }

        let permits_disturbances = disturbances < limits.disturbances;
        let mut all = self.moves.of(state, &step_states, permits_disturbances);

        // Other moves have the same result before the first and after the last attempt.
        if self.exploration == Exploration::Reduced
            && let Some(tag) = self.moves.walked(&all, &step_states)
        {
            all.retain(|offered| offered.proof_move.tag() == Some(tag.as_str()));
        }

        for offered in all {
            let is_disturbance = matches!(
                offered.class,
                MoveClass::Disturbance | MoveClass::Cancellation
            );

            // Without a limit, unexpected inputs would make the number of states infinite.
            let is_permitted = match offered.class {
                MoveClass::Expected => true,
                MoveClass::Disturbance => permits_disturbances,
                MoveClass::Cancellation => !limits.only_progress && permits_disturbances,
                MoveClass::Unawaited => !limits.only_progress,
            };

            if !is_permitted {
                continue;
            }

            let mut next = state.clone();
            // A move can be impossible, for example a response to work that a condition excludes.
            if !next.apply(&offered.proof_move) {
                if let Some(endless) = next.runner.simulator.endless() {
                    expansion.endless = Some(endless.to_string());
                    return expansion;
                }
                continue;
            }

            // Before the states are merged: the key of a state does not contain its failure.
            expansion
                .without_value
                .extend(step_without_value(next.instance()));

            // The first violation ends the expansion: its path is reported, and the search stops or
            // skips the state.
            if let Some(violation) = next.violation() {
                expansion.violation = Some((violation.clone(), vec![offered.proof_move]));
                return expansion;
            }

            // The duplicate is delivered to the state itself: if it changes nothing, the key is not
            // affected.
            if let Some(violation) = deliver_again(&mut next, &offered.proof_move) {
                let duplicate = Move::Step(SimulationStep::Duplicate);
                expansion.violation = Some((violation, vec![offered.proof_move, duplicate]));
                return expansion;
            }

            // The state may not be visited, because it has fewer results to come.
            if offered.class == MoveClass::Unawaited
                && let Some((violation, second)) =
                    self.check_second_results(&next, offered.proof_move.tag())
            {
                expansion.violation = Some((violation, vec![offered.proof_move, second]));
                return expansion;
            }

            let status = next.instance().map(|instance| instance.status);
            let reached = Reached {
                proof_move: offered.proof_move,
                key: self.key(&next),
                disturbances: disturbances + u8::from(is_disturbance),
                ended: status.is_some_and(Status::is_final),
                is_progress: matches!(offered.class, MoveClass::Expected | MoveClass::Disturbance),
            };

            let is_visited = visited
                .covering(&reached.key, reached.disturbances)
                .is_some();
            expansion.reached.push(ReachedState {
                reached,
                status,
                after: (!is_visited).then_some(next),
            });
        }
        expansion
    }

    /// Delivers second results of work; they must change nothing.
    fn check_second_results(
        &self,
        state: &ProofState,
        of: Option<&str>,
    ) -> Option<(Violation, Move)> {
        self.moves
            .second_results(state, of)
            .into_iter()
            .filter(|second| !state.ignores(second))
            .find_map(|second| {
                let mut copy = state.clone();
                copy.apply(&second);
                copy.violation()
                    .cloned()
                    .map(|violation| (violation, second))
            })
    }

    /// Converts moves to the steps of a test that fails. Returns `None` if no clock produces the
    /// order of its timers.
    pub(super) fn counterexample(
        &self,
        start: &ProofState,
        moves: &[Move],
        rule: Invariant,
    ) -> Option<Counterexample> {
        let steps = schedule(start, moves, |timer: &str| self.moves.is_absolute(timer))?;
        let violation =
            // A counterexample is reported only if the printed test fails with it.
            replay(self.program, self.programs, &steps).filter(|found| found.rule == rule)?;

        let original_steps = steps.len();
        Some(Counterexample {
            violation,
            run: 0,
            steps,
            original_steps,
        })
    }
}

/// Delivers the input of a move again, as after a crash. Returns the violation if this changes the
/// instance.
fn deliver_again(state: &mut ProofState, proof_move: &Move) -> Option<Violation> {
    let Move::Step(step) = proof_move else {
        return None;
    };

    // A crash after the commit and before its acknowledgment delivers the input again.
    let before = state
        .instance()
        .map(|instance| (instance.version, instance.paused));

    state.apply(&Move::Step(SimulationStep::Duplicate));
    let changed = state
        .instance()
        .map(|instance| (instance.version, instance.paused))
        != before;

    let message = format!("a second delivery of {step} was not ignored");
    let violation = changed.then_some(Violation {
        rule: Invariant::DuplicateHarmless,
        message,
    });
    violation.or_else(|| state.violation().cloned())
}
