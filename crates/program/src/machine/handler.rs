//! Event handlers, active while the saga runs forward.

use orlog_model::Event;

use super::compiled::{CompiledHandler, handler_tag};
use super::state::{Flags, StepEntry};
use super::step_input::failure_message;
use super::step_state::{Phase, StepState};
use super::transition::Execution;
use crate::contract::FailureCause;
use crate::contract::ProgramError;
use crate::definition::AfterHandler;

impl Execution<'_> {
    /// Runs every handler of the event whose condition holds, in order. Returns true if there was one.
    pub(super) fn run_handlers(&mut self, event: &Event) -> Result<bool, ProgramError> {
        let mut handled = false;
        for (number, handler) in self.saga.handlers.iter().enumerate() {
            let runs_forward =
                self.state.phase == Phase::Running && !self.state.flags.has(Flags::COMPENSATION_STARTED);
            if !runs_forward || !handler.event.contains(&event.kind) {
                continue;
            }
            let schema_error = |reason: &dyn std::fmt::Display| {
                ProgramError::SchemaMismatch(format!("on[{number}]: {reason}"))
            };
            let holds = handler
                .when
                .as_ref()
                .map_or(Ok(true), |when| when.holds(&self.saga_bindings().event(&event.data)));
            if holds.map_err(|error| schema_error(&error))? {
                self.run_handler(number, handler, event)?;
                handled = true;
            }
        }
        Ok(handled)
    }

    fn run_handler(
        &mut self,
        number: usize,
        handler: &CompiledHandler,
        event: &Event,
    ) -> Result<(), ProgramError> {
        self.add_note(event.kind.as_str());
        self.save_vars(&handler.save, &event.data)?;
        for (index, task) in handler.tasks.iter().enumerate() {
            let tag = handler_tag(number);
            let bindings = self.saga_bindings().event(&event.data);
            // Each event is a round of its own.
            let round = event.dedupe_key().hash_with(&index.to_le_bytes());
            let work = self.work_of(&tag, task, (tag.clone(), round), &bindings);
            let work =
                work.map_err(|error| ProgramError::SchemaMismatch(format!("on[{number}]: {error}")))?;
            self.work.push(work);
        }
        let back = matches!(handler.then, AfterHandler::Cancel | AfterHandler::Fail);
        if back && self.state.flags.has(Flags::PIVOTED) {
            self.add_note("past the pivot");
            return Ok(());
        }
        match handler.then {
            AfterHandler::Continue => {}
            AfterHandler::Cancel => self.start_cancellation(event.kind.as_str()),
            AfterHandler::Fail => {
                let (code, message) = (event.kind.to_string(), failure_message(&event.kind, &event.data));
                self.start_compensation(FailureCause { code, message, step: String::new() });
            }
            AfterHandler::Complete => self.abandon_remaining_steps(),
        }
        Ok(())
    }

    /// Abandons steps in progress and skips pending ones.
    fn abandon_remaining_steps(&mut self) {
        self.abandon_all();
        for entry in &mut self.state.steps {
            if entry.state == StepState::Pending {
                *entry = StepEntry::of(StepState::Skipped);
            }
        }
    }
}
