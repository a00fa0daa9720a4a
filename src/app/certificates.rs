//! Replaces changed certificates and signing keys, periodically and on reload.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{App, component_config};
use crate::tls::{NodeTls, Reload};

/// Interval between two reads of the files.
const INTERVAL: Duration = Duration::from_secs(10);

impl App {
    /// Returns the certificates; `None` if the node serves HTTP.
    pub(crate) fn tls(&self) -> Option<&Arc<NodeTls>> {
        self.keys.tls.as_ref()
    }

    /// Returns the number of messages without a valid signature by kind; `None` without NATS.
    #[must_use]
    pub fn rejected_messages(&self) -> Option<impl Iterator<Item = (&'static str, u64)>> {
        self.transport.connection().map(|connection| connection.signer().rejected())
    }

    /// Replaces changed certificates and signing keys periodically until the node stops.
    pub(crate) fn reload_certificates_later(self: &Arc<Self>) {
        if self.tls().is_none() && self.config.nats.signing.keys.is_empty() {
            return;
        }
        let app = Arc::downgrade(self);
        self.background.spawn(INTERVAL, async move {
            let Some(app) = app.upgrade() else { return };
            app.reload_certificates().await;
            app.reload_certificates_later();
        });
    }

    /// Replaces changed certificates and signing keys. Those that cannot be used are logged once.
    pub(crate) async fn reload_certificates(self: &Arc<Self>) {
        let app = Arc::clone(self);
        let reload = move || {
            app.reload_signing_keys();
            app.tls().map(|tls| tls.reload())
        };
        match tokio::task::spawn_blocking(reload).await {
            Ok(Some(Reload::Replaced)) => tracing::info!("certificates replaced"),
            Ok(Some(Reload::Rejected(error))) => {
                tracing::error!(error, "certificates rejected; the previous ones stay in use");
            }
            // A panic is reported by the runtime.
            Ok(Some(Reload::Unchanged) | None) | Err(_) => {}
        }
    }

    fn reload_signing_keys(&self) {
        let Some(connection) = self.transport.connection() else { return };
        let keys = component_config::signing_keys(&self.config).map_err(|error| error.to_string());
        let replaced =
            keys.and_then(|keys| connection.signer().replace(&keys).map_err(|error| error.to_string()));
        let failure = replaced.err().unwrap_or_default();
        let mut last = self.keys.signing_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if !failure.is_empty() && *last != failure {
            tracing::error!(error = failure, "signing keys rejected; the previous ones stay in use");
        }
        *last = failure;
    }
}
