//! Errors of calls without a response message.
//!
//! Nothing was executed only if the call was not sent, or by a `GOAWAY` below it (RFC 9113, 6.8).
//! Every other loss of a response leaves the outcome unknown.

use std::error::Error as StdError;

use tonic::{ConnectError, Status};

use crate::decisions::{Connection, decide_connection};
use crate::egress::{self, EgressDenied};
use crate::provider::ProviderError;

/// Error of a call without a response.
#[derive(Debug)]
pub(crate) enum GrpcError {
    /// No connection was established, or the connection ends before the call: nothing was executed.
    Unreachable(String),
    /// The stream was rejected. A proxy can do so after it forwarded the call.
    RefusedStream(String),
    /// Egress rules deny the endpoint.
    Forbidden(EgressDenied),
    /// The response was lost or is not a valid one: the outcome is unknown.
    ConnectionLost(String),
    /// The response exceeds the size limit.
    ResponseTooLarge,
    /// The request exceeds the size limit: nothing was executed.
    Oversized(String),
    /// The upstream returned this status.
    Status(Box<Status>),
    /// A proxy returned an HTTP status, which stands for this one. The upstream did not return it,
    /// so no rule about its responses applies.
    Proxy(Box<Status>),
}

impl GrpcError {
    /// Maps an error that occurred before the headers of the response.
    pub(super) fn before_response(error: &(dyn StdError + 'static)) -> Self {
        if let Some(denied) = egress::egress_error(error) {
            return Self::Forbidden(denied.clone());
        }

        if egress::causes(error).any(is_not_executed) {
            Self::Unreachable(chain(error))
        } else if egress::causes(error).any(is_refused_stream) {
            Self::RefusedStream(chain(error))
        } else {
            Self::ConnectionLost(chain(error))
        }
    }

    /// Maps an error of the response body. The upstream has processed the call, whatever the
    /// reason.
    pub(super) fn in_response(error: &Status) -> Self {
        Self::ConnectionLost(match error.source() {
            Some(source) => chain(source),
            None => error.message().to_owned(),
        })
    }

    /// Returns the provider error; `label` names the call.
    pub(crate) fn into_provider_error(self, label: &str) -> ProviderError {
        match self {
            Self::Unreachable(reason) => {
                ProviderError::unavailable("unreachable", format!("{label}: {reason}"))
            }
            Self::RefusedStream(reason) => {
                let decision = decide_connection(Connection::RefusedStream);
                ProviderError::decided(decision, "refused_stream", format!("{label}: {reason}"))
            }
            Self::Forbidden(denied) => {
                ProviderError::permanent("egress_denied", format!("{label}: {denied}"))
            }
            Self::Oversized(reason) => {
                ProviderError::permanent("invalid_payload", format!("{label}: {reason}"))
            }
            Self::ConnectionLost(reason) => {
                ProviderError::response_lost("transport", format!("{label}: {reason}"))
            }
            Self::ResponseTooLarge => ProviderError::response_lost(
                "transport",
                format!("{label}: the response is too large"),
            ),
            Self::Status(status) | Self::Proxy(status) => {
                ProviderError::response_lost("transport", format!("{label}: {status}"))
            }
        }
    }
}

/// Returns whether an error before the response proves that the call was not executed.
fn is_not_executed(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<ConnectError>() {
        return true;
    }

    // The library returns a GOAWAY only for streams above its last stream id.
    error
        .downcast_ref()
        .is_some_and(|error: &h2::Error| error.is_remote() && error.is_go_away())
}

fn is_refused_stream(error: &(dyn StdError + 'static)) -> bool {
    error.downcast_ref().is_some_and(|error: &h2::Error| {
        let reason = error.reason();
        error.is_remote() && error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
    })
}

/// Returns an error with its causes, without duplicates.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in egress::causes(error) {
        let text = error.to_string();
        if texts.last().is_none_or(|last| !last.ends_with(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}
