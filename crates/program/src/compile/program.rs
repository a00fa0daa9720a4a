//! Implementation of the program interface for compiled definitions.

use orlog_model::{CorrelationId, DefinitionRef, Event, EventType};
use serde_json::Value;

use super::{CompiledDefinition, correlate};
use crate::contract::{Context, Manifest, Migration, ProgramError, ProgramInput, ProgramOutput};
use crate::machine::{self, MigrationSource};
use crate::program::Program;

impl Program for CompiledDefinition {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        correlate::correlate(&self.saga, &self.correlation_rules, event)
    }

    fn correlates_by_envelope(&self, kind: &EventType) -> bool {
        self.correlation_rules.of(kind).is_none()
    }

    fn as_compiled(&self) -> Option<&CompiledDefinition> {
        Some(self)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        machine::apply(&self.saga, state, input, context)
    }

    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        let Some(old) = from.as_compiled() else {
            return Err(vec![
                "the old program is not a definition, so its steps are unknown".to_owned(),
            ]);
        };
        if old.reference.saga != self.reference.saga {
            return Err(vec![format!(
                "the instance belongs to saga {}, not {}",
                old.reference.saga, self.reference.saga
            )]);
        }

        let source = MigrationSource {
            saga: &old.saga,
            version: old.reference.version,
            state,
        };
        machine::migrate(&self.saga, self.reference.version, source, context)
    }

    /// Returns the state as JSON. `phase` (a status); `steps` in the order of the definition: `id`,
    /// `state`, `until`, for some `attempts` (more than one), `then` (the selected case of a
    /// switch) and `elements` (`state`, `until`, `attempts`); `vars`; `failure` (`code`, `message`,
    /// `step`), null without a failure. If applicable: `collected` of a step, the number of events
    /// so far; `children`, the open child sagas of event handlers; `pivoted`; `stuck` (`step`,
    /// `action`: `do` or `compensate`); `flow` of jobs (`status`, `jobs`, `results`).
    fn view_state(&self, state: &[u8]) -> Option<Value> {
        machine::view(&self.saga, state)
    }
}
