//! What an answer means for a step, by where the step stands. A pure table.

use super::mark::Mark;

/// An answer to a step's action or to its undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The action was done.
    Ok,
    /// The action was refused, failed, or broke the step's contract.
    Failed,
    /// Its time ran out; nobody knows whether it was done.
    TimedOut,
    /// The undo was done.
    Undone,
    /// The undo failed, or its time ran out.
    NotUndone,
}

/// What is to be done about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The step is done; on with the next.
    Complete,
    /// The step failed. While attempts are left it is asked for again; then the mark says how it stands from now on.
    Fail(Mark),
    /// It was done after it had been given up; undo it.
    CompleteLate,
    /// The undo is done; on with the next undo.
    Confirm,
    /// The undo failed. While attempts are left it is asked for again; then a person must decide.
    Stick,
    /// Nothing.
    Ignore(&'static str),
}

/// | step | ok | failed | timed out | undone | not undone |
/// |---|---|---|---|---|---|
/// | waiting, skipped, bypassed | – | – | – | – | – |
/// | open | complete | fail | fail, given up | – | – |
/// | pausing, blocked | complete | – | – | – | – |
/// | done, doomed | – | – | – | – | – |
/// | failed, given up | complete late | – | – | – | – |
/// | undoing | – | – | – | confirm | stick |
/// | undo pausing, undo failed | – | – | – | confirm | – |
/// | undone | – | – | – | – | – |
pub(super) fn step(mark: Mark, answer: Answer) -> Move {
    match (mark, answer) {
        (Mark::Open | Mark::Pausing | Mark::Blocked, Answer::Ok) => Move::Complete,
        (Mark::Open, Answer::Failed) => Move::Fail(Mark::Failed),
        (Mark::Open, Answer::TimedOut) => Move::Fail(Mark::GivenUp),
        (Mark::Failed | Mark::GivenUp, Answer::Ok) => Move::CompleteLate,
        (Mark::Undoing | Mark::UndoPausing | Mark::UndoFailed, Answer::Undone) => Move::Confirm,
        (Mark::Undoing, Answer::NotUndone) => Move::Stick,
        (Mark::Waiting, _) => Move::Ignore("the step has not begun"),
        (Mark::Skipped, _) => Move::Ignore("the step was skipped"),
        (Mark::Bypassed, _) => Move::Ignore("the step is not on the way that was taken"),
        (Mark::Done | Mark::Doomed, _) => Move::Ignore("the step is done"),
        (Mark::Undone, _) => Move::Ignore("the step is undone"),
        (Mark::Failed | Mark::Blocked, Answer::Failed | Answer::TimedOut) => {
            Move::Ignore("the step has failed already")
        }
        (Mark::Pausing, Answer::Failed | Answer::TimedOut) => Move::Ignore("the step will be tried again"),
        (Mark::GivenUp, Answer::Failed | Answer::TimedOut) => Move::Ignore("the step was given up"),
        (Mark::Undoing, Answer::Ok | Answer::Failed | Answer::TimedOut) => {
            Move::Ignore("the step is being undone")
        }
        (Mark::UndoPausing, Answer::Ok | Answer::Failed | Answer::TimedOut | Answer::NotUndone) => {
            Move::Ignore("the step's undo will be tried again")
        }
        (Mark::UndoFailed, Answer::Ok | Answer::Failed | Answer::TimedOut | Answer::NotUndone) => {
            Move::Ignore("the step's undo has failed already")
        }
        (
            Mark::Open | Mark::Pausing | Mark::Blocked | Mark::Failed | Mark::GivenUp,
            Answer::Undone | Answer::NotUndone,
        ) => Move::Ignore("no undo is under way"),
    }
}
