//! Timer actor: sleeps until the next timer is due. It never polls.
//!
//! Due timers fire in order. At most `max_firing_timers` fired timers wait for the commit of their
//! consequences, so that an outage of any length leaves no burst in memory.
//!
//! The committer hands over the timers of durable commits in memory; the store is read at start,
//! after an overflow of that queue, and when the timers in memory have fired.

use std::sync::Arc;

use orlog_model::{
    Clock, Input, InstanceKey, SlotAssigner, SteadyTime, Timer as Row, TimerFired, Timestamp,
};
use orlog_store::Reader;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::instance::InstanceRegistry;
use crate::instance::completion::Completion;
use crate::instance::mailbox::Envelope;
use crate::shard::armed_timers::{ArmedTimers, Now, TimerChange};
use crate::shard::fresh_queue::FreshQueue;
use crate::supervision::ActorTask;
use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};

/// Number of timers read per page.
const PAGE: usize = 1024;
/// Maximum number of timers in memory.
const CAPACITY: usize = 65_536;

/// Timer actor.
pub(crate) struct TimerActor;

/// Arguments of the timer actor.
pub(crate) struct Arguments {
    pub(crate) registry: Arc<InstanceRegistry>,
    pub(crate) fresh: Arc<FreshQueue<TimerChange>>,
    pub(crate) reader: Reader,
    pub(crate) slots: SlotAssigner,
    pub(crate) max_firing_timers: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Messages of the timer actor.
pub(crate) enum Message {
    /// Commits changed timers.
    Wake(GaugeGuard),
    /// The next timer is due.
    Alarm(Result<(), String>),
    /// More timers can fire.
    Capacity(Result<(), String>),
    /// The task that waits for changes ended.
    Ended(Result<(), String>),
}

/// State of the timer actor.
pub(crate) struct State {
    own: Arguments,
    armed: ArmedTimers,
    alarm: Option<ScheduledWake>,
    /// Places of fired timers.
    firing: Arc<Semaphore>,
    /// Waits for places while due timers have none.
    blocked: Option<ActorTask>,
    _watch: ActorTask,
    _alive: GaugeGuard,
}

struct ScheduledWake {
    at: (SteadyTime, Timestamp),
    _task: ActorTask,
}

impl Actor for TimerActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.metrics.actor_started(ActorKind::Timer);

        let actor = myself.clone();
        let queue = Arc::clone(&arguments.fresh);
        let metrics = Arc::clone(&arguments.metrics);
        let watch = async move {
            queue
                .wake(actor, || {
                    Message::Wake(metrics.messages_enqueued(ActorKind::Timer, 1))
                })
                .await
        };
        Ok(State {
            armed: ArmedTimers::new(arguments.slots.clone(), CAPACITY),
            alarm: None,
            firing: Arc::new(Semaphore::new(arguments.max_firing_timers)),
            blocked: None,
            _watch: ActorTask::spawn(&myself, watch, Message::Ended),
            _alive: alive,
            own: arguments,
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
            Message::Alarm(due) => {
                due?;
                state.alarm = None;
            }
            Message::Capacity(free) => {
                free?;
                state.blocked = None;
            }
            Message::Ended(result) => result?,
        }

        // After each message: any of them can make a timer due or free a place.
        if state.blocked.is_none() {
            state.fire_due(&myself)?;
        }
        state.set_alarm(&myself);
        Ok(())
    }
}

impl State {
    fn apply_fresh(&mut self) {
        let batch = self.own.fresh.take();
        if batch.rescan {
            self.armed.reset();
        }

        let now = self.now();
        batch
            .rows
            .into_iter()
            .for_each(|change| self.armed.apply(change, now));
    }

    /// Fires due timers while there are places. A fired timer stays in the store until its
    /// consequences are durable.
    fn fire_due(&mut self, myself: &ActorRef<Message>) -> Result<(), ActorProcessingErr> {
        let now = self.now();
        loop {
            while self.armed.needs_page() {
                self.read_page()?;
            }
            // A place before the timer: an outage of any length leaves no burst in memory.
            let Ok(place) = Arc::clone(&self.firing).try_acquire_owned() else {
                self.blocked = Some(self.wait_for_places(myself));
                return Ok(());
            };

            let Some((key, row)) = self.armed.pop_due(now) else {
                return Ok(());
            };
            self.fire(&key, row, place);
        }
    }

    fn now(&self) -> Now {
        Now::read(self.own.clock.as_ref())
    }

    /// Waits until half of the places are free, so that the actor is not woken for each of them.
    fn wait_for_places(&self, myself: &ActorRef<Message>) -> ActorTask {
        let firing = Arc::clone(&self.firing);
        let half = self.own.max_firing_timers.div_ceil(2);
        let half = u32::try_from(half).unwrap_or(u32::MAX);

        let wait = async move {
            firing
                .acquire_many(half)
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        };
        ActorTask::spawn(myself, wait, Message::Capacity)
    }

    fn read_page(&mut self) -> Result<(), ActorProcessingErr> {
        let after = self.armed.cursor();
        let after = after.as_ref().map(|(key, row)| (key, row));
        let page = self.own.reader.timers_after(after, PAGE)?;
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
            // A clock that is set back does not delay the timer: it is due by either clock.
            let clock = Arc::clone(&self.own.clock);
            let task = async move {
                tokio::select! {
                    () = clock.sleep_until_due(due) => {}
                    () = clock.sleep_until(latest) => {}
                }
                Ok(())
            };
            ScheduledWake {
                at: (latest, due),
                _task: ActorTask::spawn(myself, task, Message::Alarm),
            }
        });
    }

    fn fire(&self, key: &InstanceKey, row: Row, place: OwnedSemaphorePermit) {
        let Arguments {
            registry,
            clock,
            metrics,
            ..
        } = &self.own;
        metrics.timers_fired.inc();
        metrics
            .timer_late_seconds
            .observe(clock.now().duration_since(row.due).as_secs_f64());

        let fired = TimerFired {
            name: row.name,
            token: row.token,
            due: row.due,
        };

        // An error means that the shard is shutting down; the next timer actor reads the row again.
        drop(registry.deliver(
            key,
            Envelope::new(Input::Timer(fired), Completion::Timer(place)),
        ));
    }
}
