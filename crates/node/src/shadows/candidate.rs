//! Candidate of a shadow: the file that the shadow compares with the active definition.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_program::Program;
use orlog_sagas::shadow::CandidateSource;

use crate::definitions::{SourceFile, compile_source};

/// Returns the file of a candidate.
///
/// # Errors
/// If the source has not exactly one text, or is no base64.
pub fn source_file(source: &CandidateSource) -> Result<SourceFile, String> {
    let CandidateSource { name, text, base64 } = source;
    let bytes = match (text, base64) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(text)) => STANDARD
            .decode(text)
            .map_err(|error| format!("{name}: base64: {error}"))?,
        _ => return Err(format!("{name}: set either text or base64")),
    };

    Ok(SourceFile {
        path: PathBuf::from(name),
        bytes: bytes.into(),
    })
}

/// Compiles a candidate. Blocks.
///
/// # Errors
/// The first diagnostic.
pub(super) fn compile(source: &CandidateSource) -> Result<Arc<dyn Program>, String> {
    let file = source_file(source)?;
    let definition = compile_source(&file).map_err(|problems| {
        problems
            .first()
            .map(ToString::to_string)
            .unwrap_or_default()
    })?;

    Ok(definition.program)
}
