//! Validation of rules that involve several keys of the configuration.

use super::{BusConfig, BusKind, ClusterMode, Config, Error, ReplicationMode, Role};

/// Key and reason.
type KeyError = (String, String);

impl Config {
    /// Returns all violations of rules that involve several keys.
    #[must_use]
    pub fn validate(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        self.about_sagas(&mut errors);
        self.about_bounds(&mut errors);
        self.about_others(&mut errors);
        errors.into_iter().map(|(location, message)| Error::Invalid { location, message }).collect()
    }

    fn about_sagas(&self, errors: &mut Vec<KeyError>) {
        let mut report = |location: &str, message: String| errors.push((location.to_owned(), message));
        if !(1..=orlog_model::SLOTS).contains(&self.shards) {
            report("shards", format!("{} is not between 1 and {}", self.shards, orlog_model::SLOTS));
        }
        if self.role != Role::Combined && self.bus.kind != BusKind::Nats {
            let role = self.role.as_str();
            let message = format!("the role {role:?} requires NATS; set bus.kind = \"nats\" and [nats]");
            report("role", message);
        }
        if let Some(message) = self.gateway_error() {
            report("gateway", message.to_owned());
        }
        if let Some((location, message)) = self.queue.validate() {
            report(location, message);
        }
    }

    fn about_bounds(&self, errors: &mut Vec<KeyError>) {
        let mut report = |location: &str, message: String| errors.push((location.to_owned(), message));
        if !(0.0..=1.0).contains(&self.telemetry.sample_ratio) {
            let found = self.telemetry.sample_ratio;
            report("telemetry.sample_ratio", format!("{found} is not between 0.0 and 1.0"));
        }
        if self.telemetry.queue_size == 0 {
            report(
                "telemetry.queue_size",
                "must be at least 1; 0 drops every span and log record".to_owned(),
            );
        }
        for (key, message) in self.http.validate() {
            report(key, message);
        }
        if self.bus.max_message_size > BusConfig::default().max_message_size {
            report("bus.max_message_size", "maximum event size is 1MiB".to_owned());
        }
        if let Some((key, message)) = self.retention.validate(self.store.dedupe_window) {
            report(&key, message);
        }
        if let Some((key, message)) = self.http.tls.validate(self.cluster.tls.ca.is_some()) {
            report(key, message.to_owned());
        }
    }

    /// Validates the keys about servers, callers and other pods.
    fn about_others(&self, errors: &mut Vec<KeyError>) {
        let mut report = |location: &str, message: String| errors.push((location.to_owned(), message));
        let on_nats = self.bus.kind == BusKind::Nats;
        if self.store.replication == ReplicationMode::JetStream && !on_nats {
            let message =
                "\"jetstream\" requires bus.kind = \"nats\"; set it, or set replication to \"none\""
                    .to_owned();
            report("store.replication", message);
        }
        if let Some((key, message)) = self.nats.validate() {
            report(key, message);
        }
        let many_pods = self.cluster.mode != ClusterMode::Standalone;
        let access = self
            .auth
            .validate(self.listen, many_pods)
            .into_iter()
            .chain(self.audit.validate(self.role.runs_sagas(), on_nats));
        access.for_each(|(key, message)| report(key, message));
        if let Some((key, message)) = self.cluster.validate(&self.node_name(), on_nats) {
            report(key, message);
        }
        if self.cluster.mode == ClusterMode::Leases && !self.replicated() {
            let message =
                "shards that move between pods require replication to NATS: \"auto\" or \"jetstream\"";
            report("store.replication", message.to_owned());
        } else if many_pods && self.listen.ip().is_unspecified() && self.cluster.advertise_url.is_empty() {
            let message = format!("other pods cannot reach {}; set a reachable URL", self.listen);
            report("cluster.advertise_url", message);
        } else if let Some((key, message)) =
            self.cluster.validate_transport(self.listen, self.http.tls.is_enabled())
        {
            report(key, message);
        }
    }
}
