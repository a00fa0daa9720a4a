//! The WebAssembly front-end: a saga as a core module that is handed JSON and answers with JSON.
//!
//! A module imports nothing, so it can do nothing but compute: no clock, no chance, no I/O. Every transition runs in a fresh
//! instance of it with a bounded amount of fuel and memory, so that nothing is left over from one transition to the next
//! and nothing can hang. A module that traps, runs dry or answers nonsense has decided nothing: [`Fault::Broken`].
//!
//! It exports `memory`, `alloc(len) -> ptr`, `apply(state, state_len, input, input_len) -> ptr << 32 | len` and, if it can
//! take over the state of another version, `migrate(state, state_len, from, from_len)`, which answers likewise. What it
//! takes and asks for stands in its custom section `orlog.manifest`, so that events are matched without running it; a
//! compiler that writes no custom sections may export `manifest() -> ptr << 32 | len` instead. `docs/wasm.md` has it all.

mod input;
mod manifest;
mod module;
mod output;
mod requests;

use manifest::Declared;
use orlog_model::{CorrelationId, Event, ProgramRef};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::contract::{Context, Fault, Manifest, Migration, Reaction, Stimulus};
use crate::correlation;
use crate::diagnostic::{Finding, Problem};
use crate::limits::MAX_MODULE_BYTES;
use crate::program::Program;
use module::Guest;

const MAGIC: &[u8] = b"\0asm";
/// The second word of a component, which is no core module.
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];

/// Whether these bytes are a WebAssembly module rather than a text.
#[must_use]
pub fn is_wasm(source: &[u8]) -> bool {
    source.starts_with(MAGIC)
}

/// A saga that is a WebAssembly module.
#[derive(Debug)]
pub struct WasmProgram {
    reference: ProgramRef,
    declared: Declared,
    manifest: Manifest,
    guest: Guest,
}

/// Compiles a module and reads its manifest. `file` is only named in problems.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_wasm(bytes: &[u8], file: &str) -> Result<WasmProgram, Vec<Problem>> {
    load(bytes).map_err(|findings| findings.into_iter().map(|finding| finding.without_text(file)).collect())
}

fn load(bytes: &[u8]) -> Result<WasmProgram, Vec<Finding>> {
    check_bytes(bytes).map_err(|finding| vec![finding])?;
    let guest = Guest::compile(bytes)?;
    let declared = manifest::read(&guest)?;
    guest.rehearse().map_err(|why| vec![Finding::new("", why)])?;
    let mut hash = [0; 16];
    hash.copy_from_slice(&Sha256::digest(bytes)[..16]);
    let reference = ProgramRef { saga: declared.saga.clone(), version: declared.version, hash };
    let manifest = declared.manifest();
    Ok(WasmProgram { reference, declared, manifest, guest })
}

fn check_bytes(bytes: &[u8]) -> Result<(), Finding> {
    if bytes.len() > MAX_MODULE_BYTES {
        let message = format!("the module is larger than {MAX_MODULE_BYTES} bytes");
        return Err(Finding::new("", message).suggest("strip debug sections and optimise for size"));
    }
    if !is_wasm(bytes) {
        return Err(Finding::new("", "it is no WebAssembly module: it does not begin with \\0asm"));
    }
    if bytes[MAGIC.len()..].starts_with(COMPONENT) {
        let wrong = Finding::new("", "it is a WebAssembly component; a saga is a core module");
        return Err(wrong.suggest("build the core module, without wit and adapters"));
    }
    Ok(())
}

impl Program for WasmProgram {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        let path = self.declared.events.get(&event.kind).and_then(|taken| taken.correlate.as_deref());
        correlation::of(event, path, path.and_then(|path| correlation::field(&event.data, path)))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        if let Some(why) = of(&self.declared, state, stimulus) {
            return Ok(Reaction::Ignored(why.into()));
        }
        let input = input::of(stimulus, context);
        let answer = self.guest.call(module::APPLY, &[state.unwrap_or_default(), &input]);
        output::reaction(&answer.map_err(Fault::Broken)?, &self.declared, stimulus, context)
    }

    /// As the module's `migrate` answers.
    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        if !self.guest.exports(module::MIGRATE) {
            return Err(vec![format!("the module exports no `{}`", module::MIGRATE)]);
        }
        let from = input::origin(from.reference(), context);
        let answer = self.guest.call(module::MIGRATE, &[state, &from]).map_err(|why| vec![why])?;
        output::migration(&answer, context)
    }

    /// The state as the module wrote it: JSON.
    fn show(&self, state: &[u8]) -> Option<Value> {
        serde_json::from_slice(state).ok()
    }
}

/// Why a stimulus means nothing to the program, where that is known without running the module.
fn of(declared: &Declared, state: Option<&[u8]>, stimulus: &Stimulus<'_>) -> Option<&'static str> {
    let starts = match stimulus {
        Stimulus::Event(event) => match declared.events.get(&event.kind) {
            None => return Some("the saga does not take this event"),
            Some(taken) => taken.starts,
        },
        Stimulus::Outcome { .. }
        | Stimulus::Timer { .. }
        | Stimulus::Cancel { .. }
        | Stimulus::Retry
        | Stimulus::Skip
        | Stimulus::ForceComplete => false,
    };
    (state.is_none() && !starts).then_some("there is no instance, and this does not begin one")
}
