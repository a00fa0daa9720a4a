//! Flows: graphs of jobs that users submit at run time.

use orlog_model::{InstanceKey, SagaName, TenantId};
use orlog_program::Diagnostic;
use orlog_sagas::flow;

use crate::coded_error::{CodedError, ErrorLocation};
use crate::error_code::Code;

/// Returns the instance of a flow.
///
/// # Errors
/// If the id is invalid.
pub fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
    let saga = SagaName::new(flow::SAGA).expect("the name is short");
    Ok(InstanceKey {
        tenant,
        saga,
        correlation: flow::check_id(id)?,
    })
}

/// Returns the error of a flow that does not compile. The pointers are those of the JSON body.
#[must_use]
pub fn invalid_flow(diagnostics: &[Diagnostic]) -> CodedError {
    // Diagnostics have paths of the definition language, `jobs[0].script`; the body is addressed by
    // JSON pointers.
    let pointer = |path: &str| {
        format!(
            "/{}",
            path.replace("].", "/")
                .replace(['.', '['], "/")
                .replace(']', "")
        )
    };
    let detail = |found: &Diagnostic| ErrorLocation {
        pointer: if found.path.is_empty() {
            String::new()
        } else {
            pointer(&found.path)
        },
        // The pointer states the location, so that the text omits it.
        detail: Diagnostic {
            path: String::new(),
            ..found.clone()
        }
        .to_string(),
    };

    let first = diagnostics
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    let more = match diagnostics.len() {
        0 | 1 => String::new(),
        count => format!("; and {} more", count - 1),
    };

    CodedError::new(Code::InvalidFlow, format!("{first}{more}"))
        .at(diagnostics.iter().map(detail).collect())
}
