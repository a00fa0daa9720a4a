//! Activation of the instances that had started or were resumed and had not yet applied their
//! buffered inputs when the shard stopped.
//!
//! It runs beside the ingester. An input that arrives earlier finds the same order: an instance
//! applies its buffered inputs before its first input.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::RetryLog;
use orlog_model::InstanceKey;
use orlog_store::{Error, Reader};

use crate::instance::InstanceRegistry;

/// Number of instances with buffered inputs read per page.
const PAGE: usize = 256;
/// Delay before a failed read is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Activates these instances, page by page. Returns an error if a read panics.
pub(crate) async fn activate_buffered(
    registry: Arc<InstanceRegistry>,
    reader: Reader,
) -> Result<(), String> {
    let mut last = None;
    let mut retries = RetryLog::default();
    loop {
        let reader = reader.clone();
        let after = last.clone();
        let page =
            match tokio::task::spawn_blocking(move || read_page(&reader, after.as_ref())).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => {
                    retries.failed(|failures| {
                    tracing::warn!(%error, failures, "buffered inputs cannot be read; retrying");
                });
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(panic) => return Err(panic.to_string()),
            };
        retries.succeeded(|failures| tracing::info!(failures, "buffered inputs are read again"));
        let Some((end, _)) = page.last() else {
            return Ok(());
        };
        last = Some(end.clone());

        for (key, _) in page.iter().filter(|(_, waits)| *waits) {
            // An error means that the incarnation has ended.
            if registry.activate(key).is_err() {
                return Ok(());
            }
        }
    }
}

/// Returns the next instances with buffered inputs, and whether each must apply them.
fn read_page(
    reader: &Reader,
    after: Option<&InstanceKey>,
) -> Result<Vec<(InstanceKey, bool)>, Error> {
    let mut page = Vec::new();
    for key in reader.buffered_keys(after, PAGE)? {
        let must_apply = match reader.instance(&key) {
            Ok(instance) => instance.is_some_and(|instance| !instance.paused),
            // Activated too, so that it is quarantined.
            Err(error) if error.is_damage() => true,
            Err(error) => return Err(error),
        };
        page.push((key, must_apply));
    }
    Ok(page)
}
