//! Fires timers: sleeps until the next one is due; a commit that arms an earlier one wakes it. No sweep.

use std::collections::HashSet;
use std::sync::Arc;

use orlog_model::{Input, InstanceKey, Name, Timer as Row, TimerFired, Timestamp};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::abort_on_drop::Driver;
use crate::instance::completion::Done;
use crate::instance::mailbox::Envelope;
use crate::instance::registry::Directory;
use crate::telemetry::metrics::{ActorKind, Alive, Waiting};

/// Timers read at once.
const PAGE: usize = 1024;

/// The actor.
pub(crate) struct Timer;

/// What it is told.
pub(crate) enum Message {
    /// A commit: there may be an earlier timer.
    Wake(Waiting),
    /// The time has come.
    Alarm,
    /// A task that watches ended.
    Ended(String),
}

/// What it holds.
pub(crate) struct State {
    directory: Arc<Directory>,
    /// Fired, and not yet gone from the store.
    fired: HashSet<(InstanceKey, Name, u64)>,
    alarm: Option<Alarm>,
    _watch: Driver,
    _alive: Alive,
}

struct Alarm {
    at: Timestamp,
    _task: Driver,
}

impl Actor for Timer {
    type Msg = Message;
    type State = State;
    type Arguments = Arc<Directory>;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        directory: Arc<Directory>,
    ) -> Result<State, ActorProcessingErr> {
        let mut commits = directory.context.reader.watch();
        let metrics = Arc::clone(&directory.context.metrics);
        let (actor, alive) = (myself.clone(), metrics.begin(ActorKind::Timer));
        let watch = async move {
            let wake = || Message::Wake(metrics.wait(ActorKind::Timer, 1));
            while actor.cast(wake()).is_ok() && commits.changed().await.is_ok() {}
            "the store was closed".to_owned()
        };
        let watch = Driver::start(&myself, watch, Message::Ended);
        Ok(State { directory, fired: HashSet::new(), alarm: None, _watch: watch, _alive: alive })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Wake(waited) => drop(waited),
            // Forgotten even where the clock says that it is a little early: then it is set again.
            Message::Alarm => state.alarm = None,
            Message::Ended(why) => return Err(why.into()),
        }
        state.fire_due()?;
        state.set_alarm(&myself)
    }
}

impl State {
    /// Fires what is due and was not fired yet. What was fired stays in the store until its consequences are durable.
    fn fire_due(&mut self) -> Result<(), ActorProcessingErr> {
        let context = &self.directory.context;
        let now = context.clock.now();
        loop {
            let asked = self.fired.len() + PAGE;
            let due = context.reader.timers_due(now, asked)?;
            let more = due.len() == asked;
            let present: HashSet<_> = due.iter().map(identity).collect();
            self.fired.retain(|fired| present.contains(fired));
            for (key, row) in due {
                if self.fired.insert(identity(&(key.clone(), row.clone()))) {
                    fire(&self.directory, &key, row, now);
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Sleeps until the next timer that was not fired.
    fn set_alarm(&mut self, myself: &ActorRef<Message>) -> Result<(), ActorProcessingErr> {
        let context = &self.directory.context;
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
                // An error means that the timer has gone already.
                drop(actor.cast(Message::Alarm));
                std::future::pending().await
            };
            Alarm { at, _task: Driver::start(myself, task, Message::Ended) }
        });
        Ok(())
    }
}

fn identity((key, row): &(InstanceKey, Row)) -> (InstanceKey, Name, u64) {
    (key.clone(), row.name.clone(), row.token)
}

fn fire(directory: &Arc<Directory>, key: &InstanceKey, row: Row, now: Timestamp) {
    let metrics = &directory.context.metrics;
    metrics.timers_fired.inc();
    metrics.timer_late_seconds.observe(now.since(row.due).as_secs_f64());
    let fired = TimerFired { name: row.name, token: row.token, due: row.due };
    // An error means that the shard is going down; the next timer finds the row again.
    drop(directory.dispatch(key, Envelope::new(Input::Timer(fired), Done::Nothing)));
}
