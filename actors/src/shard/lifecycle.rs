//! Lifecycle of a shard in this process: it opens, ends, opens again after a failure, and is
//! released or lost to another process.
//!
//! Each run is an [`Incarnation`], which does not end while code of
//! [`ShardLifecycle::with_incarnation`] uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orlog_effect::LeaseEnd;
use parking_lot::RwLock;
use ractor::ActorCell;

use crate::instance::saga::state::SagaDependencies;
use crate::shard::epoch::ShardEpoch;
use crate::shard::stream_progress::ShardStreams;
use crate::shard::submission::{CommitterHandle, ShardUnavailable, Submission};

/// Lifecycle of one shard.
pub(crate) struct ShardLifecycle {
    /// The current incarnation; `None` while the shard is down.
    open: RwLock<Option<Incarnation>>,
    /// Epoch of the current or the last incarnation.
    epoch: RwLock<Arc<ShardEpoch>>,
    /// End of the lease of this process.
    lease: LeaseEnd,
    /// Another process owns the shard.
    is_lost: AtomicBool,
    /// The shard was released and does not open again.
    is_released: AtomicBool,
    /// Number of incarnations so far.
    incarnations: AtomicU64,
}

/// One run of the shard, from start to failure.
pub(crate) struct Incarnation {
    /// Supervisor of the saga actors.
    pub(crate) shard: ActorCell,
    /// Dependencies of the saga actors, with the committer.
    pub(crate) sagas: Arc<SagaDependencies>,
    /// Progress in the streams that the incarnation reads.
    pub(crate) streams: Arc<ShardStreams>,
}

impl Incarnation {
    pub(crate) fn committer(&self) -> &CommitterHandle {
        &self.sagas.committer
    }
}

impl ShardLifecycle {
    pub(crate) fn new(lease: LeaseEnd) -> Self {
        Self {
            open: RwLock::new(None),
            epoch: RwLock::new(Arc::new(ShardEpoch::new(lease.clone()))),
            lease,
            is_lost: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            incarnations: AtomicU64::new(0),
        }
    }

    /// Starts an incarnation; the previous one has ended. Returns its number.
    pub(crate) fn begin(&self, incarnation: Incarnation) -> u64 {
        let mut open = self.open.write();

        let number = self.incarnations.fetch_add(1, Ordering::AcqRel) + 1;
        *self.epoch.write() = Arc::new(ShardEpoch::new(self.lease.clone()));

        // A release can overtake a restart: the shard must not open again under a lease that has
        // ended.
        if self.is_released() {
            incarnation.committer().stop();
        } else {
            *open = Some(incarnation);
        }
        number
    }

    /// Ends the incarnation and its epoch, and returns it. Its committer still runs.
    pub(crate) fn end(&self) -> Option<Incarnation> {
        // The epoch first: no attempt starts for a shard that can no longer store its result.
        self.epoch().end();
        self.open.write().take()
    }

    /// Prevents that the shard opens again.
    pub(crate) fn mark_released(&self) {
        self.is_released.store(true, Ordering::Release);
    }

    /// Returns true if the shard was released.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// Records that another process owns the shard: it must not be restarted here, and its attempts
    /// are cancelled.
    pub(crate) fn mark_lost(&self) {
        self.epoch().cancel();
        self.is_lost.store(true, Ordering::Release);
    }

    /// Returns true if another process owns the shard.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns the epoch of the current or the last incarnation.
    pub(crate) fn epoch(&self) -> Arc<ShardEpoch> {
        Arc::clone(&self.epoch.read())
    }

    /// Calls `act` with the current incarnation, which does not end meanwhile.
    pub(crate) fn with_incarnation<T>(
        &self,
        act: impl FnOnce(&Incarnation) -> Result<T, ShardUnavailable>,
    ) -> Result<T, ShardUnavailable> {
        let open = self.open.read();
        open.as_ref().ok_or(ShardUnavailable).and_then(act)
    }

    /// Calls `act` with the incarnation of this number, as [`Self::with_incarnation`].
    pub(crate) fn with_incarnation_of<T>(
        &self,
        number: u64,
        act: impl FnOnce(&Incarnation) -> Result<T, ShardUnavailable>,
    ) -> Result<T, ShardUnavailable> {
        self.with_incarnation(|incarnation| {
            if self.incarnations.load(Ordering::Acquire) != number {
                return Err(ShardUnavailable);
            }
            act(incarnation)
        })
    }

    /// Returns the committer of the current incarnation.
    pub(crate) fn committer(&self) -> Result<CommitterHandle, ShardUnavailable> {
        self.with_incarnation(|incarnation| Ok(incarnation.committer().clone()))
    }

    /// Submits a change to the committer of the current incarnation.
    pub(crate) fn submit(&self, submission: Submission) -> Result<(), ShardUnavailable> {
        self.with_incarnation(|incarnation| incarnation.committer().submit(submission))
    }

    /// Returns the ack floor of a stream; `None` if the shard does not read it.
    pub(crate) fn ack_floor(&self, stream: &str) -> Option<u64> {
        let streams = self
            .with_incarnation(|incarnation| Ok(incarnation.streams.all()))
            .ok()?;

        streams
            .iter()
            .find(|progress| progress.stream() == stream)
            .map(|progress| progress.acker.ack_floor())
    }
}
