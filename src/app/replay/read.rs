//! What the bus still has of the inputs of a saga.

use std::collections::BTreeMap;

use orlog_actors::EventSource;
use orlog_bus::subject::{self, Kind};
use orlog_bus::workflow::{self, Word};
use orlog_bus::{Delivery, Since, codec, effect_queue};
use orlog_model::{Input, InstanceKey, Timestamp};
use orlog_simulator::rebuild::Told;
use uuid::Uuid;

use super::request::{MAX_INPUTS, ReplayError, ReplayOrder};
use crate::app::App;

/// What was read.
#[derive(Default)]
pub(super) struct Found {
    /// By instance, in the order in which they were published.
    pub(super) inputs: BTreeMap<InstanceKey, Vec<(Timestamp, Input)>>,
    /// What became of effects that other processes performed.
    pub(super) results: BTreeMap<Uuid, Told>,
    /// The ends of the streams.
    pub(super) ends: BTreeMap<String, u64>,
    pub(super) read: u64,
    pub(super) unreadable: u64,
    count: usize,
}

impl App {
    /// Reads every stream: behind the place that is named for it, else from the time that the order says.
    pub(super) async fn read_inputs(
        &self,
        order: &ReplayOrder,
        after: &BTreeMap<String, u64>,
    ) -> Result<Found, ReplayError> {
        let mut found = Found::default();
        for source in self.transport.sources() {
            let behind = after.get(&source.name).map(|end| Since::Sequence(end + 1));
            let since = behind.unwrap_or(Since::Time(order.from));
            let mut past = source.bus.read_past(filters(&source, order), since).await?;
            found.ends.insert(source.name.clone(), past.end());
            loop {
                let deliveries = past.next().await?;
                if deliveries.is_empty() {
                    break;
                }
                for delivery in &deliveries {
                    self.sort_in(order, delivery, &mut found);
                }
                if found.count > MAX_INPUTS {
                    return Err(ReplayError::TooMany);
                }
            }
        }
        for inputs in found.inputs.values_mut() {
            // Several streams; within one the order stays.
            inputs.sort_by_key(|(at, _)| *at);
        }
        Ok(found)
    }

    fn sort_in(&self, order: &ReplayOrder, delivery: &Delivery, found: &mut Found) {
        found.read += 1;
        let (message, at) = (&delivery.message, delivery.published_at);
        if is_result(&message.subject) {
            match effect_queue::decode_result(message) {
                Ok(said) => {
                    let told = Told { at, verdict: said.verdict, attempts: said.attempts };
                    found.results.entry(said.command_id).or_insert(told);
                }
                Err(_) => found.unreadable += 1,
            }
            return;
        }
        match self.inputs_of(order, delivery) {
            Some(inputs) => {
                let wanted = inputs.into_iter().filter(|(key, _)| {
                    key.saga == order.saga && (order.only.is_empty() || order.only.contains(&key.correlation))
                });
                for (key, input) in wanted {
                    found.count += 1;
                    found.inputs.entry(key).or_default().push((at, input));
                }
            }
            None => found.unreadable += 1,
        }
    }

    /// `None` where it cannot be read.
    fn inputs_of(&self, order: &ReplayOrder, delivery: &Delivery) -> Option<Vec<(InstanceKey, Input)>> {
        let (message, at) = (&delivery.message, delivery.published_at);
        if workflow::is_addressed(&message.subject) {
            let key = workflow::address(&message.subject).ok()?;
            let input = match workflow::decode(message, at).ok()? {
                Word::Order(command) => Input::Workflow(command),
                Word::Signal(event) => Input::Event(event),
            };
            return Some(vec![(key, input)]);
        }
        let event = codec::decode(message, at).ok()?;
        let routes = self.programs.route(&event).into_iter();
        let routes = routes.filter(|route| match route {
            Ok(key) => key.saga == order.saga,
            Err((saga, _)) => *saga == order.saga,
        });
        routes.map(|route| Some((route.ok()?, Input::Event(event.clone())))).collect()
    }
}

fn filters(source: &EventSource, order: &ReplayOrder) -> Vec<String> {
    let kinds = source.kinds.iter().copied();
    // Where effects are performed elsewhere, what became of them lies beside the facts.
    let elsewhere = source.sharing.is_some() && source.kinds.contains(&Kind::WorkflowEvent);
    let kinds = kinds.chain(elsewhere.then_some(Kind::EffectResult));
    kinds.flat_map(|kind| subject::filters(Some(&order.tenant), kind, None)).collect()
}

fn is_result(subject: &str) -> bool {
    subject::Subject::parse(subject).is_ok_and(|subject| subject.kind == Kind::EffectResult)
}
