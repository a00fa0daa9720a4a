//! Tests of `orlog deploy`, from a directory to a running node.

use std::path::Path;

use orlog_testkit::wait::until_blocking;

use crate::cli::node::{Node, run};

fn order(version: u32, invalid: &str) -> String {
    format!(
        "saga: order\nversion: {version}\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: {{ effect: stock.reserve }}\n{invalid}"
    )
}

/// Returns exit code, standard output and standard error, without values that differ between runs.
fn deploy(node: &Node, dir: &Path, more: &[&str]) -> String {
    let dir = dir.to_str().unwrap();
    let output = run(&[
        &["deploy", dir, "--url", &node.url, "--user", "alice"],
        more,
    ]
    .concat());
    let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    format!("exit {}\n{}", output.status.code().unwrap(), texts.concat()).replace(dir, "DIR")
}

#[test]
fn deploy_is_all_or_nothing_and_lists_every_error() {
    let home = tempfile::tempdir().unwrap();
    let [node_dir, dir] = ["definitions", "new"].map(|name| home.path().join(name));
    for dir in [&node_dir, &dir] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(node_dir.join("order.saga.yaml"), order(1, "")).unwrap();
    let node = Node::start(&home.path().join("data"), &node_dir);

    let empty = deploy(&node, &dir, &[]);
    assert!(
        empty.starts_with("exit 1\nerror: DIR has no file that matches *.saga.yaml or *.saga.wasm"),
        "{empty}"
    );

    std::fs::write(dir.join("order.saga.yaml"), order(2, "")).unwrap();
    std::fs::write(
        dir.join("other.saga.yaml"),
        order(1, "    doo: 1\n").replace("order", "other"),
    )
    .unwrap();
    let rejected = deploy(&node, &dir, &[]);
    let lines: Vec<_> = rejected.lines().collect();
    assert_eq!(lines[0], "exit 1");
    assert!(
        lines[1].starts_with("DIR/other.saga.yaml:7:5: steps[0].doo: "),
        "{rejected}"
    );
    assert_eq!(
        lines[2..],
        ["error: 1 error; the active definitions are unchanged"]
    );

    std::fs::write(
        dir.join("other.saga.yaml"),
        order(1, "").replace("order", "other"),
    )
    .unwrap();
    let plan = deploy(&node, &dir, &["--dry-run"]);
    assert!(plan.starts_with("exit 0\n"), "{plan}");
    assert!(plan.ends_with("dry run: no changes made\n"), "{plan}");
    let done = deploy(&node, &dir, &[]);
    assert!(done.contains("changed  order  1 -> 2"), "{done}");
    assert!(done.contains("added    other  1"), "{done}");
    assert!(done.ends_with("deployment 2 is active\n"), "{done}");
    std::fs::remove_file(dir.join("other.saga.yaml")).unwrap();
    let retired = deploy(&node, &dir, &[]);
    assert!(
        retired.contains("retired    other  1") && retired.contains("unchanged  order  2"),
        "{retired}"
    );
}

#[test]
fn sighup_reloads_definitions_and_upstreams() {
    let home = tempfile::tempdir().unwrap();
    let [definitions, effects] = ["definitions", "effects"].map(|name| home.path().join(name));
    for dir in [&definitions, &effects] {
        std::fs::create_dir(dir).unwrap();
    }
    let upstream = |effect: &str| {
        format!("base_url = 'http://127.0.0.1:9'\n[effects.'{effect}']\npath = '/'\n")
    };
    std::fs::write(definitions.join("order.saga.yaml"), order(1, "")).unwrap();
    std::fs::write(effects.join("stock.toml"), upstream("stock.reserve")).unwrap();
    let environment = [("ORLOG_UPSTREAMS_DIR", effects.to_str().unwrap())];
    let node = Node::start_with(
        &home.path().join("data"),
        &definitions,
        &environment,
        &["--strict"],
    );

    std::fs::write(
        definitions.join("order.saga.yaml"),
        order(2, "").replace("stock.reserve", "mail.send"),
    )
    .unwrap();
    assert!(
        deploy(&node, &definitions, &["--dry-run"])
            .contains("no upstream executes the effect mail.send")
    );
    std::fs::write(effects.join("mail.toml"), upstream("mail.send")).unwrap();
    node.signal("HUP");
    until_blocking("the reload", || {
        let plan = deploy(&node, &definitions, &["--dry-run"]);
        plan.contains("unchanged  order  2").then_some(())
    });
}

#[test]
fn migrate_exit_code_reports_blocked_instances() {
    let home = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| home.path().join(name));
    let text = |version: u32, step: &str, migrates: &str| {
        format!(
            "saga: order\nversion: {version}\ncorrelate: id\nstart: OrderPlaced\nsteps:\n  - id: {step}\n    \
             do: {{ event: Paid }}\n{migrates}"
        )
    };
    for (dir, text) in [(&old, text(1, "pay", "")), (&new, text(2, "charge", ""))] {
        std::fs::create_dir(dir).unwrap();
        std::fs::write(dir.join("order.saga.yaml"), text).unwrap();
    }
    let node = Node::start(&home.path().join("data"), &old);
    let event = |id: u32| {
        serde_json::json!({
            "specversion": "1.0", "id": id.to_string(), "source": "test", "type": "OrderPlaced", "data": { "id": id.to_string() },
        })
    };
    node.feed(&["publish"], &format!("{}\n{}\n", event(1), event(2)));
    until_blocking("instances", || {
        let listed = node.query(&["saga", "list"]);
        (listed["items"].as_array().unwrap().len() == 2).then_some(())
    });
    deploy(&node, &new, &[]);
    let migrate = |more: &[&str]| {
        let args = [
            &[
                "migrate", "order", "--from", "1", "--user", "alice", "--url", &node.url,
            ],
            more,
        ]
        .concat();
        let output = run(&args);
        let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        format!("exit {}\n{}", output.status.code().unwrap(), texts.concat())
    };
    let blocked = migrate(&[]);
    assert!(
        blocked.starts_with("exit 4\n") && blocked.contains("step `pay` has no mapping"),
        "{blocked}"
    );
    assert!(
        blocked.contains("0 safe, 0 mapped, 2 blocked; 0 instances migrated to v2"),
        "{blocked}"
    );
    assert!(migrate(&["--skip-blocked"]).starts_with("exit 0\n"));
    let mapped = text(
        2,
        "charge",
        "migrations: [{ from: 1, steps: { pay: charge } }]\n",
    );
    std::fs::write(new.join("order.saga.yaml"), mapped).unwrap();
    let repeated = deploy(&node, &new, &[]);
    assert!(
        repeated.contains("version 2 was deployed before with another content"),
        "{repeated}"
    );
    let plan = migrate(&["--dry-run", "--only", "2"]);
    assert!(
        plan.contains("0 safe, 1 mapped, 0 blocked; dry run: no changes made"),
        "{plan}"
    );
    let done = migrate(&["--limit", "1"]);
    assert!(
        done.starts_with("exit 0\n") && done.contains("1 instances migrated to v2"),
        "{done}"
    );
    let migration = migrate(&[]);
    assert!(
        migration.contains("0 safe, 1 mapped, 0 blocked; 1 instances migrated to v2"),
        "{migration}"
    );
    assert!(migrate(&[]).contains("0 safe, 0 mapped, 0 blocked; 0 instances migrated to v2"));
    assert!(migrate(&["--to", "9"]).starts_with("exit 3\n"));
}
