//! Streams that a shard reads: their progress, and the reason why one is not read.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use super::InstanceRegistry;
use crate::shard::stream_progress::StreamProgress;

impl InstanceRegistry {
    /// Registers a stream that the shard reads.
    pub(crate) fn register_stream(&self, progress: Arc<StreamProgress>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|other| other.stream() != progress.stream());
        streams.push(progress);
    }

    /// Returns the progress in the streams that the current incarnation reads.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamProgress>> {
        let current = self.incarnation_number();
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter(|progress| progress.incarnation_number == current).cloned().collect()
    }

    /// Records why a stream is not read; `None` if it is read.
    pub(crate) fn set_lost_stream(&self, stream: &str, reason: Option<String>) {
        let mut lost = self.lost_streams.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = i64::from(reason.is_some());
        let before = match reason {
            Some(reason) => lost.insert(stream.to_owned(), reason),
            None => lost.remove(stream),
        };
        self.context.metrics.streams_lost.inc_by(is_lost - i64::from(before.is_some()));
    }

    /// Returns the streams that lost messages and are not read, with the reason.
    pub(crate) fn lost_streams(&self) -> BTreeMap<String, String> {
        self.lost_streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the ack floor of a stream; `None` if the shard does not read it.
    pub(crate) fn ack_floor(&self, stream: &str) -> Option<u64> {
        let streams = self.streams();
        streams.iter().find(|progress| progress.stream() == stream).map(|progress| progress.acker.ack_floor())
    }
}
