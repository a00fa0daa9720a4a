//! Requests that other clients send to a subject of this one. The members of a queue group share
//! them.
//!
//! A response goes only to a subject for responses: a requester names any subject, and the servers
//! would publish the response there with the permissions of this client.

use std::sync::Arc;

use async_nats::{Client, Subject, Subscriber};
use futures::StreamExt as _;

use super::Connection;
use super::connection::unavailable;
use super::message::{from_nats, header_map};
use crate::requests::Response;
use crate::{Error, Message};

/// Prefixes of subjects for responses: of clients, and of servers that carry a request to another
/// account.
const REPLY_PREFIXES: [&str; 2] = ["_INBOX.", "_R_."];

/// Requests on a subject, also after the client has reconnected.
pub struct Requests {
    subscriber: Subscriber,
    client: Client,
}

/// Received request.
pub struct ReceivedRequest {
    /// Its subject, headers and body.
    pub message: Arc<Message>,
    reply: Subject,
    client: Client,
}

impl Connection {
    /// Receives the requests on a subject, which the members of a queue group share. If this client
    /// lacks the permission, it receives none.
    ///
    /// # Errors
    /// If the subject is invalid, or the client is closed.
    pub async fn requests(&self, subject: &str, group: &str) -> Result<Requests, Error> {
        let subscriber = self
            .client
            .queue_subscribe(subject.to_owned(), group.to_owned())
            .await;
        Ok(Requests {
            subscriber: subscriber.map_err(unavailable)?,
            client: self.client.clone(),
        })
    }
}

impl Requests {
    /// Returns the next request that can be answered; `None` after [`Self::drain`], when none is
    /// left.
    pub async fn next(&mut self) -> Option<ReceivedRequest> {
        loop {
            let mut message = self.subscriber.next().await?;
            let reply = message.reply.take().filter(|reply| is_reply_subject(reply));
            if let Some(reply) = reply {
                let client = self.client.clone();
                return Some(ReceivedRequest {
                    message: from_nats(message),
                    reply,
                    client,
                });
            }

            tracing::debug!(
                subject = %message.subject,
                "request without a subject for its response ignored"
            );
        }
    }

    /// Ends the subscription. Requests that have arrived can still be read.
    pub async fn drain(&mut self) {
        if let Err(error) = self.subscriber.drain().await {
            tracing::debug!(%error, "the client is closed");
        }
    }
}

impl ReceivedRequest {
    /// Sends the response. It can be lost, as the request.
    ///
    /// # Errors
    /// If it is larger than the server accepts, or if the client is closed.
    pub async fn respond(self, response: Response) -> Result<(), Error> {
        let headers = header_map(&response.headers);
        let sent = self
            .client
            .publish_with_headers(self.reply, headers, response.payload)
            .await;
        sent.map_err(unavailable)
    }
}

fn is_reply_subject(subject: &str) -> bool {
    REPLY_PREFIXES
        .iter()
        .any(|prefix| subject.starts_with(prefix))
}
