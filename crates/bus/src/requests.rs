//! Questions over the bus: one message out, one answer back, nothing stored.

use std::time::Duration;

use async_trait::async_trait;

use crate::Message;

/// Asks whoever listens.
#[async_trait]
pub trait Requests: Send + Sync + 'static {
    /// Sends a message and returns the answer.
    ///
    /// # Errors
    /// When there is none in time.
    async fn request(&self, message: Message, within: Duration) -> Result<Answer, RequestError>;
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its headers; names are compared without regard to case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub payload: bytes::Bytes,
}

impl Answer {
    /// The first header of a name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// There is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nobody listens; the question was not heard.
    #[error("nobody listens on {0}")]
    NoResponders(String),
    /// Whoever heard it did not answer; what became of it is not known.
    #[error("no answer on {0} in time")]
    TimedOut(String),
    /// The message is too large for the servers.
    #[error("the message is larger than the servers take: {0}")]
    TooLarge(String),
    /// There is no connection, or it went away; what became of the question is not known.
    #[error("the bus is unavailable: {0}")]
    Unavailable(String),
}
