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
use tokio::task::JoinSet;

use crate::offer::Offer;

/// The actor.
pub(crate) struct Publisher;

/// Offers of facts and of words to other sagas.
pub(crate) struct Message(pub(crate) Vec<Offer>);

/// What it holds. Dropping it gives up what is under way; the offers go back to the relay.
pub(crate) struct State {
    bus: Arc<dyn Bus>,
    tasks: JoinSet<()>,
}

impl Actor for Publisher {
    type Msg = Message;
    type State = State;
    type Arguments = Arc<dyn Bus>;

    async fn pre_start(&self, _: ActorRef<Message>, bus: Arc<dyn Bus>) -> Result<State, ActorProcessingErr> {
        Ok(State { bus, tasks: JoinSet::new() })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        Message(offers): Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        while state.tasks.try_join_next().is_some() {}
        state.tasks.spawn(publish(Arc::clone(&state.bus), offers));
        Ok(())
    }
}

async fn publish(bus: Arc<dyn Bus>, offers: Vec<Offer>) {
    let published = match offers.iter().filter_map(|offer| message(offer).transpose()).collect() {
        Ok(messages) => bus.publish(messages).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match published {
        Ok(_) => offers
            .into_iter()
            .for_each(|offer| offer.conclude(orlog_effect::Done::nothing(Verdict::Accepted), true)),
        Err(error) => {
            tracing::warn!(error, count = offers.len(), "facts were not published; they are tried again");
        }
    }
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
