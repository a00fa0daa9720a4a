//! Retired definition: loaded for its pinned instances, starts no new ones.

use std::sync::Arc;

use orlog_model::{CorrelationId, DefinitionRef, Event};
use orlog_program::{
    CompiledDefinition, Context, Diagnostic, Manifest, Migration, Program, ProgramError, ProgramInput,
    ProgramOutput,
};

/// Program that starts no instances.
pub(super) struct RetiredProgram {
    program: Box<dyn Program>,
    manifest: Manifest,
}

impl RetiredProgram {
    /// Compiles a stored source. A source that this release cannot compile is logged and skipped: inputs of
    /// its instances become dead letters, to be redriven with a release that supports the source.
    pub(super) fn compile(reference: &DefinitionRef, source: &[u8]) -> Option<Arc<dyn Program>> {
        let program = match load(source, &format!("{} (kept)", reference.saga)) {
            Ok(program) => program,
            Err(problems) => {
                let reason = problems.first().map(ToString::to_string);
                tracing::error!(saga = %reference.saga, version = reference.version, reason, "stored definition cannot be decoded");
                return None;
            }
        };
        let mut manifest = program.manifest().clone();
        manifest.subscriptions.iter_mut().for_each(|trigger| trigger.starts = false);
        Some(Arc::new(Self { program, manifest }))
    }
}

fn load(source: &[u8], file: &str) -> Result<Box<dyn Program>, Vec<Diagnostic>> {
    if orlog_program::is_wasm(source) {
        return Ok(Box::new(orlog_program::load_wasm(source, file)?));
    }
    Ok(Box::new(orlog_program::load(&String::from_utf8_lossy(source), file)?))
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
            None => {
                Ok(ProgramOutput::Ignored("the definition is retired and starts no new instances".into()))
            }
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

    fn view_state(&self, state: &[u8]) -> Option<serde_json::Value> {
        self.program.view_state(state)
    }
}
