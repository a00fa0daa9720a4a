//! Rules of the configuration keys: how the values of several nodes relate, and how a change is
//! applied.
//!
//! Each key has exactly one rule. `docs/configuration.md` contains the rules as a table; a test
//! compares them.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::diagnostics::leaves;
use super::{ClusterMode, Config};

/// Relation of the values that the nodes of one installation have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Each node can have its own value.
    Independent,
    /// Nodes can have different values for a while; the note states which one applies to shared
    /// data.
    Converging,
    /// All pods of a cluster have the same value. A pod with another value than the record of the
    /// cluster does not start.
    Equal,
}

impl Agreement {
    /// Returns the text of the documentation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Agreement::Independent => "may differ",
            Agreement::Converging => "converges",
            Agreement::Equal => "equal",
        }
    }
}

/// Way in which a change of a value is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeMethod {
    /// A reload of the node.
    Reload,
    /// A restart of the node.
    Restart,
    /// A stop of all pods; the first one to start sets the value.
    StopAllPods,
    /// None: the value is immutable.
    Impossible,
}

impl ChangeMethod {
    /// Returns the text of the documentation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeMethod::Reload => "reload",
            ChangeMethod::Restart => "restart",
            ChangeMethod::StopAllPods => "stop of all pods",
            ChangeMethod::Impossible => "impossible",
        }
    }
}

/// Rule of some keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyRule {
    /// Keys, or tables whose names and keys the configuration chooses.
    pub keys: &'static [&'static str],
    /// Relation of the values of several nodes.
    pub agreement: Agreement,
    /// Way in which a change is applied.
    pub change: ChangeMethod,
    /// Reason, or the value that applies.
    pub note: &'static str,
}

const fn rule(
    agreement: Agreement,
    change: ChangeMethod,
    note: &'static str,
    keys: &'static [&'static str],
) -> KeyRule {
    KeyRule {
        keys,
        agreement,
        change,
        note,
    }
}

use Agreement::{Converging, Equal, Independent};
use ChangeMethod::{Impossible, Reload, Restart, StopAllPods};

/// Rules of all keys.
pub const KEY_RULES: &[KeyRule] = &[
    rule(
        Equal,
        Impossible,
        "determines in which shard an instance is stored",
        &["shards", "tenants.key_sharded"],
    ),
    rule(
        Equal,
        StopAllPods,
        "determines which pod owns a shard",
        &["cluster.mode", "cluster.name", "cluster.pod_count"],
    ),
    rule(
        Equal,
        StopAllPods,
        "pods share the nonces of signed requests",
        &["auth.signatures.window", "auth.signatures.leeway"],
    ),
    rule(
        Converging,
        Restart,
        "the newest deployment is active in all shards",
        &["definitions_dir"],
    ),
    rule(
        Converging,
        Restart,
        "a setting of streams on NATS: the node that started last sets it, unless messages would \
         be lost; `orlog streams diff` prints differences",
        &[
            "nats.replicas",
            "nats.duplicate_window",
            "nats.manage_aggregate_stream",
            "nats.aggregates.max_age",
            "nats.aggregates.max_size",
            "nats.commands.max_age",
            "nats.commands.max_size",
            "nats.events.max_age",
            "nats.events.max_size",
            "nats.dead_letters.max_age",
            "nats.dead_letters.max_size",
        ],
    ),
    rule(
        Converging,
        Restart,
        "a setting of consumers on NATS that effect nodes share",
        &["queue.ack_wait"],
    ),
    rule(
        Converging,
        Restart,
        "a store keeps the value with which it was created",
        &["store.dedupe_window"],
    ),
    rule(
        Converging,
        Restart,
        "nodes with different keys reject each other's messages; introduce and replace keys in \
         steps (nats.md)",
        &["nats.signing.keys", "nats.signing.required"],
    ),
    rule(
        Converging,
        Restart,
        "pods are one node for its peers; `orlog doctor` reports pods with another key",
        &["identity.name", "identity.address", "identity.key_file"],
    ),
    rule(
        Converging,
        Reload,
        "the pod that receives a request, and the owner of the shard, apply their own value; an \
         event that the owner does not admit becomes a dead letter, which a node redrives when it \
         admits the tenant",
        &["tenants.mode", "tenants.allowed", "auth.actors", "peers"],
    ),
    rule(
        Independent,
        Reload,
        "the owner of the shard applies its own value",
        &[
            "upstreams",
            "gateway",
            "limits.max_live_instances",
            "limits.idle_timeout",
            "limits.max_state_size",
            "limits.max_attempts_per_input",
            "limits.max_transition_cost",
            "limits.max_context_definitions",
            "limits.max_context_source_size",
        ],
    ),
    rule(
        Independent,
        Restart,
        "the owner of the shard applies its own value",
        &[
            "upstreams_dir",
            "limits.max_in_flight_per_ingester",
            "limits.max_in_flight_per_tenant",
            "limits.max_in_flight_per_instance",
            "limits.max_in_flight_per_window",
            "limits.max_group_commit",
            "limits.max_restarts",
            "limits.restart_period",
            "history.payload_bytes",
            "jobs.lines",
            "messages.mail_effect",
            "results.publish",
            "retention.instances",
            "retention.dead_letters",
            "retention.interval",
            "retention.sagas",
            "retention.tenants",
            "export.enabled",
            "export.retention",
            "export.max_commits",
            "store.snapshot_commits",
            "store.snapshot_size",
            "queue.redispatch_after",
            "redact.fields",
        ],
    ),
    rule(
        Independent,
        Reload,
        "applies to the requests that the node receives",
        &["webhooks"],
    ),
    rule(
        Independent,
        Restart,
        "applies to the requests that the node receives",
        &[
            "listen",
            "tenant_storage.dead_letters",
            "tenant_storage.buffered_inputs",
            "tenant_storage.instances",
            "tenant_storage.job_lines",
            "http.max_body_size",
            "http.max_batch_size",
            "http.max_bytes_in_flight",
            "http.max_page_size",
            "http.max_page_bytes",
            "http.scan_limit",
            "http.max_concurrent_reads",
            "http.max_concurrent_queries",
            "http.request_timeout",
            "http.allowed_hosts",
            "http.max_connections",
            "http.max_connections_per_address",
            "http.tls.certificate",
            "http.tls.key",
            "http.tls.client_ca",
            "http.tls.require_client_certificate",
            "http.per_caller.max_requests_per_second",
            "http.per_caller.request_burst",
            "http.per_caller.max_concurrent_requests",
            "http.per_caller.max_long_polls",
            "http.per_caller.max_query_time_per_minute",
            "http.per_caller.max_share",
            "auth.mode",
            "auth.allow_unauthenticated",
            "auth.public_routes",
            "auth.metrics_token",
            "auth.token.file",
            "auth.jwt.jwks_url",
            "auth.jwt.jwks_file",
            "auth.jwt.keys",
            "auth.jwt.issuer",
            "auth.jwt.audience",
            "auth.jwt.leeway",
            "auth.jwt.max_age",
            "auth.jwt.types",
            "auth.jwt.denied_file",
            "auth.jwt.refresh_interval",
            "auth.jwt.min_refresh_interval",
            "auth.jwt.tenant_claim",
            "auth.jwt.role_claim",
            "auth.jwt.groups_claim",
            "auth.oidc.client_id",
            "auth.oidc.client_secret",
            "auth.oidc.redirect_url",
            "auth.oidc.scopes",
            "auth.oidc.session_max_age",
            "auth.gateway.sources",
            "auth.gateway.secret",
            "auth.gateway.secret_header",
            "auth.gateway.user_header",
            "auth.gateway.role_header",
            "auth.gateway.tenants_header",
            "auth.gateway.groups_header",
        ],
    ),
    rule(
        Independent,
        Restart,
        "pods with and without TLS do not forward requests to each other",
        &[
            "cluster.tls.ca",
            "cluster.tls.peer_name",
            "cluster.allow_plaintext",
            "cluster.advertise_url",
        ],
    ),
    rule(
        Independent,
        Restart,
        "each pod has its own lease, and hands its own shards over",
        &["cluster.lease_ttl", "cluster.handover_timeout"],
    ),
    rule(
        Independent,
        Restart,
        "belongs to the process, its disk or its connections; `node_name` must be unique",
        &[
            "node_name",
            "role",
            "data_dir",
            "store.durability",
            "store.interval",
            "store.replication",
            "store.max_size",
            "store.resident_size",
            "store.memtable_size",
            "store.memtable_max_age",
            "store.journal_segment_size",
            "store.start_check_timeout",
            "bus.kind",
            "bus.durability",
            "bus.interval",
            "bus.segment_size",
            "bus.retention_size",
            "bus.max_message_size",
            "bus.cache_size",
            "bus.dedupe_window",
            "bus.dedupe_ids",
            "nats.servers",
            "nats.user",
            "nats.password",
            "nats.token",
            "nats.nkey",
            "nats.creds",
            "nats.provision",
            "nats.tls.required",
            "nats.tls.allow_plaintext",
            "nats.tls.ca",
            "nats.tls.certificate",
            "nats.tls.key",
            "nats.signing.allow_unsigned_scripts",
            "queue.max_in_flight",
            "limits.transition_threads",
            "identity.ca_file",
            "audit.dir",
            "audit.max_file_size",
            "audit.retention",
            "audit.alarm_size",
            "audit.max_size",
            "audit.required",
            "audit.exclude_routes",
            "audit.also_log",
            "audit.nats_subject",
            "backup.dir",
            "drain.timeout",
            "log.format",
            "log.filter",
            "telemetry.otlp_endpoint",
            "telemetry.traces",
            "telemetry.logs",
            "telemetry.sample_ratio",
            "telemetry.max_tenant_series",
            "telemetry.queue_size",
        ],
    ),
];

/// Returns the rule of a key, or of the table that contains it; `None` for an unknown key.
#[must_use]
pub fn rule_of(key: &str) -> Option<&'static KeyRule> {
    let contains = |table: &str| {
        key.strip_prefix(table)
            // The dot prevents that `auth.mode` matches a longer name such as `auth.mode_x`.
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    KEY_RULES
        .iter()
        .find(|rule| rule.keys.iter().any(|table| contains(table)))
}

impl Config {
    /// Returns the values that all pods of the cluster must have, by key, as they are written in
    /// the configuration.
    pub(crate) fn equal_values(&self) -> BTreeMap<String, String> {
        let table = Table::try_from(self).unwrap_or_default();
        let is_equal = |key: &str| rule_of(key).is_some_and(|rule| rule.agreement == Equal);

        leaves(&table)
            .into_iter()
            .map(|(path, value)| (path.join("."), value))
            .filter(|(key, _)| is_equal(key))
            // Only this mode reads the number of pods.
            .filter(|(key, _)| {
                key != "cluster.pod_count" || self.cluster.mode == ClusterMode::Static
            })
            .map(|(key, value)| (key, comparable_text(&value)))
            .collect()
    }
}

/// Returns a value as text. The order of a list has no meaning. Data directories and clusters store
/// this text, so it must not change.
pub(super) fn comparable_text(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let mut items: Vec<String> = items.iter().map(ToString::to_string).collect();
            items.sort();
            format!("[{}]", items.join(", "))
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::DEFAULT;

    const DOCUMENTATION: &str = include_str!("../../../../docs/configuration.md");
    /// Tables without a default, whose names the configuration chooses.
    const CHOSEN_TABLES: [&str; 7] = [
        "upstreams",
        "gateway",
        "webhooks",
        "peers",
        "auth.actors",
        "retention.sagas",
        "retention.tenants",
    ];

    #[test]
    fn comparable_text_has_each_element_of_a_list_in_order() {
        let value = Value::from(vec!["b", "a", "a"]);
        assert_eq!(comparable_text(&value), r#"["a", "a", "b"]"#);
    }

    fn default_keys() -> Vec<String> {
        let table: Table = DEFAULT.parse().unwrap();
        leaves(&table)
            .into_iter()
            .map(|(path, _)| path.join("."))
            .collect()
    }

    #[test]
    fn every_key_has_exactly_one_rule() {
        let mut ruled: Vec<&str> = KEY_RULES
            .iter()
            .flat_map(|rule| rule.keys)
            .copied()
            .collect();
        ruled.sort_unstable();
        let mut known = default_keys();
        known.extend(CHOSEN_TABLES.map(str::to_owned));
        known.sort_unstable();
        assert_eq!(ruled, known);
    }

    #[test]
    fn every_table_without_a_default_has_a_rule() {
        let (_, examples) = DEFAULT.split_once("one table for each upstream:").unwrap();
        let lines: Vec<_> = examples
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with('[') || line.contains(" = "))
            .collect();
        let table: Table = lines.join("\n").parse().unwrap();
        let tables: BTreeSet<String> = leaves(&table)
            .into_iter()
            .map(|(path, _)| path.join("."))
            .filter(|key| rule_of(key).is_none())
            .collect();
        assert!(tables.is_empty(), "{tables:?}");
    }

    #[test]
    fn documentation_contains_the_rules() {
        let row = |rule: &KeyRule| {
            let keys: Vec<String> = rule.keys.iter().map(|key| format!("`{key}`")).collect();
            format!(
                "| {} | {} | {} | {} |",
                keys.join(", "),
                rule.agreement.as_str(),
                rule.change.as_str(),
                rule.note
            )
        };
        let expected: Vec<String> = KEY_RULES.iter().map(row).collect();
        let section = DOCUMENTATION.split("\n## Rules of the keys\n").nth(1);
        let section = section.unwrap().split("\n## ").next().unwrap();
        let documented: Vec<&str> = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(
            documented,
            expected,
            "replace the table of docs/configuration.md by\n{}",
            expected.join("\n")
        );
    }

    #[test]
    fn equal_values_ignore_the_order_of_lists() {
        let of = |text: &str| {
            let mut table: Table = DEFAULT.parse().unwrap();
            crate::config::layers::merge(&mut table, text.parse().unwrap());
            let config: Config = table.try_into().unwrap();
            config.equal_values()
        };
        let values = of("shards = 3\ntenants.key_sharded = [\"b\", \"a\"]");
        assert_eq!(values["shards"], "3");
        assert_eq!(values["tenants.key_sharded"], "[\"a\", \"b\"]");
        assert_eq!(
            values,
            of("shards = 3\ntenants.key_sharded = [\"a\", \"b\"]")
        );
        assert!(!values.contains_key("cluster.pod_count"));
        assert!(of("cluster.mode = \"static\"").contains_key("cluster.pod_count"));
    }
}
