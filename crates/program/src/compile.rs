//! Compiler from the intermediate form to a program. Performs all static checks and returns all
//! diagnostics at once.

mod assemble;
mod correlate;
mod events;
pub(crate) mod expressions;
mod manifest;
pub(crate) mod order;
mod program;
pub(crate) mod required_values;
mod validate;

use orlog_model::{DefinitionRef, EventType, Name};
use sha2::{Digest, Sha256};

use crate::contract::Manifest;
use crate::definition::Definition;
use crate::diagnostic::{Diagnostic, RawDiagnostic};
use crate::invariant::SagaInvariant;
use crate::machine::{self, CompiledSaga, StepsView};
use assemble::Assembled;
use correlate::CorrelationRules;
use expressions::DefinitionTexts;

/// A compiled definition.
#[derive(Debug)]
pub struct CompiledDefinition {
    definition: Definition,
    source: String,
    reference: DefinitionRef,
    manifest: Manifest,
    correlation_rules: CorrelationRules,
    saga: CompiledSaga,
    invariants: Vec<SagaInvariant>,
}

/// Compiles a definition without source text; its source is its canonical JSON.
///
/// # Errors
/// All diagnostics of the definition.
pub fn compile(definition: Definition) -> Result<CompiledDefinition, Vec<Diagnostic>> {
    // Diagnostics name a file, and a definition without text has none.
    let file = format!("saga {}", definition.saga);
    let source =
        serde_json::to_string(&definition).expect("a definition is plain data with text keys");
    with_source(definition, source)
        .map_err(|f| f.into_iter().map(|f| f.without_text(&file)).collect())
}

/// Compiles a definition that was parsed from `source`.
pub(crate) fn with_source(
    definition: Definition,
    source: String,
) -> Result<CompiledDefinition, Vec<RawDiagnostic>> {
    let Assembled {
        saga,
        correlation_rules,
        invariants,
    } = assemble::assemble(&definition)?;

    // Instances are pinned to the hash of the source.
    let hash = Sha256::digest(source.as_bytes());
    // 128 bits are sufficient to tell definitions apart.
    let mut short = [0; 16];
    short.copy_from_slice(&hash[..16]);
    let reference = DefinitionRef {
        saga: definition.saga.clone(),
        version: definition.version,
        hash: short,
    };

    let result_events: Vec<_> = saga.entries.keys().cloned().collect();
    let manifest = manifest::of(&definition, &result_events);
    Ok(CompiledDefinition {
        definition,
        source,
        reference,
        manifest,
        correlation_rules,
        saga,
        invariants,
    })
}

/// Compiles the definition of a flow, whose failed steps do not end the others.
pub(crate) fn compile_flow(definition: &Definition) -> Result<CompiledSaga, Vec<RawDiagnostic>> {
    let assembled = assemble::assemble(definition)?;
    Ok(CompiledSaga {
        isolates_failures: true,
        ..assembled.saga
    })
}

/// Returns the texts of all templates and conditions.
pub(crate) fn texts(definition: &Definition) -> DefinitionTexts {
    assemble::texts(definition)
}

impl CompiledDefinition {
    /// Returns the intermediate form.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns whether an instance awaits the result of work with this tag. The results of commands
    /// and effects of event handlers, and of reminders, change nothing.
    #[must_use]
    pub fn awaits_result(&self, tag: &Name) -> bool {
        machine::awaits_result(tag)
    }

    /// Returns the states of the steps in a stored state, which are a part of
    /// [`Program::view_state`](crate::Program::view_state); `None` if it is not a state of this
    /// definition.
    #[must_use]
    pub fn view_steps(&self, state: &[u8]) -> Option<StepsView> {
        machine::steps(&self.saga, state)
    }

    /// Returns the invariants of its runs.
    #[must_use]
    pub fn invariants(&self) -> &[SagaInvariant] {
        &self.invariants
    }

    /// Returns the source text; compiling it again gives the same program.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns whether events of the type start instances and have no meaning for an instance that
    /// exists.
    #[must_use]
    pub fn only_starts(&self, kind: &EventType) -> bool {
        self.saga.only_starts(kind)
    }

    /// Returns the direct predecessors of a step as indices of the definition's steps: those in its
    /// `after`, else the switches that select it, else the previous step; plus the steps that its
    /// job requires.
    ///
    /// # Panics
    /// If no step has this index.
    #[must_use]
    pub fn precedes(&self, step: usize) -> &[usize] {
        &self.saga.steps[step].before
    }
}
