//! Redelivery: instances receive the inputs of the bus that they have not applied, as if the
//! checkpoint of their saga was reset.
//!
//! No input is applied twice: an input is delivered only if neither the history of its instance nor
//! the dedupe keys contain it. If that cannot be determined, the instance is skipped.

use std::sync::Arc;

use futures::StreamExt as _;
use orlog_actors::{ControlError, Runtime};
use orlog_model::{Clock, HistoryEntry, Input, Instance, InstanceKey, Timestamp};
use orlog_program::Program;
use orlog_store::Reader;

use super::read::ReplayInputs;
use super::request::{MAX_CONCURRENT, ReplayError, ReplayRequest, ReplayResult, ReplayedInstance};

/// Instance with the inputs that it receives.
struct PlannedRedelivery {
    replayed: ReplayedInstance,
    inputs: Vec<Input>,
}

/// Redelivery to the instances of this process.
#[derive(Clone)]
pub(super) struct Redelivery {
    pub(super) runtime: Arc<Runtime>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Redelivery {
    /// Delivers the inputs that their instances have not applied.
    pub(super) async fn run(
        &self,
        order: &ReplayRequest,
        program: &Arc<dyn Program>,
        found: ReplayInputs,
    ) -> Result<Vec<ReplayedInstance>, ReplayError> {
        let planned = {
            let redelivery = self.clone();
            let program = Arc::clone(program);
            tokio::task::spawn_blocking(move || redelivery.plan(program.as_ref(), found)).await
        };
        let planned = planned.map_err(|_| ReplayError::ShuttingDown)??;

        // The plan is the result: the same code decides about a dry run and a delivery.
        if order.dry_run {
            return Ok(planned
                .into_iter()
                .map(|planned| planned.replayed)
                .collect());
        }

        let delivered = planned.into_iter().map(|planned| self.deliver(planned));
        let delivered: Vec<_> = futures::stream::iter(delivered)
            .buffered(MAX_CONCURRENT)
            .collect()
            .await;

        delivered.into_iter().collect()
    }

    fn plan(
        &self,
        program: &dyn Program,
        found: ReplayInputs,
    ) -> Result<Vec<PlannedRedelivery>, ReplayError> {
        let mut planned = Vec::new();
        for (key, inputs) in found.inputs {
            // Another process owns the shard, and redelivers to its own instances.
            let Some(reader) = self.runtime.reader(&key) else {
                continue;
            };

            let plan = InstanceRedelivery {
                key: &key,
                reader: &reader,
                now: self.clock.now(),
            };
            let (before, result, inputs) = plan.evaluate(program, inputs)?;
            let before = before.map(|instance| instance.status);
            let replayed = ReplayedInstance {
                key,
                before,
                after: before,
                result,
                work: 0,
                inputs: inputs.len(),
            };

            planned.push(PlannedRedelivery { replayed, inputs });
        }

        Ok(planned)
    }

    /// Delivers the inputs in order. An input that its instance rejects or dead-letters does not
    /// stop the others.
    async fn deliver(&self, planned: PlannedRedelivery) -> Result<ReplayedInstance, ReplayError> {
        let PlannedRedelivery {
            mut replayed,
            inputs,
        } = planned;
        // One after the other, because the inputs of an instance have an order.
        for input in inputs {
            match self.runtime.deliver_again(&replayed.key, input).await {
                Ok(_) | Err(ControlError::Rejected(_) | ControlError::DeadLettered(_)) => {}
                Err(error @ ControlError::Unavailable) => return Err(error.into()),
            }
        }

        if let Some(reader) = self.runtime.reader(&replayed.key) {
            replayed.after = reader
                .instance(&replayed.key)?
                .map(|instance| instance.status);
        }

        Ok(replayed)
    }
}

/// Decision about the redelivery to one instance.
struct InstanceRedelivery<'a> {
    key: &'a InstanceKey,
    reader: &'a Reader,
    now: Timestamp,
}

/// Instance before the redelivery, the result, and the inputs to deliver.
type RedeliveryDecision = (Option<Instance>, ReplayResult, Vec<Input>);

impl InstanceRedelivery<'_> {
    fn evaluate(
        &self,
        program: &dyn Program,
        inputs: Vec<(Timestamp, Input)>,
    ) -> Result<RedeliveryDecision, ReplayError> {
        let skipped =
            |before, reason: String| Ok((before, ReplayResult::Skipped(reason), Vec::new()));
        let instance = match self.reader.instance(self.key) {
            Err(error) if error.is_damage() => {
                return skipped(None, "its data cannot be read; rebuild it".to_owned());
            }
            instance => instance?,
        };

        let history = self.reader.history(self.key, 0, usize::MAX)?;

        // Before the horizon, dedupe keys are deleted, and only a complete history proves that an
        // input was not applied.
        let horizon = self.reader.dedupe_horizon(self.now)?;
        let mut missed = Vec::new();
        for (at, input) in inputs {
            if self.is_applied(&history, &input)? {
                continue;
            }
            if at < horizon && !is_complete(instance.as_ref(), &history) {
                let label = input.label();
                return skipped(
                    instance,
                    format!("it cannot be determined whether {label} at {at} was applied"),
                );
            }

            missed.push(input);
        }

        if missed.is_empty() {
            return Ok((instance, ReplayResult::Unchanged, missed));
        }

        match &instance {
            Some(instance) if instance.paused => skipped(
                Some(instance.clone()),
                "it is paused; resume it first".to_owned(),
            ),
            // Without a start event, the inputs would become early events of an instance that never
            // starts.
            None if !missed.iter().any(|input| starts(program, input)) => {
                let reason = "no start event since then, or the instance was purged; rebuild it";
                skipped(None, reason.to_owned())
            }
            None => Ok((None, ReplayResult::Created, missed)),
            Some(_) => Ok((instance, ReplayResult::Redelivered, missed)),
        }
    }

    fn is_applied(&self, history: &[HistoryEntry], input: &Input) -> Result<bool, ReplayError> {
        let id = input.id();
        Ok(history.iter().any(|entry| entry.input_id == id)
            || self
                .reader
                .is_duplicate(self.key, input.identity(), self.now)?)
    }
}

/// Returns whether the history has every transition of the instance. Without an instance, an
/// earlier one may have been purged.
fn is_complete(instance: Option<&Instance>, history: &[HistoryEntry]) -> bool {
    instance.is_some() && history.first().is_some_and(|entry| entry.version == 1)
}

fn starts(program: &dyn Program, input: &Input) -> bool {
    match input {
        Input::Event(event) => program
            .manifest()
            .subscriptions
            .iter()
            .any(|of| of.starts && of.kind == event.kind),
        Input::Workflow(command) => {
            matches!(command.action, orlog_model::WorkflowAction::Start { .. })
        }
        Input::WorkResult(_) | Input::Timer(_) | Input::Control(_) | Input::Early(_) => false,
    }
}
