//! Publishes facts and what sagas say to each other: both go to the bus under the id of their work item, so that a second
//! time is no second event.

use std::sync::Arc;

use orlog_bus::subject::{Kind, Subject};
use orlog_bus::{Bus, Message as BusMessage, codec, workflow};
use orlog_model::{
    CorrelationId, Event, EventId, Fact, InstanceKey, Parent, SagaName, Verdict, Work, WorkItem,
    WorkflowCommand, WorkflowOrder,
};
use orlog_store::Error as StoreError;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use crate::abort_on_drop::Driver;
use crate::effects::work_dispatch::Offer;
use crate::publish_with_retry;
use crate::telemetry::about;
use crate::telemetry::metrics::{ActorKind, Alive, Metrics, Waiting};

/// For the log.
const WHAT: &str = "facts and words between sagas";
/// Offers that are published in one go.
const AT_ONCE: usize = 1024;

/// The actor.
pub(crate) struct Publisher;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What it is told.
pub(crate) enum Message {
    /// Facts and words to other sagas.
    Offers(Vec<Offer>, Waiting),
    /// The task that publishes ended.
    Ended(String),
}

/// What it holds. Dropping it gives up what waits and what is under way; the offers go back to the relay.
pub(crate) struct State {
    waiting: mpsc::UnboundedSender<(Offer, Waiting)>,
    metrics: Arc<Metrics>,
    _publishing: Driver,
    _alive: Alive,
}

impl Actor for Publisher {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { bus, metrics }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let (waiting, offers) = mpsc::unbounded_channel();
        let publishing = Driver::start(&myself, publish_all(bus, offers), Message::Ended);
        let alive = metrics.begin(ActorKind::Publisher);
        Ok(State { waiting, metrics, _publishing: publishing, _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Offers(offers, waited) => {
                drop(waited);
                for offer in offers {
                    let waiting = state.metrics.wait(ActorKind::Publisher, 1);
                    // An error gives an offer back to be dropped, and dropped it returns to the relay.
                    drop(state.waiting.send((offer, waiting)));
                }
            }
            Message::Ended(why) => return Err(why.into()),
        }
        Ok(())
    }
}

/// One batch after the other: what an instance says is heard in the order in which it was said, also where the bus is away
/// for a while. What came meanwhile goes together.
async fn publish_all(bus: Arc<dyn Bus>, mut waiting: mpsc::UnboundedReceiver<(Offer, Waiting)>) -> String {
    let mut offers = Vec::new();
    while waiting.recv_many(&mut offers, AT_ONCE).await > 0 {
        publish(&*bus, offers.drain(..).map(|(offer, _)| offer).collect()).await;
    }
    "nobody offers any more".to_owned()
}

async fn publish(bus: &dyn Bus, offers: Vec<Offer>) {
    let all: Result<Vec<_>, _> = offers.iter().filter_map(|offer| message(offer).transpose()).collect();
    if let Ok(all) = all
        && publish_with_retry::publish(bus, all, WHAT).await.is_ok()
    {
        return offers.into_iter().for_each(accept);
    }
    // One of them spoils the others: which, shows one by one.
    for offer in offers {
        match publish_one(bus, &offer).await {
            Ok(()) => accept(offer),
            Err(why) => {
                let (key, trace, id) = (&offer.item.instance, offer.item.trace.as_ref(), offer.item.id);
                about!(ERROR, key, trace, %id, why, "it is not published; it is tried again");
            }
        }
    }
}

async fn publish_one(bus: &dyn Bus, offer: &Offer) -> Result<(), String> {
    let message = message(offer).map_err(|error| error.to_string())?;
    let one = message.into_iter().collect();
    publish_with_retry::publish(bus, one, WHAT).await.map_err(|error| error.to_string())
}

fn accept(offer: Offer) {
    offer.conclude(orlog_effect::Done::nothing(Verdict::Accepted), true);
}

fn message(offer: &Offer) -> Result<Option<BusMessage>, StoreError> {
    let item = &offer.item;
    let key = |saga: &SagaName, correlation: &CorrelationId| InstanceKey {
        tenant: item.instance.tenant.clone(),
        saga: saga.clone(),
        correlation: correlation.clone(),
    };
    Ok(match &item.work {
        Work::Fact(fact) => Some(told(item, fact)),
        Work::Start(start) => {
            let parent = Parent { key: item.instance.clone(), work_id: item.id, depth: depth(offer)? + 1 };
            let order = WorkflowOrder::Start { parent, event: start.event.clone(), data: start.data.clone() };
            Some(ordered(item, &key(&start.saga, &start.correlation), order))
        }
        Work::Stop(stop) => {
            let order = WorkflowOrder::Stop { from: item.instance.clone(), reason: stop.reason.clone() };
            Some(ordered(item, &key(&stop.saga, &stop.correlation), order))
        }
        Work::End(end) => Some(ordered(item, &end.to, WorkflowOrder::Ended(end.ended.clone()))),
        Work::Command(_) | Work::Effect(_) => None,
    })
}

/// How many sagas stand above the one that asks. It never changes, so it need not travel with every item.
fn depth(offer: &Offer) -> Result<u16, StoreError> {
    let instance = offer.directory.context.reader.instance(&offer.item.instance)?;
    Ok(instance.and_then(|instance| instance.parent).map_or(0, |parent| parent.depth))
}

fn ordered(item: &WorkItem, to: &InstanceKey, order: WorkflowOrder) -> BusMessage {
    let id = workflow::order_id(item.id);
    let command = WorkflowCommand { id, at: item.created_at, trace: item.trace.clone(), order };
    workflow::encode(to, &item.instance, &command)
}

fn told(item: &WorkItem, fact: &Fact) -> BusMessage {
    let InstanceKey { tenant, saga, correlation } = &item.instance;
    let subject = Subject::new(tenant.clone(), Kind::WorkflowEvent, saga.as_str(), correlation.as_str());
    codec::encode(&event(item, fact), subject.to_string())
}

/// A fact as an event.
fn event(item: &WorkItem, fact: &Fact) -> Event {
    Event {
        id: EventId::new(item.id.to_string()).expect("a UUID is short ASCII"),
        tenant: item.instance.tenant.clone(),
        kind: fact.kind.clone(),
        source: format!("orlog:{}", item.instance.saga),
        subject: Some(item.instance.correlation.to_string()),
        time: item.created_at,
        correlation: Some(item.instance.correlation.clone()),
        causation: Some(item.causation.to_string()),
        trace: item.trace.clone(),
        schema_version: 1,
        data: fact.data.clone(),
    }
}
