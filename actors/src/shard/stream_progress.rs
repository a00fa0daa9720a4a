//! Progress of a shard in one stream: the acknowledgements and the checkpoint of each group commit.
//!
//! A group commit contains the highest position at or below which all messages are durable with it.
//! When the commit is visible, its messages are acknowledged; when it is synced, the cursor on the
//! bus follows. So a cursor is never ahead of the checkpoint in the store.

use std::sync::Arc;

use orlog_bus::{Acker, Consumer, StreamAnomaly};
use orlog_model::count::{Operation, count};
use orlog_model::{Change, CheckpointKey, StreamPosition};
use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

/// Streams that one incarnation of a shard reads.
#[derive(Default)]
pub(crate) struct ShardStreams(Mutex<Vec<Arc<StreamProgress>>>);

impl ShardStreams {
    /// Adds a stream; replaces its earlier subscription.
    pub(crate) fn register(&self, progress: Arc<StreamProgress>) {
        let mut streams = self.0.lock();
        streams.retain(|other| other.source != progress.source);
        streams.push(progress);
    }

    /// Returns the progress in each stream.
    pub(crate) fn all(&self) -> Vec<Arc<StreamProgress>> {
        self.0.lock().clone()
    }
}

/// Progress in one stream, within one incarnation of the shard.
pub(crate) struct StreamProgress {
    pub(crate) acker: Arc<dyn Acker>,
    source: CheckpointKey,
    stream_id: Uuid,
    state: Mutex<ProgressState>,
}

struct ProgressState {
    /// Messages whose consequences are complete with the current group.
    staged: Vec<u64>,
    /// Lowest sequence of the next checkpoint.
    next: u64,
    /// Checkpoint in the current group.
    current: Option<u64>,
    /// Checkpoint that is not known to be synced, with the position of its commit.
    unsynced: Option<(u64, u64)>,
}

impl StreamProgress {
    /// Creates the progress of a consumer that started at this checkpoint.
    pub(crate) fn new(
        source: CheckpointKey,
        checkpoint: Option<StreamPosition>,
        consumer: &dyn Consumer,
    ) -> Arc<Self> {
        let start = consumer.subscription_start();
        // After an anomaly, the position of the stream replaces the checkpoint, even if it is
        // lower.
        let next = match checkpoint {
            _ if start.anomaly.as_ref().is_some_and(StreamAnomaly::is_loss) => 0,
            // Also in a restored stream: the checkpoint proves the message there.
            Some(position) => position.sequence + 1,
            None => 1,
        };

        let state = ProgressState {
            staged: Vec::new(),
            next,
            current: None,
            unsynced: None,
        };
        Arc::new(Self {
            acker: consumer.acker(),
            source,
            stream_id: start.stream_id,
            state: Mutex::new(state),
        })
    }

    /// Returns the name of the stream.
    pub(crate) fn stream(&self) -> &str {
        &self.source.stream
    }

    /// Adds a message whose last consequence is in the current group.
    pub(crate) fn stage(&self, sequence: u64) {
        self.state().staged.push(sequence);
    }

    /// Returns the checkpoint of the current group, if the position moved.
    pub(crate) fn checkpoint(&self) -> Option<Change> {
        let mut state = self.state();
        let position = self.acker.ack_position_with(&state.staged);
        if position.sequence < state.next {
            return None;
        }

        state.current = Some(position.sequence);
        let position = StreamPosition {
            stream_id: self.stream_id,
            sequence: position.sequence,
            at: position.at,
        };
        Some(Change::Checkpoint(self.source.clone(), position))
    }

    /// Acknowledges the messages of the current group, which is committed at this position.
    pub(crate) fn committed(&self, position: u64) {
        let mut state = self.state();
        self.acker.ack_all(&state.staged);
        state.staged.clear();
        if let Some(sequence) = state.current.take() {
            state.next = sequence + 1;
            // A later checkpoint does not replace it: the cursor would wait longer for the disk.
            state.unsynced.get_or_insert((position, sequence));
        }
    }

    /// Moves the cursor to the oldest checkpoint that was not synced yet, if commits up to
    /// `durable` are. Those after it follow with the next groups.
    pub(crate) fn synced(&self, durable: u64) {
        let synced = self
            .state()
            .unsynced
            .take_if(|(position, _)| *position <= durable);
        if let Some((_, sequence)) = synced {
            self.acker.set_cursor(sequence);
        }
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        count(Operation::Lock);
        self.state.lock()
    }
}
