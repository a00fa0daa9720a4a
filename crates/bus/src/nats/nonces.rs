//! Nonces of signed requests, and grants of forwarded requests, which the pods of a cluster share
//! in a stream.
//!
//! A record has a name and can be created once while the stream retains it. A tombstone keeps the
//! name of a record that was taken. The leader of the stream decides, so that two pods never accept
//! the same name.

use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, Stream};

use super::connection::{Connection, chain, unavailable};
use super::stream_config::StreamSpec;
use crate::Error;

/// Name of the stream.
pub const NONCE_STREAM: &str = "ORLOG_NONCES";
/// Prefix of the subjects.
const PREFIX: &str = "orlog.nonce.";
/// Maximum size of the stream, in bytes: about 1.6 million records.
const MAX_BYTES: i64 = 256 << 20;
/// Window in which the server deduplicates messages. Records have no message ids.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(1);

/// Records in the stream.
pub struct NonceStream {
    connection: Connection,
    stream: Stream<()>,
}

impl NonceStream {
    /// Returns the specification of the stream. A name can be created again after `retention`.
    #[must_use]
    pub fn stream_spec(retention: Duration, replicas: usize) -> StreamSpec {
        let config = Config {
            name: NONCE_STREAM.to_owned(),
            description: Some("Nonces of signed requests".to_owned()),
            subjects: vec![format!("{PREFIX}*")],
            max_age: retention,
            // A full stream rejects the next record: to drop an old one would permit its
            // repetition.
            max_bytes: MAX_BYTES,
            discard: DiscardPolicy::New,
            max_messages_per_subject: 1,
            duplicate_window: DUPLICATE_WINDOW,
            num_replicas: replicas,
            // The last value is read from the leader.
            allow_direct: false,
            ..Config::default()
        };
        StreamSpec {
            config,
            is_external: false,
        }
    }

    /// Opens the existing stream.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn open(connection: &Connection) -> Result<Self, Error> {
        let stream = connection
            .jetstream
            .get_stream_no_info(NONCE_STREAM)
            .await
            .map_err(unavailable)?;
        Ok(Self {
            connection: connection.clone(),
            stream,
        })
    }

    /// Creates a record; `false` if one with this name exists, also if it was taken.
    ///
    /// # Errors
    /// If the servers do not respond. It is then unknown whether the record exists.
    pub async fn create(&self, name: &str, body: Vec<u8>) -> Result<bool, Error> {
        self.put(name, body, 0).await
    }

    /// Takes a record: returns its body once. `None` if there is none, or if it was taken.
    ///
    /// # Errors
    /// If the servers do not respond. It is then unknown whether the record was taken.
    pub async fn take(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let last = self
            .stream
            .get_last_raw_message_by_subject(&format!("{PREFIX}{name}"))
            .await;
        let record = match last {
            Ok(message) => message,
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(None),
            Err(error) => return Err(unavailable(error)),
        };

        // The tombstone decides between two pods that take the record at the same time.
        let is_taken =
            record.payload.is_empty() || !self.put(name, Vec::new(), record.sequence).await?;
        Ok((!is_taken).then(|| record.payload.to_vec()))
    }

    /// Replaces the message of a name if its sequence is `seen`; 0: if there is none.
    async fn put(&self, name: &str, body: Vec<u8>, seen: u64) -> Result<bool, Error> {
        let message = PublishMessage::build()
            .payload(body.into())
            .expected_last_subject_sequence(seen);

        let ack = self
            .connection
            .jetstream
            .send_publish(format!("{PREFIX}{name}"), message)
            .await;

        match async { ack?.await }.await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(false),
            // In a cluster, a second message in flight is rejected with another code (10164).
            Err(error) if chain(&error).contains("wrong last sequence") => Ok(false),
            Err(error) => Err(unavailable(error)),
        }
    }
}
