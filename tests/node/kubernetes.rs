//! Manifests in `deploy/k8s`: a node accepts their configuration, and it matches the rest of the
//! manifest.
//!
//! `make k8s` validates them against the Kubernetes schemas, which do not cover the content of a
//! ConfigMap.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog::config::{AuthMode, ClusterMode, Layers, Role};
use orlog::definitions::{DefinitionSet, SourceFile};
use orlog::upstreams::UpstreamSources;
use orlog::{Config, SystemClock};
use orlog_effect::{Catalog, EffectObserver, NoopObserver};
use orlog_model::Clock;

const SHARED: &str = "shared.yaml";
const LEASES: &str = "leases/orlog.yaml";
const STATIC: &str = "static/orlog.yaml";
const EFFECT: &str = "effect/orlog-effect.yaml";
/// Manifests with pods.
const WORKLOADS: [&str; 3] = [LEASES, STATIC, EFFECT];
/// Assumed pod address.
const ADDRESS: &str = "10.1.2.3";

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/k8s")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the text below `key: |`, as a pod reads it from a file.
#[track_caller]
fn text(manifest: &str, key: &str) -> String {
    let prefix = format!("{key}: |");
    let mut lines = manifest.lines().skip_while(|line| line.trim() != prefix);
    let margin = depth(lines.next().unwrap_or_else(|| panic!("there is no {key}"))) + 2;
    let below = lines.take_while(|line| line.trim().is_empty() || depth(line) >= margin);
    below
        .map(|line| line.get(margin..).unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the number of a key that occurs once.
#[track_caller]
fn number(manifest: &str, key: &str) -> u64 {
    let prefix = format!("{key}: ");
    let mut found = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix(&prefix));
    let number = found.next().unwrap_or_else(|| panic!("there is no {key}"));
    assert_eq!(found.next(), None, "{key} stands there twice");
    number.parse().unwrap()
}

/// Returns the environment of a container, with the values that the cluster sets.
fn variables(manifest: &str, pod: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = manifest
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
        .collect();
    let mut variables: Vec<(String, String)> = Vec::new();
    for (first, second) in lines.iter().zip(lines.iter().skip(1)) {
        let Some(name) = first.strip_prefix("- name: ") else {
            continue;
        };
        let value = if let Some(value) = second.strip_prefix("value: ") {
            let fill = |text: String, (name, value): &(String, String)| {
                text.replace(&format!("$({name})"), value)
            };
            variables.iter().fold(value.to_owned(), fill)
        } else if second.contains("fieldPath: metadata.name") {
            pod.to_owned()
        } else if second.contains("fieldPath: status.podIP") {
            ADDRESS.to_owned()
        } else {
            continue;
        };
        variables.push((name.to_owned(), value));
    }
    variables
}

/// Loads the configuration of a pod.
#[track_caller]
fn load(manifest: &str, pod: &str) -> Config {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("orlog.toml");
    std::fs::write(&file, text(manifest, "orlog.toml")).unwrap();
    let variables = variables(manifest, pod);
    assert!(
        variables.iter().any(|(name, _)| name == "ORLOG_NODE_NAME"),
        "the variables are found: {variables:?}"
    );
    let variables = variables
        .into_iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let loaded = Layers::none()
        .file(&file)
        .unwrap()
        .environment(variables)
        .load();
    loaded.unwrap_or_else(|error| panic!("{pod}: {error}"))
}

/// Returns the manifests of this kind in a file.
fn of_kind<'a>(file: &'a str, kind: &str) -> Vec<&'a str> {
    let line = format!("kind: {kind}");
    file.split("\n---\n")
        .filter(|manifest| manifest.lines().any(|found| found == line))
        .collect()
}

/// Returns the secret that is mounted at the directory of a file.
#[track_caller]
fn mounted_secret<'a>(manifest: &'a str, file: &Path) -> &'a str {
    let mount = format!("mountPath: {}", file.parent().unwrap().display());
    let lines: Vec<&str> = manifest.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| *line == mount);
    let at = at.unwrap_or_else(|| panic!("{} is not mounted", file.display()));
    let name = lines[at - 1].strip_prefix("- name: ").unwrap();
    let volumes = lines.iter().skip_while(|line| **line != "volumes:");
    let mut volume = volumes.skip_while(|line| line.strip_prefix("- name: ") != Some(name));
    volume
        .find_map(|line| line.strip_prefix("secretName: "))
        .expect("the volume is a secret")
}

#[test]
fn pods_require_credentials_of_callers() {
    for name in WORKLOADS {
        let manifest = manifest(name);
        let config = load(&manifest, "orlog-0");
        assert_eq!(
            (config.auth.mode, config.auth.allow_unauthenticated),
            (AuthMode::Token, false),
            "{name}"
        );
        let file = config.auth.token.file.expect("all pods use the same token");
        assert_eq!(mounted_secret(&manifest, &file), "orlog-admin", "{name}");
        let metrics = config
            .auth
            .metrics_token
            .expect("Prometheus has a token")
            .to_string();
        let metrics = Path::new(metrics.trim_start_matches("file:"));
        assert_eq!(
            mounted_secret(&manifest, metrics),
            "orlog-metrics",
            "{name}"
        );
        assert!(config.auth.public_routes.is_empty(), "{name}");
    }
}

#[test]
fn pods_use_nats_with_tls_and_credentials() {
    for name in WORKLOADS {
        let manifest = manifest(name);
        let nats = load(&manifest, "orlog-0").nats;
        assert!(
            nats.servers.iter().all(|url| url.starts_with("tls://")),
            "{name}: {:?}",
            nats.servers
        );
        assert!(nats.tls.required, "{name}");
        let password = nats
            .password
            .as_ref()
            .expect("there are credentials")
            .to_string();
        assert!(nats.permits_scripts(), "{name}: messages are signed");
        let key = nats
            .signing
            .keys
            .first()
            .expect("messages are signed")
            .to_string();
        let files =
            [&password, &key].map(|reference| Path::new(reference.trim_start_matches("file:")));
        for file in files
            .into_iter()
            .chain([nats.tls.ca.as_deref().expect("there is a CA")])
        {
            assert!(
                mounted_secret(&manifest, file).starts_with("orlog-nats"),
                "{name}"
            );
        }
    }
}

#[test]
fn pods_serve_https_and_verify_each_other() {
    for name in WORKLOADS {
        let manifest = manifest(name);
        let config = load(&manifest, "orlog-0");
        let tls = config.http.tls;
        for file in [tls.certificate, tls.key] {
            assert_eq!(
                mounted_secret(&manifest, &file.expect("the pod serves HTTPS")),
                "orlog-tls",
                "{name}"
            );
        }
        // Probes present no certificate.
        assert!(!tls.require_client_certificate, "{name}");
        let probes = manifest.lines().filter(|line| line.contains("httpGet:"));
        assert!(
            probes.clone().count() >= 3
                && probes.clone().all(|probe| probe.contains("scheme: HTTPS")),
            "{name}"
        );
        if config.cluster.mode != ClusterMode::Standalone {
            let cluster = config.cluster;
            assert_eq!(
                mounted_secret(&manifest, &cluster.tls.ca.unwrap()),
                "orlog-tls",
                "{name}"
            );
            assert_eq!(
                (cluster.tls.peer_name.as_str(), cluster.allow_plaintext),
                ("orlog", false),
                "{name}"
            );
            assert!(
                cluster.advertise_url.starts_with("https://"),
                "{name}: {}",
                cluster.advertise_url
            );
        }
    }
}

#[test]
fn network_policies_name_the_peers_of_all_pods() {
    for name in WORKLOADS {
        let file = manifest(name);
        let pods = ["Deployment", "StatefulSet"]
            .map(|kind| of_kind(&file, kind))
            .concat();
        let policies = of_kind(&file, "NetworkPolicy");
        let ([pods], [policy]) = (&pods[..], &policies[..]) else {
            panic!("{name}: {policies:?}")
        };
        let selector = |text: &str, key: &str| {
            let mut lines = text.lines().skip_while(|line| line.trim() != key).skip(2);
            lines
                .next()
                .expect("a selector has a label")
                .trim()
                .to_owned()
        };
        assert_eq!(
            selector(policy, "podSelector:"),
            selector(pods, "selector:"),
            "{name}"
        );
        assert!(policy.contains("policyTypes: [Ingress, Egress]"), "{name}");
        // A rule without peers, and a peer without a selector, accept all connections.
        let rules: Vec<&str> = policy
            .lines()
            .filter_map(|line| line.strip_prefix("    - "))
            .collect();
        assert!(
            rules.len() > 2 && rules.iter().all(|rule| ["from:", "to:"].contains(rule)),
            "{rules:?}"
        );
        let peers: Vec<&str> = policy
            .lines()
            .filter_map(|line| line.strip_prefix("        - "))
            .filter(|peer| !peer.contains("port"))
            .collect();
        let is_selector = |peer: &&str| ["podSelector:", "namespaceSelector:"].contains(peer);
        assert!(
            peers.len() >= rules.len() && peers.iter().all(is_selector),
            "{name}: {peers:?}"
        );
    }
}

#[test]
fn image_requires_a_token_and_compose_publishes_on_loopback_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let (image, compose) = (read("Dockerfile"), read("deploy/compose.yml"));
    let variables = image
        .lines()
        .filter_map(|line| line.strip_prefix("ENV "))
        .flat_map(str::split_whitespace);
    let variables = variables.filter_map(|pair| pair.split_once('='));
    let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let config = Layers::none().environment(variables).load().unwrap();
    assert!(
        config.listen.ip().is_unspecified(),
        "the image serves other machines"
    );
    assert_eq!(
        (config.auth.mode, config.auth.allow_unauthenticated),
        (AuthMode::Token, false)
    );
    assert_eq!(config.auth.token.file, None, "the node creates the token");
    let auth: Vec<&str> = compose
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("ORLOG_AUTH"))
        .collect();
    let expected = ["ORLOG_AUTH__METRICS_TOKEN: file:/run/secrets/metrics-token"];
    assert_eq!(
        auth, expected,
        "the node in compose.yml has the authentication of the image"
    );
    let scrape = read("deploy/prometheus/prometheus.yml");
    assert!(
        scrape.contains("credentials_file: /run/secrets/metrics-token"),
        "Prometheus sends the token"
    );
    let ports: Vec<&str> = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ports: "))
        .collect();
    assert!(
        !ports.is_empty() && ports.iter().all(|ports| ports.starts_with("[\"127.0.0.1:")),
        "{ports:?}"
    );
}

#[test]
fn lease_pods_advertise_their_address_and_do_not_exceed_shards() {
    let manifest = manifest(LEASES);
    let config = load(&manifest, "orlog-6f7d9c-x2x4z");
    assert_eq!(config.node_name(), "orlog-6f7d9c-x2x4z");
    assert_eq!(
        (config.cluster.mode, config.replicated()),
        (ClusterMode::Leases, true)
    );
    assert_eq!(
        config.cluster.advertise_url,
        format!("https://{ADDRESS}:7070")
    );
    assert!(number(&manifest, "maxReplicas") <= u64::from(config.shards));
}

#[test]
fn statefulset_replicas_match_pod_count() {
    let manifest = manifest(STATIC);
    let replicas = number(&manifest, "replicas");
    for ordinal in 0..replicas {
        let pod = format!("orlog-{ordinal}");
        let config = load(&manifest, &pod);
        assert_eq!(
            (config.cluster.mode, config.replicated()),
            (ClusterMode::Static, false)
        );
        assert_eq!(u64::from(config.cluster.pod_count), replicas);
        assert_eq!(
            config.shards % config.cluster.pod_count,
            0,
            "each pod has as many shards as any other"
        );
        assert_eq!(
            config.cluster.advertise_url,
            format!("https://{pod}.orlog-pods:7070")
        );
    }
}

#[test]
fn termination_grace_period_exceeds_drain_timeout() {
    for name in [LEASES, STATIC] {
        let manifest = manifest(name);
        let grace_period = Duration::from_secs(number(&manifest, "terminationGracePeriodSeconds"));
        let before = Duration::from_secs(number(&manifest, "seconds"));
        assert!(
            grace_period > before + load(&manifest, "orlog-0").drain.timeout,
            "{name}"
        );
    }
    let executors = manifest(EFFECT);
    let grace_period = Duration::from_secs(number(&executors, "terminationGracePeriodSeconds"));
    assert!(grace_period > load(&executors, "orlog-effect-0").drain.timeout);
}

#[test]
fn effect_pods_have_upstreams_and_no_shards() {
    let config = load(&manifest(EFFECT), "orlog-effect-5c8d9-b7k2m");
    assert_eq!(
        (config.role, config.cluster.mode),
        (Role::Effect, ClusterMode::Standalone)
    );
    assert_eq!(
        (
            config.definitions_dir.is_some(),
            config.upstreams_dir.is_some()
        ),
        (false, true)
    );
}

#[test]
fn every_effect_of_the_definitions_has_a_provider() {
    let shared = manifest(SHARED);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("payments.toml"),
        text(&shared, "payments.toml"),
    )
    .unwrap();
    let (clock, observer): (Arc<dyn Clock>, Arc<dyn EffectObserver>) =
        (Arc::new(SystemClock), Arc::new(NoopObserver));
    for name in [LEASES, STATIC] {
        let config = load(&manifest(name), "orlog-0");
        let upstreams =
            UpstreamSources::new(config.upstreams(), Some(dir.path().to_owned()), Vec::new());
        let catalog = Catalog::new(upstreams.read().unwrap(), &clock, &observer).unwrap();
        let bytes = text(&shared, "order.saga.yaml").into_bytes().into();
        let definition = SourceFile {
            path: "order.saga.yaml".into(),
            bytes,
        };
        let definitions = DefinitionSet::new(None, Vec::new())
            .validate(None, &[definition], &catalog)
            .unwrap();
        assert_eq!(definitions.definitions.len(), 1);
    }
}
