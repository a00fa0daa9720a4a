//! Joins: when a step starts, when it is bypassed, and which branches are discarded.
//!
//! A predecessor has *passed* if it has completed, or if one of its failure handlers continues. It
//! passes only to the steps that follow its outcome: the selected case of a switch, and the steps
//! that `on_timeout` or `on_failure` name. It is *diverted* if a failure handler has led the saga
//! away from it or from the join ([`diversion`](super::diversion)); a diverted predecessor counts,
//! but cannot pass.
//!
//! | join | its predecessors | the step |
//! |---|---|---|
//! | any | every step that selects it selected others | is bypassed |
//! | all | some are not finished | waits |
//! | all | all finished, all bypassed | is bypassed |
//! | all | all finished, one is diverted | is bypassed |
//! | all | all finished | starts |
//! | n of m | all skipped or bypassed | starts, or is bypassed if all are bypassed |
//! | n of m | as many passed as required and possible | starts; the others are discarded |
//! | n of m | too few can still pass, one is diverted | is bypassed |
//! | n of m | too few can still pass | fails |
//! | n of m | otherwise | waits |
//!
//! The *region* of a join that does not require all predecessors contains the steps whose paths all
//! lead to it. Only these can be discarded.

use super::compiled::CompiledSaga;
use super::diversion::Diversions;
use super::edge::{dead_edge, handler_of, selects_other_cases};
use super::state::State;
use super::step_state::StepState;
use crate::definition::Join;

/// Join state of a pending step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinState {
    Wait,
    Start,
    Bypass,
    /// Number of predecessors that are required, and that can still complete.
    Unsatisfiable(usize, usize),
}

/// Returns the join state according to the table above.
pub(super) fn join_state(saga: &CompiledSaga, state: &State, index: usize) -> JoinState {
    let step = &saga.steps[index];
    match step.join {
        Join::All => join_all_state(saga, state, index),
        // Before the counts: a join that was not selected must not fail because its predecessors
        // cannot complete.
        Join::AtLeast(_) if selects_other_cases(saga, state, index) => JoinState::Bypass,
        Join::AtLeast(_) => {
            // No predecessor counts. As for `all`, a skipped one lets the step start and a bypassed
            // one does not.
            let Some(counts) = join_counts(saga, state, index, &[]) else {
                let skipped = step
                    .before
                    .iter()
                    .any(|b| state.step_state(*b) == StepState::Skipped);
                return if skipped {
                    JoinState::Start
                } else {
                    JoinState::Bypass
                };
            };

            let done = step
                .before
                .iter()
                .filter(|b| has_passed(saga, state, **b) && !dead_edge(saga, state, **b, index));

            if done.count() >= counts.required {
                JoinState::Start
            } else if counts.can_start() {
                JoinState::Wait
            } else if counts.is_diverted {
                // The saga goes on elsewhere, so that the join is no failure.
                JoinState::Bypass
            } else {
                JoinState::Unsatisfiable(counts.required, counts.live)
            }
        }
    }
}

fn join_all_state(saga: &CompiledSaga, state: &State, index: usize) -> JoinState {
    let step = &saga.steps[index];
    let mut alive = step.before.is_empty();
    for before in step.before.iter().copied() {
        match state.step_state(before) {
            _ if has_passed(saga, state, before) => {
                alive |= !dead_edge(saga, state, before, index);
            }
            StepState::Skipped => alive |= !dead_edge(saga, state, before, index),
            StepState::Bypassed => {}
            // Also after a failed predecessor: in a flow, a rerun can still complete it (ADR 0080).
            _ => return JoinState::Wait,
        }
    }

    let starts = alive
        && !selects_other_cases(saga, state, index)
        && !Diversions::of(saga, state).misses_member(index);
    if starts {
        JoinState::Start
    } else {
        JoinState::Bypass
    }
}

/// Returns true if the step has completed, or if its failure handler continues.
fn has_passed(saga: &CompiledSaga, state: &State, step: usize) -> bool {
    state.step_state(step) == StepState::Completed || handler_of(saga, state, step).is_some()
}

/// Predecessors of a join that does not require all of them.
struct JoinCounts {
    /// Predecessors that the join requires.
    required: usize,
    /// Predecessors that have passed or can still pass.
    live: usize,
    /// Whether a failure handler has led the saga away from one of them.
    is_diverted: bool,
}

impl JoinCounts {
    fn can_start(&self) -> bool {
        self.live >= self.required
    }
}

/// Counts the predecessors of a join; those in `dead` cannot pass. Returns `None` if none can count,
/// because all are skipped or bypassed.
fn join_counts(
    saga: &CompiledSaga,
    state: &State,
    index: usize,
    dead: &[bool],
) -> Option<JoinCounts> {
    let step = &saga.steps[index];
    let Join::AtLeast(required) = step.join else {
        return None;
    };

    let diversions = Diversions::of(saga, state);
    let mut eligible = 0;
    let mut live = 0;
    let mut is_diverted = false;
    for before in step.before.iter().copied() {
        let step_state = state.step_state(before);
        if step_state == StepState::Skipped {
            continue;
        }

        // A branch that was not selected does not count. One that a failure has ended does, because
        // the others must not start the join in its place.
        let is_absent = step_state == StepState::Bypassed || dead_edge(saga, state, before, index);
        if is_absent {
            let diverted = diversions.misses(before, index);
            eligible += usize::from(diverted);
            is_diverted |= diverted;
            continue;
        }

        eligible += 1;
        let is_dead = dead.get(before).is_some_and(|dead| *dead);
        live += usize::from(is_live(saga, state, before) && !is_dead);
    }

    // Branches that a switch did not select reduce the number, which could otherwise never be
    // reached.
    let required = usize::try_from(required)
        .unwrap_or(usize::MAX)
        .min(eligible);
    (eligible > 0).then_some(JoinCounts {
        required,
        live,
        is_diverted,
    })
}

/// Returns true if the step has passed or can still pass.
fn is_live(saga: &CompiledSaga, state: &State, step: usize) -> bool {
    let step_state = state.step_state(step);
    step_state.is_in_progress()
        || has_passed(saga, state, step)
        || matches!(
            step_state,
            // A blocked step can complete after a decision of an operator.
            StepState::Pending | StepState::Blocked
        )
}

/// Returns the join that tolerates a failure, the innermost such join, and the steps to discard.
pub(super) fn tolerated_failures(
    saga: &CompiledSaga,
    state: &State,
    failed: usize,
) -> Option<(usize, Vec<usize>)> {
    let joins = saga.steps[failed].joins.iter().copied();
    joins
        .filter(|join| state.step_state(*join) == StepState::Pending)
        // The joins are in topological order, so the first one is the innermost.
        .find_map(|join| Some((join, steps_to_discard(saga, state, join, failed)?)))
}

/// Returns the steps to discard if a join can still start after this failure.
fn steps_to_discard(
    saga: &CompiledSaga,
    state: &State,
    join: usize,
    failed: usize,
) -> Option<Vec<usize>> {
    let step = &saga.steps[join];
    let dead = dead_steps(saga, state, &step.region, failed);
    let counts = join_counts(saga, state, join, &dead)?;
    // A join that is bypassed tolerates each failure: otherwise the order of a failure and of one
    // with a handler would decide whether the saga fails.
    if !counts.can_start() && !counts.is_diverted {
        return None;
    }

    let alive = step
        .before
        .iter()
        .copied()
        .filter(|before| is_live(saga, state, *before) && !dead[*before]);
    let served = leading_to(saga, &step.region, alive.collect());
    let losing = step
        .region
        .iter()
        .copied()
        .filter(|step| dead[*step] || !served[*step]);
    Some(losing.collect())
}

/// Returns the steps of a region that cannot complete after the failure of this step.
fn dead_steps(saga: &CompiledSaga, state: &State, region: &[usize], failed: usize) -> Vec<bool> {
    let mut dead = vec![false; saga.steps.len()];
    dead[failed] = true;

    // The region has topological order, so the predecessors of a step are decided before it.
    for index in region.iter().copied() {
        // A step that has started does not depend on its predecessors any more.
        if state.step_state(index) != StepState::Pending {
            continue;
        }
        let step = &saga.steps[index];
        dead[index] |= match step.join {
            Join::All => step.before.iter().any(|before| dead[*before]),
            Join::AtLeast(_) => {
                join_counts(saga, state, index, &dead).is_some_and(|counts| !counts.can_start())
            }
        };
    }
    dead
}

/// Returns the steps to discard when a join starts: those that lead to none of the first completed
/// predecessors.
pub(super) fn losing_branches(saga: &CompiledSaga, state: &State, join: usize) -> Vec<usize> {
    let step = &saga.steps[join];
    let Some(JoinCounts { required, .. }) = join_counts(saga, state, join, &[]) else {
        return Vec::new();
    };

    let mut winners: Vec<_> = step
        .before
        .iter()
        .copied()
        .filter(|before| has_passed(saga, state, *before) && !dead_edge(saga, state, *before, join))
        .collect();

    // A step with elements is complete with its last one.
    winners.sort_by_key(|winner| state.done.iter().rposition(|at| at.step == *winner));
    // More branches than required can be complete when the join starts; the first ones win.
    winners.truncate(required);

    let served = leading_to(saga, &step.region, winners);
    step.region
        .iter()
        .copied()
        .filter(|step| !served[*step])
        .collect()
}

/// Marks these steps and all their predecessors in the region.
fn leading_to(saga: &CompiledSaga, region: &[usize], steps: Vec<usize>) -> Vec<bool> {
    let mut in_region = vec![false; saga.steps.len()];
    for step in region {
        in_region[*step] = true;
    }

    let mut found = vec![false; saga.steps.len()];
    let mut pending = steps;
    while let Some(step) = pending.pop() {
        if !std::mem::replace(&mut found[step], true) {
            pending.extend(
                saga.steps[step]
                    .before
                    .iter()
                    .copied()
                    .filter(|before| in_region[*before]),
            );
        }
    }
    found
}
