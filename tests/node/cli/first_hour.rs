//! The first hour of a user: check, start, edit, error, repair, deploy.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use orlog_testkit::host::free_port;
use orlog_testkit::wait::until_blocking;

use crate::cli::node::{Node, command_output, run};
use crate::harness::process::{self, Killed, orlog};

fn order(version: u32, effect: &str) -> String {
    format!(
        "saga: order\nversion: {version}\nstart: OrderPlaced\ncorrelate: id\nsteps:\n  - {{ id: reserve, do: {{ effect: {effect} }} }}\n"
    )
}

fn awaiting(text: &str) -> String {
    format!(
        "saga: order\nversion: 1\nstart: OrderPlaced\ncorrelate: id\nsteps:\n  - {{ id: paid, do: {{ event: {text} }}, timeout: 1d }}\n"
    )
}

fn dirs<const N: usize>(home: &Path, names: [&str; N]) -> [std::path::PathBuf; N] {
    names.map(|name| {
        let dir = home.join(name);
        fs::create_dir(&dir).unwrap();
        dir
    })
}

const PLACED: &str = "{\"specversion\":\"1.0\",\"id\":\"e-1\",\"source\":\"test\",\"type\":\"OrderPlaced\",\"data\":{\"id\":\"o-1\"}}\n";

#[test]
fn check_searches_directories_and_compares_their_definitions() {
    let home = tempfile::tempdir().unwrap();
    let [trip, other] = dirs(home.path(), ["trip", "other"]);
    let visa = "saga: visa\nversion: 1\nstart: VisaNeeded\ncorrelate: visaId\nsteps:\n  - { id: grant, do: { effect: visa.grant } }\n";
    let parent = "saga: trip\nversion: 1\nstart: TripBooked\nindex: visa\nvars: { visa: =event.visa }\nsteps:\n  - { id: visa, do: { saga: visa, data: { visaId: =vars.visa } } }\n";
    fs::write(trip.join("trip.saga.yaml"), parent).unwrap();
    fs::write(trip.join("visa.saga.yaml"), visa).unwrap();
    fs::write(other.join("trip.saga.yaml"), parent).unwrap();
    let dir = home.path().to_str().unwrap();
    let text = command_output(&["check", dir]).replace(dir, "DIR");
    insta::assert_snapshot!("check_compares_definitions", text);
    // The other definitions of the directory are known, although only one file is checked.
    let one = command_output(&["check", trip.join("trip.saga.yaml").to_str().unwrap()]);
    assert!(
        one.contains("finds its events by `visaId`") && !one.contains("visa.saga.yaml: "),
        "{one}"
    );
}

#[test]
fn dev_reloads_edited_files_and_reports_errors() {
    let home = tempfile::tempdir().unwrap();
    let [definitions] = dirs(home.path(), ["definitions"]);
    let (file, log) = (
        definitions.join("order.saga.yaml"),
        home.path().join("stderr"),
    );
    fs::write(&file, awaiting("Paid")).unwrap();
    let (data, url) = (
        home.path().join("data"),
        format!("127.0.0.1:{}", free_port()),
    );
    let mut command = orlog(&["dev", "--listen", &url, "--data-dir"]);
    command
        .arg(&data)
        .arg("--definitions-dir")
        .arg(&definitions);
    command
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let _node = Killed(command.spawn().unwrap());
    let token = data.join("session-token");
    let publish = || {
        let mut publish = orlog(&["publish", "--url", &format!("http://{url}")]);
        process::feed(
            {
                publish.env("ORLOG_TOKEN_FILE", &token);
                publish
            },
            PLACED,
        )
        .status
        .success()
    };
    until_blocking("the instance starts", || publish().then_some(()));
    let says = |text: &str| {
        until_blocking(text, || {
            fs::read_to_string(&log)
                .unwrap()
                .contains(text)
                .then_some(())
        });
    };
    fs::write(&file, "saga: order\nversion: 1\nsta").unwrap();
    says("not reloaded: correct the errors above; the active definitions are unchanged");
    fs::write(&file, awaiting("PaidInFull")).unwrap();
    says("order version 1 changed, but 1 live instances use its active content; set `version: 2`");
    fs::write(&file, order(2, "stock.reserve")).unwrap();
    says("reloaded: order v2 replaces v1");
    // No instance uses version 2.
    fs::write(&file, order(2, "stock.keep")).unwrap();
    says("reloaded: order v2 replaces v2");
}

#[test]
fn stand_in_fails_as_its_rules_specify() {
    let home = tempfile::tempdir().unwrap();
    let [definitions] = dirs(home.path(), ["definitions"]);
    fs::write(
        definitions.join("order.saga.yaml"),
        order(1, "stock.reserve"),
    )
    .unwrap();
    let data = home.path().join("data");
    let paths = [
        "--data-dir",
        data.to_str().unwrap(),
        "--definitions-dir",
        definitions.to_str().unwrap(),
    ];
    let start = [
        "dev",
        "--listen",
        "127.0.0.1:0",
        "--stand-in",
        "reserv=fail",
    ];
    let unknown = command_output(&[&start[..], &paths].concat());
    assert!(
        unknown.starts_with("exit 2\n")
            && unknown.contains("--stand-in reserv: no definition has")
            && unknown.contains("did you mean `reserve`?"),
        "{unknown}"
    );
    let invalid = command_output(&["dev", "--stand-in", "reserve=fail:200%"]);
    assert!(
        invalid.starts_with("exit 2\n") && invalid.contains("expected 0% to 100%"),
        "{invalid}"
    );
    let rules = ["--stand-in", "reserve=fail:sold_out,10ms"];
    let node = Node::start_with(&data, &definitions, &[], &rules);
    node.feed(&["publish"], PLACED);
    let status = until_blocking("the saga ends", || {
        let listed = node.query(&["saga", "list"]);
        let status = listed["items"][0]["status"].as_str()?.to_owned();
        (status != "running").then_some(status)
    });
    assert_eq!(status, "failed");
    let displayed = node.query(&["saga", "show", "order", "o-1"]).to_string();
    assert!(displayed.contains("sold_out"), "{displayed}");
}

#[test]
fn misspelled_effect_and_event_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let [definitions, upstreams] = dirs(home.path(), ["definitions", "upstreams"]);
    let upstream = "base_url = 'http://127.0.0.1:9'\n[effects.'payments.charge']\npath = '/'\n";
    fs::write(upstreams.join("payments.toml"), upstream).unwrap();
    fs::write(
        definitions.join("order.saga.yaml"),
        order(1, "payments.chargee"),
    )
    .unwrap();
    let (data, log, greeting) = (
        home.path().join("data"),
        home.path().join("stderr"),
        home.path().join("stdout"),
    );
    let url = format!("127.0.0.1:{}", free_port());
    let mut command = orlog(&["dev", "--listen", &url, "--data-dir"]);
    command
        .arg(&data)
        .arg("--definitions-dir")
        .arg(&definitions)
        .env("ORLOG_UPSTREAMS_DIR", &upstreams);
    command
        .stdout(fs::File::create(&greeting).unwrap())
        .stderr(fs::File::create(&log).unwrap());
    let node = Killed(command.spawn().unwrap());
    let says = |file: &Path, text: &str| {
        until_blocking(text, || {
            fs::read_to_string(file)
                .unwrap()
                .contains(text)
                .then_some(())
        });
    };
    says(
        &greeting,
        "stand-in   payments.chargee (did you mean `payments.charge`?)",
    );
    fs::write(
        definitions.join("order.saga.yaml"),
        order(2, "payments.chargeee"),
    )
    .unwrap();
    says(
        &log,
        "no configured upstream executes the effect payments.chargeee, so the stand-in executes it",
    );

    let token = data.join("session-token");
    let publish = |flags: &[&str]| {
        let mut publish = orlog(&[&["publish", "--url", &format!("http://{url}")], flags].concat());
        publish.env("ORLOG_TOKEN_FILE", &token);
        process::feed(publish, &PLACED.replace("OrderPlaced", "OrderPlacd"))
    };
    let published = publish(&[]);
    let warning = String::from_utf8(published.stderr).unwrap();
    assert!(
        published.status.success() && warning.contains("first: line 1, type \"OrderPlacd\""),
        "{warning}"
    );
    let counts: serde_json::Value =
        serde_json::from_slice(&publish(&["--output", "json"]).stdout).unwrap();
    assert_eq!(
        counts,
        serde_json::json!({ "accepted": 1, "duplicates": 1, "unmatched": 1 })
    );
    drop(node);
    fs::remove_file(&token).ok();
    let mut list = orlog(&["saga", "list", "--url", &format!("http://{url}")]);
    let without_node = String::from_utf8(
        list.env("ORLOG_TOKEN_FILE", &token)
            .output()
            .unwrap()
            .stderr,
    )
    .unwrap();
    assert!(
        without_node.contains("ORLOG_TOKEN_FILE") && without_node.contains("start the node"),
        "{without_node}"
    );
}

/// A list of no results would say that there is nothing.
#[test]
fn lists_reject_a_limit_of_zero() {
    for command in [
        &["saga", "list"][..],
        &["dlq", "list"],
        &["timers"],
        &["audit"],
    ] {
        let output = orlog(command).args(["--limit", "0"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{command:?}");
        assert!(error.contains("invalid value '0'"), "{command:?}: {error}");
    }
}

#[test]
fn deploy_and_reload_reject_a_lower_version_without_the_flag() {
    let home = tempfile::tempdir().unwrap();
    let [definitions, old] = dirs(home.path(), ["definitions", "old"]);
    fs::write(
        definitions.join("order.saga.yaml"),
        order(2, "stock.reserve"),
    )
    .unwrap();
    fs::write(old.join("order.saga.yaml"), order(1, "stock.reserve")).unwrap();
    let node = Node::start(&home.path().join("data"), &definitions);
    let call =
        |args: &[&str]| command_output(&[args, &["--url", &node.url, "--user", "alice"]].concat());
    let old = old.to_str().unwrap();
    let rejected = call(&["deploy", old]);
    assert!(rejected.starts_with("exit 1\n"), "{rejected}");
    assert!(
        rejected.contains("order version 1 is lower than the active version 2"),
        "{rejected}"
    );
    let done = call(&["deploy", old, "--allow-downgrade"]);
    assert!(
        done.starts_with("exit 0\n") && done.contains("changed  order  2 -> 1"),
        "{done}"
    );
    let reloaded = call(&["reload"]);
    assert!(
        reloaded.starts_with("exit 0\n") && reloaded.contains("changed  order  1 -> 2"),
        "{reloaded}"
    );
    fs::write(definitions.join("order.saga.yaml"), "saga: order\n").unwrap();
    let rejected = call(&["reload"]);
    assert!(
        rejected.starts_with("exit 1\n") && rejected.contains("order.saga.yaml:1:1"),
        "{rejected}"
    );
}

#[test]
fn deploy_activates_a_new_upstream_that_its_definitions_require() {
    let home = tempfile::tempdir().unwrap();
    let [definitions, upstreams, new] = dirs(home.path(), ["definitions", "upstreams", "new"]);
    let upstream = |effect: &str| {
        format!("base_url = 'http://127.0.0.1:9'\n[effects.'{effect}']\npath = '/'\n")
    };
    fs::write(
        definitions.join("order.saga.yaml"),
        order(1, "stock.reserve"),
    )
    .unwrap();
    fs::write(upstreams.join("stock.toml"), upstream("stock.reserve")).unwrap();
    fs::write(new.join("order.saga.yaml"), order(2, "mail.send")).unwrap();
    let environment = [("ORLOG_UPSTREAMS_DIR", upstreams.to_str().unwrap())];
    let node = Node::start_with(
        &home.path().join("data"),
        &definitions,
        &environment,
        &["--strict"],
    );
    let deploy = || {
        command_output(&[
            "deploy",
            new.to_str().unwrap(),
            "--url",
            &node.url,
            "--user",
            "alice",
        ])
    };
    let rejected = deploy();
    assert!(
        rejected
            .contains("order.saga.yaml:6:24: steps[0].do: step `reserve`: no upstream executes"),
        "{rejected}"
    );
    fs::write(upstreams.join("mail.toml"), upstream("mail.send")).unwrap();
    let done = deploy();
    assert!(
        done.starts_with("exit 0\n") && done.contains("changed  order  1 -> 2"),
        "{done}"
    );
}

#[test]
fn publish_selects_whether_a_result_is_an_event() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("trip.saga.yaml");
    let saga = |top: &str, step: &str| {
        format!(
            "saga: trip\nversion: 1\nstart: TripBooked\n{top}steps:\n  - {{ id: fly, do: {{ effect: air.book }}, ok: FlightBooked{step} }}\n"
        )
    };
    let tested = |work: &str| {
        format!(
            "saga: trip.saga.yaml\ntests:\n  - name: t\n    given:\n      - TripBooked: {{}}\n      - {{ ok: fly, event: FlightBooked }}\n    expect: {{ status: completed, work: [{work}] }}\n"
        )
    };
    let (published, silent) = ("effect air.book, fact FlightBooked", "effect air.book");
    for (top, step, work) in [
        ("", "", published),
        ("publish: false\n", "", silent),
        ("", ", publish: false", silent),
        ("publish: false\n", ", publish: true", published),
    ] {
        fs::write(&file, saga(top, step)).unwrap();
        fs::write(home.path().join("trip.saga.test.yaml"), tested(work)).unwrap();
        let output = command_output(&["test", home.path().to_str().unwrap()]);
        assert!(output.starts_with("exit 0\n"), "{top}{step}: {output}");
    }
    fs::write(
        &file,
        "saga: trip\nversion: 1\nstart: A\nsteps:\n  - { id: w, do: { wait: 1s }, publish: true }\n",
    )
    .unwrap();
    let checked = run(&["check", file.to_str().unwrap()]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(
        text.contains("a wait has no `publish`; only effects, jobs and human tasks"),
        "{text}"
    );
}
