//! Durable consumers for clients that may not create consumers.

use async_nats::jetstream::consumer::{AckPolicy, pull};

use super::connection::{Connection, unavailable};
use crate::Error;

/// Durable pull consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Stream.
    pub stream: &'static str,
    /// Name.
    pub name: String,
    /// Subjects of its messages.
    pub filters: Vec<String>,
    /// Whether its messages are acknowledged; otherwise each message is delivered once.
    pub acknowledges: bool,
}

/// Creates a consumer; an existing one with the same settings is unchanged.
///
/// # Errors
/// If the servers do not respond or reject the request.
pub async fn create_consumer(connection: &Connection, spec: &ConsumerSpec) -> Result<(), Error> {
    let stream = connection
        .jetstream
        .get_stream_no_info(spec.stream)
        .await
        .map_err(unavailable)?;

    let config = pull::Config {
        durable_name: Some(spec.name.clone()),
        filter_subjects: spec.filters.clone(),
        ack_policy: if spec.acknowledges {
            AckPolicy::Explicit
        } else {
            AckPolicy::None
        },
        ..Default::default()
    };

    stream
        .create_consumer(config)
        .await
        .map_err(unavailable)
        .map(|_| ())
}
