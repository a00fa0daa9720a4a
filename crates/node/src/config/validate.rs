//! Validation of rules that involve several keys of the configuration.

use std::collections::BTreeSet;

use super::violations::Violations;
use super::{BusConfig, BusKind, ClusterMode, Config, Error, ReplicationMode, Role, peers};

impl Config {
    /// Returns all violations of rules that involve several keys.
    #[must_use]
    pub fn validate(&self) -> Vec<Error> {
        let mut found = Violations::default();
        self.validate_sagas(&mut found);
        self.validate_bounds(&mut found);
        self.validate_connections(&mut found);

        found
            .into_inner()
            .into_iter()
            .map(|(location, message)| Error::Invalid { location, message })
            .collect()
    }

    fn validate_sagas(&self, found: &mut Violations) {
        let shards = self.shards;
        let slots = orlog_model::SLOTS;
        let message = format_args!("{shards} is not between 1 and {slots}");
        found.require((1..=slots).contains(&shards), "shards", message);

        let on_nats = self.bus.kind == BusKind::Nats;
        let role = self.role.as_str();
        let message =
            format_args!("the role {role:?} requires NATS; set bus.kind = \"nats\" and [nats]");
        found.require(self.role == Role::Combined || on_nats, "role", message);

        if let Some(gateway) = &self.gateway {
            let message = match (&gateway.base_url, &gateway.subject) {
                (None, None) => Some("base_url and subject are missing; set one of them"),
                (Some(_), Some(_)) => Some("base_url and subject are both set; keep one of them"),
                (None, Some(_)) if !on_nats => {
                    Some("the subject requires NATS; set bus.kind = \"nats\" and [nats]")
                }
                (Some(_), None) | (None, Some(_)) => None,
            };
            if let Some(message) = message {
                found.report("gateway", message);
            }
        }

        self.queue.validate(found);
        for (name, webhook) in &self.webhooks {
            webhook.validate(name, found);
            let tenant = &webhook.tenant;
            let message = format_args!("the tenant {tenant:?} is not in tenants.allowed");
            found.require(
                self.tenants.admits(tenant),
                format_args!("webhooks.{name}.tenant"),
                message,
            );
        }
    }

    fn validate_bounds(&self, found: &mut Violations) {
        let ratio = self.telemetry.sample_ratio;
        let message = format_args!("{ratio} is not between 0.0 and 1.0");
        found.require(
            (0.0..=1.0).contains(&ratio),
            "telemetry.sample_ratio",
            message,
        );

        let message = "must be at least 1; 0 drops every span and log record";
        found.require(
            self.telemetry.queue_size > 0,
            "telemetry.queue_size",
            message,
        );

        self.http.validate(found);
        let max = BusConfig::default().max_message_size;
        found.require(
            self.bus.max_message_size <= max,
            "bus.max_message_size",
            "maximum event size is 1MiB",
        );

        self.retention.validate(self.store.dedupe_window, found);
        self.http.tls.validate(self.cluster.tls.ca.is_some(), found);
    }

    /// Validates the keys about servers, callers and other pods.
    fn validate_connections(&self, found: &mut Violations) {
        let on_nats = self.bus.kind == BusKind::Nats;
        found.require(
            on_nats || self.store.replication != ReplicationMode::JetStream,
            "store.replication",
            "\"jetstream\" requires bus.kind = \"nats\"; set it, or set replication to \"none\"",
        );

        self.nats.validate(found);
        let many_pods = self.cluster.mode != ClusterMode::Standalone;
        // Shared by actors and peers, because a key belongs to one of them.
        let mut keys = BTreeSet::new();
        self.auth.validate(self.listen, many_pods, &mut keys, found);
        self.identity.validate(many_pods, found);

        let own = self.identity_name().ok();
        peers::validate(&self.peers, own.as_ref(), on_nats, &mut keys, found);
        self.audit.validate(self.role.runs_sagas(), on_nats, found);
        self.cluster.validate(&self.node_name(), on_nats, found);

        if self.cluster.mode == ClusterMode::Leases && !self.replicated() {
            let message = "shards that move between pods require replication to NATS: \"auto\" or \
                \"jetstream\"";
            found.report("store.replication", message);
        } else if many_pods
            && self.listen.ip().is_unspecified()
            && self.cluster.advertise_url.is_empty()
        {
            let message = format_args!(
                "other pods cannot reach {}; set a reachable URL",
                self.listen
            );
            found.report("cluster.advertise_url", message);
        } else {
            self.cluster
                .validate_transport(self.listen, self.http.tls.is_enabled(), found);
        }
    }
}
