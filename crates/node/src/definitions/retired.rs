//! Retired definitions: loaded for their pinned instances, start no new ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use orlog_actors::OwnedProgram;
use orlog_model::{CorrelationId, DefinitionRef, Event, TenantId};
use orlog_program::{
    CompiledDefinition, Context, Definition, Diagnostic, Manifest, Migration, Program,
    ProgramError, ProgramInput, ProgramOutput,
};
use parking_lot::Mutex;

use super::files::problem;

/// Retired programs by the hash of their definition, so that a deployment compiles only new ones.
#[derive(Default)]
pub(super) struct RetiredPrograms(Mutex<BTreeMap<[u8; 16], Arc<dyn Program>>>);

impl RetiredPrograms {
    /// Returns the programs of stored definitions, one for each owner, and removes all others.
    pub(super) fn load<'a>(
        &self,
        stored: impl Iterator<Item = (&'a DefinitionRef, &'a Vec<u8>, Vec<Option<TenantId>>)>,
    ) -> Vec<OwnedProgram> {
        let mut known = self.0.lock();
        let mut next = BTreeMap::new();
        let mut owned = Vec::new();
        for (reference, source, owners) in stored {
            let program = known.get(&reference.hash).cloned();
            let Some(program) = program.or_else(|| RetiredProgram::compile(reference, source))
            else {
                continue;
            };

            owned.extend(owners.into_iter().map(|context| OwnedProgram {
                context,
                program: Arc::clone(&program),
            }));
            next.insert(reference.hash, program);
        }

        *known = next;
        owned
    }
}

/// Program that starts no instances.
pub(super) struct RetiredProgram {
    program: Arc<dyn Program>,
    manifest: Manifest,
}

impl RetiredProgram {
    /// Returns a program that continues the instances of another and starts none.
    pub(super) fn of(program: Arc<dyn Program>) -> Arc<dyn Program> {
        let mut manifest = program.manifest().clone();
        manifest
            .subscriptions
            .iter_mut()
            .for_each(|trigger| trigger.starts = false);
        Arc::new(Self { program, manifest })
    }

    /// Compiles a stored source. A source that this release cannot compile is logged and skipped:
    /// inputs of its instances become dead letters, to be redriven with a release that supports the
    /// source.
    pub(super) fn compile(reference: &DefinitionRef, source: &[u8]) -> Option<Arc<dyn Program>> {
        let program = match load(source, &format!("{} (kept)", reference.saga)) {
            Ok(program) => program,
            Err(problems) => {
                let reason = problems.first().map(ToString::to_string);
                tracing::error!(
                    saga = %reference.saga,
                    version = reference.version,
                    reason,
                    "stored definition cannot be decoded"
                );
                return None;
            }
        };
        Some(Self::of(program))
    }
}

fn load(source: &[u8], file: &str) -> Result<Arc<dyn Program>, Vec<Diagnostic>> {
    // The stored graph describes a workflow, but its functions are code of the process.
    if orlog_workflow::is_stored_graph(source) {
        return Err(vec![Diagnostic {
            suggestion: Some("deploy this version of the workflow too".to_owned()),
            ..problem(
                Path::new(file),
                "it is a workflow, and this process has no functions for it".to_owned(),
            )
        }]);
    }

    if orlog_program::is_wasm(source) {
        return Ok(Arc::new(orlog_program::load_wasm(source, file)?));
    }

    Ok(Arc::new(orlog_program::load(
        &String::from_utf8_lossy(source),
        file,
    )?))
}

impl Program for RetiredProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        self.program.definition_ref()
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.program.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        match state {
            Some(_) => self.program.apply(state, input, context),
            None => Ok(ProgramOutput::Ignored(
                "the definition is retired and starts no new instances".into(),
            )),
        }
    }

    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        self.program.migrate(from, state, context)
    }

    fn as_compiled(&self) -> Option<&CompiledDefinition> {
        self.program.as_compiled()
    }

    fn drawing(&self) -> Option<&Definition> {
        self.program.drawing()
    }

    fn view_state(&self, state: &[u8]) -> Option<serde_json::Value> {
        self.program.view_state(state)
    }
}
