//! Problems: every error a caller sees, as `application/problem+json` with a code that has a page.
//!
//! A code never changes its meaning. Its page, `docs/errors/<code>.md`, says what happened and what to do; the binary
//! serves it at the problem's `type`, so that it can be read where there is no network.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// What a client waits before it tries again, in seconds, where nothing better is known.
const RETRY_AFTER_SECONDS: u16 = 1;
/// The same while the process drains: another one takes over first.
const DRAINING_RETRY_AFTER_SECONDS: u16 = 5;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal;)+) => {
        /// What went wrong, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Code {
            $($(#[$doc])* $name),+
        }

        impl Code {
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Code::$name),+];

            /// The code, for example `OR0001`.
            pub(super) fn as_str(self) -> &'static str {
                match self {
                    $(Code::$name => $code),+
                }
            }

            fn status(self) -> StatusCode {
                match self {
                    $(Code::$name => StatusCode::$status),+
                }
            }

            fn title(self) -> &'static str {
                match self {
                    $(Code::$name => $title),+
                }
            }
        }

        /// The page of a code, in Markdown.
        pub(super) fn page(code: &str) -> Option<&'static str> {
            match code {
                $($code => Some(include_str!(concat!("../../docs/errors/", $code, ".md"))),)+
                _ => None,
            }
        }
    };
}

codes! {
    /// A body does not parse.
    NotJson = "OR0001", BAD_REQUEST, "The body is not JSON";
    /// A body parses and has another shape.
    WrongBody = "OR0002", UNPROCESSABLE_ENTITY, "The body has the wrong shape";
    /// An event breaks a rule.
    InvalidEvent = "OR0003", UNPROCESSABLE_ENTITY, "An event cannot be accepted";
    /// A content type that is not read here.
    MediaType = "OR0004", UNSUPPORTED_MEDIA_TYPE, "The content type is not read here";
    /// A body or a message over the limit.
    TooLarge = "OR0005", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The tenant header is malformed.
    BadTenant = "OR0006", BAD_REQUEST, "The tenant is malformed";
    /// The tenant is not let in.
    UnknownTenant = "OR0007", FORBIDDEN, "The tenant is not known here";
    /// A part of the path or of the query.
    BadParameter = "OR0008", BAD_REQUEST, "A parameter is malformed";
    /// No such route.
    NoRoute = "OR0009", NOT_FOUND, "There is nothing at this path";
    /// The route has other methods.
    NoMethod = "OR0010", METHOD_NOT_ALLOWED, "The path does not take this method";
    /// No such instance.
    NoInstance = "OR0011", NOT_FOUND, "There is no such saga instance";
    /// Optimistic concurrency.
    Version = "OR0012", CONFLICT, "The instance has moved on";
    /// The status forbids an instruction.
    Status = "OR0013", CONFLICT, "The status forbids it";
    /// No such dead letter.
    NoLetter = "OR0014", NOT_FOUND, "There is no such dead letter";
    /// An instruction became a dead letter.
    SetAside = "OR0015", UNPROCESSABLE_ENTITY, "It failed and was set aside";
    /// No such definition.
    NoDefinition = "OR0016", NOT_FOUND, "There is no such definition";
    /// Definitions that do not compile.
    BadDefinitions = "OR0017", UNPROCESSABLE_ENTITY, "The definitions cannot be used";
    /// No new work is taken.
    Draining = "OR0018", SERVICE_UNAVAILABLE, "The process is draining";
    /// The disk is full.
    Full = "OR0019", INSUFFICIENT_STORAGE, "There is no room";
    /// A part is restarting.
    Unavailable = "OR0020", SERVICE_UNAVAILABLE, "A part is not available";
    /// A bug.
    Internal = "OR0021", INTERNAL_SERVER_ERROR, "The request met a bug";
    /// No such table.
    NoTable = "OR0022", NOT_FOUND, "There is no such table";
    /// The body did not arrive.
    TooSlow = "OR0023", REQUEST_TIMEOUT, "The body did not arrive in time";
    /// The store is damaged or the disk fails.
    Store = "OR0024", INTERNAL_SERVER_ERROR, "The store cannot be read";
    /// The body broke off.
    BrokenBody = "OR0025", BAD_REQUEST, "The body broke off";
    /// No such task, or it is not open.
    NoTask = "OR0026", NOT_FOUND, "There is no such open task";
    /// Somebody else has it, or it cannot be done so.
    Task = "OR0027", CONFLICT, "The task forbids it";
    /// A migration has obstacles.
    Blocked = "OR0028", CONFLICT, "The instance cannot be migrated";
    /// A reload where there is no folder.
    NoFolder = "OR0029", CONFLICT, "The node has no folder to reload";
    /// A worker's claim.
    ClaimLost = "OR0030", CONFLICT, "The claim is lost";
    /// The feed is not whole behind a cursor.
    CursorGone = "OR0050", GONE, "The cursor is gone";
    /// Commits do not note what they touch.
    NoExport = "OR0051", CONFLICT, "Nothing is exported here";
    /// Nothing says who calls.
    NoCaller = "OR0040", UNAUTHORIZED, "Nobody is named";
    /// What says who calls is not believed.
    BadCaller = "OR0041", UNAUTHORIZED, "The caller is not believed";
    /// The role is too small.
    Forbidden = "OR0042", FORBIDDEN, "The role does not allow it";
    /// The tenant is not among the caller's.
    NotYourTenant = "OR0043", FORBIDDEN, "The tenant is not the caller's";
    /// No backup can be taken here or now.
    NoBackup = "OR0044", CONFLICT, "No backup is taken";
}

/// An error, as callers see it (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Where the page about it is, relative to this server.
    #[serde(rename = "type")]
    #[schema(example = "/errors/OR0003")]
    kind: String,
    /// What the code means, in a few words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// For programs; never changes its meaning.
    #[schema(example = "OR0003")]
    code: &'static str,
    /// What happened this time, with the place and the values.
    detail: String,
    /// The places, where there are several or where one can be pointed at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Place>,
    #[serde(skip)]
    #[schema(ignore)]
    of: Code,
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Place {
    /// A JSON pointer into the body, or the place in a definition.
    #[schema(example = "/3/time")]
    pub(super) pointer: String,
    /// What is wrong there.
    pub(super) detail: String,
}

impl Problem {
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/errors/{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            code: code.as_str(),
            detail: detail.into(),
            errors: Vec::new(),
            of: code,
        }
    }

    pub(super) fn with(mut self, errors: Vec<Place>) -> Self {
        self.errors = errors;
        self
    }

    fn retry_after(&self) -> Option<u16> {
        match self.of {
            Code::Draining => Some(DRAINING_RETRY_AFTER_SECONDS),
            Code::Unavailable => Some(RETRY_AFTER_SECONDS),
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after();
        let body = serde_json::to_vec(&self).expect("a problem is text and numbers");
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.of.status(), content_type, body).into_response();
        response.extensions_mut().insert(self.of);
        if self.of.status() == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_page_that_begins_with_it() {
        for code in Code::ALL {
            let page = page(code.as_str()).unwrap();
            assert!(page.starts_with(&format!("# {} · {}\n", code.as_str(), code.title())), "{page}");
            let status = format!("HTTP status {}", code.status().as_u16());
            assert!(page.contains(&status), "{} does not say {status:?}", code.as_str());
        }
        assert_eq!(page("OR9999"), None);
    }

    #[test]
    fn no_code_is_given_twice() {
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
    }

    #[test]
    fn who_should_come_back_is_told_when() {
        let response = Problem::new(Code::Draining, "x").into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        assert_eq!(Problem::new(Code::NoRoute, "x").into_response().headers().get(header::RETRY_AFTER), None);
    }
}
