//! Certificates and signing keys of a node: changed files replace them, periodically and on reload.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::nats::Connection;
use parking_lot::Mutex;

use super::background::BackgroundTasks;
use super::component_config;
use crate::config::Config;
use crate::tls::{NodeTls, Reload};

/// Interval between two reads of the files.
const INTERVAL: Duration = Duration::from_secs(10);

/// Certificates and signing keys of a node.
pub struct KeyFiles {
    pub(crate) config: Arc<Config>,
    /// Certificates; `None` if the node serves HTTP.
    pub tls: Option<Arc<NodeTls>>,
    /// Connection with the signing keys; `None` without NATS.
    pub(crate) connection: Option<Connection>,
    /// Error of the last attempt to read the signing keys.
    pub(crate) signing_failure: Mutex<String>,
}

impl KeyFiles {
    /// Returns the number of messages without a valid signature by kind; `None` without NATS.
    pub fn rejected_messages(&self) -> Option<impl Iterator<Item = (&'static str, u64)>> {
        self.connection
            .as_ref()
            .map(|connection| connection.signer().rejected())
    }

    /// Replaces changed certificates and signing keys periodically until the node stops.
    pub(crate) fn reload_in(self: &Arc<Self>, background: &BackgroundTasks) {
        if self.tls.is_some() || !self.config.nats.signing.keys.is_empty() {
            background.repeat("certificates", self, INTERVAL, |keys| async move {
                keys.reload().await;
                INTERVAL
            });
        }
    }

    /// Replaces changed certificates and signing keys. Those that cannot be used are logged once.
    pub(crate) async fn reload(self: &Arc<Self>) {
        let keys = Arc::clone(self);

        match tokio::task::spawn_blocking(move || {
            keys.reload_signing_keys();
            keys.tls.as_ref().map(|tls| tls.reload())
        })
        .await
        {
            Ok(Some(Reload::Replaced)) => tracing::info!("certificates replaced"),
            Ok(Some(Reload::Rejected(error))) => {
                tracing::error!(
                    error,
                    "certificates rejected; the previous ones stay in use"
                );
            }
            // A panic is reported by the runtime.
            Ok(Some(Reload::Unchanged) | None) | Err(_) => {}
        }
    }

    fn reload_signing_keys(&self) {
        let Some(connection) = &self.connection else {
            return;
        };

        let keys = component_config::signing_keys(&self.config).map_err(|error| error.to_string());
        let replaced = keys.and_then(|keys| {
            connection
                .signer()
                .replace(&keys)
                .map_err(|error| error.to_string())
        });
        let failure = replaced.err().unwrap_or_default();
        let mut last = self.signing_failure.lock();

        // The files are read every 10 s, and a failure is reported once.
        if !failure.is_empty() && *last != failure {
            tracing::error!(
                error = failure,
                "signing keys rejected; the previous ones stay in use"
            );
        }

        *last = failure;
    }
}
