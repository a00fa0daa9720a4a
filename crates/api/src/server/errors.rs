//! Conversion of store and axum errors to problems; the remedy selects the code.

use axum::extract::rejection::{PathRejection, QueryRejection};

use super::context::OPENAPI_PATH;
use super::problem::{Code, Problem, ProblemDetail};

impl From<orlog_store::Error> for Problem {
    fn from(error: orlog_store::Error) -> Self {
        use orlog_store::Error;
        let code = match &error {
            Error::Full { .. } => Code::InsufficientStorage,
            Error::InvalidCursor { .. } => {
                return invalid_parameter("cursor", error.to_string());
            }
            Error::NoSuchTable { .. } => Code::TableNotFound,
            Error::FeedOffsetExpired { .. } => Code::CursorExpired,
            Error::FeedDisabled => Code::ExportDisabled,
            Error::Closed | Error::Cancelled | Error::Poisoned { .. } => Code::Unavailable,
            Error::Damaged { .. } => Code::DamagedTables,
            Error::DamagedJournal { .. } => Code::DamagedJournal,
            _ => Code::StoreError,
        };
        // The reason names files and rows of the node, which a client must not receive.
        if matches!(
            code,
            Code::StoreError | Code::DamagedTables | Code::DamagedJournal
        ) {
            tracing::error!(%error, "store read failed");
            return Problem::new(code, "store read failed; see the server log");
        }

        Problem::new(code, error.to_string())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::new(Code::BadParameter, rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let text = text
            .strip_prefix("Failed to deserialize query string: ")
            .unwrap_or(&text);
        Problem::new(Code::BadParameter, format!("invalid query: {text}"))
    }
}

/// Creates the problem of an invalid path or query parameter.
pub(crate) fn invalid_parameter(name: &str, reason: impl Into<String>) -> Problem {
    let detail = reason.into();
    let problem_detail = ProblemDetail {
        pointer: name.to_owned(),
        detail: detail.clone(),
    };
    Problem::new(Code::BadParameter, detail).with(vec![problem_detail])
}

/// Returns the problem of an unknown path.
pub(crate) async fn no_route() -> Problem {
    Problem::new(
        Code::RouteNotFound,
        format!("route not found; {OPENAPI_PATH} lists all routes"),
    )
}

/// Returns the problem of an unsupported method.
pub(crate) async fn no_method() -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        format!("see {OPENAPI_PATH} for the supported methods"),
    )
}
