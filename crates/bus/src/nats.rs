//! NATS JetStream: the distributed bus of a cluster.
//!
//! The only module of a node that uses the NATS client. Every component uses one [`Connection`].

mod bucket;
mod connection;
mod cursors;
mod durable_consumers;
mod effect_queue;
mod filters;
mod leases;
mod message;
mod nonces;
mod numbers;
mod provision;
mod publish;
mod raw_message;
mod read_failures;
mod registry;
mod requests;
mod scan;
mod shard_log;
mod shared_reader;
mod snapshots;
mod source;
mod stream;
mod stream_config;
mod stream_reader;
mod temporary_consumer;

use async_nats::jetstream::stream::Info;
use orlog_model::fnv1a;
use uuid::Uuid;

pub use connection::{ConnectError, Connection, Credentials, MINIMUM_SERVER, Options, TlsOptions};
pub use cursors::durable_consumer;
pub use durable_consumers::{ConsumerSpec, create_consumer};
pub use effect_queue::{ConsumerLayout, NatsEffectQueue, arrange_consumers, consumer_name};
pub use leases::{LeaseOptions, Leases};
pub use nonces::{NONCE_STREAM, NonceStream};
pub use numbers::SharedNumbers;
pub use provision::{ProvisionError, StreamDiff, apply, diff};
pub use registry::{NatsRegistry, REGISTRY_BUCKET};
pub use requests::{ReceivedRequest, Requests};
pub use shard_log::{LOG_STREAM, ShardLog, ShardLogError};
pub use snapshots::{SNAPSHOT_BUCKET, Snapshot, Snapshots};
pub use stream::NatsStream;
pub use stream_config::{
    AGGREGATE_EVENTS, StreamRetention, StreamSet, StreamSpec, StreamsConfig, WORKFLOW_COMMANDS,
    WORKFLOW_DEADLETTERS, WORKFLOW_EVENTS,
};

/// Returns the identity of a stream: its name and creation time.
fn identity(info: &Info) -> Uuid {
    let created = info.created.unix_timestamp_nanos().to_be_bytes();
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&fnv1a(&[&info.config.name]).to_be_bytes());
    bytes[4..].copy_from_slice(&created[4..]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}
