//! Request and reply over the bus: one request, one response, nothing stored.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Headers, Message};

/// Client for requests over the bus.
#[async_trait]
pub trait RequestClient: Send + Sync + 'static {
    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// If there is no response in time.
    async fn request(&self, message: Message, within: Duration) -> Result<Response, RequestError>;
}

/// Response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Headers; names are case-insensitive.
    pub headers: Headers,
    /// Body of the response.
    pub payload: bytes::Bytes,
}

impl Response {
    /// Returns the first header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Error of a request without a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There are no responders; the request was not received.
    #[error("no responders on {0}")]
    NoResponders(String),
    /// The responder did not respond in time; the result is unknown.
    #[error("request on {0} timed out")]
    TimedOut(String),
    /// The message exceeds the size limit of the servers.
    #[error("message exceeds the server limit: {0}")]
    TooLarge(String),
    /// There is no connection, or it was lost; the result is unknown.
    #[error("the bus is unavailable: {0}")]
    Unavailable(String),
}
