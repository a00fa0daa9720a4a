//! The world around a runtime, as far as tests need one: upstreams and a Gateway that keep a book of what they did.
//!
//! What it does is said by a plan that travels in every payload (see [`Way`]). It is idempotent by key, as upstreams should
//! be, and it outlives the runtime: what it did before a crash it has done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use orlog_bus::{Bus, Message, codec};
use orlog_effect::{Attempt, Native, NativeCall, Policy, Provider, Refusal, Reply, Upstream};
use orlog_model::{Clock, Event, EventId, EventType, InstanceKey, Work, WorkItem};
use serde_json::{Value, json};
use uuid::Uuid;

/// How long something slow takes.
const SLOW: Duration = Duration::from_millis(20);

/// How the world answers one step or its undo. In a plan: `{"charge": "refuse", "undo:reserve": "lost"}`; what a plan does
/// not name goes well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// It is done.
    Ok,
    /// It is refused for good, and not done.
    Refuse,
    /// It is done, and the first answer is lost.
    Lost,
    /// It cannot be reached twice, then it is done.
    Down,
    /// It is done after a while.
    Slow,
    /// A command is accepted and done; the event that should answer it says that it failed.
    Reject,
    /// A command is accepted and done; the event that should answer it never comes.
    Silent,
}

impl Way {
    /// All of them, by the word that stands in plans.
    pub const ALL: [(&'static str, Way); 7] = [
        ("ok", Way::Ok),
        ("refuse", Way::Refuse),
        ("lost", Way::Lost),
        ("down", Way::Down),
        ("slow", Way::Slow),
        ("reject", Way::Reject),
        ("silent", Way::Silent),
    ];

    /// What the plan says about a tag.
    ///
    /// # Panics
    /// When the plan holds a word that is no way.
    #[must_use]
    pub fn of(plan: &Value, tag: &str) -> Self {
        let word = plan.get(tag).and_then(Value::as_str).unwrap_or("ok");
        let found = Self::ALL.into_iter().find(|(known, _)| *known == word);
        found.unwrap_or_else(|| panic!("{word:?} is no way")).1
    }
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The idempotency key under which it was done.
    pub key: Uuid,
    /// For whom.
    pub instance: InstanceKey,
    /// The step's id, or `undo:` and the step's id.
    pub tag: String,
}

/// See the top of this file.
pub struct World {
    clock: Arc<dyn Clock>,
    /// How often each event is published, each time under another id of the bus.
    echoes: usize,
    book: Mutex<Book>,
    bus: Mutex<Option<Arc<dyn Bus>>>,
}

#[derive(Default)]
struct Book {
    attempts: BTreeMap<Uuid, u32>,
    deeds: Vec<Deed>,
}

impl World {
    /// A world in which nothing has happened yet. It publishes each event `echoes` times.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, echoes: usize) -> Arc<Self> {
        Arc::new(Self { clock, echoes, book: Mutex::default(), bus: Mutex::default() })
    }

    /// From now on its events go to this bus; `None`: nowhere, and commands fail until there is a bus again.
    pub fn attach(&self, bus: Option<Arc<dyn Bus>>) {
        *self.bus.lock().unwrap_or_else(PoisonError::into_inner) = bus;
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was done, in order.
    #[must_use]
    pub fn deeds(&self) -> Vec<Deed> {
        self.book().deeds.clone()
    }

    /// The tags of what was done for an instance, in order.
    #[must_use]
    pub fn done_for(&self, instance: &InstanceKey) -> Vec<String> {
        let book = self.book();
        book.deeds.iter().filter(|deed| deed.instance == *instance).map(|deed| deed.tag.clone()).collect()
    }

    /// How often it was asked, all keys together.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.book().attempts.values().map(|count| u64::from(*count)).sum()
    }

    /// Publishes an event as often as this world does.
    ///
    /// # Errors
    /// When the bus does not take it, or there is none.
    pub async fn publish(&self, event: &Event) -> Result<(), orlog_bus::Error> {
        let bus = self.bus.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bus = bus.ok_or_else(|| orlog_bus::Error::Unavailable("there is none".to_owned()))?;
        let once = codec::encode(event, codec::subject_of(event));
        let id = once.id.clone().unwrap_or_default();
        let echo = |n| Message { id: Some(format!("{id}#{n}")), ..once.clone() };
        bus.publish((0..self.echoes).map(echo).collect()).await.map(|_| ())
    }

    /// Its upstreams: `payments`, `mail`, and the Gateway.
    #[must_use]
    pub fn upstreams(self: &Arc<Self>) -> Vec<Upstream> {
        let native = |effects: [&str; 2]| {
            effects.into_iter().fold(Native::new(), |native, effect| {
                let world = Arc::clone(self);
                native.effect(effect, move |call| perform(Arc::clone(&world), call))
            })
        };
        let patient = Policy { attempts: None, ..Policy::in_process() };
        vec![
            native(["payments.charge", "payments.refund"]).upstream("payments", patient.clone()),
            native(["mail.send", "mail.retract"]).upstream("mail", patient.clone()),
            Upstream::gateway(Arc::new(Gateway(Arc::clone(self))), patient),
        ]
    }

    /// One attempt. Under one key it is done once, however often it is asked.
    async fn attempt(&self, key: Uuid, instance: &InstanceKey, payload: &Value) -> Result<Reply, Refusal> {
        let tag = payload["tag"].as_str().expect("every payload of the test sagas names its tag");
        let way = Way::of(&payload["plan"], tag);
        if way == Way::Slow {
            self.clock.sleep_until(self.clock.now().after(SLOW)).await;
        }
        let mut book = self.book();
        let attempts = book.attempts.entry(key).or_default();
        *attempts += 1;
        let attempts = *attempts;
        match way {
            Way::Refuse => return Err(Refusal::failed("refused", format!("{tag} is refused"))),
            Way::Down if attempts < 3 => return Err(Refusal::retry("down", format!("{tag} is down"))),
            Way::Ok | Way::Lost | Way::Down | Way::Slow | Way::Reject | Way::Silent => {}
        }
        if book.deeds.iter().all(|deed| deed.key != key) {
            book.deeds.push(Deed { key, instance: instance.clone(), tag: tag.to_owned() });
        }
        if way == Way::Lost && attempts == 1 {
            return Err(Refusal::lost("lost", format!("the answer to {tag} is lost")));
        }
        Ok(Reply::from(json!({ "tag": tag })))
    }

    /// The event that answers a command.
    fn answer(&self, item: &WorkItem, kind: &str) -> Event {
        Event {
            id: EventId::new(format!("answer:{}", item.id)).expect("a UUID is short ASCII"),
            kind: EventType::new(kind).expect("a short word"),
            ..event(&item.instance, self.clock.now())
        }
    }
}

async fn perform(world: Arc<World>, call: NativeCall) -> Result<Reply, Refusal> {
    world.attempt(call.key, &call.instance, &call.payload).await
}

/// An event of the world for an instance, to be completed.
pub(crate) fn event(instance: &InstanceKey, time: orlog_model::Timestamp) -> Event {
    Event {
        id: EventId::new("event").expect("a short word"),
        tenant: instance.tenant.clone(),
        kind: EventType::new("Event").expect("a short word"),
        source: "urn:world".to_owned(),
        subject: None,
        time,
        correlation: Some(instance.correlation.clone()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: Value::Null,
    }
}

/// The Gateway of a world: takes commands and has aggregates answer with events.
struct Gateway(Arc<World>);

#[async_trait]
impl Provider for Gateway {
    async fn perform(&self, item: &WorkItem, _: Attempt) -> Result<Reply, Refusal> {
        let Work::Command(command) = &item.work else {
            return Err(Refusal::failed("no_command", "only commands come here"));
        };
        let reply = self.0.attempt(item.id, &item.instance, &command.payload).await?;
        let way = Way::of(&command.payload["plan"], command.tag.as_str());
        let kind = match (command.name.as_str(), way) {
            (_, Way::Silent) => None,
            ("Reserve", Way::Reject) => Some("StockRejected"),
            ("Reserve", _) => Some("StockReserved"),
            ("Release", _) => Some("StockReleased"),
            _ => None,
        };
        if let Some(kind) = kind {
            let published = self.0.publish(&self.0.answer(item, kind)).await;
            published.map_err(|error| Refusal::lost("no_bus", error.to_string()))?;
        }
        Ok(reply)
    }
}
