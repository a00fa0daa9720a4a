//! Manifests in `deploy/k8s`: a node accepts their configuration, and it matches the rest of the
//! manifest.
//!
//! `make k8s` validates them against the Kubernetes schemas, which do not cover the content of a
//! ConfigMap.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog::config::{ClusterMode, Layers, Role};
use orlog::definitions::{DefinitionSet, SourceFile};
use orlog::upstreams::UpstreamSources;
use orlog::{Config, SystemClock};
use orlog_effect::{Catalog, EffectObserver, NoopObserver};
use orlog_model::Clock;

const SHARED: &str = "shared.yaml";
const LEASES: &str = "leases/orlog.yaml";
const STATIC: &str = "static/orlog.yaml";
const EFFECT: &str = "effect/orlog-effect.yaml";
/// Assumed pod address.
const ADDRESS: &str = "10.1.2.3";

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/k8s").join(name);
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
    below.map(|line| line.get(margin..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the number of a key that occurs once.
#[track_caller]
fn number(manifest: &str, key: &str) -> u64 {
    let prefix = format!("{key}: ");
    let mut found = manifest.lines().filter_map(|line| line.trim().strip_prefix(&prefix));
    let number = found.next().unwrap_or_else(|| panic!("there is no {key}"));
    assert_eq!(found.next(), None, "{key} stands there twice");
    number.parse().unwrap()
}

/// Returns the environment of a container, with the values that the cluster sets.
fn variables(manifest: &str, pod: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
    let mut variables: Vec<(String, String)> = Vec::new();
    for (first, second) in lines.iter().zip(lines.iter().skip(1)) {
        let Some(name) = first.strip_prefix("- name: ") else { continue };
        let value = if let Some(value) = second.strip_prefix("value: ") {
            let fill =
                |text: String, (name, value): &(String, String)| text.replace(&format!("$({name})"), value);
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
    let variables = variables.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let loaded = Layers::none().file(&file).unwrap().environment(variables).load();
    loaded.unwrap_or_else(|error| panic!("{pod}: {error}"))
}

#[test]
fn lease_pods_advertise_their_address_and_do_not_exceed_shards() {
    let manifest = manifest(LEASES);
    let config = load(&manifest, "orlog-6f7d9c-x2x4z");
    assert_eq!(config.node_name(), "orlog-6f7d9c-x2x4z");
    assert_eq!((config.cluster.mode, config.replicated()), (ClusterMode::Leases, true));
    assert_eq!(config.cluster.advertise_url, format!("http://{ADDRESS}:7070"));
    assert!(number(&manifest, "maxReplicas") <= u64::from(config.shards));
}

#[test]
fn statefulset_replicas_match_pod_count() {
    let manifest = manifest(STATIC);
    let replicas = number(&manifest, "replicas");
    for ordinal in 0..replicas {
        let pod = format!("orlog-{ordinal}");
        let config = load(&manifest, &pod);
        assert_eq!((config.cluster.mode, config.replicated()), (ClusterMode::Static, false));
        assert_eq!(u64::from(config.cluster.pod_count), replicas);
        assert_eq!(config.shards % config.cluster.pod_count, 0, "each pod has as many shards as any other");
        assert_eq!(config.cluster.advertise_url, format!("http://{pod}.orlog-pods:7070"));
    }
}

#[test]
fn termination_grace_period_exceeds_drain_timeout() {
    for name in [LEASES, STATIC] {
        let manifest = manifest(name);
        let grace_period = Duration::from_secs(number(&manifest, "terminationGracePeriodSeconds"));
        let before = Duration::from_secs(number(&manifest, "seconds"));
        assert!(grace_period > before + load(&manifest, "orlog-0").drain.timeout, "{name}");
    }
    let executors = manifest(EFFECT);
    let grace_period = Duration::from_secs(number(&executors, "terminationGracePeriodSeconds"));
    assert!(grace_period > load(&executors, "orlog-effect-0").drain.timeout);
}

#[test]
fn effect_pods_have_upstreams_and_no_shards() {
    let config = load(&manifest(EFFECT), "orlog-effect-5c8d9-b7k2m");
    assert_eq!((config.role, config.cluster.mode), (Role::Effect, ClusterMode::Standalone));
    assert_eq!((config.definitions_dir.is_some(), config.upstreams_dir.is_some()), (false, true));
}

#[test]
fn every_effect_of_the_definitions_has_a_provider() {
    let shared = manifest(SHARED);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("payments.toml"), text(&shared, "payments.toml")).unwrap();
    let (clock, observer): (Arc<dyn Clock>, Arc<dyn EffectObserver>) =
        (Arc::new(SystemClock), Arc::new(NoopObserver));
    for name in [LEASES, STATIC] {
        let config = load(&manifest(name), "orlog-0");
        let upstreams = UpstreamSources::new(config.upstreams(), Some(dir.path().to_owned()), Vec::new());
        let catalog = Catalog::new(upstreams.read().unwrap(), &clock, &observer).unwrap();
        let bytes = text(&shared, "order.saga.yaml").into_bytes().into();
        let definition = SourceFile { path: "order.saga.yaml".into(), bytes };
        let definitions = DefinitionSet::new(None, Vec::new()).validate(&[definition], &catalog).unwrap();
        assert_eq!(definitions.len(), 1);
    }
}
