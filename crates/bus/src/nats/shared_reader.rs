//! One reader of a stream for all subscriptions of a process, whatever shards they are for.
//!
//! What it reads lies in a window; each subscription takes from there what is its own, at its own pace. One that is behind
//! the window, or far ahead of it, reads by itself until it is level. So none holds up another, and the servers deliver a
//! message once to a process that keeps up. The hub waits while nobody has come as far as its window begins.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};

use super::filters::{covers, reduced};
use super::message_cache::{Look, Window};
use super::stream_reader::{News, Reading, Wanted};
use crate::checkpoint::Mark;
use crate::subject_matcher::Interest;

/// Shared by the subscriptions of one stream.
#[derive(Debug, Default)]
pub(super) struct Hub {
    state: Mutex<State>,
    /// Counts what has changed.
    news: watch::Sender<u64>,
    /// A subscription has come further, or there are others.
    progress: Notify,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    members: BTreeMap<u64, Place>,
    next_member: u64,
    filters: Vec<String>,
    /// The stream, and how consumers are named.
    wanted: Option<Wanted>,
    /// Another one whenever the window begins anew.
    generation: u64,
    running: bool,
    /// Another one whenever the stream turned out to be another; why.
    epoch: u64,
    broken: String,
}

#[derive(Debug)]
struct Place {
    read_to: Arc<AtomicU64>,
    filters: Vec<String>,
}

/// A subscription's place in the hub; dropping it leaves.
#[derive(Debug)]
pub(super) struct Member {
    hub: Arc<Hub>,
    number: u64,
    epoch: u64,
    read_to: Arc<AtomicU64>,
}

impl Hub {
    /// Joins. The first one decides where the window begins; other filters than before make it begin anew.
    pub(super) fn join(self: &Arc<Self>, filters: Vec<String>, wanted: Wanted) -> Member {
        let mut state = self.state();
        let number = state.next_member;
        state.next_member += 1;
        let read_to = Arc::new(AtomicU64::new(wanted.after));
        let first = state.members.is_empty();
        let covered = filters.iter().all(|filter| state.filters.iter().any(|wide| covers(wide, filter)));
        state.members.insert(number, Place { read_to: Arc::clone(&read_to), filters });
        if first || !covered {
            let after = if first { Mark { sequence: wanted.after, at: None } } else { state.window.to() };
            state.filters = state.all_filters();
            state.wanted = Some(wanted);
            state.window.begin(after);
            state.generation += 1;
        }
        let epoch = state.epoch;
        if !std::mem::replace(&mut state.running, true) {
            tokio::spawn(Arc::clone(self).run());
        }
        drop(state);
        self.progress.notify_one();
        Member { hub: Arc::clone(self), number, epoch, read_to }
    }

    /// Reads while there is anybody to read for.
    async fn run(self: Arc<Self>) {
        while let Some((generation, wanted)) = self.assignment() {
            let mut reading = Reading::start(wanted);
            while self.is_current(generation) {
                if !self.may_go_on() {
                    self.progress.notified().await;
                    continue;
                }
                tokio::select! {
                    news = reading.next() => self.take(generation, news),
                    () = self.progress.notified() => {}
                }
            }
        }
    }

    /// What to read; `None`, and the task has ended, when there is nobody.
    fn assignment(&self) -> Option<(u64, Wanted)> {
        let mut state = self.state();
        let wanted = state.wanted.clone().filter(|_| !state.members.is_empty());
        state.running = wanted.is_some();
        let wanted = wanted?;
        let (generation, after) = (state.generation, state.window.to().sequence);
        let filters = reduced(state.filters.iter().map(String::as_str));
        Some((generation, Wanted { name: format!("{}-{generation}", wanted.name), filters, after, ..wanted }))
    }

    fn is_current(&self, generation: u64) -> bool {
        let state = self.state();
        state.generation == generation && !state.members.is_empty()
    }

    /// Whether somebody has passed what would be dropped next.
    fn may_go_on(&self) -> bool {
        let state = self.state();
        let furthest = state.members.values().map(|place| place.read_to.load(Ordering::Relaxed)).max();
        state.window.would_drop().is_none_or(|oldest| furthest.is_some_and(|furthest| furthest >= oldest))
    }

    fn take(&self, generation: u64, news: News) {
        let mut state = self.state();
        if state.generation != generation {
            return;
        }
        match news {
            News::Messages(messages) => messages.into_iter().for_each(|stored| state.window.push(stored)),
            News::Level(mark) => state.window.level(mark),
            News::Broken(why) => {
                state.epoch += 1;
                state.broken = why;
                state.members.clear();
            }
        }
        drop(state);
        self.news.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl State {
    fn all_filters(&self) -> Vec<String> {
        let mut all: Vec<String> = self.members.values().flat_map(|place| place.filters.clone()).collect();
        all.sort();
        all.dedup();
        all
    }
}

impl Member {
    /// What lies after a sequence.
    ///
    /// # Errors
    /// When the stream turned out to be another; the text says how.
    pub(super) fn after(&self, sequence: u64, max: usize, interest: &Interest) -> Result<Look, String> {
        let state = self.hub.state();
        if state.epoch != self.epoch {
            return Err(state.broken.clone());
        }
        Ok(state.window.after(sequence, max, interest))
    }

    /// Tells how far it has come.
    pub(super) fn advance(&self, sequence: u64) {
        if self.read_to.swap(sequence, Ordering::Relaxed) != sequence {
            self.hub.progress.notify_one();
        }
    }

    /// Tells of each change.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.hub.news.subscribe()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.state().members.remove(&self.number);
        self.hub.progress.notify_one();
    }
}
