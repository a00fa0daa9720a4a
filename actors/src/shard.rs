//! Actors of one shard: ingester, committer, relay, timer and their supervisor.

pub(crate) mod actor;
pub(crate) mod armed_timers;
pub(crate) mod buffer_activation;
pub(crate) mod committer;
pub(crate) mod dead_letter_publisher;
pub(crate) mod epoch;
pub(crate) mod event_forwarder;
pub(crate) mod event_source;
pub(crate) mod fresh_queue;
pub(crate) mod fresh_rows;
pub(crate) mod ingester;
pub(crate) mod outbox_queues;
pub(crate) mod relay;
pub(crate) mod running;
pub(crate) mod stream_progress;
pub(crate) mod submission;
pub(crate) mod subscribe;
pub(crate) mod timer;
