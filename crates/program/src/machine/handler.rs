//! Handlers: what happens on events at any time while the saga goes forward.

use orlog_model::Event;

use super::compiled::{Handler, handler_tag};
use super::execution::Run;
use super::state::{Flags, Slot};
use super::step_input::told;
use super::step_state::{Mark, Phase};
use crate::contract::Cause;
use crate::contract::Fault;
use crate::definition::Then;

impl Run<'_> {
    /// Every handler of the event whose condition holds, in order. Whether there was one.
    pub(super) fn handle(&mut self, event: &Event) -> Result<bool, Fault> {
        let mut handled = false;
        for (number, handler) in self.saga.handlers.iter().enumerate() {
            let goes_forward = self.state.phase == Phase::Running && !self.state.flags.has(Flags::TURNED);
            if !goes_forward || !handler.event.contains(&event.kind) {
                continue;
            }
            let wrong = |why: &dyn std::fmt::Display| Fault::Schema(format!("on[{number}]: {why}"));
            let holds = handler
                .when
                .as_ref()
                .map_or(Ok(true), |when| when.holds(&self.bindings_of_all().event(&event.data)));
            if holds.map_err(|error| wrong(&error))? {
                self.run_handler(number, handler, event)?;
                handled = true;
            }
        }
        Ok(handled)
    }

    fn run_handler(&mut self, number: usize, handler: &Handler, event: &Event) -> Result<(), Fault> {
        self.say(event.kind.as_str());
        self.remember(&handler.save, &event.data)?;
        for task in &handler.tasks {
            let tag = handler_tag(number);
            let bindings = self.bindings_of_all().event(&event.data);
            let work = self.work_of(&tag, task, tag.clone(), &bindings);
            let work = work.map_err(|error| Fault::Schema(format!("on[{number}]: {error}")))?;
            self.work.push(work);
        }
        let back = matches!(handler.then, Then::Cancel | Then::Fail);
        if back && self.state.flags.has(Flags::PIVOTED) {
            self.say("past the point of no return");
            return Ok(());
        }
        match handler.then {
            Then::Continue => {}
            Then::Cancel => self.turn_towards_cancelled(event.kind.as_str()),
            Then::Fail => {
                let (code, message) = (event.kind.to_string(), told(&event.kind, &event.data));
                self.turn_back(Cause { code, message, step: String::new() });
            }
            Then::Complete => self.leave_the_rest(),
        }
        Ok(())
    }

    /// What is under way is given up, what waits is skipped.
    fn leave_the_rest(&mut self) {
        self.give_up_all();
        for slot in &mut self.state.steps {
            if slot.mark == Mark::Waiting {
                *slot = Slot::of(Mark::Skipped);
            }
        }
    }
}
