//! Rolling changes of configuration keys under load, generated from the rules of the keys: a key
//! that may differ or converges is changed pod by pod, and nothing accepted is lost; a pod with
//! another value of an equal key does not start.

use fastrand::Rng;
use orlog::config::{Agreement, DEFAULT, KEY_RULES, rule_of};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::runtime::seed;
use toml::{Table, Value};

use crate::cluster::orders::EndlessOrders;
use crate::cluster::pods::Pods;
use crate::cluster::within;

/// Number of keys that the short test changes.
const SAMPLE: usize = 3;
/// Orders that begin between two steps.
const ORDERS: usize = 6;

/// Changes of keys whose other value does not follow from the default: variables with their values.
const CHANGES: &[(&str, &[(&str, &str)])] = &[
    (
        "tenants.key_sharded",
        &[("ORLOG_TENANTS__KEY_SHARDED", "t1")],
    ),
    ("tenants.allowed", &[("ORLOG_TENANTS__ALLOWED", TENANTS)]),
    (
        "tenants.mode",
        &[
            ("ORLOG_TENANTS__MODE", "allowlist"),
            ("ORLOG_TENANTS__ALLOWED", TENANTS),
        ],
    ),
    (
        "cluster.mode",
        &[
            ("ORLOG_CLUSTER__MODE", "standalone"),
            ("ORLOG_STORE__REPLICATION", "jetstream"),
        ],
    ),
    (
        "auth.signatures.leeway",
        &[("ORLOG_AUTH__SIGNATURES__LEEWAY", "45s")],
    ),
    ("cluster.name", &[("ORLOG_CLUSTER__NAME", "renamed")]),
    ("cluster.lease_ttl", &[("ORLOG_CLUSTER__LEASE_TTL", "4s")]),
    ("shards", &[("ORLOG_SHARDS", "8")]),
    (
        "store.durability",
        &[("ORLOG_STORE__DURABILITY", "interval")],
    ),
    (
        "store.replication",
        &[("ORLOG_STORE__REPLICATION", "jetstream")],
    ),
    ("bus.durability", &[("ORLOG_BUS__DURABILITY", "interval")]),
    (
        "bus.max_message_size",
        &[("ORLOG_BUS__MAX_MESSAGE_SIZE", "512KiB")],
    ),
    (
        "nats.manage_aggregate_stream",
        &[("ORLOG_NATS__MANAGE_AGGREGATE_STREAM", "false")],
    ),
    (
        "nats.aggregates.max_size",
        &[("ORLOG_NATS__AGGREGATES__MAX_SIZE", "1GiB")],
    ),
    (
        "nats.commands.max_size",
        &[("ORLOG_NATS__COMMANDS__MAX_SIZE", "1GiB")],
    ),
    (
        "nats.events.max_size",
        &[("ORLOG_NATS__EVENTS__MAX_SIZE", "1GiB")],
    ),
    (
        "nats.dead_letters.max_size",
        &[("ORLOG_NATS__DEAD_LETTERS__MAX_SIZE", "1GiB")],
    ),
    (
        "retention.sagas",
        &[("ORLOG_RETENTION__SAGAS__ORDER__INSTANCES", "1000h")],
    ),
    (
        "retention.tenants",
        &[("ORLOG_RETENTION__TENANTS__T1__INSTANCES", "1000h")],
    ),
    (
        "upstreams",
        &[("ORLOG_UPSTREAMS__SHOP__MAX_CONCURRENCY", "32")],
    ),
    (
        "http.allowed_hosts",
        &[("ORLOG_HTTP__ALLOWED_HOSTS", "orlog.example.com")],
    ),
    (
        "http.per_caller.max_requests_per_second",
        &[("ORLOG_HTTP__PER_CALLER__MAX_REQUESTS_PER_SECOND", "10000")],
    ),
    (
        "audit.exclude_routes",
        &[("ORLOG_AUDIT__EXCLUDE_ROUTES", "POST /v1/events")],
    ),
    (
        "limits.transition_threads",
        &[("ORLOG_LIMITS__TRANSITION_THREADS", "1")],
    ),
    (
        "tenant_storage.instances",
        &[("ORLOG_TENANT_STORAGE__INSTANCES", "1GiB")],
    ),
    (
        "tenant_storage.job_lines",
        &[("ORLOG_TENANT_STORAGE__JOB_LINES", "1GiB")],
    ),
    ("log.format", &[("ORLOG_LOG__FORMAT", "human")]),
    ("log.filter", &[("ORLOG_LOG__FILTER", "warn")]),
    ("redact.fields", &[("ORLOG_REDACT__FIELDS", "card")]),
    (
        "identity.name",
        &[("ORLOG_IDENTITY__NAME", "orders.example.com")],
    ),
    (
        "identity.address",
        &[("ORLOG_IDENTITY__ADDRESS", "https://orders.example.com")],
    ),
    (
        "cluster.tls.peer_name",
        &[("ORLOG_CLUSTER__TLS__PEER_NAME", "orlog")],
    ),
];

/// Tenants of the orders.
const TENANTS: &str = "big,t0,t1,t2,t3,t4,t5,t6,t7,t8,t9,t10";

/// Keys without another value in this test, and why.
const EXCLUDED: &[(&str, &str)] = &[
    ("node_name", "names the pod"),
    ("role", "a pod with another role runs no sagas"),
    ("data_dir", "belongs to the pod"),
    ("listen", "belongs to the pod"),
    ("definitions_dir", "the test has one directory"),
    ("upstreams_dir", "the test has one upstream"),
    ("bus.kind", "a node with another bus is not in the cluster"),
    ("nats.servers", "the test has one server"),
    ("nats.replicas", "requires three servers"),
    ("cluster.pod_count", "only the mode `static` reads it"),
    ("gateway", "the definition sends no command"),
    ("webhooks", "tests/node/operations/reload.rs"),
    ("peers", "tests/node/operations/peers.rs"),
    ("messages.mail_effect", "requires an SMTP upstream"),
    ("audit.nats_subject", "tests/node/nats/audit.rs"),
    ("backup.dir", "belongs to the pod"),
    ("telemetry.otlp_endpoint", "requires a collector"),
    ("cluster.advertise_url", "belongs to the pod"),
];
/// Tables whose keys need files, credentials or servers with the same, and the tests that have
/// them.
const EXCLUDED_TABLES: &[(&str, &str)] = &[
    ("nats.user", "tests/node/nats/security.rs"),
    ("nats.password", "tests/node/nats/security.rs"),
    ("nats.token", "tests/node/nats/security.rs"),
    ("nats.nkey", "tests/node/nats/security.rs"),
    ("nats.creds", "tests/node/nats/security.rs"),
    ("nats.tls.", "tests/node/nats/security.rs"),
    ("nats.signing.", "tests/node/cluster/signatures.rs"),
    ("http.tls.", "tests/node/operations/tls.rs"),
    ("cluster.tls.ca", "tests/node/cluster.rs"),
    ("auth.jwt.", "tests/node/operations/tokens.rs"),
    ("auth.oidc.", "tests/node/operations/oidc.rs"),
    ("auth.gateway.", "tests/node/operations/access.rs"),
    ("auth.mode", "tests/node/operations/access.rs"),
    ("auth.public_routes", "tests/node/operations/access.rs"),
    ("auth.metrics_token", "tests/node/telemetry/queries.rs"),
    ("auth.token.", "tests/node/operations/tokens.rs"),
    ("auth.actors", "tests/node/operations/actors.rs"),
    ("identity.key_file", "tests/node/cluster/node_keys.rs"),
    ("identity.ca_file", "tests/node/operations/peers.rs"),
    ("audit.dir", "belongs to the pod"),
];

fn keys() -> Vec<&'static str> {
    KEY_RULES
        .iter()
        .flat_map(|rule| rule.keys)
        .copied()
        .collect()
}

fn is_excluded(key: &str) -> bool {
    EXCLUDED.iter().any(|(excluded, _)| *excluded == key)
        || EXCLUDED_TABLES
            .iter()
            .any(|(table, _)| key.starts_with(table))
}

/// Returns the variables that give a key another value; `None` if it does not follow from the
/// default.
fn change(key: &str) -> Option<Vec<(String, String)>> {
    if let Some((_, variables)) = CHANGES.iter().find(|(changed, _)| *changed == key) {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        return Some(owned.collect());
    }
    let defaults: Table = DEFAULT.parse().unwrap();
    let mut parts = key.split('.');
    let first = defaults.get(parts.next()?)?;
    let value = parts.try_fold(first, |value, part| value.get(part))?;
    let other = match value {
        Value::Boolean(value) => (!value).to_string(),
        Value::Integer(value) if *value > 0 => (value * 2).to_string(),
        Value::Float(value) => (value / 2.0).to_string(),
        Value::String(text) => doubled(text)?,
        _ => return None,
    };
    let name = format!("ORLOG_{}", key.to_uppercase().replace('.', "__"));
    Some(vec![(name, other)])
}

/// Returns twice a duration or a size.
fn doubled(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok()?;
    Some(format!("{}{}", number * 2, &text[end..]))
}

#[test]
fn every_key_has_another_value_or_a_reason() {
    let missing: Vec<_> = keys()
        .into_iter()
        .filter(|key| !is_excluded(key) && change(key).is_none())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let stale: Vec<_> = EXCLUDED
        .iter()
        .map(|(key, _)| *key)
        .filter(|key| !keys().contains(key))
        .collect();
    assert!(stale.is_empty(), "{stale:?}");
}

/// Changes each key pod by pod under load, and checks that every accepted order ends with its
/// effects executed once.
async fn roll(changed: &[&str]) {
    let nats = NatsServer::start();
    let mut pods = Pods::new(&[nats.url()], 1).await;
    pods.start_all(&["a", "b"]).await;
    let load = EndlessOrders::begin(&pods);
    for key in changed {
        load.more_begun(ORDERS).await;
        let variables = change(key).unwrap();
        println!("{key}: {variables:?}");
        if rule_of(key).unwrap().agreement == Agreement::Equal {
            check_rejected(&mut pods, key, &variables).await;
            continue;
        }
        pods.variables.extend(variables);
        for pod in ["a", "b"] {
            pods.stop(pod).await;
            pods.start(pod).await;
            pods.until_spread().await;
            load.more_begun(ORDERS).await;
        }
    }
    load.stop().await.check(&pods).await;
}

/// Checks that a pod with another value of an equal key does not start, and that the error names
/// the key and both values.
async fn check_rejected(pods: &mut Pods, key: &str, variables: &[(String, String)]) {
    pods.stop("b").await;
    let before = pods.variables.clone();
    pods.variables.extend(variables.iter().cloned());
    // Its data directory has its own copy of the immutable keys, so another pod is the one that
    // starts.
    let log = pods.start_rejected("c").await;
    let value = variables[0].1.as_str();
    assert!(
        log.contains(&format!("{key} is ")) && log.contains("in the record of the cluster"),
        "{key}: {log}"
    );
    assert!(log.contains(value), "{key} = {value}: {log}");
    pods.variables = before;
    pods.start("b").await;
    pods.until_spread().await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_change_pod_by_pod_under_load_without_loss() {
    let mut rng = Rng::with_seed(seed(40));
    let rolled: Vec<&str> = keys()
        .into_iter()
        .filter(|key| !is_excluded(key))
        .filter(|key| rule_of(key).is_some_and(|rule| rule.agreement != Agreement::Equal))
        .collect();
    let mut changed = rng.choose_multiple(rolled, SAMPLE);
    changed.push("shards");
    changed.push("cluster.mode");
    within("rolling changes", roll(&changed)).await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn every_key_changes_pod_by_pod_under_load_without_loss() {
    let changed: Vec<&str> = keys().into_iter().filter(|key| !is_excluded(key)).collect();
    roll(&changed).await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_key_changes_after_a_stop_of_all_pods() {
    let nats = NatsServer::start();
    within("a stop of all pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        pods.variables
            .extend(change("auth.signatures.window").unwrap());
        pods.stop("b").await;
        let log = pods.start_rejected("b").await;
        assert!(
            log.contains("auth.signatures.window is ") && log.contains("stop all pods (alive: a)"),
            "{log}"
        );
        pods.stop("a").await;
        pods.start_all(&["a", "b"]).await;
        pods.stop("b").await;
        pods.variables.clear();
        let log = pods.start_rejected("b").await;
        assert!(log.contains("which pod a wrote"), "{log}");
    })
    .await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_whose_value_was_replaced_while_it_had_no_lease_stops() {
    let nats = NatsServer::start();
    within("a replaced value", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        pods.pause("a");
        pods.wait_for_owners(&["b"]).await;
        pods.stop("b").await;
        pods.variables
            .extend(change("auth.signatures.window").unwrap());
        pods.start("b").await;
        pods.resume("a");
        let log = pods.until_ended("a").await;
        assert!(
            log.contains("auth.signatures.window is ") && log.contains("which pod b wrote"),
            "{log}"
        );
        pods.wait_for_owners(&["b"]).await;
    })
    .await;
}
