//! Request and reply over NATS, as NATS services implement it.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_trait::async_trait;

use super::connection::chain;
use super::{Connection, message};
use crate::Message;
use crate::requests::{RequestClient, RequestError, Response};

#[async_trait]
impl RequestClient for Connection {
    async fn request(&self, message: Message, within: Duration) -> Result<Response, RequestError> {
        let request = Request::new()
            .payload(message.payload.clone())
            .headers(message::headers(&message))
            .timeout(Some(within));
        let subject = message.subject;
        match self.client.send_request(subject.clone(), request).await {
            Ok(response) => Ok(Response {
                headers: response.headers.as_ref().map(message::header_pairs).unwrap_or_default(),
                payload: response.payload,
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
