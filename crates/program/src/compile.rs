//! From the intermediate form to a program: every check that can be made before the first event, all findings at once.

mod correlate;
mod events;
mod fit;
mod manifest;
mod order;
mod parts;
mod tasks;

use orlog_model::{CorrelationId, Event, ProgramRef};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::form::Definition;
use crate::machine::{self, Saga, Source};
use crate::problem::{Finding, Problem};
use crate::program::{Context, Fault, Manifest, Migration, Program, Reaction, Stimulus};
use correlate::Places;

/// A definition that runs.
#[derive(Debug)]
pub struct Compiled {
    definition: Definition,
    source: String,
    reference: ProgramRef,
    manifest: Manifest,
    places: Places,
    saga: Saga,
}

/// Compiles a definition that has no text of its own; its source is its canonical JSON.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(definition: Definition) -> Result<Compiled, Vec<Problem>> {
    let file = format!("saga {}", definition.saga);
    let source = serde_json::to_string(&definition).expect("a definition is plain data with text keys");
    with_source(definition, source).map_err(|f| f.into_iter().map(|f| f.without_text(&file)).collect())
}

/// Compiles a definition that was read from `source`.
pub(crate) fn with_source(definition: Definition, source: String) -> Result<Compiled, Vec<Finding>> {
    let (saga, places) = parts::assemble(&definition)?;
    let hash = Sha256::digest(source.as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    let reference = ProgramRef { saga: definition.saga.clone(), version: definition.version, hash: short };
    let answers: Vec<_> = saga.entries.keys().cloned().collect();
    let manifest = manifest::of(&definition, &answers);
    Ok(Compiled { definition, source, reference, manifest, places, saga })
}

impl Compiled {
    /// The intermediate form.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// The text it was compiled from; loading it again gives the same program.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The steps directly before a step, as indices of the definition's steps: those it names, else the switches that name
    /// it, else the step before; with what its job needs.
    ///
    /// # Panics
    /// When there is no step of that index.
    #[must_use]
    pub fn before(&self, step: usize) -> &[usize] {
        &self.saga.steps[step].before
    }
}

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
