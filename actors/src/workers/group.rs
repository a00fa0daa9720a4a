//! The workers of one effect: ask for as many jobs as there are hands free, and see each through in a task of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use orlog_bus::effect_queue::{Job, Jobs, Wanted};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::job;
use super::shared::Shared;
use crate::abort_on_drop::Driver;
use crate::telemetry::metrics::{ActorKind, Alive};

/// The actor.
pub(super) struct Crew;

/// What it needs.
pub(super) struct Arguments {
    pub(super) shared: Arc<Shared>,
    pub(super) wanted: Wanted,
}

/// What it is told.
pub(super) enum Message {
    /// Ask for no more, end what is in hand and go.
    Leave,
    /// The task that asks for jobs ended.
    Ended(String),
}

/// What it holds. Dropping it gives up what is in hand.
pub(super) struct State {
    shared: Arc<Shared>,
    leaving: watch::Sender<bool>,
    _asking: Driver,
    _alive: Alive,
}

/// A job in hand, counted.
pub(super) struct Hand {
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.shared.jobs.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Actor for Crew {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { shared, wanted }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let jobs = shared.queue.jobs(wanted).await?;
        let leaving = watch::Sender::new(false);
        let asking = ask(jobs, Arc::clone(&shared), leaving.subscribe());
        let asking = Driver::start(&myself, asking, Message::Ended);
        let alive = shared.metrics.begin(ActorKind::Crew);
        Ok(State { shared, leaving, _asking: asking, _alive: alive })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Leave => {
                state.leaving.send_replace(true);
            }
            Message::Ended(_) if *state.leaving.borrow() || state.shared.is_draining() => myself.stop(None),
            Message::Ended(why) => return Err(why.into()),
        }
        Ok(())
    }
}

/// Returns when it shall ask for no more and nothing is in hand, or when a job's task has panicked.
async fn ask(mut jobs: Box<dyn Jobs>, shared: Arc<Shared>, mut leaving: watch::Receiver<bool>) -> String {
    let hands = Arc::new(Semaphore::new(shared.config.in_flight.max(1)));
    let mut draining = shared.draining.subscribe();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => break,
            _ = leaving.wait_for(|leaving| *leaving) => break,
            why = panic_of(&mut tasks) => return why,
            (hand, found) = take(&mut jobs, &hands) => begin(&shared, &hands, hand, found, &mut tasks),
        }
    }
    drop(jobs);
    while tasks.join_next().await.is_some() {}
    "it has left".to_owned()
}

/// Never asks for more than there are hands free.
async fn take(jobs: &mut Box<dyn Jobs>, hands: &Arc<Semaphore>) -> (OwnedSemaphorePermit, Vec<Job>) {
    let hand = Arc::clone(hands).acquire_owned().await.expect("nobody closes it");
    let found = jobs.next(hands.available_permits() + 1).await;
    (hand, found)
}

fn begin(
    shared: &Arc<Shared>,
    hands: &Arc<Semaphore>,
    hand: OwnedSemaphorePermit,
    found: Vec<Job>,
    tasks: &mut JoinSet<()>,
) {
    let others = std::iter::from_fn(|| Arc::clone(hands).try_acquire_owned().ok());
    // Should more come than was asked for, the queue gives it to others.
    for (permit, job) in std::iter::once(hand).chain(others).zip(found) {
        shared.jobs.fetch_add(1, Ordering::AcqRel);
        let hand = Hand { shared: Arc::clone(shared), _permit: permit };
        tasks.spawn(async move {
            job::see_through(&hand.shared, job).await;
            drop(hand);
        });
    }
}

async fn panic_of(tasks: &mut JoinSet<()>) -> String {
    loop {
        match tasks.join_next().await {
            Some(Err(error)) => return error.to_string(),
            Some(Ok(())) => {}
            None => std::future::pending().await,
        }
    }
}
