//! Configuration that a running node reads again.

use std::sync::Arc;

use orlog_program::Diagnostic;
use parking_lot::Mutex;
use toml::{Table, Value};

use super::diagnostics::leaves;
use super::key_rules::comparable_text;
use super::{Agreement, ChangeMethod, Config, Error, LimitsConfig, rule_of};

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
    /// Sentences about changed keys that a reload does not apply, in the order of the keys.
    pub(crate) warnings: Vec<String>,
}

impl ConfigSource {
    /// Creates the source of a node that starts with this configuration.
    pub fn new(read: ReadConfig, initial: Config) -> Self {
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
    /// Returns all errors of the file and of the variables, and changed keys that are immutable.
    pub(crate) fn read(&self) -> Result<NextConfig, Vec<Diagnostic>> {
        let config =
            (self.read)().map_err(|errors| errors.iter().map(diagnostic).collect::<Vec<_>>())?;
        let before = self.applied.lock();
        let mut warnings = Vec::new();
        let mut errors = Vec::new();
        for key in changed_keys(&before, &config) {
            // A test verifies that each key has a rule.
            let Some(rule) = rule_of(&key) else { continue };
            match rule.change {
                ChangeMethod::Reload => {}
                ChangeMethod::Restart => warnings.push(format!(
                    "{key} has changed in the configuration; restart the node to apply it"
                )),
                ChangeMethod::StopAllPods => warnings.push(format!(
                    "{key} has changed in the configuration; all pods must have the same value: \
                     stop all of them, then start them"
                )),
                ChangeMethod::Impossible => {
                    let reason = rule.note;
                    let message =
                        format!("{key} cannot be changed, because it {reason}; restore its value");
                    errors.push(Diagnostic::of_file("the configuration", message));
                }
            }
        }

        if errors.is_empty() {
            Ok(NextConfig { config, warnings })
        } else {
            Err(errors)
        }
    }

    /// Returns the limits that apply.
    pub(crate) fn limits(&self) -> LimitsConfig {
        let applied = self.applied.lock();
        applied.limits.clone()
    }

    /// Records that the reloaded keys of a configuration apply. The others still differ from those
    /// of the process.
    pub(crate) fn applied(&self, next: Config) {
        let mut applied = self.applied.lock();
        let Config {
            upstreams,
            gateway,
            webhooks,
            auth,
            peers,
            tenants,
            limits,
            ..
        } = next;

        // Only reloaded keys: the others still differ, so that each reload warns about them again.
        applied.upstreams = upstreams;
        applied.gateway = gateway;
        applied.webhooks = webhooks;
        applied.peers = peers;
        applied.auth.actors = auth.actors;
        applied.tenants.mode = tenants.mode;
        applied.tenants.allowed = tenants.allowed;
        applied.limits = applied.limits.reloaded(&limits);
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

/// Returns whether two values of a key are equal. Values that all pods share are compared as in the
/// record of the cluster, which ignores the order of a list.
fn is_equal(key: &str, one: &Value, other: &Value) -> bool {
    let is_shared = rule_of(key).is_some_and(|rule| rule.agreement == Agreement::Equal);
    one == other || is_shared && comparable_text(one) == comparable_text(other)
}

/// Returns the keys whose values differ.
fn changed_keys(before: &Config, after: &Config) -> Vec<String> {
    let values = |config: &Config| {
        Table::try_from(config)
            .map(|table| leaves(&table))
            .unwrap_or_default()
    };
    let before = values(before);
    let after = values(after);
    let differs = |of: &[(Vec<String>, Value)], (path, value): &(Vec<String>, Value)| {
        of.iter()
            .find(|(other, _)| other == path)
            .is_none_or(|(_, other)| !is_equal(&path.join("."), other, value))
    };

    let mut changed: Vec<_> = after.iter().filter(|leaf| differs(&before, leaf)).collect();
    changed.extend(before.iter().filter(|leaf| differs(&after, leaf)));

    let mut keys: Vec<_> = changed
        .into_iter()
        .map(|(path, _)| path.join("."))
        .collect();

    // A changed value differs in both directions.
    keys.sort();
    keys.dedup();

    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KEY_RULES, Layers};

    fn config(text: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orlog.toml");
        std::fs::write(&path, text).unwrap();
        Layers::none().file(&path).unwrap().load().unwrap()
    }

    fn read(before: &str, after: &str) -> ConfigSource {
        let after = config(after);
        ConfigSource::new(Arc::new(move || Ok(after.clone())), config(before))
    }

    #[test]
    fn keys_that_a_reload_does_not_apply_are_listed_until_a_restart() {
        let source = read(
            "",
            "[limits]\nmax_group_commit = 7\nmax_state_size = \"2MiB\"\n[cluster]\nname = \
             \"b\"\n[tenants]\nmode = \"allowlist\"\n\
             [upstreams.pay]\nbase_url = \"http://h\"",
        );
        for _ in 0..2 {
            let next = source.read().unwrap();
            assert_eq!(
                next.warnings,
                [
                    "cluster.name has changed in the configuration; all pods must have the same \
                     value: stop all of them, then start them",
                    "limits.max_group_commit has changed in the configuration; restart the node to \
                     apply it",
                ]
            );
            source.applied(next.config);
        }
        assert_eq!(source.limits().max_state_size, 2 << 20);
        assert!(source.applied.lock().upstreams.contains_key("pay"));
    }

    #[test]
    fn change_of_an_immutable_key_is_rejected_with_the_reason() {
        let source = read("", "shards = 3\n[tenants]\nkey_sharded = [\"big\"]");
        let errors = source.read().err().unwrap();
        let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
        let reason = "cannot be changed, because it determines in which shard an instance is \
            stored; restore its value";
        assert_eq!(
            messages,
            [
                format!("shards {reason}"),
                format!("tenants.key_sharded {reason}")
            ]
        );
    }

    #[test]
    fn reordered_list_of_an_immutable_key_is_no_change() {
        let source = read(
            "[tenants]\nkey_sharded = [\"a\", \"b\"]",
            "[tenants]\nkey_sharded = [\"b\", \"a\"]",
        );
        let next = source.read();
        assert_eq!(next.map(|next| next.warnings), Ok(Vec::new()));
    }

    #[test]
    fn every_key_with_the_change_reload_is_applied() {
        let before = config("");
        let example = "mode = \"allowlist\"\nallowed = [\"acme\"]\n[limits]\nmax_live_instances = \
            7\nidle_timeout = \"7s\"\n\
             max_state_size = \"7MiB\"\nmax_attempts_per_input = 7\nmax_transition_cost = \
                 7\nmax_context_definitions = 7\nmax_context_source_size = \"7MiB\"\n\
             [upstreams.pay]\nbase_url = \"http://h\"\n[gateway]\nbase_url = \
                 \"http://h\"\n[auth.actors.ada]\n\
             keys = [\"ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"]\n[peers.\"b.example.com\"]\n\
             address = \"https://b.example.com\"\nkeys = \
                 [\"ed25519:PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw\"]\n\
             [webhooks.shop]\nscheme = \"token\"\nsecrets = [\"env:SECRET\"]\nsignature = \
                 { header = \"x-token\" }\n\
             id = \"= body.id\"\ntype = \"Placed\"\n";
        let after = config(&format!("[tenants]\n{example}"));
        let changed = changed_keys(&before, &after);
        let reloaded = KEY_RULES
            .iter()
            .filter(|rule| rule.change == ChangeMethod::Reload);
        for key in reloaded.flat_map(|rule| rule.keys) {
            assert!(
                changed.iter().any(|changed| changed.starts_with(key)),
                "the example does not change {key}"
            );
        }
        let source = ConfigSource::new(Arc::new(move || Ok(after.clone())), before);
        let next = source.read().unwrap();
        assert_eq!(next.warnings, [""; 0]);
        source.applied(next.config.clone());
        let applied = source.applied.lock();
        assert_eq!(changed_keys(&applied, &next.config), [""; 0]);
    }

    #[test]
    fn errors_name_their_location() {
        let invalid = Error::Invalid {
            location: "orlog.toml:3:1".to_owned(),
            message: "unknown key".to_owned(),
        };
        let errors = parking_lot::Mutex::new(Some(vec![invalid]));
        let read = move || Err(errors.lock().take().unwrap_or_default());
        let source = ConfigSource::new(Arc::new(read), Config::default());
        let errors = source.read().err().unwrap();
        assert_eq!(
            (errors[0].file.as_str(), errors[0].message.as_str()),
            ("orlog.toml:3:1", "unknown key")
        );
    }
}
