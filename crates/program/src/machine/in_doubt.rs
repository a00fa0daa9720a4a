//! Doubt: nobody knows whether an effect was done, and the definition says that a person is asked.
//!
//! The question is a task under the tag of the step, with two outcomes. [`DONE`], with what the effect would have answered,
//! is a success of the effect like any other. [`NOT_DONE`] makes it be asked for anew, under a new key, for what was not done
//! cannot be done twice; when nobody needs it any more, it is let go. The saga does not end before the question is answered:
//! what was done after all has to be undone.

use orlog_model::{EventType, Failure, TaskChange, TaskForm};
use serde_json::{Value, json};

use super::compiled::{Call, Task};
use super::execution::Run;
use super::state::At;
use super::step_state::{Mark, Phase};
use super::values::checked;

/// The answer that it was done.
pub const DONE: &str = "Done";
/// The answer that it was not done.
pub const NOT_DONE: &str = "NotDone";

impl Run<'_> {
    /// Asks a person whether it was done, and waits for no other answer.
    pub(super) fn ask_person(&mut self, at: At, mark: Mark, failure: Option<&Failure>) {
        self.close(at, mark);
        self.note(at, "in doubt");
        let task = self.task(at, false);
        let tag = self.tag(at, false);
        let form = TaskForm {
            title: format!("Was {} done? (step {tag})", called(task)),
            tag,
            roles: Vec::new(),
            assignee: None,
            due: None,
            outcomes: [DONE, NOT_DONE].map(|word| EventType::new(word).expect("a short word")).into(),
            data: self.question(at, task, failure),
        };
        self.tasks.push(TaskChange::Open(form));
    }

    /// What the person sees: which effect, with which arguments as far as they can still be told, and what was heard last.
    fn question(&self, at: At, task: &Task, failure: Option<&Failure>) -> Value {
        let template = match &task.call {
            Call::Effect { data, .. } => Some(data),
            Call::Job(job) => Some(&job.args),
            Call::Command { .. }
            | Call::Wait(_)
            | Call::Event
            | Call::Human(_)
            | Call::Saga { .. }
            | Call::Switch(_) => None,
        };
        let mut data = json!({ "effect": called(task) });
        if let Some(Failure { code, message }) = failure {
            data["failure"] = json!({ "code": code, "message": message });
        }
        let payload = template.and_then(|template| template.evaluate(&self.bindings(at)).ok());
        let Some(payload) = payload.filter(|payload| !payload.is_null()) else { return data };
        let mut whole = data.clone();
        whole["payload"] = payload;
        checked(whole, &task.tag).unwrap_or(data)
    }

    /// It was not done. While a person must decide about something else nothing begins, so it waits to begin.
    pub(super) fn ask_anew(&mut self, at: At) {
        self.note(at, "not done, again");
        let slot = self.state.slot_mut(at);
        slot.again = slot.again.saturating_add(1);
        if self.state.phase == Phase::Stuck {
            self.state.slot_mut(at).mark = Mark::Waiting;
        } else if let Err(error) = self.ask(at, false) {
            self.not_begun(at, error.into());
        }
    }

    /// The question there, if there is one, needs no answer any more.
    pub(super) fn close_question(&mut self, at: At) {
        if self.state.slot(at).mark.is_asking() {
            self.tasks.push(TaskChange::Close { tag: self.tag(at, false) });
        }
    }

    /// Nobody waits for answers any more.
    pub(super) fn close_questions(&mut self) {
        for step in 0..self.saga.steps.len() {
            for at in self.places(step).filter(|at| self.state.slot(*at).mark.is_asking()).collect::<Vec<_>>()
            {
                self.close_question(at);
                self.close(at, Mark::GivenUp);
            }
        }
    }

    /// It is not known yet whether something that is not needed any more was done.
    pub(super) fn asks_late(&self) -> bool {
        let mut all = (0..self.saga.steps.len()).flat_map(|step| self.places(step));
        all.any(|at| self.state.slot(at).mark == Mark::AskingLate)
    }
}

/// The effect's name.
fn called(task: &Task) -> &str {
    match &task.call {
        Call::Effect { name, .. } => name.as_str(),
        Call::Job(job) => job.effect.as_str(),
        Call::Command { .. }
        | Call::Wait(_)
        | Call::Event
        | Call::Human(_)
        | Call::Saga { .. }
        | Call::Switch(_) => task.tag.as_str(),
    }
}
