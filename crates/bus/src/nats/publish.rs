//! Publisher: sends messages concurrently where possible and waits for every acknowledgement.
//!
//! At most one message of a subject is in flight. If the first were rejected during a leader
//! election and the second accepted, a retry of both would reverse them. Order is guaranteed per
//! subject, so messages of different subjects are sent concurrently.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};

use super::connection::{Connection, chain};
use super::message::to_nats;
use crate::codec::MAX_MESSAGE_BYTES;
use crate::subject::check_subject;
use crate::{Error, Message, PublishAck};

/// Maximum number of unacknowledged messages of one publish. A publish acquires all its permits at
/// once, so that no publish waits for another while it has part of its permits.
const MAX_PENDING_PUBLISHES: usize = 1024;
/// Delay and number of attempts while the servers of a stream elect a leader (5 s in total; an
/// election in a healthy cluster takes less). During the election no server subscribes to its
/// subjects and no message is stored, so a retry is safe.
const LEADER_RETRY_DELAY: Duration = Duration::from_millis(250);
const LEADER_MAX_ATTEMPTS: usize = 20;

/// Returns the maximum size of a message, in bytes.
pub(super) fn max_message_size(connection: &Connection) -> usize {
    connection.max_payload().min(MAX_MESSAGE_BYTES)
}

/// Publishes in order; each stream stores the messages of its subjects.
pub(super) async fn publish(
    connection: &Connection,
    messages: &[Arc<Message>],
) -> Result<Vec<PublishAck>, Error> {
    let limit = max_message_size(connection);
    messages
        .iter()
        .try_for_each(|message| check(message, limit))?;

    // A single message is the usual publish, and needs no set of subjects.
    if messages.len() < 2 {
        return publish_run(connection, messages).await;
    }

    let mut receipts = Vec::with_capacity(messages.len());
    // A run starts after all acknowledgements of the previous one, so each subject has one message
    // in flight.
    for run in runs(messages) {
        receipts.extend(publish_run(connection, run).await?);
    }
    Ok(receipts)
}

/// Splits messages into runs without a duplicate subject.
fn runs(messages: &[Arc<Message>]) -> Vec<&[Arc<Message>]> {
    let mut runs = Vec::new();
    let mut start = 0;
    let mut subjects = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        if index - start == MAX_PENDING_PUBLISHES || !subjects.insert(message.subject.as_str()) {
            runs.push(&messages[start..index]);
            subjects.clear();
            subjects.insert(message.subject.as_str());
            start = index;
        }
    }
    runs.push(&messages[start..]);
    runs
}

fn check(message: &Message, limit: usize) -> Result<(), Error> {
    check_subject(&message.subject)?;
    let size = message.size();
    if size > limit {
        Err(Error::TooLarge { size, limit })
    } else {
        Ok(())
    }
}

/// Publishes messages that fit in the window of the connection. Those without a leader are sent
/// again; the last attempt stores all, or fails.
async fn publish_run(
    connection: &Connection,
    run: &[Arc<Message>],
) -> Result<Vec<PublishAck>, Error> {
    let mut receipts = vec![None; run.len()];
    for tries in 1..=LEADER_MAX_ATTEMPTS {
        let waiting: Vec<usize> = (0..run.len())
            .filter(|&index| receipts[index].is_none())
            .collect();
        let count = u32::try_from(waiting.len()).expect("a run is small");
        let permit = connection
            .window
            .acquire_many(count)
            .await
            .map_err(|_| Error::Unavailable("the connection is closed".to_owned()))?;

        let acks = send(connection, run, &waiting).await?;
        for (index, ack) in waiting.into_iter().zip(acks) {
            match ack.await {
                Ok(ack) => {
                    receipts[index] = Some(PublishAck {
                        sequence: ack.sequence,
                        duplicate: ack.duplicate,
                    });
                }
                // No server has stored it; it is sent again.
                Err(error) if has_no_responders(&error) && tries < LEADER_MAX_ATTEMPTS => {}
                Err(error) => return Err(failed(&error, &run[index])),
            }
        }

        // Other publishers continue during the delay.
        drop(permit);
        if receipts.iter().all(Option::is_some) {
            break;
        }
        tokio::time::sleep(LEADER_RETRY_DELAY).await;
    }
    Ok(receipts.into_iter().flatten().collect())
}

async fn send(
    connection: &Connection,
    run: &[Arc<Message>],
    indices: &[usize],
) -> Result<Vec<PublishAckFuture>, Error> {
    // Before the first is sent: an invalid message leaves nothing half published.
    let prepared = indices
        .iter()
        .map(|&index| to_nats(&run[index]))
        .collect::<Result<Vec<_>, _>>()?;

    let mut acks = Vec::with_capacity(indices.len());
    for (&index, prepared) in indices.iter().zip(prepared) {
        let sent = connection
            .jetstream
            .send_publish(run[index].subject.clone(), prepared)
            .await;
        acks.push(sent.map_err(|error| failed(&error, &run[index]))?);
    }
    Ok(acks)
}

fn has_no_responders(error: &PublishError) -> bool {
    error.kind() == PublishErrorKind::StreamNotFound
}

/// Maps a publish error. It is unknown whether the message was stored, unless the server reports
/// that it is full or that the message is too large.
fn failed(error: &PublishError, message: &Message) -> Error {
    let subject = &message.subject;
    match error.kind() {
        PublishErrorKind::StreamNotFound => Error::Unavailable(format!(
            "no stream accepts {subject}, or it has had no leader for seconds; run `orlog streams \
             diff` to list missing streams"
        )),
        PublishErrorKind::TimedOut => {
            Error::Unavailable(format!("the servers did not acknowledge {subject} in time"))
        }
        PublishErrorKind::MaxPayloadExceeded => too_large(message),
        _ => map_server_error(error, message),
    }
}

/// Maps the error code of the server.
fn map_server_error(error: &PublishError, message: &Message) -> Error {
    let code = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>())
        .map(async_nats::jetstream::Error::error_code);
    match code {
        Some(
            ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
        ) => too_large(message),
        Some(
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES
            | ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::STREAM_STORE_FAILED,
        ) => Error::Full(format!(
            "{}; raise the limits of the stream or of the account",
            chain(error)
        )),
        _ => Error::Unavailable(format!("{}: {}", message.subject, chain(error))),
    }
}

fn too_large(message: &Message) -> Error {
    let size = message.size();
    Error::TooLarge {
        size,
        // The server does not state its limit, only that the size exceeds it.
        limit: size.saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_runs(subjects: &[&str], expected: &[usize]) {
        let message = |subject: &&str| {
            Arc::new(Message {
                subject: (*subject).to_owned(),
                id: None,
                headers: Vec::new(),
                payload: bytes::Bytes::new(),
            })
        };
        let messages: Vec<_> = subjects.iter().map(message).collect();
        let lengths: Vec<usize> = runs(&messages).iter().map(|run| run.len()).collect();
        assert_eq!(lengths, expected, "{subjects:?}");
    }

    #[test]
    fn publish_batches_keep_order_per_subject() {
        check_runs(&["a", "b", "c"], &[3]);
        check_runs(&["a", "a", "a"], &[1, 1, 1]);
        check_runs(&["a", "b", "a", "b", "c", "b"], &[2, 3, 1]);
        let many: Vec<String> = (0..=MAX_PENDING_PUBLISHES)
            .map(|number| number.to_string())
            .collect();
        check_runs(
            &many.iter().map(String::as_str).collect::<Vec<_>>(),
            &[MAX_PENDING_PUBLISHES, 1],
        );
        check_runs(&[], &[0]);
    }
}
