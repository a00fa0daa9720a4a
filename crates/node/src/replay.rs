//! Replay: rebuilds the instances of a saga from their inputs that the bus still stores.
//!
//! The rebuild runs beside the live instances, which continue. Then one commit replaces each
//! instance, if its state is unchanged since it was read. An interrupted replay leaves complete
//! instances and is repeated. Inputs that the bus received meanwhile are delivered to the replaced
//! instances afterwards.
//!
//! An instance is skipped if the bus does not store its complete history: it started earlier, or it
//! applied an input that was never on the bus (a control request, a task outcome, the result of a
//! command). An instance that changed since then without any input on the bus is skipped, too
//! (`omitted.rs`).
//!
//! A redelivery (`redeliver.rs`) rebuilds nothing: it delivers the inputs that the instances have
//! not applied.

mod eligibility;
mod omitted;
mod read;
mod redeliver;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use orlog_actors::{ControlError, EventSource, ProgramRegistry, Runtime};
use orlog_model::{
    Clock, ControlAction, ControlRequest, EventId, HistoryEntry, Input, InstanceKey,
    InstanceReplacement, OutboxKey, Timestamp, WorkItem,
};
use orlog_program::Program;
use orlog_simulator::rebuild::{RebuildInput, RebuiltInstance, RecordedResult, TimeMode, rebuild};
use uuid::Uuid;

use crate::definitions::change::DefinitionLocks;
use eligibility::ReplayCandidate;
use read::ReplayInputs;
use redeliver::Redelivery;
use request::MAX_CONCURRENT;

pub use request::{
    ReplayError, ReplayMode, ReplayReport, ReplayRequest, ReplayResult, ReplayWorkMode,
    ReplayedInstance,
};

/// Outbox rows per read.
const PAGE: usize = 1000;

/// Rebuilt instance.
struct RebuiltCandidate {
    replayed: ReplayedInstance,
    replacement: Option<(InstanceReplacement, u64)>,
}

/// Replays of recorded inputs.
pub struct Replays {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) locks: Arc<DefinitionLocks>,
    pub(crate) sources: Vec<EventSource>,
    /// Name of the node.
    pub(crate) node: String,
}

impl Replays {
    /// Replays a saga of a tenant for the instances of this process. Completes even if the caller
    /// disconnects.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub async fn replay(
        self: &Arc<Self>,
        order: ReplayRequest,
    ) -> Result<ReplayReport, ReplayError> {
        let replays = Arc::clone(self);
        let whole = tokio::spawn(async move {
            // Prevents a deployment in between.
            let _alone = replays.locks.deploying.lock().await;
            replays.replay_alone(Arc::new(order)).await
        });
        whole.await.unwrap_or(Err(ReplayError::ShuttingDown))
    }

    async fn replay_alone(
        self: &Arc<Self>,
        order: Arc<ReplayRequest>,
    ) -> Result<ReplayReport, ReplayError> {
        // The built-in sagas receive no events.
        let is_definition = !orlog_program::is_built_in(order.saga.as_str());
        let program = self
            .programs
            .active(&order.tenant, &order.saga)
            .filter(|_| is_definition);
        let program = program.ok_or_else(|| ReplayError::NoDefinition(order.saga.clone()))?;
        let found = self.inputs(&order, &BTreeMap::new()).await?;
        let read = found.read;
        let undecodable = found.undecodable;
        let omitted = match order.mode {
            ReplayMode::Rebuild(_) => self.omitted(&order, &found).await?,
            // An instance without inputs on the bus has none to receive.
            ReplayMode::Redeliver => Vec::new(),
        };

        let mut instances = match order.mode {
            ReplayMode::Rebuild(work) => self.rebuild(&order, work, program, found).await?,
            ReplayMode::Redeliver => {
                let redelivery = Redelivery {
                    runtime: Arc::clone(&self.runtime),
                    clock: Arc::clone(&self.clock),
                };
                redelivery.run(&order, &program, found).await?
            }
        };

        instances.extend(omitted);
        instances.sort_by(|a, b| a.key.cmp(&b.key));

        let replay = ReplayReport {
            read,
            undecodable,
            instances,
        };
        if !order.dry_run {
            tracing::warn!(
                tenant = %order.tenant,
                saga = %order.saga,
                from = %order.from,
                mode = ?order.mode,
                by = order.user,
                reason = order.reason,
                instances = replay.instances.len(),
                "replayed"
            );
        }

        Ok(replay)
    }

    /// Returns the instances that a rebuild omits, with the reasons.
    async fn omitted(
        self: &Arc<Self>,
        order: &Arc<ReplayRequest>,
        found: &ReplayInputs,
    ) -> Result<Vec<ReplayedInstance>, ReplayError> {
        let known: BTreeSet<InstanceKey> = found.inputs.keys().cloned().collect();
        let runtime = Arc::clone(&self.runtime);
        let order = Arc::clone(order);

        tokio::task::spawn_blocking(move || omitted::find(&runtime, &order, &known))
            .await
            .map_err(|_| ReplayError::ShuttingDown)?
    }

    /// Rebuilds the instances and replaces those that changed.
    async fn rebuild(
        self: &Arc<Self>,
        order: &Arc<ReplayRequest>,
        work: ReplayWorkMode,
        program: Arc<dyn Program>,
        found: ReplayInputs,
    ) -> Result<Vec<ReplayedInstance>, ReplayError> {
        // Inputs that arrive from here on are read again by `catch_up`.
        let end_sequences = found.end_sequences.clone();
        let worked = {
            let replays = Arc::clone(self);
            let order = Arc::clone(order);
            tokio::task::spawn_blocking(move || {
                replays.rebuild_candidates(&order, work, &program, found)
            })
            .await
        };
        let worked = worked.map_err(|_| ReplayError::ShuttingDown)??;

        if order.dry_run {
            return Ok(worked.into_iter().map(|worked| worked.replayed).collect());
        }

        let replaced = worked.into_iter().map(|worked| self.replace(worked, order));

        // In order and bounded: each replacement is a commit of its shard, beside those of new
        // events.
        let replaced: Vec<_> = futures::stream::iter(replaced)
            .buffered(MAX_CONCURRENT)
            .collect()
            .await;

        let mut instances = Vec::new();
        let mut failure = None;
        for replaced in replaced {
            match replaced {
                Ok(instance) => instances.push(instance),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }

        // Also after a failure of another shard: the replaced instances lack the events that were
        // published since, and no later replay would know that.
        let caught_up = self.catch_up(order, &end_sequences, &instances).await;
        match failure {
            Some(error) => Err(error),
            None => caught_up.map(|()| instances),
        }
    }

    async fn inputs(
        &self,
        order: &ReplayRequest,
        after: &BTreeMap<String, u64>,
    ) -> Result<ReplayInputs, ReplayError> {
        read::read_inputs(&self.sources, &self.programs, order, after).await
    }

    /// Rebuilds the state of each instance.
    fn rebuild_candidates(
        &self,
        order: &ReplayRequest,
        work: ReplayWorkMode,
        program: &Arc<dyn Program>,
        found: ReplayInputs,
    ) -> Result<Vec<RebuiltCandidate>, ReplayError> {
        // Once for all instances: the outbox has no index by instance.
        let waiting = self.waiting_work(order)?;
        let mut worked = Vec::new();
        let mut results = found.results;
        for (key, mut inputs) in found.inputs {
            let key = &key;
            let Some(reader) = self.runtime.reader(key) else {
                continue;
            };

            // A replay repairs an instance whose snapshot cannot be read.
            let (old, is_unreadable) = match reader.instance(key) {
                Err(error) if error.is_damage() => (None, true),
                old => (old?, false),
            };
            let is_stored = old.is_some() || is_unreadable;
            let history = if is_stored {
                reader.history(key, 0, usize::MAX)?
            } else {
                Vec::new()
            };

            use_recorded_times(&history, &mut inputs, &mut results);
            let remains = RebuildInput {
                program: Arc::clone(program),
                key,
                inputs: &inputs,
                results: &results,
                history_payload_bytes: self.runtime.history_payload_bytes(),
            };
            let rebuilt = rebuild(&remains, self.pace(work));
            let rows = waiting.get(key).map_or(&[][..], Vec::as_slice);
            let case = ReplayCandidate {
                order,
                work,
                old: old.as_ref(),
                is_unreadable,
                history: &history,
                rebuild_input: &remains,
            };

            // Decided before the replacement is built, so that a dry run returns the same result.
            let result = case.evaluate(&rebuilt);
            let is_applied = matches!(result, ReplayResult::Created | ReplayResult::Replaced);
            let mut replayed = ReplayedInstance {
                key: key.clone(),
                before: old.as_ref().map(|old| old.status),
                after: rebuilt.instance.as_ref().map(|instance| instance.status),
                result,
                work: 0,
                inputs: 0,
            };

            let version = old.as_ref().map(|old| old.version);
            // If the snapshot cannot be read, the history has its version.
            let version = version
                .or(history.last().map(|entry| entry.version))
                .unwrap_or_default();
            let replacement = is_applied
                .then(|| self.replacement(order, work, key, rebuilt, version, rows))
                .flatten();

            replayed.work = replacement
                .as_ref()
                .map_or(0, |replacement| replacement.work.len());
            worked.push(RebuiltCandidate {
                replayed,
                replacement: replacement.map(|it| (it, version)),
            });
        }

        Ok(worked)
    }

    fn pace(&self, work: ReplayWorkMode) -> TimeMode {
        let now = self.clock.now();
        match work {
            ReplayWorkMode::Suppress => TimeMode::Recorded(now),
            ReplayWorkMode::Emit => TimeMode::Immediate(now),
        }
    }

    /// Returns the pending work of the saga's instances from the outboxes.
    fn waiting_work(
        &self,
        order: &ReplayRequest,
    ) -> Result<BTreeMap<InstanceKey, Vec<(OutboxKey, WorkItem)>>, ReplayError> {
        let mut waiting: BTreeMap<InstanceKey, Vec<_>> = BTreeMap::new();
        for reader in self.runtime.readers() {
            for destination in reader.tenant_destinations(&order.tenant)? {
                let mut after = 0;
                loop {
                    let page = reader.outbox(&destination, after, PAGE)?;
                    let Some((last, _)) = page.last() else { break };
                    after = last.sequence;

                    for (location, item) in page {
                        let of = &item.instance;
                        // A destination has the work of all sagas of the tenant.
                        if of.saga == order.saga {
                            waiting
                                .entry(of.clone())
                                .or_default()
                                .push((location, item));
                        }
                    }
                }
            }
        }

        Ok(waiting)
    }

    fn replacement(
        &self,
        order: &ReplayRequest,
        mode: ReplayWorkMode,
        key: &InstanceKey,
        rebuilt: RebuiltInstance,
        old_version: u64,
        rows: &[(OutboxKey, WorkItem)],
    ) -> Option<InstanceReplacement> {
        let RebuiltInstance {
            instance,
            mut history,
            dedupe_keys: applied,
            tasks,
            mut work,
            ..
        } = rebuilt;
        let mut instance = instance?;

        instance.node = self.node.as_str().into();

        // The outbox keeps these rows, so their results belong to the first request.
        for open in &mut instance.pending_work {
            if let Some((_, item)) = rows.iter().find(|(_, item)| item.id == open.id) {
                open.requested_at = item.created_at;
            }
        }

        // A version identifies one state: a request or a copy that has the old state must not match
        // the new one.
        instance.version = instance.version.max(old_version + 1);

        if let Some(HistoryEntry { note, version, .. }) = history.last_mut() {
            *version = instance.version;
            note.push_str("; replayed by ");
            note.push_str(&order.user);
            if let Some(reason) = &order.reason {
                note.push_str(": ");
                note.push_str(reason);
            }
        }

        let there: BTreeSet<_> = rows.iter().map(|(_, item)| item.id).collect();
        match mode {
            ReplayWorkMode::Suppress => work.clear(),
            // The relay sends the items that are still in the outbox.
            ReplayWorkMode::Emit => work.retain(|item| !there.contains(&item.id)),
        }

        let open: BTreeSet<_> = instance.pending_work.iter().map(|open| open.id).collect();
        let is_over =
            |item: &WorkItem| eligibility::has_outcome(&item.work) && !open.contains(&item.id);
        // Commands and facts stay: they have no result that could tell whether the rebuilt instance
        // still needs them.
        let dropped = rows
            .iter()
            .filter(|(_, item)| is_over(item))
            .map(|(location, _)| location.clone())
            .collect();

        Some(InstanceReplacement {
            key: key.clone(),
            instance,
            history,
            dedupe_keys: applied,
            tasks,
            work,
            removed_work: dropped,
        })
    }

    async fn replace(
        &self,
        worked: RebuiltCandidate,
        order: &ReplayRequest,
    ) -> Result<ReplayedInstance, ReplayError> {
        let RebuiltCandidate {
            mut replayed,
            replacement,
        } = worked;
        let Some((replacement, version)) = replacement else {
            return Ok(replayed);
        };

        // A new id for each attempt: a repeated replay is another decision, not a duplicate.
        let id = format!("replay:{}", uuid::Uuid::now_v7());
        let control = ControlRequest {
            id: EventId::new(id).expect("an id of this form is short ASCII"),
            action: ControlAction::Replay,
            // An input that the instance has applied since the rebuild rejects the replacement.
            expected_version: Some(version),
            at: self.clock.now(),
            user: Some(order.user.clone()),
            reason: order.reason.clone(),
            trace: None,
            wait_token: None,
        };
        match self.runtime.replace_instance(replacement, control).await {
            Ok(_) => {}
            Err(ControlError::Unavailable) => return Err(ControlError::Unavailable.into()),
            Err(error) => {
                replayed.result = ReplayResult::Skipped(format!("{error}: retry the replay"));
                replayed.work = 0;
            }
        }

        Ok(replayed)
    }

    /// Delivers events that were published since the streams were read to the replaced instances.
    /// They may apply events that the previous instances ignored.
    async fn catch_up(
        &self,
        order: &ReplayRequest,
        end_sequences: &BTreeMap<String, u64>,
        replayed: &[ReplayedInstance],
    ) -> Result<(), ReplayError> {
        // All other instances have received these events from the streams.
        let others: BTreeSet<_> = replayed
            .iter()
            .filter(|one| matches!(one.result, ReplayResult::Created | ReplayResult::Replaced))
            .map(|one| &one.key)
            .collect();
        if others.is_empty() {
            return Ok(());
        }

        let since = self.inputs(order, end_sequences).await?;
        let mut failure = None;
        for (key, inputs) in since.inputs.iter().filter(|(key, _)| others.contains(key)) {
            for (_, input) in inputs {
                if let Err(error) = self.bring(key, input).await {
                    failure.get_or_insert(error);
                    // Its later inputs must not overtake this one. Instances of other shards still
                    // receive theirs.
                    break;
                }
            }
        }

        failure.map_or(Ok(()), Err)
    }

    async fn bring(&self, key: &InstanceKey, input: &Input) -> Result<(), ReplayError> {
        match self.runtime.deliver_again(key, input.clone()).await {
            // A rejection concerns only this input, and a dead letter can be redriven.
            Ok(_) | Err(ControlError::Rejected(_) | ControlError::DeadLettered(_)) => Ok(()),
            Err(error @ ControlError::Unavailable) => Err(error.into()),
        }
    }
}

/// Replaces the times of applied inputs and results by those of their transitions, so that they are
/// applied again in the order of the instance. Other inputs keep their time, but none overtakes an
/// earlier one.
fn use_recorded_times(
    history: &[HistoryEntry],
    inputs: &mut [(Timestamp, Input)],
    results: &mut BTreeMap<Uuid, RecordedResult>,
) {
    let times: BTreeMap<&EventId, Timestamp> = history
        .iter()
        .map(|entry| (&entry.input_id, entry.at))
        .collect();
    let mut latest = Timestamp::from_millis(i64::MIN);
    for (at, input) in inputs.iter_mut() {
        latest = times
            .get(&input.id())
            .copied()
            .unwrap_or_else(|| latest.max(*at));
        *at = latest;
    }

    inputs.sort_by_key(|(at, _)| *at);
    for entry in history {
        if let Some(result) =
            eligibility::result_of(entry).and_then(|work_id| results.get_mut(&work_id))
        {
            result.at = entry.at;
        }
    }
}
