//! Publishes a copy of every dead letter: `[tenant.<tenant>.]deadletter.<reason>.<letter id>`.
//!
//! The copy waits in the store from the commit that keeps the letter until the bus has it, so none is published before its
//! letter is kept and none is forgotten. After a crash it may be published once more, under the same id. What goes wrong
//! here never makes another letter: the bus is asked until it takes the copy, and one that is too large for it goes without
//! the original, which the letter in the store still has.

use std::convert::Infallible;
use std::sync::Arc;

use orlog_bus::subject::{Kind, Subject};
use orlog_bus::{Bus, Error as BusError, Message as BusMessage, codec};
use orlog_model::{Change, DeadLetter, Event, EventId, EventType, Input, Original};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;

use crate::abort_on_drop::Driver;
use crate::instance::completion::Done;
use crate::instance::registry::Directory;
use crate::publish_with_retry;
use crate::shard::submission::Submission;
use crate::telemetry::metrics::{ActorKind, Alive};

/// The type of the events that carry copies of dead letters.
const DEAD_LETTER: &str = "orlog.dead_letter";
/// Copies read at once.
const PAGE: usize = 16;

/// What of a letter everybody may read, as a JSON object; the original under `original`.
pub type ShowLetter = Arc<dyn Fn(&DeadLetter) -> Value + Send + Sync>;

/// The actor.
pub(crate) struct Postman;

/// What it needs.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) directory: Arc<Directory>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) show: ShowLetter,
}

/// What it is told.
pub(crate) enum Message {
    /// The task that publishes ended.
    Ended(String),
}

/// What it holds.
pub(crate) struct State {
    _publishing: Driver,
    _alive: Alive,
}

impl Actor for Postman {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.directory.context.metrics.begin(ActorKind::Postman);
        let publishing = async move {
            let Err(why) = publish_all(arguments).await;
            why.to_string()
        };
        Ok(State { _publishing: Driver::start(&myself, publishing, Message::Ended), _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Message::Ended(why) = message;
        Err(why.into())
    }
}

/// Publishes until something fails. What lies there from a former life comes first.
async fn publish_all(arguments: Arguments) -> Result<Infallible, ActorProcessingErr> {
    let Arguments { directory, bus, show } = arguments;
    let context = &directory.context;
    let mut after = 0;
    loop {
        let page = context.reader.unpublished_letters(after, PAGE)?;
        if page.is_empty() {
            context.letters.notified().await;
        }
        for (sequence, letter) in page {
            publish(&*bus, &letter, show(&letter)).await;
            let change = Change::PublishedLetter { sequence };
            directory.committer()?.submit(Submission::of(change, Done::Nothing))?;
            after = sequence;
        }
    }
}

/// Returns when the bus has the copy.
async fn publish(bus: &dyn Bus, letter: &DeadLetter, shown: Value) {
    let whole = message(letter, shown.clone());
    let Err(error) = offer(bus, whole).await else { return };
    if let Err(error) = offer(bus, message(letter, without_original(letter, shown, &error))).await {
        let (tenant, id) = (&letter.tenant, &letter.id);
        tracing::error!(%tenant, %id, %error, "the bus never takes the copy of this dead letter; `orlog dlq show` has it");
    }
}

/// Tries until the bus has it; an error means that it never will.
async fn offer(bus: &dyn Bus, message: BusMessage) -> Result<(), BusError> {
    publish_with_retry::publish(bus, vec![message], "copies of dead letters").await
}

fn without_original(letter: &DeadLetter, mut shown: Value, error: &BusError) -> Value {
    if let Value::Object(fields) = &mut shown {
        fields.insert("original".to_owned(), Value::Null);
        let left_out = format!("{error}; `orlog dlq show {}` has the original", letter.id);
        fields.insert("left_out".to_owned(), Value::from(left_out));
    }
    shown
}

fn message(letter: &DeadLetter, data: Value) -> BusMessage {
    let id = letter.id.to_string();
    let subject = Subject::new(letter.tenant.clone(), Kind::DeadLetter, letter.reason.as_str(), id.as_str());
    let event = event(letter, EventId::new(id.as_str()).expect("a UUID is short ASCII"), data);
    BusMessage { id: Some(id), ..codec::encode(&event, subject.to_string()) }
}

fn event(letter: &DeadLetter, id: EventId, data: Value) -> Event {
    let instance = letter.instance.as_ref();
    let input = match &letter.original {
        Original::Input(input) => Some(&**input),
        Original::Message { .. } => None,
    };
    let trace = match input {
        Some(Input::Event(event)) => event.trace.clone(),
        _ => None,
    };
    Event {
        id,
        tenant: letter.tenant.clone(),
        kind: EventType::new(DEAD_LETTER).expect("a short word"),
        source: instance.map_or_else(|| "orlog".to_owned(), |key| format!("orlog:{}", key.saga)),
        subject: instance.map(|key| key.correlation.to_string()),
        time: letter.at,
        correlation: instance.map(|key| key.correlation.clone()),
        causation: input.map(|input| input.id().to_string()),
        trace,
        schema_version: 1,
        data,
    }
}
