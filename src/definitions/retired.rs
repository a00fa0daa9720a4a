//! A definition that is kept for the instances pinned to it and takes no new ones.

use std::sync::Arc;

use orlog_model::{CorrelationId, Event, ProgramRef};
use orlog_program::{Compiled, Context, Fault, Manifest, Migration, Problem, Program, Reaction, Stimulus};

/// A program that begins nothing.
pub(super) struct Retired {
    program: Box<dyn Program>,
    manifest: Manifest,
}

impl Retired {
    /// Compiles a source from the store. One that this release cannot read is left out with a line in the log: its
    /// instances' inputs become dead letters, to be sent again with a release that can.
    pub(super) fn compile(reference: &ProgramRef, source: &[u8]) -> Option<Arc<dyn Program>> {
        let program = match load(source, &format!("{} (kept)", reference.saga)) {
            Ok(program) => program,
            Err(problems) => {
                let why = problems.first().map(ToString::to_string);
                tracing::error!(saga = %reference.saga, version = reference.version, why, "a kept definition is unreadable");
                return None;
            }
        };
        let mut manifest = program.manifest().clone();
        manifest.triggers.iter_mut().for_each(|trigger| trigger.starts = false);
        Some(Arc::new(Self { program, manifest }))
    }
}

fn load(source: &[u8], file: &str) -> Result<Box<dyn Program>, Vec<Problem>> {
    if orlog_program::is_wasm(source) {
        return Ok(Box::new(orlog_program::load_wasm(source, file)?));
    }
    Ok(Box::new(orlog_program::load(&String::from_utf8_lossy(source), file)?))
}

impl Program for Retired {
    fn reference(&self) -> &ProgramRef {
        self.program.reference()
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        self.program.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        match state {
            Some(_) => self.program.apply(state, stimulus, context),
            None => Ok(Reaction::Ignored("the definition takes no new instances any more".into())),
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

    fn compiled(&self) -> Option<&Compiled> {
        self.program.compiled()
    }

    fn show(&self, state: &[u8]) -> Option<serde_json::Value> {
        self.program.show(state)
    }
}
