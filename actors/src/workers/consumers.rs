//! Consumers of a worker pool: their states and backlogs, for operators and autoscalers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_bus::effect_queue::{JobBacklog, SubscriptionState};
use tokio::task::JoinSet;

use super::{GroupKey, WorkerPool};

/// Subscription of a worker group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobConsumer {
    /// Jobs that the group fetches.
    pub group: GroupKey,
    /// State of the subscription.
    pub state: SubscriptionState,
    /// Backlog of its consumer; `None`: there is no consumer, or the queue does not respond. Groups
    /// can share a consumer.
    pub backlog: Option<JobBacklog>,
}

impl JobConsumer {
    /// Returns the name of the consumer; `None`: there is none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.state {
            SubscriptionState::Open { consumer, .. } => Some(consumer),
            SubscriptionState::Opening(_) | SubscriptionState::Conflict(_) => None,
        }
    }
}

impl WorkerPool {
    /// Returns the states of all subscriptions, by group.
    #[must_use]
    pub fn subscriptions(&self) -> BTreeMap<GroupKey, SubscriptionState> {
        let subscriptions = self.shared.subscriptions.iter();
        subscriptions
            .map(|entry| (entry.key().clone(), entry.value().borrow().clone()))
            .collect()
    }

    /// Returns why the pool does not receive the jobs of a group, for the first such group; `None`:
    /// it receives those of all.
    #[must_use]
    pub fn failing_subscription(&self) -> Option<String> {
        let subscriptions = self.subscriptions();
        subscriptions
            .iter()
            .find_map(|(group, state)| failure(group, state))
    }

    /// Returns all consumers without their backlogs.
    #[must_use]
    pub fn consumer_states(&self) -> Vec<JobConsumer> {
        let subscriptions = self.subscriptions().into_iter();
        subscriptions
            .map(|(group, state)| JobConsumer {
                group,
                state,
                backlog: None,
            })
            .collect()
    }

    /// Returns all consumers, and reads the backlog of each once.
    pub async fn consumers(&self) -> Vec<JobConsumer> {
        let mut consumers = self.consumer_states();
        let names: BTreeSet<String> = consumers
            .iter()
            .filter_map(|consumer| consumer.name().map(str::to_owned))
            .collect();

        // At the same time: a queue that does not respond costs one timeout, not one for each
        // consumer.
        let mut reads = JoinSet::new();
        for name in names {
            let queue = Arc::clone(&self.shared.queue);
            reads.spawn(async move {
                let backlog = queue.backlog(&name).await.ok();
                (name, backlog)
            });
        }

        let mut backlogs = BTreeMap::new();
        while let Some(read) = reads.join_next().await {
            // An error means that the process ends.
            if let Ok((name, backlog)) = read {
                backlogs.insert(name, backlog);
            }
        }

        for consumer in &mut consumers {
            let backlog = consumer.name().and_then(|name| backlogs.get(name));
            consumer.backlog = backlog.copied().flatten();
        }
        consumers
    }
}

fn failure(group: &GroupKey, state: &SubscriptionState) -> Option<String> {
    let reason = match state {
        SubscriptionState::Open { .. } => return None,
        SubscriptionState::Opening(None) => "its consumer is not open yet",
        SubscriptionState::Opening(Some(reason)) | SubscriptionState::Conflict(reason) => {
            reason.as_str()
        }
    };
    Some(format!("jobs of {group} are not received: {reason}"))
}
