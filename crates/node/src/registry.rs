//! Opens the registry of contexts and actors: a journal in the data directory, or the bucket on
//! NATS.

use std::sync::Arc;

use anyhow::Context as _;
use orlog_bus::embedded::JournalRegistry;
use orlog_bus::nats::{Connection, NatsRegistry};
use orlog_bus::registry::Registry;
use orlog_store::DurablePosition;

use super::cluster::record;
use super::layout;
use super::transport::with_startup_retry;
use crate::access::AccessRegistry;
use crate::config::Config;

/// Opens the registry. It has all records when this returns. `expected` is the position that is
/// known to be durable.
///
/// # Errors
/// If the registry is not available, damaged, or lost records that were durable.
pub(super) async fn open(
    config: &Config,
    expected: Option<DurablePosition>,
    connection: Option<&Connection>,
) -> anyhow::Result<AccessRegistry> {
    let Some(connection) = connection else {
        let dir = config.data_dir.join(layout::REGISTRY);
        let opened =
            // Reads and compacts the journal, which would block a thread of the runtime.
            tokio::task::spawn_blocking(move || JournalRegistry::open(&dir, expected)).await;
        let journal = Arc::new(
            opened
                .context("the registry did not open")?
                .map_err(layout::explain_open)?,
        );

        return Ok(AccessRegistry::new(
            Arc::clone(&journal) as Arc<dyn Registry>,
            Some(journal),
        ));
    };

    let registry = with_startup_retry(|| async { Ok(NatsRegistry::open(connection).await?) }).await;
    let registry = registry.context("the registry of contexts and actors cannot be opened")?;

    // Before anything is stored: a pod with another partitioning would apply events to other
    // shards.
    record::claim(config, connection, &registry).await?;

    let position = registry
        .durable_position()
        .map_or(0, |found| found.position);

    // The bucket was restored from an older copy, or is another one: rights that were revoked since
    // would apply again.
    match expected.filter(|expected| expected.position > position) {
        Some(lost) => {
            let lost = format!(
                "the registry on NATS ends at {position}, but {} was durable",
                lost.position
            );
            Err(layout::explain_loss(lost))
        }
        None => Ok(AccessRegistry::new(Arc::new(registry), None)),
    }
}
