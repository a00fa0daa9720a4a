//! Program whose first instance a test can stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlog_model::{CorrelationId, DefinitionRef, Event};
use orlog_program::{Context, Manifest, Program, ProgramError, ProgramInput, ProgramOutput};
use orlog_testkit::sagas::EventRecorder;
use parking_lot::{RwLock, RwLockWriteGuard};

/// Gate before the inputs of the first ledger.
#[derive(Default)]
pub(crate) struct Gate {
    lock: RwLock<()>,
    arrived: AtomicUsize,
}

impl Gate {
    /// Closes the gate until the guard is dropped.
    pub(crate) fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write()
    }

    /// Returns the number of inputs that have arrived at the gate.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }
}

/// Ledger program that applies no input of the first ledger while the test holds the gate.
pub(crate) struct GatedProgram {
    ledger: Arc<dyn Program>,
    gate: Arc<Gate>,
}

impl GatedProgram {
    pub(crate) fn program(gate: &Arc<Gate>) -> Arc<dyn Program> {
        Arc::new(Self {
            ledger: EventRecorder::program(),
            gate: Arc::clone(gate),
        })
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
        let is_first = |event: &Event| {
            event
                .correlation
                .as_ref()
                .is_some_and(|id| id.as_str() == "l0")
        };
        let _open = matches!(input, ProgramInput::Event(event) if is_first(event)).then(|| {
            self.gate.arrived.fetch_add(1, Ordering::SeqCst);
            self.gate.lock.read()
        });
        self.ledger.apply(state, input, context)
    }
}
