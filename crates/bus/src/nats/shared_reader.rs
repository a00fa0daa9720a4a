//! One reader of a stream for all subscriptions of a process, for all shards.
//!
//! Messages that it reads are stored in a cache. Each subscription reads its own messages from the
//! cache at its own pace. A subscription behind the cache, or far ahead of it, uses its own reader
//! until it has caught up. Therefore no subscription blocks another, and the servers deliver a
//! message once to a process that keeps up. The shared reader waits while no subscription has
//! reached the start of the cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::filters::{covers, merge_overlapping};
use super::stream_reader::{ReaderConfig, ReaderEvent, StreamReader};
use crate::checkpoint::AckPosition;
use crate::consumer::{CacheLookup, MessageCache};
use crate::subject_matcher::SubjectMatcher;

/// Maximum number of cached messages.
const CACHED_MESSAGES: usize = 16_384;
/// Maximum size of the cached messages, in bytes.
const CACHED_BYTES: usize = 32 << 20;

/// Reader shared by the subscriptions of one stream.
#[derive(Debug, Default)]
pub(super) struct SharedReader {
    state: Mutex<SharedReaderState>,
    /// Counter of changes.
    changes: watch::Sender<u64>,
    /// Notified when a subscription advances, joins or leaves.
    progress: Notify,
}

#[derive(Debug)]
struct SharedReaderState {
    window: MessageCache,
    members: BTreeMap<u64, MemberPosition>,
    next_member: u64,
    filters: Vec<String>,
    /// Stream to read and consumer names.
    config: Option<ReaderConfig>,
    /// Changes whenever the cache is reset.
    generation: u64,
    running: bool,
    /// Changes whenever the stream was recreated or truncated; with the reason.
    epoch: u64,
    broken: String,
}

#[derive(Debug)]
struct MemberPosition {
    read_to: Arc<AtomicU64>,
    filters: Vec<String>,
}

/// Membership of a subscription in the shared reader; dropping it leaves.
#[derive(Debug)]
pub(super) struct SharedReaderMember {
    shared_reader: Arc<SharedReader>,
    number: u64,
    epoch: u64,
    read_to: Arc<AtomicU64>,
}

impl SharedReader {
    /// Joins the shared reader. The first member determines the start of the cache; changed filters
    /// reset it.
    pub(super) fn join(
        self: &Arc<Self>,
        filters: Vec<String>,
        config: ReaderConfig,
    ) -> SharedReaderMember {
        let mut state = self.state.lock();
        let number = state.next_member;
        state.next_member += 1;
        let read_to = Arc::new(AtomicU64::new(config.after.sequence));

        let first = state.members.is_empty();
        let covered = filters
            .iter()
            .all(|filter| state.filters.iter().any(|wide| covers(wide, filter)));

        state.members.insert(
            number,
            MemberPosition {
                read_to: Arc::clone(&read_to),
                filters,
            },
        );

        // A subscription whose filters are already read joins without a restart of the reader.
        if first || !covered {
            // The reader continues at its position. Earlier messages of the new filters come from
            // an own reader of the subscription.
            let after = if first {
                config.after
            } else {
                state.window.end()
            };
            state.filters = state.all_filters();
            state.config = Some(config);
            state.window.reset(after);
            state.generation += 1;
        }

        let epoch = state.epoch;
        if !std::mem::replace(&mut state.running, true) {
            tokio::spawn(Arc::clone(self).run());
        }

        drop(state);
        // The task may wait for progress, or still read with the filters of the earlier generation.
        self.progress.notify_one();

        SharedReaderMember {
            shared_reader: Arc::clone(self),
            number,
            epoch,
            read_to,
        }
    }

    /// Reads while there are members.
    async fn run(self: Arc<Self>) {
        while let Some((generation, config)) = self.assignment() {
            // Another generation has other filters or another start.
            let mut reading = StreamReader::start(config);
            while self.is_current(generation) {
                if !self.may_go_on() {
                    self.progress.notified().await;
                    continue;
                }
                tokio::select! {
                    event = reading.next() => self.take(generation, event),
                    () = self.progress.notified() => {}
                }
            }
        }
    }

    /// Returns the reader configuration; `None` ends the task because there are no members.
    fn assignment(&self) -> Option<(u64, ReaderConfig)> {
        let mut state = self.state.lock();
        let config = state.config.clone().filter(|_| !state.members.is_empty());
        // Under the lock: a member that joins now finds the task running, or starts another one.
        state.running = config.is_some();
        let config = config?;

        let generation = state.generation;
        let after = state.window.end();
        let filters = merge_overlapping(state.filters.iter().map(String::as_str));

        Some((
            generation,
            ReaderConfig {
                name: format!("{}-{generation}", config.name),
                filters,
                after,
                ..config
            },
        ))
    }

    fn is_current(&self, generation: u64) -> bool {
        let state = self.state.lock();
        state.generation == generation && !state.members.is_empty()
    }

    /// Returns whether a member has passed the message that would be evicted next.
    fn may_go_on(&self) -> bool {
        let state = self.state.lock();
        // One member is sufficient. Slower ones are behind the cache then, and use their own
        // readers.
        let furthest = state
            .members
            .values()
            .map(|member| member.read_to.load(Ordering::Relaxed))
            .max();

        state
            .window
            .next_eviction()
            .is_none_or(|oldest| furthest.is_some_and(|furthest| furthest >= oldest))
    }

    fn take(&self, generation: u64, event: ReaderEvent) {
        let mut state = self.state.lock();
        // An earlier generation had other filters. Its messages would leave gaps in the cache.
        if state.generation != generation {
            return;
        }

        match event {
            ReaderEvent::Messages { messages, .. } => {
                for stored in messages {
                    state.window.push(stored);
                }
            }
            ReaderEvent::CaughtUp(position) => state.window.mark_caught_up(position),
            ReaderEvent::Broken(reason) => {
                state.epoch += 1;
                state.broken = reason;
                // Each member finds the reason at its next read, and its subscriber subscribes
                // again. The first one to join restarts the cache.
                state.members.clear();
            }
        }

        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Default for SharedReaderState {
    fn default() -> Self {
        Self {
            window: MessageCache::new(CACHED_MESSAGES, CACHED_BYTES, AckPosition::default()),
            members: BTreeMap::new(),
            next_member: 0,
            filters: Vec::new(),
            config: None,
            generation: 0,
            running: false,
            epoch: 0,
            broken: String::new(),
        }
    }
}

impl SharedReaderState {
    fn all_filters(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .members
            .values()
            .flat_map(|member| member.filters.clone())
            .collect();

        all.sort();
        all.dedup();
        all
    }
}

impl SharedReaderMember {
    /// Returns the cached messages after a sequence.
    ///
    /// # Errors
    /// If the stream was recreated or truncated; the text gives the details.
    pub(super) fn read_after(
        &self,
        sequence: u64,
        max: usize,
        interest: &SubjectMatcher,
    ) -> Result<CacheLookup, String> {
        let state = self.shared_reader.state.lock();
        if state.epoch != self.epoch {
            return Err(state.broken.clone());
        }
        Ok(state.window.read_after(sequence, max, interest))
    }

    /// Records the position of the subscription.
    pub(super) fn advance(&self, sequence: u64) {
        if self.read_to.swap(sequence, Ordering::Relaxed) != sequence {
            self.shared_reader.progress.notify_one();
        }
    }

    /// Returns a receiver of changes.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.shared_reader.changes.subscribe()
    }
}

impl Drop for SharedReaderMember {
    fn drop(&mut self) {
        self.shared_reader.state.lock().members.remove(&self.number);
        self.shared_reader.progress.notify_one();
    }
}
