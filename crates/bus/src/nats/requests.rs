//! Questions over NATS, as its services answer them.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_trait::async_trait;

use super::connection::chain;
use super::{Connection, message};
use crate::Message;
use crate::requests::{Answer, RequestError, Requests};

#[async_trait]
impl Requests for Connection {
    async fn request(&self, message: Message, within: Duration) -> Result<Answer, RequestError> {
        let request = Request::new()
            .payload(message.payload.clone())
            .headers(message::headers(&message))
            .timeout(Some(within));
        let subject = message.subject;
        match self.client.send_request(subject.clone(), request).await {
            Ok(answer) => Ok(Answer {
                headers: answer.headers.as_ref().map(message::pairs).unwrap_or_default(),
                payload: answer.payload,
            }),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::NoResponders => RequestError::NoResponders(subject),
                RequestErrorKind::TimedOut => RequestError::TimedOut(subject),
                RequestErrorKind::MaxPayloadExceeded => RequestError::TooLarge(subject),
                RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
                    RequestError::Unavailable(chain(&error))
                }
            }),
        }
    }
}
