//! Publishes a copy of every dead letter: `[tenant.<tenant>.]deadletter.<reason>.<letter id>`.
//!
//! The commit that stores the dead letter also stores the copy, which stays in the store until the
//! bus has it. So no copy is published before its dead letter is stored, and no copy is lost. After
//! a crash, a copy may be published again under the same id. A failure here never creates another
//! dead letter: the publisher retries until the bus accepts the copy. A copy that is too large is
//! published without the original, which remains in the stored dead letter.

use std::sync::Arc;

use orlog_bus::subject::{Subject, SubjectKind};
use orlog_bus::{Bus, Error as BusError, Message as BusMessage, codec};
use orlog_model::{Change, DeadLetter, DeadLetterOriginal, Event, EventId, EventType, Input};
use orlog_store::Reader;
use serde_json::Value;
use tokio::sync::Notify;

use crate::instance::completion::Completion;
use crate::publish::publish_with_retry;
use crate::shard::submission::{CommitterHandle, Submission};
use crate::supervision::TaskKind;
use crate::telemetry::metrics::ActorKind;

/// Type of the events that carry copies of dead letters.
const DEAD_LETTER: &str = "orlog.dead_letter";
/// Number of copies read per page.
const PAGE: usize = 16;

/// Encodes the public part of a dead letter as a JSON object, with the original under `original`.
pub type DeadLetterEncoder = Arc<dyn Fn(&DeadLetter) -> Value + Send + Sync>;

/// Dead-letter publisher actor.
pub(crate) struct DeadLetterPublisher;

impl TaskKind for DeadLetterPublisher {
    const KIND: ActorKind = ActorKind::DeadLetterPublisher;
}

/// Arguments of the dead-letter publisher.
pub(crate) struct Arguments {
    pub(crate) reader: Reader,
    pub(crate) committer: CommitterHandle,
    /// Notified when dead letters were added.
    pub(crate) added: Arc<Notify>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) encoder: DeadLetterEncoder,
}

/// Publishes copies until an error occurs, starting with those of a previous incarnation.
pub(crate) async fn publish_all(arguments: Arguments) -> Result<(), String> {
    let Arguments {
        reader,
        committer,
        added,
        bus,
        encoder,
    } = arguments;

    let mut after = 0;
    loop {
        let page = reader
            .unpublished_dead_letters(after, PAGE)
            .map_err(|error| error.to_string())?;

        if page.is_empty() {
            added.notified().await;
        }

        for (sequence, dead_letter) in page {
            publish(&*bus, &dead_letter, encoder(&dead_letter)).await;
            let change = Change::DeadLetterPublished { sequence };
            let submission = Submission::new(change, Completion::None);
            committer
                .submit(submission)
                .map_err(|error| error.to_string())?;
            after = sequence;
        }
    }
}

/// Publishes the copy and returns when the bus has stored it.
async fn publish(bus: &dyn Bus, dead_letter: &DeadLetter, encoded: Value) {
    let message_with_original = message(dead_letter, encoded.clone());
    let Err(error) = try_publish(bus, message_with_original).await else {
        return;
    };

    let cut = message(dead_letter, without_original(dead_letter, encoded, &error));
    if let Err(error) = try_publish(bus, cut).await {
        tracing::error!(
            tenant = %dead_letter.tenant, id = %dead_letter.id, %error,
            "dead letter cannot be published; see `orlog dlq show`"
        );
    }
}

/// Retries until the bus stores the message; returns an error if the bus rejects it permanently.
async fn try_publish(bus: &dyn Bus, message: BusMessage) -> Result<(), BusError> {
    let message = Arc::new(message);
    publish_with_retry(bus, || vec![Arc::clone(&message)], "dead letter copies").await
}

fn without_original(dead_letter: &DeadLetter, mut encoded: Value, error: &BusError) -> Value {
    if let Value::Object(fields) = &mut encoded {
        fields.insert("original".to_owned(), Value::Null);
        let omission = format!(
            "{error}; `orlog dlq show {}` has the original",
            dead_letter.id
        );
        fields.insert("left_out".to_owned(), Value::from(omission));
    }
    encoded
}

fn message(dead_letter: &DeadLetter, data: Value) -> BusMessage {
    let id = dead_letter.id.to_string();
    let subject = Subject::new(
        dead_letter.tenant.clone(),
        SubjectKind::DeadLetter,
        dead_letter.reason.as_str(),
        id.as_str(),
    );

    let event = event(
        dead_letter,
        EventId::new(id.as_str()).expect("a UUID is short ASCII"),
        data,
    );

    BusMessage {
        id: Some(id),
        ..codec::encode(&event, subject.to_string())
    }
}

fn event(dead_letter: &DeadLetter, id: EventId, data: Value) -> Event {
    let instance = dead_letter.instance.as_ref();
    let input = match &dead_letter.original {
        DeadLetterOriginal::Input(input) => Some(&**input),
        DeadLetterOriginal::Message { .. } => None,
    };
    let trace = match input {
        Some(Input::Event(event)) => event.trace.clone(),
        _ => None,
    };

    Event {
        id,
        tenant: dead_letter.tenant.clone(),
        kind: EventType::new(DEAD_LETTER).expect("the constant is a valid event type"),
        source: instance.map_or_else(|| "orlog".to_owned(), |key| format!("orlog:{}", key.saga)),
        subject: instance.map(|key| key.correlation.to_string()),
        time: dead_letter.at,
        correlation: instance.map(|key| key.correlation.clone()),
        causation: input.map(|input| input.id().to_string()),
        trace,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}
