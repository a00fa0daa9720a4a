//! Supervision: restart limits, exits of children, and actors that run one task.

use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, Message, SpawnErr, SupervisionEvent};
use tokio::task::AbortHandle;

use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};

/// At most `max_restarts` within `period` (Erlang's intensity and period).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartIntensity {
    /// Maximum number of restarts within the period.
    pub max_restarts: usize,
    /// The period.
    pub period: Duration,
}

impl Default for RestartIntensity {
    fn default() -> Self {
        Self {
            max_restarts: 10,
            period: Duration::from_mins(1),
        }
    }
}

/// Recent restarts of the children of one supervisor.
#[derive(Debug, Default)]
pub(crate) struct RestartTracker(VecDeque<Instant>);

impl RestartTracker {
    /// Records a restart; returns `false` if it exceeds the limit.
    pub(crate) fn admit(&mut self, intensity: RestartIntensity, now: Instant) -> bool {
        while self
            .0
            .front()
            .is_some_and(|first| now.duration_since(*first) > intensity.period)
        {
            self.0.pop_front();
        }

        self.0.push_back(now);
        self.0.len() <= intensity.max_restarts
    }
}

/// Returns the child that has ended and the reason; `None` if no child has ended.
pub(crate) fn exit_of(event: SupervisionEvent) -> Option<(ActorCell, String)> {
    match event {
        SupervisionEvent::ActorFailed(child, reason) => Some((child, reason.to_string())),
        SupervisionEvent::ActorTerminated(child, _, reason) => {
            Some((child, reason.unwrap_or_else(|| "stopped".to_owned())))
        }
        SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => None,
    }
}

/// Task that belongs to an actor and is aborted with it. It waits, so that the actor's mailbox
/// stays free for stop and supervision messages.
pub(crate) struct ActorTask(AbortHandle);

impl Drop for ActorTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ActorTask {
    /// Runs `work` as a task. When it returns, or panics with the text as error, the actor receives
    /// `ended(result)`.
    pub(crate) fn spawn<M: Message>(
        actor: &ActorRef<M>,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
        ended: fn(Result<(), String>) -> M,
    ) -> Self {
        let task = tokio::spawn(work);
        let abort = task.abort_handle();

        let actor = actor.clone();
        tokio::spawn(async move {
            let result = match task.await {
                Ok(result) => result,
                // The actor has stopped, so it needs no message.
                Err(error) if error.is_cancelled() => return,
                Err(error) => Err(error.to_string()),
            };
            // An error means that the actor has already stopped.
            drop(actor.cast(ended(result)));
        });
        Self(abort)
    }
}

/// Kind of a [`TaskActor`]. Each kind is a type, by which tools tell the actors apart.
pub(crate) trait TaskKind: Send + Sync + 'static {
    const KIND: ActorKind;
}

/// Actor that runs one task and receives no other message than its end. Its inputs come from a
/// mailbox beside it, a queue or a stream. It stops when the task returns, and fails when the task
/// fails.
pub(crate) struct TaskActor<K>(PhantomData<K>);

/// The task of a [`TaskActor`] has ended.
pub(crate) struct TaskEnded<K>(Result<(), String>, PhantomData<K>);

impl<K: TaskKind> TaskActor<K> {
    /// Starts an actor for `task`.
    pub(crate) async fn spawn(
        supervisor: ActorCell,
        metrics: &Metrics,
        task: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> Result<ActorCell, SpawnErr> {
        let arguments = (task.boxed(), metrics.actor_started(K::KIND));

        let (actor, _) =
            Actor::spawn_linked(None, Self(PhantomData), arguments, supervisor).await?;
        Ok(actor.get_cell())
    }
}

impl<K: TaskKind> Actor for TaskActor<K> {
    type Msg = TaskEnded<K>;
    type State = (ActorTask, GaugeGuard);
    type Arguments = (BoxFuture<'static, Result<(), String>>, GaugeGuard);

    async fn pre_start(
        &self,
        myself: ActorRef<TaskEnded<K>>,
        (task, alive): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok((
            ActorTask::spawn(&myself, task, |result| TaskEnded(result, PhantomData)),
            alive,
        ))
    }

    async fn handle(
        &self,
        myself: ActorRef<TaskEnded<K>>,
        TaskEnded(result, _): TaskEnded<K>,
        _: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        result?;
        myself.stop(None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_after_too_many_restarts_within_the_period() {
        let intensity = RestartIntensity {
            max_restarts: 2,
            period: Duration::from_secs(10),
        };
        let mut restarts = RestartTracker::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        assert!(restarts.admit(intensity, at(0)));
        assert!(restarts.admit(intensity, at(1)));
        assert!(!restarts.admit(intensity, at(2)));
        assert!(
            restarts.admit(intensity, at(13)),
            "restarts outside the period are not counted"
        );
    }
}
