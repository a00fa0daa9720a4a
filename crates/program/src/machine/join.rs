//! Joins: when a step begins, when it is on no way that was taken, and what has lost.
//!
//! | join | its predecessors | the step |
//! |---|---|---|
//! | any | every switch that names it took another way | is bypassed |
//! | all | some are not over | waits |
//! | all | all over, every one bypassed | is bypassed |
//! | all | all over | begins |
//! | n of m | every one skipped or bypassed | begins, or is bypassed when all are bypassed |
//! | n of m | as many done as are wanted and can be | begins; what it does not need has lost |
//! | n of m | too few can still be done | fails |
//! | n of m | otherwise | waits |
//!
//! The *region* of a join that does not need all are the steps all of whose ways lead to it. Only they can lose.

use super::compiled::{Call, Saga};
use super::state::State;
use super::step_state::Mark;
use crate::definition::Join;

/// What a step that waits may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Wait,
    Begin,
    Bypass,
    /// So many are wanted, so many can still be done.
    Hopeless(usize, usize),
}

/// Reads the table above.
pub(super) fn ready(saga: &Saga, state: &State, index: usize) -> Ready {
    let step = &saga.steps[index];
    match step.join {
        Join::All => all(saga, state, index),
        Join::AtLeast(_) if named_elsewhere(saga, state, index) => Ready::Bypass,
        Join::AtLeast(_) => {
            let Some((need, live)) = odds(saga, state, index, &[]) else {
                let skipped = step.before.iter().any(|b| state.mark(*b) == Mark::Skipped);
                return if skipped { Ready::Begin } else { Ready::Bypass };
            };
            let done = step
                .before
                .iter()
                .filter(|b| state.mark(**b) == Mark::Done && !dead_edge(saga, state, **b, index));
            if done.count() >= need {
                Ready::Begin
            } else if live < need {
                Ready::Hopeless(need, live)
            } else {
                Ready::Wait
            }
        }
    }
}

fn all(saga: &Saga, state: &State, index: usize) -> Ready {
    let step = &saga.steps[index];
    let mut alive = step.before.is_empty();
    for before in step.before.iter().copied() {
        match state.mark(before) {
            Mark::Done | Mark::Skipped => alive |= !dead_edge(saga, state, before, index),
            Mark::Bypassed => {}
            Mark::Waiting
            | Mark::Open
            | Mark::Pausing
            | Mark::Blocked
            | Mark::Asking
            | Mark::AskingLate
            | Mark::Failed
            | Mark::GivenUp
            | Mark::Doomed
            | Mark::Undoing
            | Mark::UndoPausing
            | Mark::UndoFailed
            | Mark::Undone => return Ready::Wait,
        }
    }
    if alive && !named_elsewhere(saga, state, index) { Ready::Begin } else { Ready::Bypass }
}

/// Every switch that names the step took another way.
fn named_elsewhere(saga: &Saga, state: &State, index: usize) -> bool {
    let named_by = &saga.steps[index].named_by;
    !named_by.is_empty() && named_by.iter().all(|switch| dead_edge(saga, state, *switch, index))
}

/// The way from a step to one after it was not taken.
fn dead_edge(saga: &Saga, state: &State, from: usize, to: usize) -> bool {
    let slot = state.steps[from];
    let Call::Switch(cases) = &saga.steps[from].task.call else { return slot.mark == Mark::Bypassed };
    match slot.mark {
        Mark::Bypassed => true,
        // One that is skipped takes no way at all.
        Mark::Done | Mark::Skipped => {
            let taken = usize::try_from(slot.again).ok().and_then(|taken| cases.get(taken));
            let taken = taken.filter(|_| slot.mark == Mark::Done);
            let named = cases.iter().any(|case| case.then.contains(&to));
            named && !taken.is_some_and(|case| case.then.contains(&to))
        }
        Mark::Waiting
        | Mark::Open
        | Mark::Pausing
        | Mark::Blocked
        | Mark::Asking
        | Mark::AskingLate
        | Mark::Failed
        | Mark::GivenUp
        | Mark::Doomed
        | Mark::Undoing
        | Mark::UndoPausing
        | Mark::UndoFailed
        | Mark::Undone => false,
    }
}

/// How many predecessors a join wants, and how many are or can still be done, those that `dead` marks aside. Nothing where
/// none of them can count, because all are skipped or bypassed.
fn odds(saga: &Saga, state: &State, index: usize, dead: &[bool]) -> Option<(usize, usize)> {
    let step = &saga.steps[index];
    let Join::AtLeast(wanted) = step.join else { return None };
    let (mut eligible, mut live) = (0, 0);
    for before in step.before.iter().copied() {
        let passed_by = matches!(state.mark(before), Mark::Skipped | Mark::Bypassed);
        if !passed_by && !dead_edge(saga, state, before, index) {
            eligible += 1;
            live += usize::from(is_live(state, before) && !dead.get(before).is_some_and(|dead| *dead));
        }
    }
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).min(eligible);
    (eligible > 0).then_some((wanted, live))
}

/// It is done or can still be.
fn is_live(state: &State, step: usize) -> bool {
    let mark = state.mark(step);
    mark.is_under_way() || matches!(mark, Mark::Waiting | Mark::Blocked | Mark::Done)
}

/// What has lost because a step failed, if a join can do without it: the innermost that can.
pub(super) fn tolerated(saga: &Saga, state: &State, failed: usize) -> Option<Vec<usize>> {
    let mut joins = saga.steps[failed].joins.iter().copied();
    joins.find_map(|join| {
        let step = &saga.steps[join];
        if state.mark(join) != Mark::Waiting {
            return None;
        }
        let dead = dead(saga, state, &step.region, failed);
        let (need, live) = odds(saga, state, join, &dead)?;
        if live < need {
            return None;
        }
        let alive = step.before.iter().copied().filter(|before| is_live(state, *before) && !dead[*before]);
        let served = leading_to(saga, &step.region, alive.collect());
        Some(step.region.iter().copied().filter(|step| dead[*step] || !served[*step]).collect())
    })
}

/// The steps of a region that cannot be done any more when that one has failed.
fn dead(saga: &Saga, state: &State, region: &[usize], failed: usize) -> Vec<bool> {
    let mut dead = vec![false; saga.steps.len()];
    dead[failed] = true;
    for index in region.iter().copied().filter(|step| state.mark(*step) == Mark::Waiting) {
        let step = &saga.steps[index];
        dead[index] |= match step.join {
            Join::All => step.before.iter().any(|before| dead[*before]),
            Join::AtLeast(_) => odds(saga, state, index, &dead).is_some_and(|(need, live)| live < need),
        };
    }
    dead
}

/// What has lost now that a join begins: what led to none of those that were first.
pub(super) fn losers(saga: &Saga, state: &State, join: usize) -> Vec<usize> {
    let step = &saga.steps[join];
    let Some((need, _)) = odds(saga, state, join, &[]) else { return Vec::new() };
    let is_done =
        |before: &usize| state.mark(*before) == Mark::Done && !dead_edge(saga, state, *before, join);
    let mut winners: Vec<_> = step.before.iter().copied().filter(is_done).collect();
    winners.sort_by_key(|winner| state.done.iter().rposition(|at| at.step == *winner));
    winners.truncate(need);
    let served = leading_to(saga, &step.region, winners);
    step.region.iter().copied().filter(|step| !served[*step]).collect()
}

/// Marks the steps themselves and all of the region that lies before them.
fn leading_to(saga: &Saga, region: &[usize], steps: Vec<usize>) -> Vec<bool> {
    let mut inside = vec![false; saga.steps.len()];
    for step in region {
        inside[*step] = true;
    }
    let mut found = vec![false; saga.steps.len()];
    let mut left = steps;
    while let Some(step) = left.pop() {
        if !std::mem::replace(&mut found[step], true) {
            left.extend(saga.steps[step].before.iter().copied().filter(|before| inside[*before]));
        }
    }
    found
}
