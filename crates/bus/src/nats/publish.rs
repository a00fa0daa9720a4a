//! Publishing: what can be is sent at once, every acknowledgement is awaited.
//!
//! Not more than one message of a subject is under way: were the first refused while a leader is chosen and the second taken,
//! sending both again would turn them round. Subjects are what order is kept by, so messages of different ones go together.

use std::collections::HashSet;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};

use super::connection::{Connection, chain};
use super::message::to_nats;
use crate::codec::MAX_MESSAGE_BYTES;
use crate::subject::check_subject;
use crate::{Error, Message, Receipt};

/// Messages of one publish that wait for their acknowledgement at once. A share of what all may have is taken whole, so that
/// none waits for another with a share in hand.
const WINDOW: usize = 1024;
/// While the servers of a stream choose a leader nobody listens under its subjects, and what is sent there is nowhere: it can be
/// sent again, and is, with this pause, so many times (5 s: an election in a cluster that has time for it takes less).
const LEADER_PAUSE: Duration = Duration::from_millis(250);
const LEADER_TRIES: usize = 20;

/// Publishes in order; the streams take what is under their subjects.
pub(super) async fn publish(connection: &Connection, messages: &[Message]) -> Result<Vec<Receipt>, Error> {
    let limit = connection.max_payload().min(MAX_MESSAGE_BYTES);
    messages.iter().try_for_each(|message| check(message, limit))?;
    if messages.len() < 2 {
        return publish_run(connection, messages).await;
    }
    let mut receipts = Vec::with_capacity(messages.len());
    for run in runs(messages) {
        receipts.extend(publish_run(connection, run).await?);
    }
    Ok(receipts)
}

/// Cuts messages into runs in which no subject comes twice.
fn runs(messages: &[Message]) -> Vec<&[Message]> {
    let (mut runs, mut begin, mut subjects) = (Vec::new(), 0, HashSet::new());
    for (place, message) in messages.iter().enumerate() {
        if place - begin == WINDOW || !subjects.insert(message.subject.as_str()) {
            runs.push(&messages[begin..place]);
            subjects.clear();
            subjects.insert(message.subject.as_str());
            begin = place;
        }
    }
    runs.push(&messages[begin..]);
    runs
}

fn check(message: &Message, limit: usize) -> Result<(), Error> {
    check_subject(&message.subject)?;
    let size = message.size();
    if size > limit { Err(Error::TooLarge { size, limit }) } else { Ok(()) }
}

async fn publish_run(connection: &Connection, run: &[Message]) -> Result<Vec<Receipt>, Error> {
    let mut receipts = vec![None; run.len()];
    for tries in 1..=LEADER_TRIES {
        let waiting: Vec<usize> = (0..run.len()).filter(|&place| receipts[place].is_none()).collect();
        let share = u32::try_from(waiting.len()).expect("a run is small");
        let closed = |_| Error::Unavailable("the connection is closed".to_owned());
        let share = connection.window.acquire_many(share).await.map_err(closed)?;
        let acks = send(connection, run, &waiting).await?;
        for (place, ack) in waiting.into_iter().zip(acks) {
            match ack.await {
                Ok(ack) => {
                    receipts[place] = Some(Receipt { sequence: ack.sequence, duplicate: ack.duplicate });
                }
                Err(error) if nobody_listens(&error) && tries < LEADER_TRIES => {}
                Err(error) => return Err(failed(&error, &run[place])),
            }
        }
        drop(share);
        if receipts.iter().all(Option::is_some) {
            break;
        }
        tokio::time::sleep(LEADER_PAUSE).await;
    }
    Ok(receipts.into_iter().flatten().collect())
}

async fn send(
    connection: &Connection,
    run: &[Message],
    places: &[usize],
) -> Result<Vec<PublishAckFuture>, Error> {
    let prepared = places.iter().map(|&place| to_nats(&run[place])).collect::<Result<Vec<_>, _>>()?;
    let mut acks = Vec::with_capacity(places.len());
    for (&place, prepared) in places.iter().zip(prepared) {
        let sent = connection.jetstream.send_publish(run[place].subject.clone(), prepared).await;
        acks.push(sent.map_err(|error| failed(&error, &run[place]))?);
    }
    Ok(acks)
}

fn nobody_listens(error: &PublishError) -> bool {
    error.kind() == PublishErrorKind::StreamNotFound
}

/// Whether it landed is not known but where the server says that there is no room, or that it is too large.
fn failed(error: &PublishError, message: &Message) -> Error {
    let subject = &message.subject;
    match error.kind() {
        PublishErrorKind::StreamNotFound => Error::Unavailable(format!(
            "no stream takes {subject}, or it has had no leader for seconds; `orlog streams diff` tells which are missing"
        )),
        PublishErrorKind::TimedOut => {
            Error::Unavailable(format!("the servers did not acknowledge {subject} in time"))
        }
        PublishErrorKind::MaxPayloadExceeded => too_large(message),
        _ => refused(error, message),
    }
}

/// What the server says, by its number.
fn refused(error: &PublishError, message: &Message) -> Error {
    let code = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>())
        .map(async_nats::jetstream::Error::error_code);
    match code {
        Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM) => {
            too_large(message)
        }
        Some(
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES
            | ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::STREAM_STORE_FAILED,
        ) => Error::Full(format!("{}; raise the limits of the stream or of the account", chain(error))),
        _ => Error::Unavailable(format!("{}: {}", message.subject, chain(error))),
    }
}

fn too_large(message: &Message) -> Error {
    let size = message.size();
    Error::TooLarge { size, limit: size.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_runs(subjects: &[&str], expected: &[usize]) {
        let message = |subject: &&str| Message {
            subject: (*subject).to_owned(),
            id: None,
            headers: Vec::new(),
            payload: bytes::Bytes::new(),
        };
        let messages: Vec<Message> = subjects.iter().map(message).collect();
        let lengths: Vec<usize> = runs(&messages).iter().map(|run| run.len()).collect();
        assert_eq!(lengths, expected, "{subjects:?}");
    }

    #[test]
    fn no_subject_comes_twice_in_a_run_and_nothing_is_turned_round() {
        check_runs(&["a", "b", "c"], &[3]);
        check_runs(&["a", "a", "a"], &[1, 1, 1]);
        check_runs(&["a", "b", "a", "b", "c", "b"], &[2, 3, 1]);
        let many: Vec<String> = (0..=WINDOW).map(|number| number.to_string()).collect();
        check_runs(&many.iter().map(String::as_str).collect::<Vec<_>>(), &[WINDOW, 1]);
        check_runs(&[], &[0]);
    }
}
