//! Configuration: later layers win, and what cannot be is refused with its place and what was probably meant.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use orlog::Config;
use orlog::config::{Durability, Layers, Setting, TenantMode};

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orlog.toml");
    std::fs::write(&path, text).unwrap();
    File { _folder: folder, path }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[track_caller]
fn check_refused(text: &str, environment: &[(&str, &str)], flags: Vec<Setting>, expected: &str) {
    let file = file(text);
    let layers = Layers::none().file(&file.path).unwrap().environment(variables(environment)).flags(flags);
    let error = layers.load().unwrap_err().to_string();
    let error = error.replace(&file.path.display().to_string(), "orlog.toml");
    assert_eq!(error, expected);
}

#[test]
fn without_layers_the_defaults_hold() {
    let config = Layers::none().load().unwrap();
    assert_eq!(config.listen, Config::default().listen);
    assert_eq!(config.store, Config::default().store);
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file() {
    let file = file(
        "node = 'file'\ndata = 'file'\nlisten = '127.0.0.1:1'\n[store]\ndurability = 'interval'\ninterval = '5ms'",
    );
    let environment = variables(&[
        ("ORLOG_DATA", "environment"),
        ("ORLOG_LISTEN", "127.0.0.1:2"),
        ("ORLOG_STORE__INTERVAL", "7ms"),
        ("ORLOG_TENANTS__MODE", "listed"),
        ("ORLOG_TENANTS__LIST", "acme, beta"),
    ]);
    let flags = [Setting::flag("--listen", "listen", "127.0.0.1:3")];
    let config =
        Layers::none().file(&file.path).unwrap().environment(environment).flags(flags).load().unwrap();
    assert_eq!(config.node_name(), "file");
    assert_eq!(config.data, PathBuf::from("environment"));
    assert_eq!(config.listen.port(), 3);
    assert_eq!(
        (config.store.durability, config.store.interval),
        (Durability::Interval, Duration::from_millis(7))
    );
    assert_eq!((config.tenants.mode, config.tenants.list.len()), (TenantMode::Listed, 2));
    assert_eq!(config.store.max_size, Config::default().store.max_size);
}

#[test]
fn a_part_of_an_upstream_may_come_from_the_environment() {
    let file =
        file("[upstreams.pay]\nconcurrency = 3\n[upstreams.pay.effects.'pay.charge']\npath = '/charges'");
    let environment = variables(&[("ORLOG_UPSTREAMS__PAY__BASE_URL", "http://pay:80")]);
    let config = Layers::none().file(&file.path).unwrap().environment(environment).load().unwrap();
    assert_eq!(config.upstreams["pay"].base_url.as_deref(), Some("http://pay:80"));
    assert_eq!(config.upstreams["pay"].concurrency.map(NonZeroU32::get), Some(3));
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_name() {
    let expected = "orlog.toml:2:1: unknown key `durabilty`; did you mean `durability`?";
    check_refused("[store]\ndurabilty = 'sync'", &[], vec![], expected);
    let expected = "orlog.toml:1:1: unknown key `durability`; did you mean `bus.durability`?";
    check_refused("durability = 'sync'", &[], vec![], expected);
    let expected = "orlog.toml:3:1: unknown key `timeout`; did you mean `attempt_timeout`?";
    check_refused("[gateway]\nbase_url = 'http://h'\ntimeout = '2s'", &[], vec![], expected);
    let expected = "orlog.toml:1:1: unknown key `zzz`; here can stand: deadline";
    check_refused("drain.zzz = 1", &[], vec![], &expected.replace("1:1", "1:7"));
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_line() {
    let expected =
        "orlog.toml:2:12: \"soon\" is no duration greater than zero, such as \"500ms\", \"30s\", \"1h30m\"";
    check_refused("[drain]\ndeadline = 'soon'", &[], vec![], expected);
    let expected =
        "orlog.toml:1:18: \"64 apples\" is no size greater than zero, such as \"64MiB\", \"1GB\", \"512B\"";
    check_refused("store.max_size = '64 apples'", &[], vec![], expected);
    let expected = "orlog.toml:1:10: invalid socket address syntax";
    check_refused("listen = 'here'", &[], vec![], expected);
}

#[test]
fn a_mistake_in_a_variable_or_a_flag_names_it() {
    let expected =
        "environment variable ORLOG_STORE__DURABLITY: unknown key `durablity`; did you mean `durability`?";
    check_refused("", &[("ORLOG_STORE__DURABLITY", "sync")], vec![], expected);
    let expected = "environment variable ORLOG_SHARDS: invalid type: string \"many\", expected u16";
    check_refused("", &[("ORLOG_SHARDS", "many")], vec![], expected);
    let flags = vec![Setting::flag("--listen", "listen", "here")];
    check_refused("", &[], flags, "--listen: invalid socket address syntax");
}

#[test]
fn what_is_missing_everywhere_is_said_where_it_should_stand() {
    let expected = "orlog.toml:3:1: missing field `window`";
    check_refused(
        "[gateway]\nbase_url = 'http://h'\n[gateway.breaker.rate]\npercent = 50",
        &[],
        vec![],
        expected,
    );
}

#[test]
fn a_gateway_goes_to_one_place() {
    let expected = "gateway: it has neither base_url nor subject; write one";
    check_refused("[gateway]\nconcurrency = 3", &[], vec![], expected);
    let expected = "gateway: it has a base_url and a subject; keep one";
    check_refused("[gateway]\nbase_url = 'http://h'\nsubject = 'gateway.x'", &[], vec![], expected);
    let expected = "gateway: its subject needs NATS; write bus.kind = \"nats\" and [nats]";
    check_refused("[gateway]\nsubject = 'gateway.x'", &[], vec![], expected);
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    check_refused("shards = 0", &[], vec![], "shards: 0 is not between 1 and 1024");
    check_refused(
        "telemetry.sample_ratio = 1.5",
        &[],
        vec![],
        "telemetry.sample_ratio: 1.5 is not between 0.0 and 1.0",
    );
}

#[test]
fn a_file_that_is_not_there_or_no_toml_is_refused() {
    let error = Layers::none().file(&PathBuf::from("/nowhere/orlog.toml")).unwrap_err().to_string();
    assert!(error.starts_with("the configuration /nowhere/orlog.toml cannot be read"), "{error}");
    let error = {
        let file = file("node = \n");
        Layers::none().file(&file.path).unwrap().load().unwrap_err().to_string()
    };
    assert!(error.contains("orlog.toml:1:"), "{error}");
}
