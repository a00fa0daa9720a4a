//! WebAssembly front-end: a saga as a core module with JSON input and output.
//!
//! A module has no imports, so it can only compute: no clock, no random numbers, no I/O. Every
//! transition runs in a new instance of the module with bounded fuel and memory. No state remains
//! between transitions, and no call can run without end. A trap, exhausted fuel or invalid output
//! aborts the call without a transition: [`ProgramError::Crashed`].
//!
//! A module exports `memory`, `alloc(len) -> ptr` and `apply(state, state_len, input, input_len) ->
//! ptr << 32 | len`. To support migration from another version, it also exports `migrate(state,
//! state_len, from, from_len)` with the same kind of return value. The custom section
//! `orlog.manifest` lists the events and requests of the module, so that events are matched without
//! a call. If the compiler cannot write custom sections, the module may export `manifest() -> ptr
//! << 32 | len` instead. `docs/wasm.md` is the reference.
//!
//! The Cargo feature `wasm`, on by default, compiles the interpreter in.

#[cfg(feature = "wasm")]
mod input;
#[cfg(feature = "wasm")]
mod limits;
#[cfg(feature = "wasm")]
mod manifest;
#[cfg(feature = "wasm")]
mod module;
#[cfg(feature = "wasm")]
mod output;
#[cfg(feature = "wasm")]
mod program;
#[cfg(feature = "wasm")]
mod requests;

#[cfg(feature = "wasm")]
pub use program::{WasmProgram, load_wasm};

const MAGIC: &[u8] = b"\0asm";

/// Returns whether these bytes are a WebAssembly module and not a text.
#[must_use]
pub fn is_wasm(source: &[u8]) -> bool {
    source.starts_with(MAGIC)
}

/// Program type of [`load_wasm`], which returns none without the feature `wasm`.
#[cfg(not(feature = "wasm"))]
pub type WasmProgram = crate::compile::CompiledDefinition;

/// Rejects a module, because the feature `wasm` is not compiled in.
///
/// # Errors
/// Always: one diagnostic that names the feature.
#[cfg(not(feature = "wasm"))]
pub fn load_wasm(_: &[u8], file: &str) -> Result<WasmProgram, Vec<crate::diagnostic::Diagnostic>> {
    let message =
        "this build does not support WebAssembly definitions: the Cargo feature `wasm` is disabled";
    let finding = crate::diagnostic::RawDiagnostic::new("", message);
    Err(vec![
        finding
            .with_suggestion("build with `--features wasm`")
            .without_text(file),
    ])
}
