//! What an answer means for a step, by where the step stands. A pure table.

use super::step_state::Mark;

/// An answer to a step's action or to its undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The action was done.
    Ok,
    /// The action was refused, failed, or broke the step's contract.
    Failed,
    /// Its time ran out; nobody knows whether it was done.
    TimedOut,
    /// The same, and the definition says that a person is asked.
    InDoubt,
    /// A person says that it was not done.
    NotDone,
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
    /// A person is asked whether it was done; the mark says how the step stands meanwhile.
    AskPerson(Mark),
    /// It was not done, and is asked for anew.
    AskAnew,
    /// It was not done, and is not needed any more.
    LetGo,
    /// Nothing.
    Ignore(&'static str),
}

/// | step | ok | failed | timed out | in doubt | not done | undone | not undone |
/// |---|---|---|---|---|---|---|---|
/// | waiting, skipped, bypassed | – | – | – | – | – | – | – |
/// | open | complete | fail | fail, given up | ask, asking | – | – | – |
/// | pausing, blocked | complete | – | – | – | – | – | – |
/// | asking | complete | fail | – | – | ask anew | – | – |
/// | done, doomed | – | – | – | – | – | – | – |
/// | failed | complete late | – | – | – | – | – | – |
/// | given up | complete late | – | – | ask, asking late | – | – | – |
/// | asking late | complete late | let go | – | – | let go | – | – |
/// | undoing | – | – | – | – | – | confirm | stick |
/// | undo pausing, undo failed | – | – | – | – | – | confirm | – |
/// | undone | – | – | – | – | – | – | – |
pub(super) fn step(mark: Mark, answer: Answer) -> Move {
    use Answer::{Failed, InDoubt, NotDone, NotUndone, Ok, TimedOut, Undone};
    match (mark, answer) {
        (Mark::Open | Mark::Pausing | Mark::Blocked | Mark::Asking, Ok) => Move::Complete,
        (Mark::Open | Mark::Asking, Failed) => Move::Fail(Mark::Failed),
        (Mark::Open, TimedOut) => Move::Fail(Mark::GivenUp),
        (Mark::Open, InDoubt) => Move::AskPerson(Mark::Asking),
        (Mark::GivenUp, InDoubt) => Move::AskPerson(Mark::AskingLate),
        (Mark::Asking, NotDone) => Move::AskAnew,
        (Mark::AskingLate, Failed | NotDone) => Move::LetGo,
        (Mark::Failed | Mark::GivenUp | Mark::AskingLate, Ok) => Move::CompleteLate,
        (Mark::Undoing | Mark::UndoPausing | Mark::UndoFailed, Undone) => Move::Confirm,
        (Mark::Undoing, NotUndone) => Move::Stick,
        (Mark::Waiting, _) => Move::Ignore("the step has not begun"),
        (Mark::Skipped, _) => Move::Ignore("the step was skipped"),
        (Mark::Bypassed, _) => Move::Ignore("the step is not on the way that was taken"),
        (Mark::Done | Mark::Doomed, _) => Move::Ignore("the step is done"),
        (Mark::Undone, _) => Move::Ignore("the step is undone"),
        (Mark::Failed | Mark::Blocked, Failed | TimedOut | InDoubt) => {
            Move::Ignore("the step has failed already")
        }
        (Mark::Pausing, Failed | TimedOut | InDoubt) => Move::Ignore("the step will be tried again"),
        (Mark::GivenUp, Failed | TimedOut) => Move::Ignore("the step was given up"),
        (Mark::Asking | Mark::AskingLate, TimedOut | InDoubt) => Move::Ignore("a person is asked already"),
        (Mark::Open | Mark::Pausing | Mark::Blocked | Mark::Failed | Mark::GivenUp, NotDone) => {
            Move::Ignore("nobody was asked whether it was done")
        }
        (Mark::Undoing, Ok | Failed | TimedOut | InDoubt | NotDone) => {
            Move::Ignore("the step is being undone")
        }
        (Mark::UndoPausing, Ok | Failed | TimedOut | InDoubt | NotDone | NotUndone) => {
            Move::Ignore("the step's undo will be tried again")
        }
        (Mark::UndoFailed, Ok | Failed | TimedOut | InDoubt | NotDone | NotUndone) => {
            Move::Ignore("the step's undo has failed already")
        }
        (
            Mark::Open
            | Mark::Pausing
            | Mark::Blocked
            | Mark::Failed
            | Mark::GivenUp
            | Mark::Asking
            | Mark::AskingLate,
            Undone | NotUndone,
        ) => Move::Ignore("no undo is under way"),
    }
}
