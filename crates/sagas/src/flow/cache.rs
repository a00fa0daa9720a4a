//! Cache of compiled flows. A flow is compiled from its text alone, so the cache changes no
//! decision.

use std::collections::HashMap;
use std::sync::Arc;

use orlog_program::flow::{CompiledFlow, compile};
use orlog_program::{ProgramError, budget};
use parking_lot::Mutex;

use super::state::FlowState;

/// Maximum size of the texts of the cached flows, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Units of a transition for each byte of a text that it compiles: about a microsecond.
const UNITS_PER_BYTE: u64 = 1;

/// Compiled flows by the hash of their texts.
#[derive(Debug, Default)]
pub(super) struct FlowCache(Mutex<CachedFlows>);

#[derive(Debug, Default)]
struct CachedFlows {
    flows: HashMap<[u8; 16], Arc<CompiledFlow>>,
    bytes: usize,
}

impl FlowCache {
    /// Returns the compiled flow of a state.
    ///
    /// # Errors
    /// If this release cannot compile the text, or the transition exceeds its budget.
    pub(super) fn of(&self, state: &FlowState) -> Result<Arc<CompiledFlow>, ProgramError> {
        let cached = || self.0.lock();
        if let Some(found) = cached().flows.get(&state.hash) {
            return Ok(Arc::clone(found));
        }

        // Before the compilation, which cannot be interrupted.
        if !budget::spend(state.source.len() as u64 * UNITS_PER_BYTE) {
            return Err(ProgramError::Evaluation(
                "the compilation of the flow exceeds the cost budget of the transition".to_owned(),
            ));
        }

        let flow = compile(&state.source, "flow").map_err(|diagnostics| {
            let texts: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
            ProgramError::InvalidState(format!("the flow does not compile: {}", texts.join("; ")))
        })?;
        let flow = Arc::new(flow);

        let mut cached = cached();
        if cached.bytes + state.source.len() > MAX_BYTES {
            *cached = CachedFlows::default();
        }
        cached.bytes += state.source.len();
        cached.flows.insert(state.hash, Arc::clone(&flow));
        Ok(flow)
    }
}
