//! Configuration that a running node reads again.

use std::sync::{Arc, Mutex, PoisonError};

use orlog_program::Diagnostic;
use toml::Table;

use super::diagnostics::leaves;
use super::{Config, Error};

/// Keys that a reload applies, with all keys below them.
const RELOADED: [&str; 5] = ["upstreams", "gateway", "webhooks", "auth.actors", "peers"];

/// Reads all layers of the configuration again.
pub(crate) type ReadConfig = Arc<dyn Fn() -> Result<Config, Vec<Error>> + Send + Sync>;

/// Source of the configuration of a running node, and the configuration that it read last.
pub struct ConfigSource {
    read: ReadConfig,
    applied: Mutex<Config>,
    reloading: Arc<tokio::sync::Mutex<()>>,
}

/// Configuration that was read again.
pub(crate) struct NextConfig {
    pub(crate) config: Config,
    /// Changed keys that only a restart applies, in order.
    pub(crate) requires_restart: Vec<String>,
}

impl ConfigSource {
    /// Creates the source of a node that starts with this configuration.
    pub(crate) fn new(read: ReadConfig, initial: Config) -> Self {
        Self {
            read,
            applied: Mutex::new(initial),
            reloading: Arc::default(),
        }
    }

    /// Waits for the reload in progress: an earlier reading must not replace a later one.
    pub(crate) async fn lock(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.reloading).lock_owned().await
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// Returns all errors of the file and of the variables.
    pub(crate) fn read(&self) -> Result<NextConfig, Vec<Diagnostic>> {
        let config =
            (self.read)().map_err(|errors| errors.iter().map(diagnostic).collect::<Vec<_>>())?;
        let before = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed_keys(&before, &config);
        let is_reloaded = |key: &String| {
            RELOADED.iter().any(|root| {
                key.strip_prefix(root)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let requires_restart = changed
            .into_iter()
            .filter(|key| !is_reloaded(key))
            .collect();
        Ok(NextConfig {
            config,
            requires_restart,
        })
    }

    /// Records that the reloaded keys of a configuration apply. The others still differ from those of the process.
    pub(crate) fn applied(&self, next: Config) {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let Config {
            upstreams,
            gateway,
            webhooks,
            auth,
            peers,
            ..
        } = next;
        (applied.upstreams, applied.gateway, applied.webhooks) = (upstreams, gateway, webhooks);
        applied.peers = peers;
        applied.auth.actors = auth.actors;
    }
}

fn diagnostic(error: &Error) -> Diagnostic {
    match error {
        Error::Invalid { location, message } => Diagnostic::of_file(location, message.clone()),
        Error::Read { path, .. } => {
            Diagnostic::of_file(path.display().to_string(), error.to_string())
        }
    }
}

/// Returns the keys whose values differ.
fn changed_keys(before: &Config, after: &Config) -> Vec<String> {
    let values = |config: &Config| {
        Table::try_from(config)
            .map(|table| leaves(&table))
            .unwrap_or_default()
    };
    let (before, after) = (values(before), values(after));
    let differs = |of: &[(Vec<String>, toml::Value)],
                   (path, value): &(Vec<String>, toml::Value)| {
        of.iter()
            .find(|(other, _)| other == path)
            .is_none_or(|(_, other)| other != value)
    };
    let mut changed: Vec<_> = after.iter().filter(|leaf| differs(&before, leaf)).collect();
    changed.extend(before.iter().filter(|leaf| differs(&after, leaf)));
    let mut keys: Vec<_> = changed
        .into_iter()
        .map(|(path, _)| path.join("."))
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;

    fn config(text: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orlog.toml");
        std::fs::write(&path, text).unwrap();
        Layers::none().file(&path).unwrap().load().unwrap()
    }

    #[test]
    fn keys_that_only_a_restart_applies_are_listed_until_it() {
        let before = config("");
        let after = config(
            "shards = 3\n[limits]\nmax_state_size = \"2MiB\"\n[upstreams.pay]\nbase_url = \"http://h\"",
        );
        let source = ConfigSource::new(Arc::new(move || Ok(after.clone())), before);
        for _ in 0..2 {
            let next = source.read().unwrap();
            assert_eq!(next.requires_restart, ["limits.max_state_size", "shards"]);
            source.applied(next.config);
        }
        assert!(source.applied.lock().unwrap().upstreams.contains_key("pay"));
    }

    #[test]
    fn errors_name_their_location() {
        let invalid = Error::Invalid {
            location: "orlog.toml:3:1".to_owned(),
            message: "unknown key".to_owned(),
        };
        let errors = std::sync::Mutex::new(Some(vec![invalid]));
        let read = move || Err(errors.lock().unwrap().take().unwrap_or_default());
        let source = ConfigSource::new(Arc::new(read), Config::default());
        let errors = source.read().err().unwrap();
        assert_eq!(
            (errors[0].file.as_str(), errors[0].message.as_str()),
            ("orlog.toml:3:1", "unknown key")
        );
    }
}
