//! Active definition of a context that this release cannot load: its inputs become dead letters.
//!
//! It replaces the shared definition of the same saga, which must not start instances of the tenant
//! instead.

use orlog_model::{CorrelationId, DefinitionRef, DeployedDefinition, Event};
use orlog_program::{
    Context, EventSubscription, Manifest, Program, ProgramError, ProgramInput, ProgramOutput,
};

/// Program that applies no input.
pub(super) struct UnreadableProgram {
    reference: DefinitionRef,
    manifest: Manifest,
    reason: String,
}

impl UnreadableProgram {
    /// Creates the program of a definition that cannot be loaded for this reason.
    pub(super) fn new(deployed: &DeployedDefinition, reason: String) -> Self {
        let events = deployed.events.iter().cloned();
        let subscriptions = events
            .map(|kind| EventSubscription { kind, starts: true })
            .collect();
        let manifest = Manifest {
            subscriptions,
            ..Manifest::default()
        };

        Self {
            reference: deployed.program.clone(),
            manifest,
            reason,
        }
    }

    fn error(&self) -> ProgramError {
        let DefinitionRef { saga, version, .. } = &self.reference;
        let reason = &self.reason;
        ProgramError::Evaluation(format!(
            "{saga} version {version} of the context cannot be loaded: {reason}; deploy it again, \
             then redrive this dead letter"
        ))
    }
}

impl Program for UnreadableProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, _: &Event) -> Result<CorrelationId, ProgramError> {
        Err(self.error())
    }

    fn apply(
        &self,
        _: Option<&[u8]>,
        _: &ProgramInput<'_>,
        _: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        Err(self.error())
    }
}
