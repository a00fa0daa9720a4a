//! Replaying: the instances of a saga take again what the bus still has of their inputs, and stand as that makes them stand.
//!
//! Everything is worked out beside the running instances, which go on meanwhile. Then each is replaced by one commit, if it stands
//! as it stood when it was looked at; so a replay that breaks off leaves whole instances behind and is simply made again. What came
//! to the bus in between is brought to the replaced instances afterwards.
//!
//! An instance is left as it is where the bus cannot tell its whole life: it began before, or took what never was on the bus (an
//! instruction, a person's answer, an outcome in this process).

mod eligibility;
mod read;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use orlog_actors::ControlError;
use orlog_model::{Action, Control, EventId, Input, InstanceKey, OutboxKey, Record, Replacement, WorkItem};
use orlog_program::Program;
use orlog_simulator::rebuild::{Pace, Rebuilt, Remains, rebuild};

use super::App;
use eligibility::Case;
use read::Found;

pub use request::{Fate, Replay, ReplayError, ReplayOrder, Replayed, ReplayedWork};

/// Instances replaced at once: enough to fill a group of commits.
const AT_ONCE: usize = 64;
/// Rows of the outbox read at once.
const PAGE: usize = 1000;

/// An instance, worked out.
struct Worked {
    replayed: Replayed,
    replacement: Option<(Replacement, u64)>,
}

impl App {
    /// Replays a saga of a tenant, as far as its instances live in this process. Goes on to the end even when whoever asked goes
    /// away.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub async fn replay(self: &Arc<Self>, order: ReplayOrder) -> Result<Replay, ReplayError> {
        let app = Arc::clone(self);
        let whole = tokio::spawn(async move {
            // No other definition in between.
            let _alone = app.deploying.lock().await;
            app.replay_alone(Arc::new(order)).await
        });
        whole.await.unwrap_or(Err(ReplayError::Ending))
    }

    async fn replay_alone(self: &Arc<Self>, order: Arc<ReplayOrder>) -> Result<Replay, ReplayError> {
        let program = self.programs.newest(&order.saga);
        let program = program.ok_or_else(|| ReplayError::NoDefinition(order.saga.clone()))?;
        let found = self.read_inputs(&order, &BTreeMap::new()).await?;
        let (ends, read, unreadable) = (found.ends.clone(), found.read, found.unreadable);
        let worked = {
            let (app, order) = (Arc::clone(self), Arc::clone(&order));
            tokio::task::spawn_blocking(move || app.work_out(&order, &program, &found)).await
        };
        let worked = worked.map_err(|_| ReplayError::Ending)??;
        if order.dry_run {
            let instances = worked.into_iter().map(|worked| worked.replayed).collect();
            return Ok(Replay { read, unreadable, instances });
        }
        let replaced = worked.into_iter().map(|worked| self.replace(worked, &order));
        let replaced: Vec<_> = futures::stream::iter(replaced).buffered(AT_ONCE).collect().await;
        let instances = replaced.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.catch_up(&order, &ends, &instances).await?;
        let replay = Replay { read, unreadable, instances };
        tracing::warn!(
            tenant = %order.tenant, saga = %order.saga, from = %order.from, work = ?order.work, by = order.by,
            reason = order.reason, instances = replay.instances.len(), "replayed"
        );
        Ok(replay)
    }

    /// What each instance would stand as.
    fn work_out(
        &self,
        order: &ReplayOrder,
        program: &Arc<dyn Program>,
        found: &Found,
    ) -> Result<Vec<Worked>, ReplayError> {
        let waiting = self.waiting_work(order)?;
        let mut worked = Vec::new();
        for (key, inputs) in &found.inputs {
            let Some(reader) = self.runtime.reader(key) else { continue };
            let old = reader.instance(key)?;
            let history = if old.is_some() { reader.history(key, 0, usize::MAX)? } else { Vec::new() };
            let remains = Remains {
                program: Arc::clone(program),
                key,
                inputs,
                results: &found.results,
                history: &history,
            };
            let rebuilt = rebuild(&remains, self.pace(order.work));
            let rows = waiting.get(key).map_or(&[][..], Vec::as_slice);
            let case = Case { order, old: old.as_ref(), history: &history, remains: &remains };
            let fate = case.judge(&rebuilt);
            let takes_place = matches!(fate, Fate::New | Fate::Replaced);
            let mut replayed = Replayed {
                key: key.clone(),
                was: old.as_ref().map(|old| old.status),
                becomes: rebuilt.instance.as_ref().map(|instance| instance.status),
                fate,
                work: 0,
            };
            let version = old.as_ref().map_or(0, |old| old.version);
            let replacement = takes_place.then(|| self.replacement(order, key, rebuilt, rows)).flatten();
            replayed.work = replacement.as_ref().map_or(0, |replacement| replacement.work.len());
            worked.push(Worked { replayed, replacement: replacement.map(|it| (it, version)) });
        }
        Ok(worked)
    }

    fn pace(&self, work: ReplayedWork) -> Pace {
        let now = self.clock.now();
        match work {
            ReplayedWork::Suppress => Pace::AsItWas(now),
            ReplayedWork::Emit => Pace::AtOnce(now),
        }
    }

    /// The work of the saga's instances that lies in the outboxes.
    fn waiting_work(
        &self,
        order: &ReplayOrder,
    ) -> Result<BTreeMap<InstanceKey, Vec<(OutboxKey, WorkItem)>>, ReplayError> {
        let mut waiting: BTreeMap<InstanceKey, Vec<_>> = BTreeMap::new();
        for reader in self.runtime.readers() {
            for lane in reader.lanes()? {
                let mut after = 0;
                loop {
                    let page = reader.outbox(&lane, after, PAGE)?;
                    let Some((last, _)) = page.last() else { break };
                    after = last.sequence;
                    for (place, item) in page {
                        let of = &item.instance;
                        if of.tenant == order.tenant && of.saga == order.saga {
                            waiting.entry(of.clone()).or_default().push((place, item));
                        }
                    }
                }
            }
        }
        Ok(waiting)
    }

    fn replacement(
        &self,
        order: &ReplayOrder,
        key: &InstanceKey,
        rebuilt: Rebuilt,
        rows: &[(OutboxKey, WorkItem)],
    ) -> Option<Replacement> {
        let Rebuilt { instance, mut history, applied, tasks, mut work, .. } = rebuilt;
        let mut instance = instance?;
        instance.node = self.config.node_name();
        if let Some(Record { note, .. }) = history.last_mut() {
            note.push_str("; replayed by ");
            note.push_str(&order.by);
            if let Some(reason) = &order.reason {
                note.push_str(": ");
                note.push_str(reason);
            }
        }
        let there: BTreeSet<_> = rows.iter().map(|(_, item)| item.id).collect();
        match order.work {
            ReplayedWork::Suppress => work.clear(),
            ReplayedWork::Emit => work.retain(|item| !there.contains(&item.id)),
        }
        let open: BTreeSet<_> = instance.open.iter().map(|open| open.id).collect();
        let is_over = |item: &WorkItem| eligibility::has_outcome(&item.work) && !open.contains(&item.id);
        let dropped = rows.iter().filter(|(_, item)| is_over(item)).map(|(place, _)| place.clone()).collect();
        Some(Replacement { key: key.clone(), instance, history, applied, tasks, work, dropped })
    }

    async fn replace(&self, worked: Worked, order: &ReplayOrder) -> Result<Replayed, ReplayError> {
        let Worked { mut replayed, replacement } = worked;
        let Some((replacement, version)) = replacement else { return Ok(replayed) };
        let id = format!("replay:{}", uuid::Uuid::now_v7());
        let control = Control {
            id: EventId::new(id).expect("an id of this form is short ASCII"),
            action: Action::Replay,
            expected_version: Some(version),
            at: self.clock.now(),
            by: Some(order.by.clone()),
            reason: order.reason.clone(),
            trace: None,
        };
        match self.runtime.replace(replacement, control).await {
            Ok(_) => {}
            Err(ControlError::Unavailable) => return Err(ControlError::Unavailable.into()),
            Err(error) => {
                (replayed.fate, replayed.work) = (Fate::Left(format!("{error}: replay it again")), 0);
            }
        }
        Ok(replayed)
    }

    /// Brings what was published since the streams were read to the instances that were replaced: what they ignored before they
    /// were, they may take now.
    async fn catch_up(
        self: &Arc<Self>,
        order: &ReplayOrder,
        ends: &BTreeMap<String, u64>,
        replayed: &[Replayed],
    ) -> Result<(), ReplayError> {
        let is_other = |one: &&Replayed| matches!(one.fate, Fate::New | Fate::Replaced);
        let others: BTreeSet<_> = replayed.iter().filter(is_other).map(|one| &one.key).collect();
        if others.is_empty() {
            return Ok(());
        }
        let since = self.read_inputs(order, ends).await?;
        for (key, inputs) in since.inputs.iter().filter(|(key, _)| others.contains(key)) {
            for (_, input) in inputs {
                self.bring(key, input).await?;
            }
        }
        Ok(())
    }

    async fn bring(&self, key: &InstanceKey, input: &Input) -> Result<(), ReplayError> {
        match self.runtime.bring(key, input.clone()).await {
            Ok(_) | Err(ControlError::Refused(_) | ControlError::SetAside(_)) => Ok(()),
            Err(error @ ControlError::Unavailable) => Err(error.into()),
        }
    }
}
