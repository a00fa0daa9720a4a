//! Fake upstreams of a runtime: upstreams and a gateway that record the executed actions.
//!
//! A plan in every payload determines their behavior (see [`FakeBehavior`]). They are idempotent by
//! key, as upstreams should be, and outlive the runtime: actions executed before a crash stay executed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use orlog_bus::{Bus, Message, codec};
use orlog_effect::{
    Attempt, FunctionCall, FunctionProvider, Policy, Provider, ProviderError, Reply, Upstream,
};
use orlog_model::{Clock, Event, EventId, EventType, Fact, InstanceKey, TenantId, Work, WorkItem};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

/// Delay of a slow response.
const SLOW: Duration = Duration::from_millis(20);

/// Behavior for one step or its compensation. In a plan: `{"charge": "error", "compensate:reserve":
/// "lost"}`; a tag that the plan does not name succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FakeBehavior {
    /// The action is executed.
    Ok,
    /// The action is rejected permanently and not executed.
    Reject,
    /// The action is executed, and the first response is lost.
    ResponseLost,
    /// The upstream is unavailable for two attempts, then the action is executed.
    Unavailable,
    /// The action is executed after a delay.
    Slow,
    /// A command is accepted and executed; its event reports a failure.
    FailureEvent,
    /// A command is accepted and executed; its event never arrives.
    NoEvent,
}

impl FakeBehavior {
    /// All behaviors with their names in plans.
    pub const ALL: [(&'static str, FakeBehavior); 7] = [
        ("ok", FakeBehavior::Ok),
        ("error", FakeBehavior::Reject),
        ("lost", FakeBehavior::ResponseLost),
        ("down", FakeBehavior::Unavailable),
        ("slow", FakeBehavior::Slow),
        ("reject", FakeBehavior::FailureEvent),
        ("silent", FakeBehavior::NoEvent),
    ];

    /// Returns the behavior of a tag in the plan.
    ///
    /// # Panics
    /// If the plan contains an unknown behavior.
    #[must_use]
    pub fn of(plan: &Value, tag: &str) -> Self {
        let name = plan.get(tag).and_then(Value::as_str).unwrap_or("ok");
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found
            .unwrap_or_else(|| panic!("unknown behavior {name:?}"))
            .1
    }
}

/// Executed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutedAction {
    /// Idempotency key of the execution.
    pub key: Uuid,
    /// Instance that requested the action.
    pub instance: InstanceKey,
    /// Step id, or `compensate:` and the step id.
    pub tag: String,
}

/// Called at the start of each attempt, with the instance and the idempotency key.
pub type AttemptObserver = Arc<dyn Fn(&InstanceKey, Uuid) + Send + Sync>;

/// Fake upstreams; see the module documentation.
pub struct FakeUpstreams {
    clock: Arc<dyn Clock>,
    /// Number of publications of each event, each with another message id.
    duplicates: usize,
    /// Whether every attempt fails as unavailable.
    is_down: Arc<AtomicBool>,
    /// Tenants whose attempts fail as unavailable.
    down_tenants: Arc<Mutex<BTreeSet<TenantId>>>,
    log: Arc<Mutex<ExecutionLog>>,
    bus: Mutex<Option<Arc<dyn Bus>>>,
    observer: Option<AttemptObserver>,
}

#[derive(Default)]
struct ExecutionLog {
    attempts: BTreeMap<Uuid, u32>,
    total_attempts: u64,
    executed: Vec<ExecutedAction>,
    /// Positions of the actions of each instance.
    by_instance: BTreeMap<InstanceKey, Vec<usize>>,
}

impl ExecutionLog {
    fn of<'a>(&'a self, instance: &InstanceKey) -> impl Iterator<Item = &'a ExecutedAction> {
        let positions = self
            .by_instance
            .get(instance)
            .map(Vec::as_slice)
            .unwrap_or_default();
        positions.iter().map(|position| &self.executed[*position])
    }

    /// Adds an action, unless its key was executed. The key of an action belongs to one instance.
    fn execute(&mut self, action: ExecutedAction) {
        if self
            .of(&action.instance)
            .all(|executed| executed.key != action.key)
        {
            self.by_instance
                .entry(action.instance.clone())
                .or_default()
                .push(self.executed.len());
            self.executed.push(action);
        }
    }
}

impl FakeUpstreams {
    /// Creates upstreams without executed actions. They publish each event `duplicates` times.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, duplicates: usize) -> Arc<Self> {
        Arc::new(Self {
            clock,
            duplicates,
            is_down: Arc::default(),
            down_tenants: Arc::default(),
            log: Arc::default(),
            bus: Mutex::default(),
            observer: None,
        })
    }

    /// Returns the same upstreams as another process reaches them: with its bus and its observer.
    #[must_use]
    pub fn observed(&self, bus: Option<Arc<dyn Bus>>, observer: AttemptObserver) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(&self.clock),
            duplicates: self.duplicates,
            is_down: Arc::clone(&self.is_down),
            down_tenants: Arc::clone(&self.down_tenants),
            log: Arc::clone(&self.log),
            bus: Mutex::new(bus),
            observer: Some(observer),
        })
    }

    /// Makes all upstreams and the gateway unavailable, or available again.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Makes all upstreams unavailable to one tenant, or available again.
    pub fn set_down_for(&self, tenant: &TenantId, is_down: bool) {
        let mut tenants = self.down_tenants.lock();
        if is_down {
            tenants.insert(tenant.clone());
        } else {
            tenants.remove(tenant);
        }
    }

    fn is_down_for(&self, tenant: &TenantId) -> bool {
        let tenants = self.down_tenants.lock();
        self.is_down.load(Ordering::SeqCst) || tenants.contains(tenant)
    }

    /// Connects the upstreams to this bus. With `None`, commands fail until a bus is connected again.
    pub fn connect(&self, bus: Option<Arc<dyn Bus>>) {
        *self.bus.lock() = bus;
    }

    /// Returns the connected bus.
    #[must_use]
    pub fn bus(&self) -> Option<Arc<dyn Bus>> {
        self.bus.lock().clone()
    }

    /// Returns all executed actions in order.
    #[must_use]
    pub fn executed(&self) -> Vec<ExecutedAction> {
        self.log.lock().executed.clone()
    }

    /// Returns the tags of the actions executed for an instance, in order.
    #[must_use]
    pub fn executed_for(&self, instance: &InstanceKey) -> Vec<String> {
        self.log
            .lock()
            .of(instance)
            .map(|action| action.tag.clone())
            .collect()
    }

    /// Returns the number of attempts under all keys.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.log.lock().total_attempts
    }

    /// Publishes an event with the configured number of duplicates.
    ///
    /// # Errors
    /// The bus rejects the event, or no bus is connected.
    pub async fn publish(&self, event: &Event) -> Result<(), orlog_bus::Error> {
        let bus = self
            .bus()
            .ok_or_else(|| orlog_bus::Error::Unavailable("no bus is connected".to_owned()))?;
        let once = codec::encode(event, codec::aggregate_subject(event));
        let id = once.id.clone().unwrap_or_default();
        let duplicate = |n| {
            Arc::new(Message {
                id: Some(format!("{id}#{n}")),
                ..once.clone()
            })
        };
        bus.publish((0..self.duplicates).map(duplicate).collect())
            .await
            .map(|_| ())
    }

    /// Returns the upstreams `payments`, `mail`, and the gateway.
    #[must_use]
    pub fn upstreams(self: &Arc<Self>) -> Vec<Upstream> {
        let native = |effects: [&str; 2]| {
            effects
                .into_iter()
                .fold(FunctionProvider::new(), |native, effect| {
                    let upstreams = Arc::clone(self);
                    native.effect(effect, move |call| perform(Arc::clone(&upstreams), call))
                })
        };
        let policy = Policy {
            max_attempts: None,
            ..Policy::in_process()
        };
        vec![
            native(["payments.charge", "payments.refund"]).upstream("payments", policy.clone()),
            native(["mail.send", "mail.retract"]).upstream("mail", policy.clone()),
            Upstream::gateway(Arc::new(FakeGateway(Arc::clone(self))), policy),
        ]
    }

    /// Executes one attempt. The action is executed once per key, regardless of the number of attempts.
    async fn attempt(
        &self,
        key: Uuid,
        instance: &InstanceKey,
        payload: &Value,
    ) -> Result<Reply, ProviderError> {
        let tag = payload["tag"]
            .as_str()
            .expect("every payload of the test sagas contains its tag");
        let behavior = FakeBehavior::of(&payload["plan"], tag);
        if let Some(observer) = &self.observer {
            observer(instance, key);
        }
        if behavior == FakeBehavior::Slow {
            self.clock
                .sleep_until(self.clock.steady().saturating_add(SLOW))
                .await;
        }
        let mut log = self.log.lock();
        log.total_attempts += 1;
        let attempts = log.attempts.entry(key).or_default();
        *attempts += 1;
        let attempts = *attempts;
        if self.is_down_for(&instance.tenant) {
            return Err(ProviderError::unavailable(
                "unavailable",
                format!("{tag} is unavailable"),
            ));
        }
        match behavior {
            FakeBehavior::Reject => {
                return Err(ProviderError::permanent(
                    "rejected",
                    format!("{tag} is rejected"),
                ));
            }
            FakeBehavior::Unavailable if attempts < 3 => {
                return Err(ProviderError::unavailable(
                    "unavailable",
                    format!("{tag} is unavailable"),
                ));
            }
            FakeBehavior::Ok
            | FakeBehavior::ResponseLost
            | FakeBehavior::Unavailable
            | FakeBehavior::Slow
            | FakeBehavior::FailureEvent
            | FakeBehavior::NoEvent => {}
        }
        log.execute(ExecutedAction {
            key,
            instance: instance.clone(),
            tag: tag.to_owned(),
        });
        if behavior == FakeBehavior::ResponseLost && attempts == 1 {
            return Err(ProviderError::response_lost(
                "response_lost",
                format!("the response to {tag} is lost"),
            ));
        }
        let facts = payload["facts"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let facts =
            facts.map(|kind| Fact::new(EventType::new(kind).expect("a valid name"), Value::Null));
        Ok(Reply::from(json!({ "tag": tag })).with_facts(facts))
    }

    /// Returns the event that completes a command.
    fn completion_event(&self, item: &WorkItem, kind: &str) -> Event {
        Event {
            id: EventId::new(format!("response:{}", item.id)).expect("a UUID is a valid event id"),
            kind: EventType::new(kind).expect("a valid name"),
            ..event(&item.instance, self.clock.now())
        }
    }
}

async fn perform(
    upstreams: Arc<FakeUpstreams>,
    call: FunctionCall,
) -> Result<Reply, ProviderError> {
    upstreams
        .attempt(call.idempotency_key, &call.instance, &call.payload)
        .await
}

/// Returns an incomplete event for an instance.
#[must_use]
pub fn event(instance: &InstanceKey, time: orlog_model::Timestamp) -> Event {
    Event {
        id: EventId::new("event").expect("a valid name"),
        tenant: instance.tenant.clone(),
        kind: EventType::new("Event").expect("a valid name"),
        source: "urn:fake-upstreams".to_owned(),
        subject: None,
        time,
        correlation: Some(instance.correlation.clone()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: Value::Null,
        user: None,
        attributes: None,
    }
}

/// Fake gateway: accepts commands; its aggregates emit the events.
struct FakeGateway(Arc<FakeUpstreams>);

#[async_trait]
impl Provider for FakeGateway {
    async fn execute(&self, item: &WorkItem, _: Attempt) -> Result<Reply, ProviderError> {
        let Work::Command(command) = &item.work else {
            return Err(ProviderError::permanent(
                "no_command",
                "the gateway accepts only commands",
            ));
        };
        let reply = self
            .0
            .attempt(item.id, &item.instance, &command.payload)
            .await?;
        let behavior = FakeBehavior::of(&command.payload["plan"], command.tag.as_str());
        let kind = match (command.name.as_str(), behavior) {
            (_, FakeBehavior::NoEvent) => None,
            ("Reserve", FakeBehavior::FailureEvent) => Some("StockRejected"),
            ("Reserve", _) => Some("StockReserved"),
            ("Release", _) => Some("StockReleased"),
            _ => None,
        };
        if let Some(kind) = kind {
            let published = self.0.publish(&self.0.completion_event(item, kind)).await;
            published.map_err(|error| ProviderError::response_lost("no_bus", error.to_string()))?;
        }
        Ok(reply)
    }
}
