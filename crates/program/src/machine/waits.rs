//! What must happen before an instance goes on, for people and queries.

use orlog_model::{Name, Timestamp, Wait, WaitKind};

use super::compiled::{Call, RETRY, Task};
use super::execution::Run;
use super::step_state::{Mark, Phase};
use super::timers::prefixed;

impl Run<'_> {
    /// In the order of the definition.
    pub(super) fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        if self.state.phase.status().is_final() {
            return waits;
        }
        for step in 0..self.saga.steps.len() {
            for at in self.units(step) {
                let slot = self.state.slot(at);
                let undo = slot.mark.is_undo();
                match slot.mark {
                    Mark::Open | Mark::Undoing => {
                        wait_for(self.task(at, undo), || self.tag(at, undo), slot.until, &mut waits);
                    }
                    Mark::Pausing | Mark::UndoPausing => {
                        waits.push(wait(WaitKind::Timer, prefixed(RETRY, &self.tag(at, undo)), slot.until));
                    }
                    Mark::Asking | Mark::AskingLate => {
                        waits.push(wait(WaitKind::Task, self.tag(at, false), None));
                    }
                    Mark::Blocked | Mark::UndoFailed if self.state.phase == Phase::Stuck => {
                        waits.push(wait(WaitKind::Operator, self.tag(at, undo), None));
                    }
                    Mark::Waiting
                    | Mark::Skipped
                    | Mark::Done
                    | Mark::Failed
                    | Mark::GivenUp
                    | Mark::UndoFailed
                    | Mark::Undone
                    | Mark::Bypassed
                    | Mark::Doomed
                    | Mark::Blocked => {}
                }
            }
        }
        waits
    }
}

fn wait_for(task: &Task, tag: impl Fn() -> Name, until: Option<Timestamp>, waits: &mut Vec<Wait>) {
    let kind = match &task.call {
        Call::Command { .. } | Call::Event if task.awaits_event() => {
            for answer in task.ok.iter().chain(&task.fail) {
                let name =
                    Name::new(answer.event.as_str()).expect("an event type is shorter than a name may be");
                let one = wait(WaitKind::Event, name, until);
                if !waits.contains(&one) {
                    waits.push(one);
                }
            }
            return;
        }
        Call::Command { .. } | Call::Event | Call::Effect { .. } | Call::Job(_) | Call::Switch(_) => {
            WaitKind::Outcome
        }
        Call::Wait(_) => WaitKind::Timer,
        Call::Human(_) => WaitKind::Task,
        Call::Saga { .. } => WaitKind::Saga,
    };
    waits.push(wait(kind, tag(), until));
}

fn wait(kind: WaitKind, name: Name, until: Option<Timestamp>) -> Wait {
    Wait { kind, name, until }
}
