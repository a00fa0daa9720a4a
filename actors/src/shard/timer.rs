//! Timer actor: sleeps until the next timer is due. A commit that arms an earlier timer wakes it. It
//! never polls.

use std::collections::HashSet;
use std::sync::Arc;

use orlog_model::{Input, InstanceKey, Name, Timer as Row, TimerFired, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::AbortOnDrop;
use crate::instance::completion::Completion;
use crate::instance::mailbox::Envelope;
use crate::instance::registry::InstanceRegistry;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard, MailboxGuard};

/// Number of timers read per page.
const PAGE: usize = 1024;

/// Timer actor.
pub(crate) struct TimerActor;

/// Messages of the timer actor.
pub(crate) enum Message {
    /// A commit may have armed an earlier timer.
    Wake(MailboxGuard),
    /// The next timer is due.
    Alarm,
    /// A watching task ended.
    Ended(String),
}

/// State of the timer actor.
pub(crate) struct State {
    instances: Arc<InstanceRegistry>,
    /// Fired timers that are still in the store.
    fired: HashSet<(InstanceKey, Name, u64)>,
    alarm: Option<ScheduledWake>,
    _watch: AbortOnDrop,
    _alive: LiveActorGuard,
}

struct ScheduledWake {
    at: Timestamp,
    _task: AbortOnDrop,
}

impl Actor for TimerActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arc<InstanceRegistry>;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        instances: Arc<InstanceRegistry>,
    ) -> Result<State, ActorProcessingErr> {
        let mut commits = instances.context.reader.watch();
        let metrics = Arc::clone(&instances.context.metrics);
        let (actor, alive) = (myself.clone(), metrics.actor_started(ActorKind::Timer));
        let watch = async move {
            let wake = || Message::Wake(metrics.messages_enqueued(ActorKind::Timer, 1));
            while actor.cast(wake()).is_ok() && commits.changed().await.is_ok() {}
            "the store was closed".to_owned()
        };
        let watch = AbortOnDrop::spawn(&myself, watch, Message::Ended);
        Ok(State { instances, fired: HashSet::new(), alarm: None, _watch: watch, _alive: alive })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Wake(waited) => drop(waited),
            // Cleared even if the clock is slightly early: then the wake-up is scheduled again.
            Message::Alarm => state.alarm = None,
            Message::Ended(reason) => return Err(reason.into()),
        }
        state.fire_due()?;
        state.set_alarm(&myself)
    }
}

impl State {
    /// Fires due timers that were not fired yet. A fired timer stays in the store until its consequences
    /// are durable.
    fn fire_due(&mut self) -> Result<(), ActorProcessingErr> {
        let context = &self.instances.context;
        let now = context.clock.now();
        loop {
            let limit = self.fired.len() + PAGE;
            let due = context.reader.timers_due(now, limit)?;
            let more = due.len() == limit;
            let present: HashSet<_> = due.iter().map(identity).collect();
            self.fired.retain(|fired| present.contains(fired));
            for (key, row) in due {
                if self.fired.insert(identity(&(key.clone(), row.clone()))) {
                    fire(&self.instances, &key, row, now);
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Schedules a wake-up for the next timer that was not fired.
    fn set_alarm(&mut self, myself: &ActorRef<Message>) -> Result<(), ActorProcessingErr> {
        let context = &self.instances.context;
        let rows = context.reader.timers_due(Timestamp::MAX, self.fired.len() + 1)?;
        let next = rows.into_iter().find(|row| !self.fired.contains(&identity(row))).map(|(_, row)| row.due);
        if self.alarm.as_ref().map(|alarm| alarm.at) == next {
            return Ok(());
        }
        self.alarm = next.map(|at| {
            let clock = Arc::clone(&context.clock);
            let actor = myself.clone();
            let task = async move {
                clock.sleep_until(at).await;
                // An error means that the timer actor has already stopped.
                drop(actor.cast(Message::Alarm));
                std::future::pending().await
            };
            ScheduledWake { at, _task: AbortOnDrop::spawn(myself, task, Message::Ended) }
        });
        Ok(())
    }
}

fn identity((key, row): &(InstanceKey, Row)) -> (InstanceKey, Name, u64) {
    (key.clone(), row.name.clone(), row.token)
}

fn fire(instances: &Arc<InstanceRegistry>, key: &InstanceKey, row: Row, now: Timestamp) {
    let metrics = &instances.context.metrics;
    metrics.timers_fired.inc();
    metrics.timer_late_seconds.observe(now.duration_since(row.due).as_secs_f64());
    let fired = TimerFired { name: row.name, token: row.token, due: row.due };
    // An error means that the shard is shutting down; the next timer actor reads the row again.
    drop(instances.deliver(key, Envelope::new(Input::Timer(fired), Completion::None)));
}
