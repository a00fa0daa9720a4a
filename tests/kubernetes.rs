//! The manifests in `deploy/k8s`: their configuration is one that a node takes, and fits what stands around it.
//!
//! `make k8s` holds them against the schemas of Kubernetes, which know nothing of what lies in a ConfigMap.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog::config::{ClusterMode, Layers, Role};
use orlog::definitions::{Definitions, SourceFile};
use orlog::upstreams::Upstreams;
use orlog::{Config, SystemClock};
use orlog_effect::{Catalog, Observer, Silent};
use orlog_model::Clock;

const SHARED: &str = "shared.yaml";
const LEASED: &str = "leased/orlog.yaml";
const FIXED: &str = "fixed/orlog.yaml";
const EFFECT: &str = "effect/orlog-effect.yaml";
/// The address that the cluster is taken to give to a pod.
const ADDRESS: &str = "10.1.2.3";

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/k8s").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The text below `key: |`, as a pod finds it in a file.
#[track_caller]
fn text(manifest: &str, key: &str) -> String {
    let head = format!("{key}: |");
    let mut lines = manifest.lines().skip_while(|line| line.trim() != head);
    let margin = depth(lines.next().unwrap_or_else(|| panic!("there is no {key}"))) + 2;
    let below = lines.take_while(|line| line.trim().is_empty() || depth(line) >= margin);
    below.map(|line| line.get(margin..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The number behind a key that stands there once.
#[track_caller]
fn number(manifest: &str, key: &str) -> u64 {
    let head = format!("{key}: ");
    let mut found = manifest.lines().filter_map(|line| line.trim().strip_prefix(&head));
    let number = found.next().unwrap_or_else(|| panic!("there is no {key}"));
    assert_eq!(found.next(), None, "{key} stands there twice");
    number.parse().unwrap()
}

/// The environment of a container, with what the cluster fills in.
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

/// The configuration of a pod.
#[track_caller]
fn load(manifest: &str, pod: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orlog.toml");
    std::fs::write(&file, text(manifest, "orlog.toml")).unwrap();
    let variables = variables(manifest, pod);
    assert!(variables.iter().any(|(name, _)| name == "ORLOG_NODE"), "the variables are found: {variables:?}");
    let variables = variables.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let loaded = Layers::none().file(&file).unwrap().environment(variables).load();
    loaded.unwrap_or_else(|error| panic!("{pod}: {error}"))
}

#[test]
fn pods_with_leases_are_reached_by_their_address_and_are_not_more_than_shards() {
    let manifest = manifest(LEASED);
    let config = load(&manifest, "orlog-6f7d9c-x2x4z");
    assert_eq!(config.node_name(), "orlog-6f7d9c-x2x4z");
    assert_eq!((config.cluster.mode, config.replicated()), (ClusterMode::Leased, true));
    assert_eq!(config.cluster.advertise, format!("http://{ADDRESS}:7070"));
    assert!(number(&manifest, "maxReplicas") <= u64::from(config.shards));
}

#[test]
fn pods_with_volumes_are_as_many_as_the_configuration_says() {
    let manifest = manifest(FIXED);
    let replicas = number(&manifest, "replicas");
    for ordinal in 0..replicas {
        let pod = format!("orlog-{ordinal}");
        let config = load(&manifest, &pod);
        assert_eq!((config.cluster.mode, config.replicated()), (ClusterMode::Fixed, false));
        assert_eq!(u64::from(config.cluster.pods), replicas);
        assert_eq!(config.shards % config.cluster.pods, 0, "each pod has as many shards as any other");
        assert_eq!(config.cluster.advertise, format!("http://{pod}.orlog-pods:7070"));
    }
}

#[test]
fn what_is_under_way_has_time_to_end_before_a_pod_is_killed() {
    for name in [LEASED, FIXED] {
        let manifest = manifest(name);
        let given = Duration::from_secs(number(&manifest, "terminationGracePeriodSeconds"));
        let before = Duration::from_secs(number(&manifest, "seconds"));
        assert!(given > before + load(&manifest, "orlog-0").drain.deadline, "{name}");
    }
    let performers = manifest(EFFECT);
    let given = Duration::from_secs(number(&performers, "terminationGracePeriodSeconds"));
    assert!(given > load(&performers, "orlog-effect-0").drain.deadline);
}

#[test]
fn pods_that_perform_have_upstreams_and_no_shards() {
    let config = load(&manifest(EFFECT), "orlog-effect-5c8d9-b7k2m");
    assert_eq!((config.roles, config.cluster.mode), (Role::Effect, ClusterMode::Alone));
    assert_eq!((config.definitions.is_some(), config.effects.is_some()), (false, true));
}

#[test]
fn there_is_somebody_for_everything_that_the_definitions_ask_for() {
    let shared = manifest(SHARED);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("payments.toml"), text(&shared, "payments.toml")).unwrap();
    let (clock, silent): (Arc<dyn Clock>, Arc<dyn Observer>) = (Arc::new(SystemClock), Arc::new(Silent));
    for name in [LEASED, FIXED] {
        let config = load(&manifest(name), "orlog-0");
        let upstreams = Upstreams::new(config.upstreams(), Some(folder.path().to_owned()), Vec::new());
        let catalog = Catalog::new(upstreams.read().unwrap(), &clock, &silent).unwrap();
        let bytes = text(&shared, "order.saga.yaml").into_bytes().into();
        let definition = SourceFile { path: "order.saga.yaml".into(), bytes };
        let definitions = Definitions::new(None, Vec::new()).check(&[definition], &catalog).unwrap();
        assert_eq!(definitions.len(), 1);
    }
}
