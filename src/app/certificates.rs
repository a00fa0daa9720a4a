//! Replaces changed certificates, periodically and on reload.

use std::sync::Arc;
use std::time::Duration;

use super::App;
use crate::tls::Reload;

/// Interval between two reads of the files.
const INTERVAL: Duration = Duration::from_secs(10);

impl App {
    /// Replaces changed certificates periodically until the node stops.
    pub(super) fn reload_certificates_later(self: &Arc<Self>) {
        if self.tls.is_none() {
            return;
        }
        let app = Arc::downgrade(self);
        self.background.spawn(INTERVAL, async move {
            let Some(app) = app.upgrade() else { return };
            app.reload_certificates().await;
            app.reload_certificates_later();
        });
    }

    /// Replaces changed certificates. Those that cannot be used are logged once.
    pub(super) async fn reload_certificates(&self) {
        let Some(tls) = self.tls.clone() else { return };
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(Reload::Replaced) => tracing::info!("certificates replaced"),
            Ok(Reload::Rejected(error)) => {
                tracing::error!(error, "certificates rejected; the previous ones stay in use");
            }
            // A panic is reported by the runtime.
            Ok(Reload::Unchanged) | Err(_) => {}
        }
    }
}
