//! Schedules of the deployment: created, replaced and deleted in the shards of this process.
//!
//! The deployment record decides. The schedules are compared with it at the start, after a
//! deployment and periodically, because a shard can move to this process at any time. A schedule
//! that is equal is not changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::Runtime;
use orlog_bus::RetryLog;
use orlog_model::{
    Clock, ControlAction, ControlRequest, DeployedSchedule, EventId, EventType, InstanceKey,
};
use orlog_program::SagaState as _;
use orlog_sagas::schedule::{self, PutSchedule, ScheduleState};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

use super::file::ScheduleFile;
use crate::background::BackgroundTasks;
use crate::definitions::DefinitionSet;

/// User of the changes.
const USER: &str = "deployment";
/// Interval of the comparison.
const INTERVAL: Duration = Duration::from_secs(10);

/// Schedules of the deployment.
pub struct DeployedSchedules {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) definitions: Arc<DefinitionSet>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Comparisons with failed changes.
    pub(crate) retries: Mutex<RetryLog>,
}

impl DeployedSchedules {
    /// Compares the schedules periodically.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        background.repeat("schedules", self, Duration::ZERO, |schedules| async move {
            schedules.apply().await;
            INTERVAL
        });
    }

    /// Applies the record to the shards of this process. A failed change is repeated by the next
    /// comparison.
    pub(crate) async fn apply(self: &Arc<Self>) {
        let mut last_failure = None;
        for deployed in &self.deployed() {
            // The name was checked when the file was deployed.
            let Ok(key) = super::key(deployed.tenant.clone(), &deployed.name) else {
                continue;
            };

            let this = Arc::clone(self);
            let at = key.clone();
            let wanted = deployed.clone();

            // The comparison reads the store.
            let change = tokio::task::spawn_blocking(move || this.change(&at, &wanted)).await;
            let (kind, data) = match change {
                Ok(Ok(Some(change))) => change,
                Ok(Ok(None)) => continue,
                Ok(Err(error)) => {
                    last_failure = Some((key, error));
                    continue;
                }
                Err(panic) => {
                    last_failure = Some((key, panic.to_string()));
                    continue;
                }
            };

            if let Err(error) = self.runtime.control(&key, self.signal(kind, data)).await {
                last_failure = Some((key, error.to_string()));
            } else {
                tracing::info!(schedule = %key, signal = kind, "deployed schedule applied");
            }
        }

        let mut retries = self.retries.lock();
        match last_failure {
            Some((key, error)) => retries.failed(|failures| {
                tracing::warn!(
                    error,
                    schedule = %key,
                    failures,
                    "deployed schedule not applied; retrying"
                );
            }),
            None => retries.succeeded(|failures| {
                tracing::info!(failures, "deployed schedules are applied again");
            }),
        }
    }

    /// Returns the schedules of all deployments. A schedule of a context replaces a shared one of
    /// the same name for its tenant.
    fn deployed(&self) -> Vec<DeployedSchedule> {
        let mut schedules: BTreeMap<_, DeployedSchedule> = BTreeMap::new();
        for (context, owned) in self.definitions.owners() {
            for schedule in owned
                .deployment
                .iter()
                .flat_map(|deployment| &deployment.schedules)
            {
                let at = (schedule.tenant.clone(), schedule.name.clone());
                let shared = schedules.get(&at).filter(|shared| !shared.removed);
                // A removed schedule of a context makes the shared one active.
                if context.is_none() || !schedule.removed || shared.is_none() {
                    schedules.insert(at, schedule.clone());
                }
            }
        }

        schedules.into_values().collect()
    }

    /// Returns the signal that makes a schedule equal to its file; `None` if it is equal, or if
    /// another process owns its shard.
    ///
    /// # Errors
    /// If the stored schedule or its file cannot be read.
    fn change(
        &self,
        key: &InstanceKey,
        wanted: &DeployedSchedule,
    ) -> Result<Option<(&'static str, Value)>, String> {
        let Some(reader) = self.runtime.reader(key) else {
            return Ok(None);
        };
        let instance = reader.instance(key).map_err(|error| error.to_string())?;
        let state = instance
            .map(|instance| ScheduleState::decode(&instance.state))
            .transpose()
            .map_err(|error| format!("the stored schedule is unreadable: {error}"))?;
        let current = state.filter(|state| !state.deleted);

        if wanted.removed {
            // A user may have replaced the schedule of the file.
            let is_own =
                current.is_some_and(|state| state.file.as_deref() == Some(wanted.file.as_str()));
            return Ok(is_own.then_some((schedule::DELETE, Value::Null)));
        }

        // It was valid when it was deployed, perhaps by another version.
        let parsed =
            ScheduleFile::parse(&wanted.source, &wanted.file).map_err(|found| {
                match found.first() {
                    Some(first) => first.to_string(),
                    None => format!("{} is invalid", wanted.file),
                }
            })?;
        let spec = parsed.spec;
        let file = Some(wanted.file.clone());
        let is_equal = current.is_some_and(|state| state.spec == spec && state.file == file);
        Ok((!is_equal).then(|| (schedule::PUT, json!(PutSchedule { spec, file }))))
    }

    fn signal(&self, kind: &str, data: Value) -> ControlRequest {
        let id = format!("control:{}", Uuid::now_v7());
        ControlRequest {
            id: EventId::new(id).expect("an id in this format is short ASCII"),
            action: ControlAction::Signal {
                kind: EventType::new(kind).expect("the name is short"),
                data,
                due_at: None,
            },
            expected_version: None,
            at: self.clock.now(),
            user: Some(USER.to_owned()),
            reason: None,
            trace: None,
            wait_token: None,
        }
    }
}
