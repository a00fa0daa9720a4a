//! From the intermediate form to a program: every check that can be made before the first event, all findings at once.

mod actions;
mod assemble;
mod correlate;
mod events;
mod manifest;
mod order;
mod program;
mod validate;

use orlog_model::ProgramRef;
use sha2::{Digest, Sha256};

use crate::contract::Manifest;
use crate::definition::Definition;
use crate::diagnostic::{Finding, Problem};
use crate::machine::Saga;
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
    let (saga, places) = assemble::assemble(&definition)?;
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
