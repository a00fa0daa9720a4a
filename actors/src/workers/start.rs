//! Record of the start of an execution in the queue, which the workers of all nodes share.

use std::time::Duration;

use async_trait::async_trait;
use orlog_bus::effect_queue::{self, StartRecord};
use orlog_effect::{Dispatcher, StartRecorder, StopToken};
use orlog_model::WorkItem;
use uuid::Uuid;

use super::shared::WorkerPoolState;

/// Delay between two attempts while the queue is unavailable.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Dispatcher of one execution of a job.
pub(super) struct JobDispatcher<'a> {
    shared: &'a WorkerPoolState,
    execution: Uuid,
}

impl<'a> JobDispatcher<'a> {
    /// Creates the dispatcher of a new execution.
    pub(super) fn new(shared: &'a WorkerPoolState) -> Self {
        Self {
            shared,
            execution: Uuid::new_v4(),
        }
    }
}

impl Dispatcher for JobDispatcher<'_> {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}

    fn stop_token(&self) -> Option<&StopToken> {
        None
    }

    fn start_recorder(&self) -> Option<&dyn StartRecorder> {
        Some(self)
    }
}

#[async_trait]
impl StartRecorder for JobDispatcher<'_> {
    async fn record_start(&self, item: &WorkItem) -> bool {
        let Some(effect) = item.work.effect() else {
            return false;
        };
        let node = &self.shared.config.node;
        let at = self.shared.clock.now();
        let start = effect_queue::encode_start(item, effect, self.execution, node, at);

        loop {
            match self.shared.queue.record_start(start.clone()).await {
                Ok(record) => return record == StartRecord::AlreadyRecorded,
                Err(error) => tracing::debug!(%error, "start of a job not recorded; retrying"),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}
