//! Publishes facts: workflow events go to the bus under the id of their work item, so that a second time is no second event.

use std::sync::Arc;

use orlog_bus::subject::{Kind, Subject};
use orlog_bus::{Bus, Message as BusMessage, codec};
use orlog_model::{Event, EventId, Fact, InstanceKey, Verdict, Work, WorkItem};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;

use crate::offer::Offer;

/// The actor.
pub(crate) struct Publisher;

/// Offers of facts.
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
    let messages = offers.iter().filter_map(|offer| message(&offer.item)).collect();
    match bus.publish(messages).await {
        Ok(_) => offers.into_iter().for_each(|offer| offer.conclude(Verdict::Accepted, 1, true)),
        Err(error) => {
            tracing::warn!(%error, count = offers.len(), "facts were not published; they are tried again");
        }
    }
}

fn message(item: &WorkItem) -> Option<BusMessage> {
    let Work::Fact(fact) = &item.work else { return None };
    let InstanceKey { tenant, saga, correlation } = &item.instance;
    let subject = Subject::new(tenant.clone(), Kind::WorkflowEvent, saga.as_str(), correlation.as_str());
    Some(codec::encode(&event(item, fact), subject.to_string()))
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
