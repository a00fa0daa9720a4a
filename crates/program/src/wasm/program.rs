//! Program of a WebAssembly module.

use orlog_model::{CorrelationId, DefinitionRef, Event, EventType};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::manifest::{self, ModuleManifest};
use super::module::{self, WasmModule};
use super::{MAGIC, input, is_wasm, output};
use crate::contract::{Context, Manifest, Migration, ProgramError, ProgramInput, ProgramOutput};
use crate::correlation;
use crate::diagnostic::{Diagnostic, RawDiagnostic};
use crate::limits::MAX_MODULE_BYTES;
use crate::program::Program;

/// Second word of a WebAssembly component, which is not a core module.
const COMPONENT: &[u8] = &[0x0d, 0, 1, 0];

/// Saga that is a WebAssembly module.
#[derive(Debug)]
pub struct WasmProgram {
    reference: DefinitionRef,
    declared: ModuleManifest,
    manifest: Manifest,
    guest: WasmModule,
}

/// Compiles a module and reads its manifest. `file` is only used in diagnostics.
///
/// # Errors
/// All diagnostics of the module.
pub fn load_wasm(bytes: &[u8], file: &str) -> Result<WasmProgram, Vec<Diagnostic>> {
    load(bytes).map_err(|findings| {
        findings
            .into_iter()
            .map(|finding| finding.without_text(file))
            .collect()
    })
}

fn load(bytes: &[u8]) -> Result<WasmProgram, Vec<RawDiagnostic>> {
    check_bytes(bytes).map_err(|finding| vec![finding])?;
    let guest = WasmModule::compile(bytes)?;
    let declared = manifest::read(&guest)?;
    guest
        .check_instantiation()
        .map_err(|reason| vec![RawDiagnostic::new("", reason)])?;

    // Instances are pinned to the bytes of the module, because its version is only a claim of the
    // author.
    let mut hash = [0; 16];
    hash.copy_from_slice(&Sha256::digest(bytes)[..16]);
    let reference = DefinitionRef {
        saga: declared.saga.clone(),
        version: declared.version,
        hash,
    };
    let manifest = declared.manifest();
    Ok(WasmProgram {
        reference,
        declared,
        manifest,
        guest,
    })
}

fn check_bytes(bytes: &[u8]) -> Result<(), RawDiagnostic> {
    if bytes.len() > MAX_MODULE_BYTES {
        let message = format!("the module is larger than {MAX_MODULE_BYTES} bytes");
        return Err(RawDiagnostic::new("", message)
            .with_suggestion("strip debug sections and optimize for size"));
    }

    if !is_wasm(bytes) {
        return Err(RawDiagnostic::new(
            "",
            "not a WebAssembly module: it does not start with \\0asm",
        ));
    }

    if bytes[MAGIC.len()..].starts_with(COMPONENT) {
        let diagnostic = RawDiagnostic::new(
            "",
            "unsupported WebAssembly component; a saga is a core module",
        );
        return Err(diagnostic.with_suggestion("build the core module, without wit and adapters"));
    }

    Ok(())
}

impl WasmProgram {
    fn correlation_path(&self, kind: &EventType) -> Option<&str> {
        self.declared
            .events
            .get(kind)
            .and_then(|declaration| declaration.correlate.as_deref())
    }
}

impl Program for WasmProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlates_by_envelope(&self, kind: &EventType) -> bool {
        self.correlation_path(kind).is_none()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        let path = self.correlation_path(&event.kind);
        correlation::of(
            event,
            path,
            path.and_then(|path| correlation::field(&event.data, path)),
        )
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        program_input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        if let Some(reason) = skip_reason(&self.declared, state, program_input) {
            return Ok(ProgramOutput::Ignored(reason.into()));
        }

        let input = input::of(program_input, context);
        let module_output = self
            .guest
            .call(module::APPLY, &[state.unwrap_or_default(), &input]);
        output::parse_output(
            &module_output.map_err(ProgramError::Crashed)?,
            &self.declared,
            program_input,
            context,
        )
    }

    /// Calls the `migrate` export of the module.
    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        if !self.guest.exports(module::MIGRATE) {
            return Err(vec![format!("the module exports no `{}`", module::MIGRATE)]);
        }

        let from = input::migration_input(from.definition_ref(), context);
        let module_output = self
            .guest
            .call(module::MIGRATE, &[state, &from])
            .map_err(|reason| vec![reason])?;
        output::parse_migration(&module_output, context)
    }

    /// Returns the state as the module wrote it: JSON.
    fn view_state(&self, state: &[u8]) -> Option<Value> {
        serde_json::from_slice(state).ok()
    }
}

/// Returns the reason to skip an input without a call of the module, if there is one.
fn skip_reason(
    declared: &ModuleManifest,
    state: Option<&[u8]>,
    program_input: &ProgramInput<'_>,
) -> Option<&'static str> {
    let starts = match program_input {
        ProgramInput::Event(event) => match declared.events.get(&event.kind) {
            // The manifest answers without a call of the module.
            None => return Some("the saga does not consume this event"),
            Some(declaration) => declaration.starts,
        },
        ProgramInput::WorkResult { .. }
        | ProgramInput::Timer { .. }
        | ProgramInput::Cancel { .. }
        | ProgramInput::Retry
        | ProgramInput::Skip
        | ProgramInput::ForceComplete => false,
    };

    (state.is_none() && !starts)
        .then_some("there is no instance, and this event does not start one")
}
