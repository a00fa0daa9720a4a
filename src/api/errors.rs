//! From the errors of the store and of axum to problems: who can do what about it decides the code.

use axum::extract::rejection::{PathRejection, QueryRejection};

use super::context::OPENAPI_PATH;
use super::problem::{Code, Place, Problem};

impl From<orlog_store::Error> for Problem {
    fn from(error: orlog_store::Error) -> Self {
        use orlog_store::Error;
        let code = match &error {
            Error::Full { .. } => Code::Full,
            Error::BadCursor { .. } => {
                return bad_parameter("cursor", error.to_string());
            }
            Error::NoSuchTable { .. } => Code::NoTable,
            Error::MarkGone { .. } => Code::CursorGone,
            Error::NoFeed => Code::NoExport,
            Error::Closed | Error::Poisoned { .. } => Code::Unavailable,
            _ => Code::Store,
        };
        if code == Code::Store {
            tracing::error!(%error, "the store cannot be read");
            return Problem::new(code, "the store cannot be read; the log of the server says why");
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
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        Problem::new(Code::BadParameter, format!("the query: {text}"))
    }
}

/// A part of the path or the query breaks a rule.
pub(super) fn bad_parameter(name: &str, reason: impl Into<String>) -> Problem {
    let detail = reason.into();
    let place = Place { pointer: name.to_owned(), detail: detail.clone() };
    Problem::new(Code::BadParameter, detail).with(vec![place])
}

/// What is said about a path that leads nowhere.
pub(super) async fn no_route() -> Problem {
    Problem::new(Code::NoRoute, format!("nothing is here; {OPENAPI_PATH} lists what is"))
}

/// What is said about a method that a path does not take.
pub(super) async fn no_method() -> Problem {
    Problem::new(Code::NoMethod, format!("see {OPENAPI_PATH} for the methods that it takes"))
}
