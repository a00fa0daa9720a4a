//! Conversion of errors of the node and of axum to problems; the remedy selects the code.

use axum::extract::rejection::{PathRejection, QueryRejection};
use orlog_actors::ControlError;

use super::context::OPENAPI_PATH;
use super::problem::{Code, Problem, ProblemDetail};
use orlog_node::blocking::ShuttingDown;
use orlog_node::coded_error::CodedError;
use orlog_node::peers::NoIdentity;
use orlog_node::reads::PoolExhausted;
use orlog_node::sagas::instance_pages::InvalidCursor;
use orlog_node::sagas::search::SearchError;

impl From<CodedError> for Problem {
    fn from(error: CodedError) -> Self {
        let errors = error.locations.into_iter().map(|location| ProblemDetail {
            pointer: location.pointer,
            detail: location.detail,
        });
        Problem::new(error.code, error.detail).with(errors.collect())
    }
}

impl From<orlog_store::Error> for Problem {
    fn from(error: orlog_store::Error) -> Self {
        if matches!(error, orlog_store::Error::InvalidCursor { .. }) {
            return invalid_parameter("cursor", error.to_string());
        }
        CodedError::from(error).into()
    }
}

impl From<orlog_bus::Error> for Problem {
    fn from(error: orlog_bus::Error) -> Self {
        CodedError::from(error).into()
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        CodedError::from(error).into()
    }
}

impl From<InvalidCursor> for Problem {
    fn from(error: InvalidCursor) -> Self {
        invalid_parameter("cursor", error.to_string())
    }
}

impl From<NoIdentity> for Problem {
    fn from(error: NoIdentity) -> Self {
        CodedError::from(error).into()
    }
}

impl From<SearchError> for Problem {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::InvalidCursor(error) => error.into(),
            SearchError::InvalidFilter(reason) => invalid_parameter("filter", reason),
            SearchError::Store(error) => error.into(),
        }
    }
}

impl From<PoolExhausted> for Problem {
    fn from(error: PoolExhausted) -> Self {
        CodedError::from(error).into()
    }
}

impl From<ShuttingDown> for Problem {
    fn from(error: ShuttingDown) -> Self {
        CodedError::from(error).into()
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
