//! Timer actor: sleeps until the next timer is due. It never polls.
//!
//! Due timers fire in order. At most `max_firing_timers` fired timers wait for the commit of their
//! consequences, so that an outage of any length leaves no burst in memory.
//!
//! The committer hands over the timers of durable commits in memory; the store is read at start, after
//! an overflow of that queue, and when the timers in memory have fired.

use std::sync::Arc;

use orlog_model::{Input, InstanceKey, SteadyTime, Timer as Row, TimerFired, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::abort_on_drop::AbortOnDrop;
use crate::instance::completion::Completion;
use crate::instance::mailbox::Envelope;
use crate::instance::registry::InstanceRegistry;
use crate::shard::armed_timers::{ArmedTimers, Now, TimerChange};
use crate::shard::fresh_queue::FreshQueue;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard, MailboxGuard};

/// Number of timers read per page.
const PAGE: usize = 1024;
/// Maximum number of timers in memory.
const CAPACITY: usize = 65_536;

/// Timer actor.
pub(crate) struct TimerActor;

/// Arguments of the timer actor.
pub(crate) struct Arguments {
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) fresh: Arc<FreshQueue<TimerChange>>,
}

/// Messages of the timer actor.
pub(crate) enum Message {
    /// Commits changed timers.
    Wake(MailboxGuard),
    /// The next timer is due.
    Alarm,
    /// More timers can fire.
    Capacity,
    /// A watching task ended.
    Ended(String),
}

/// State of the timer actor.
pub(crate) struct State {
    instances: Arc<InstanceRegistry>,
    fresh: Arc<FreshQueue<TimerChange>>,
    armed: ArmedTimers,
    alarm: Option<ScheduledWake>,
    /// Places of fired timers.
    firing: Arc<Semaphore>,
    /// Waits for places while due timers have none.
    blocked: Option<AbortOnDrop>,
    _watch: AbortOnDrop,
    _alive: LiveActorGuard,
}

struct ScheduledWake {
    at: (SteadyTime, Timestamp),
    _task: AbortOnDrop,
}

impl Actor for TimerActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { instances, fresh }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let metrics = Arc::clone(&instances.context.metrics);
        let alive = metrics.actor_started(ActorKind::Timer);
        let armed = ArmedTimers::new(instances.context.slots.clone(), CAPACITY);
        let (actor, queue) = (myself.clone(), Arc::clone(&fresh));
        let watch = async move {
            let wake = || Message::Wake(metrics.messages_enqueued(ActorKind::Timer, 1));
            while actor.cast(wake()).is_ok() {
                queue.wait_filled().await;
            }
            "the timer stopped".to_owned()
        };
        let watch = AbortOnDrop::spawn(&myself, watch, Message::Ended);
        let firing = Arc::new(Semaphore::new(instances.context.limits.max_firing_timers));
        Ok(State {
            instances,
            fresh,
            armed,
            alarm: None,
            firing,
            blocked: None,
            _watch: watch,
            _alive: alive,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Wake(waited) => {
                drop(waited);
                state.apply_fresh();
            }
            // Cleared even if the clock is slightly early: then the wake-up is scheduled again.
            Message::Alarm => state.alarm = None,
            Message::Capacity => state.blocked = None,
            Message::Ended(reason) => return Err(reason.into()),
        }
        if state.blocked.is_none() {
            state.fire_due(&myself)?;
        }
        state.set_alarm(&myself);
        Ok(())
    }
}

impl State {
    fn apply_fresh(&mut self) {
        let batch = self.fresh.take();
        if batch.rescan {
            self.armed.reset();
        }
        let now = self.now();
        batch.rows.into_iter().for_each(|change| self.armed.apply(change, now));
    }

    /// Fires due timers while there are places. A fired timer stays in the store until its consequences
    /// are durable.
    fn fire_due(&mut self, myself: &ActorRef<Message>) -> Result<(), ActorProcessingErr> {
        let now = self.now();
        loop {
            while self.armed.needs_page() {
                self.read_page()?;
            }
            let Ok(place) = Arc::clone(&self.firing).try_acquire_owned() else {
                self.blocked = Some(self.wait_for_places(myself));
                return Ok(());
            };
            let Some((key, row)) = self.armed.pop_due(now) else { return Ok(()) };
            fire(&self.instances, &key, row, place);
        }
    }

    fn now(&self) -> Now {
        Now::read(self.instances.context.clock.as_ref())
    }

    /// Waits until half of the places are free, so that the actor is not woken for each of them.
    fn wait_for_places(&self, myself: &ActorRef<Message>) -> AbortOnDrop {
        let (firing, actor) = (Arc::clone(&self.firing), myself.clone());
        let half = self.instances.context.limits.max_firing_timers.div_ceil(2);
        let half = u32::try_from(half).unwrap_or(u32::MAX);
        let wait = async move {
            // No error is possible: the semaphore is never closed.
            drop(firing.acquire_many(half).await);
            // An error means that the timer actor has already stopped.
            drop(actor.cast(Message::Capacity));
            std::future::pending().await
        };
        AbortOnDrop::spawn(myself, wait, Message::Ended)
    }

    fn read_page(&mut self) -> Result<(), ActorProcessingErr> {
        let after = self.armed.cursor();
        let after = after.as_ref().map(|(key, row)| (key, row));
        let page = self.instances.context.reader.timers_after(after, PAGE)?;
        let is_last = page.len() < PAGE;
        self.armed.extend(page, is_last, self.now());
        Ok(())
    }

    /// Schedules a wake-up for the next timer.
    fn set_alarm(&mut self, myself: &ActorRef<Message>) {
        let next = self.armed.next_due().filter(|_| self.blocked.is_none());
        if self.alarm.as_ref().map(|alarm| alarm.at) == next {
            return;
        }
        self.alarm = next.map(|(latest, due)| {
            let clock = Arc::clone(&self.instances.context.clock);
            let actor = myself.clone();
            let task = async move {
                tokio::select! {
                    () = clock.sleep_until_due(due) => {}
                    () = clock.sleep_until(latest) => {}
                }
                // An error means that the timer actor has already stopped.
                drop(actor.cast(Message::Alarm));
                std::future::pending().await
            };
            ScheduledWake { at: (latest, due), _task: AbortOnDrop::spawn(myself, task, Message::Ended) }
        });
    }
}

fn fire(instances: &Arc<InstanceRegistry>, key: &InstanceKey, row: Row, place: OwnedSemaphorePermit) {
    let (metrics, now) = (&instances.context.metrics, instances.context.clock.now());
    metrics.timers_fired.inc();
    metrics.timer_late_seconds.observe(now.duration_since(row.due).as_secs_f64());
    let fired = TimerFired { name: row.name, token: row.token, due: row.due };
    // An error means that the shard is shutting down; the next timer actor reads the row again.
    drop(instances.deliver(key, Envelope::new(Input::Timer(fired), Completion::Timer(place))));
}
