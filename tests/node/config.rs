//! Configuration: later layers override earlier ones; invalid settings are rejected with their location
//! and a suggestion.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use orlog::Config;
use orlog::config::{Durability, Layers, Setting, TenantMode};

struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("orlog.toml");
    std::fs::write(&path, text).unwrap();
    File { _dir: dir, path }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[track_caller]
fn check_rejected(text: &str, environment: &[(&str, &str)], flags: Vec<Setting>, expected: &str) {
    let file = file(text);
    let layers = Layers::none()
        .file(&file.path)
        .unwrap()
        .environment(variables(environment))
        .flags(flags);
    let error = layers.load().unwrap_err().to_string();
    let error = error.replace(&file.path.display().to_string(), "orlog.toml");
    assert_eq!(error, expected);
}

#[test]
fn defaults_apply_without_layers() {
    let config = Layers::none().load().unwrap();
    assert_eq!(config.listen, Config::default().listen);
    assert_eq!(config.store, Config::default().store);
}

#[test]
fn precedence_is_flag_then_environment_then_file() {
    let file = file(
        "node_name = 'file'\ndata_dir = 'file'\nlisten = '127.0.0.1:1'\n[store]\ndurability = 'interval'\ninterval = '5ms'",
    );
    let environment = variables(&[
        ("ORLOG_DATA_DIR", "environment"),
        ("ORLOG_LISTEN", "127.0.0.1:2"),
        ("ORLOG_STORE__INTERVAL", "7ms"),
        ("ORLOG_TENANTS__MODE", "allowlist"),
        ("ORLOG_TENANTS__ALLOWED", "acme, beta"),
    ]);
    let flags = [Setting::flag("--listen", "listen", "127.0.0.1:3")];
    let config = Layers::none()
        .file(&file.path)
        .unwrap()
        .environment(environment)
        .flags(flags)
        .load()
        .unwrap();
    assert_eq!(config.node_name(), "file");
    assert_eq!(config.data_dir, PathBuf::from("environment"));
    assert_eq!(config.listen.port(), 3);
    assert_eq!(
        (config.store.durability, config.store.interval),
        (Durability::Interval, Duration::from_millis(7))
    );
    assert_eq!(
        (config.tenants.mode, config.tenants.allowed.len()),
        (TenantMode::Allowlist, 2)
    );
    assert_eq!(config.store.max_size, Config::default().store.max_size);
}

#[test]
fn environment_overrides_a_single_upstream_key() {
    let file = file(
        "[upstreams.pay]\nmax_concurrency = 3\n[upstreams.pay.effects.'pay.charge']\npath = '/charges'",
    );
    let environment = variables(&[("ORLOG_UPSTREAMS__PAY__BASE_URL", "http://pay:80")]);
    let config = Layers::none()
        .file(&file.path)
        .unwrap()
        .environment(environment)
        .load()
        .unwrap();
    assert_eq!(
        config.upstreams["pay"].base_url.as_deref(),
        Some("http://pay:80")
    );
    assert_eq!(
        config.upstreams["pay"].max_concurrency.map(NonZeroU32::get),
        Some(3)
    );
}

#[test]
fn unknown_key_is_rejected_with_line_and_suggestion() {
    let expected = "orlog.toml:2:1: unknown key `durabilty`; did you mean `durability`?";
    check_rejected("[store]\ndurabilty = 'sync'", &[], vec![], expected);
    let expected = "orlog.toml:1:1: unknown key `durability`; did you mean `bus.durability`?";
    check_rejected("durability = 'sync'", &[], vec![], expected);
    let expected = "orlog.toml:3:1: unknown key `timeout`; did you mean `attempt_timeout`?";
    check_rejected(
        "[gateway]\nbase_url = 'http://h'\ntimeout = '2s'",
        &[],
        vec![],
        expected,
    );
    let expected = "orlog.toml:1:1: unknown key `zzz`; known keys: timeout";
    check_rejected(
        "drain.zzz = 1",
        &[],
        vec![],
        &expected.replace("1:1", "1:7"),
    );
}

#[test]
fn invalid_value_is_rejected_with_line() {
    let expected = "orlog.toml:2:11: invalid duration \"soon\"; expected a positive duration such as \"500ms\", \"30s\", \"1h30m\"";
    check_rejected("[drain]\ntimeout = 'soon'", &[], vec![], expected);
    let expected = "orlog.toml:1:18: invalid size \"64 apples\"; expected a positive size such as \"64MiB\", \"1GB\", \"512B\"";
    check_rejected("store.max_size = '64 apples'", &[], vec![], expected);
    let expected = "orlog.toml:1:10: this is no socket address; set an IP address and a port, for example 127.0.0.1:7070";
    check_rejected("listen = 'here'", &[], vec![], expected);
}

#[test]
fn error_names_the_variable_or_flag() {
    let expected = "environment variable ORLOG_STORE__DURABLITY: unknown key `durablity`; did you mean `durability`?";
    check_rejected("", &[("ORLOG_STORE__DURABLITY", "sync")], vec![], expected);
    let expected = "environment variable ORLOG_SHARDS: invalid type: string \"many\", expected u16";
    check_rejected("", &[("ORLOG_SHARDS", "many")], vec![], expected);
    let flags = vec![Setting::flag("--listen", "listen", "here")];
    check_rejected(
        "",
        &[],
        flags,
        "--listen: this is no socket address; set an IP address and a port, for example 127.0.0.1:7070",
    );
}

#[test]
fn missing_required_key_is_reported_at_its_table() {
    let expected = "orlog.toml:3:1: missing field `window`";
    check_rejected(
        "[gateway]\nbase_url = 'http://h'\n[gateway.breaker.rate]\npercent = 50",
        &[],
        vec![],
        expected,
    );
}

#[test]
fn gateway_accepts_one_transport_only() {
    let expected = "gateway: base_url and subject are missing; set one of them";
    check_rejected("[gateway]\nmax_concurrency = 3", &[], vec![], expected);
    let expected = "gateway: base_url and subject are both set; keep one of them";
    check_rejected(
        "[gateway]\nbase_url = 'http://h'\nsubject = 'gateway.x'",
        &[],
        vec![],
        expected,
    );
    let expected = "gateway: the subject requires NATS; set bus.kind = \"nats\" and [nats]";
    check_rejected("[gateway]\nsubject = 'gateway.x'", &[], vec![], expected);
}

#[test]
fn contradicting_values_are_rejected() {
    check_rejected(
        "shards = 0",
        &[],
        vec![],
        "shards: 0 is not between 1 and 1024",
    );
    check_rejected(
        "telemetry.sample_ratio = 1.5",
        &[],
        vec![],
        "telemetry.sample_ratio: 1.5 is not between 0.0 and 1.0",
    );
    let expected = "telemetry.queue_size: must be at least 1; 0 drops every span and log record";
    check_rejected("telemetry.queue_size = 0", &[], vec![], expected);
    let expected = "http.max_concurrent_reads: must be at least 1";
    check_rejected("http.max_concurrent_reads = 0", &[], vec![], expected);
}

#[test]
fn missing_or_malformed_file_is_rejected() {
    let error = Layers::none()
        .file(&PathBuf::from("/nowhere/orlog.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read configuration /nowhere/orlog.toml"),
        "{error}"
    );
    let error = {
        let file = file("node_name = \n");
        Layers::none()
            .file(&file.path)
            .unwrap()
            .load()
            .unwrap_err()
            .to_string()
    };
    assert!(error.contains("orlog.toml:1:"), "{error}");
}
