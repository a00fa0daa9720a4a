//! Transport of messages: the bus contract, subjects, the event codec, the embedded bus, and NATS
//! JetStream.

mod checkpoint;
mod consumer;
mod contract;
mod retry_log;
mod subject_matcher;

pub mod codec;
pub mod effect_queue;
pub mod embedded;
pub mod membership;
pub mod nats;
pub mod registry;
pub mod requests;
pub mod signature;
pub mod subject;
pub mod workflow;

pub use checkpoint::{AckPosition, StreamAnomaly, SubscriptionStart};
pub use contract::{
    Acker, Bus, Consumer, Delivery, Error, Headers, MaxInFlight, Message, Partition, PublishAck,
    ScanStart, StreamScan, Subscription,
};
pub use embedded::Embedded;
pub use retry_log::RetryLog;
