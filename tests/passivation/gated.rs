//! Program whose first instance a test can stop.

use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{CorrelationId, DefinitionRef, Event};
use orlog_program::{Context, Manifest, Program, ProgramError, ProgramInput, ProgramOutput};
use orlog_testkit::sagas::EventRecorder;

/// Ledger program that applies no input of the first ledger while the test holds the gate.
pub(crate) struct GatedProgram {
    ledger: Arc<dyn Program>,
    gate: Arc<RwLock<()>>,
}

impl GatedProgram {
    pub(crate) fn program(gate: &Arc<RwLock<()>>) -> Arc<dyn Program> {
        Arc::new(Self { ledger: EventRecorder::program(), gate: Arc::clone(gate) })
    }
}

impl Program for GatedProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        self.ledger.definition_ref()
    }

    fn manifest(&self) -> &Manifest {
        self.ledger.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.ledger.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let is_first = |event: &Event| event.correlation.as_ref().is_some_and(|id| id.as_str() == "l0");
        let _open = matches!(input, ProgramInput::Event(event) if is_first(event))
            .then(|| self.gate.read().unwrap_or_else(PoisonError::into_inner));
        self.ledger.apply(state, input, context)
    }
}
