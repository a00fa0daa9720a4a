//! Reader of the inputs of a saga that the bus still stores.

use std::collections::BTreeMap;

use orlog_actors::{EventSource, ProgramRegistry};
use orlog_bus::effect_queue::EffectResult;
use orlog_bus::subject::{self, SubjectKind};
use orlog_bus::workflow::{self, WorkflowMessage};
use orlog_bus::{Delivery, ScanStart, codec, effect_queue};
use orlog_model::{ControlAction, Input, InstanceKey, Timestamp};
use orlog_simulator::rebuild::RecordedResult;
use uuid::Uuid;

use super::request::{MAX_INPUTS, ReplayError, ReplayRequest};

/// Inputs read from the bus.
#[derive(Default)]
pub(crate) struct ReplayInputs {
    /// Inputs by instance, in publication order.
    pub(crate) inputs: BTreeMap<InstanceKey, Vec<(Timestamp, Input)>>,
    /// Results of effects by work id; of several results, the first one.
    pub(crate) results: BTreeMap<Uuid, RecordedResult>,
    /// End positions of the streams.
    pub(crate) end_sequences: BTreeMap<String, u64>,
    pub(crate) read: u64,
    pub(crate) undecodable: u64,
    count: usize,
}

impl ReplayInputs {
    fn add_result(&mut self, result: EffectResult, published_at: Timestamp) {
        let EffectResult {
            command_id,
            outcome,
            attempts,
            attempt_log,
            stored_at,
            ..
        } = result;
        let at = stored_at.unwrap_or(published_at);

        self.results.entry(command_id).or_insert(RecordedResult {
            at,
            outcome,
            attempts,
            attempt_log,
        });
    }
}

/// Reads every stream after its configured position, else from the time of the request.
pub(crate) async fn read_inputs(
    sources: &[EventSource],
    programs: &ProgramRegistry,
    order: &ReplayRequest,
    after: &BTreeMap<String, u64>,
) -> Result<ReplayInputs, ReplayError> {
    let mut found = ReplayInputs::default();
    for source in sources.iter().filter(|source| !source.has_dead_letters()) {
        let behind = after
            .get(&source.name)
            .map(|end| ScanStart::Sequence(end + 1));
        let since = behind.unwrap_or(ScanStart::Time(order.from));
        let mut scan = source.bus.scan(filters(source, order), since).await?;
        // `catch_up` continues behind this position.
        found
            .end_sequences
            .insert(source.name.clone(), scan.end_sequence());

        loop {
            let deliveries = scan.next().await?;
            if deliveries.is_empty() {
                break;
            }

            for delivery in &deliveries {
                add_delivery(source, programs, order, delivery, &mut found);
            }

            if found.count > MAX_INPUTS {
                return Err(ReplayError::TooMany);
            }
        }
    }

    for inputs in found.inputs.values_mut() {
        // There are several streams; the sort is stable, so the order within a stream stays.
        inputs.sort_by_key(|(at, _)| *at);
    }

    Ok(found)
}

fn add_delivery(
    source: &EventSource,
    programs: &ProgramRegistry,
    order: &ReplayRequest,
    delivery: &Delivery,
    found: &mut ReplayInputs,
) {
    found.read += 1;

    // The ingester dead-letters it.
    if delivery.defect.is_some() {
        found.undecodable += 1;
        return;
    }

    let message = &delivery.message;
    let at = delivery.published_at;
    let is_own_message = is_result(&message.subject);
    // A result is a message of its own, or a part of a fact.
    let result = if is_own_message {
        Some(effect_queue::decode_result(message))
    } else {
        effect_queue::decode_carried(message)
    };

    match result {
        // Without a valid signature, any publisher could forge results; live shards reject them,
        // too.
        Some(Ok(result)) if source.bus.rejection(message).is_none() => found.add_result(result, at),
        Some(_) => found.undecodable += 1,
        None => {}
    }

    if is_own_message {
        return;
    }

    match inputs_of(source, programs, order, delivery) {
        Some(inputs) => {
            let matching = inputs.into_iter().filter(|(key, _)| {
                key.saga == order.saga
                    && (order.only.is_empty() || order.only.contains(&key.correlation))
            });
            for (key, input) in matching {
                found.count += 1;
                found.inputs.entry(key).or_default().push((at, input));
            }
        }
        None => found.undecodable += 1,
    }
}

/// Decodes the inputs of a message; `None` if it cannot be decoded or is not authentic.
fn inputs_of(
    source: &EventSource,
    programs: &ProgramRegistry,
    order: &ReplayRequest,
    delivery: &Delivery,
) -> Option<Vec<(InstanceKey, Input)>> {
    let message = &delivery.message;
    let at = delivery.published_at;
    if workflow::is_instance_subject(&message.subject) {
        let key = workflow::instance_of(&message.subject).ok()?;
        let input = match workflow::decode(message, at).ok()? {
            // Nodes sign commands; signals have the signature of an actor or a node, which `check`
            // verifies.
            WorkflowMessage::Command(_) if source.bus.rejection(message).is_some() => return None,
            WorkflowMessage::Command(command) => Input::Workflow(command),
            WorkflowMessage::Signal(mut event) => {
                source.check(delivery, &mut event).ok()?;
                Input::Event(event)
            }
            WorkflowMessage::ConditionalSignal(mut request) => {
                if let ControlAction::Deliver { event, .. } = &mut request.action {
                    source.check(delivery, event).ok()?;
                }
                Input::Control(request)
            }
        };

        return Some(vec![(key, input)]);
    }

    let mut event = codec::decode(message, at).ok()?;
    source.check(delivery, &mut event).ok()?;

    let routes = programs.route(&event).into_iter();
    // A failure in another saga does not make the message undecodable for this one.
    let routes = routes.filter(|route| match route {
        Ok(key) => key.saga == order.saga,
        Err((saga, _)) => *saga == order.saga,
    });

    routes
        .map(|route| Some((route.ok()?, Input::Event(event.clone()))))
        .collect()
}

fn filters(source: &EventSource, order: &ReplayRequest) -> Vec<String> {
    let kinds = source.kinds.iter().copied();
    let mut filters: Vec<String> = kinds
        .flat_map(|kind| subject::filters(Some(&order.tenant), kind, None))
        .collect();

    // The results of effects are stored beside the facts.
    if source.kinds.contains(&SubjectKind::WorkflowEvent) {
        filters.extend(subject::result_filters(Some(&order.tenant)));
    }

    filters
}

fn is_result(subject: &str) -> bool {
    subject::Subject::parse(subject).is_ok_and(|subject| subject.kind == SubjectKind::EffectResult)
}
