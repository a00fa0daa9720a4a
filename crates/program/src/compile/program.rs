//! A definition as a program.

use orlog_model::{CorrelationId, Event, ProgramRef};
use serde_json::Value;

use super::{Compiled, correlate};
use crate::contract::{Context, Fault, Manifest, Migration, Reaction, Stimulus};
use crate::machine::{self, Source};
use crate::program::Program;

impl Program for Compiled {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        correlate::correlate(&self.saga, &self.places, event)
    }

    fn compiled(&self) -> Option<&Compiled> {
        Some(self)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        machine::apply(&self.saga, state, stimulus, context)
    }

    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        let Some(old) = from.compiled() else {
            return Err(vec!["its program is no definition, so nothing is known about its steps".to_owned()]);
        };
        if old.reference.saga != self.reference.saga {
            return Err(vec![format!("it is a saga {}, not {}", old.reference.saga, self.reference.saga)]);
        }
        let source = Source { saga: &old.saga, version: old.reference.version, state };
        machine::migrate(&self.saga, self.reference.version, source, context)
    }

    /// `phase` (a status); `steps` in the order of the definition: `id`, `state`, `until`, for some `attempts` (more than
    /// one), `then` (the way a switch took) and `elements` (`state`, `until`, `attempts`); `vars`; `failure` (`code`,
    /// `message`, `step`), null while there is none. Where it applies: `pivoted`; `stuck` (`step`, `what`: `do` or `undo`);
    /// `flow` of jobs (`status`, `jobs`, `results`).
    fn show(&self, state: &[u8]) -> Option<Value> {
        machine::show(&self.saga, state)
    }
}
