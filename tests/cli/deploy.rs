//! `orlog deploy`, from a folder to a running node.

use std::path::Path;

use crate::node::{Node, run, until};

fn order(version: u32, wrong: &str) -> String {
    format!(
        "saga: order\nversion: {version}\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: {{ effect: stock.reserve }}\n{wrong}"
    )
}

/// Exit code, standard output and standard error, without what differs from run to run.
fn deploy(node: &Node, folder: &Path, more: &[&str]) -> String {
    let folder = folder.to_str().unwrap();
    let output = run(&[&["deploy", folder, "--url", &node.url, "--by", "alice"], more].concat());
    let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    format!("exit {}\n{}", output.status.code().unwrap(), texts.concat()).replace(folder, "DIR")
}

#[test]
fn a_folder_is_deployed_whole_or_refused_whole_with_every_mistake() {
    let home = tempfile::tempdir().unwrap();
    let [node_folder, folder] = ["definitions", "new"].map(|name| home.path().join(name));
    for folder in [&node_folder, &folder] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(node_folder.join("order.saga.yaml"), order(1, "")).unwrap();
    let node = Node::start(&home.path().join("data"), &node_folder);

    let empty = deploy(&node, &folder, &[]);
    assert!(empty.starts_with("exit 1\nerror: DIR has no file named *.saga.yaml or *.saga.wasm"), "{empty}");

    std::fs::write(folder.join("order.saga.yaml"), order(2, "")).unwrap();
    std::fs::write(folder.join("other.saga.yaml"), order(1, "    doo: 1\n").replace("order", "other"))
        .unwrap();
    let refused = deploy(&node, &folder, &[]);
    let lines: Vec<_> = refused.lines().collect();
    assert_eq!(lines[0], "exit 1");
    assert!(lines[1].starts_with("DIR/other.saga.yaml:7:5: steps[0].doo: "), "{refused}");
    assert_eq!(lines[2..], ["error: 1 mistake; the definitions in force stay"]);

    std::fs::write(folder.join("other.saga.yaml"), order(1, "").replace("order", "other")).unwrap();
    let plan = deploy(&node, &folder, &["--dry-run"]);
    assert!(plan.starts_with("exit 0\n"), "{plan}");
    assert!(plan.ends_with("nothing was changed: a dry run\n"), "{plan}");
    let done = deploy(&node, &folder, &[]);
    assert!(done.contains("changed  order  1 -> 2"), "{done}");
    assert!(done.contains("added    other  1"), "{done}");
    assert!(done.ends_with("deployment 2 is in force\n"), "{done}");
    std::fs::remove_file(folder.join("other.saga.yaml")).unwrap();
    let retired = deploy(&node, &folder, &[]);
    assert!(retired.contains("retired    other  1") && retired.contains("unchanged  order  2"), "{retired}");
}

#[test]
fn sighup_reloads_definitions_and_upstreams() {
    let home = tempfile::tempdir().unwrap();
    let [definitions, effects] = ["definitions", "effects"].map(|name| home.path().join(name));
    for folder in [&definitions, &effects] {
        std::fs::create_dir(folder).unwrap();
    }
    let upstream =
        |effect: &str| format!("base_url = 'http://127.0.0.1:9'\n[effects.'{effect}']\npath = '/'\n");
    std::fs::write(definitions.join("order.saga.yaml"), order(1, "")).unwrap();
    std::fs::write(effects.join("stock.toml"), upstream("stock.reserve")).unwrap();
    let environment = [("ORLOG_EFFECTS", effects.to_str().unwrap())];
    let node = Node::start_with(&home.path().join("data"), &definitions, &environment);

    std::fs::write(definitions.join("order.saga.yaml"), order(2, "").replace("stock.reserve", "mail.send"))
        .unwrap();
    assert!(
        deploy(&node, &definitions, &["--dry-run"]).contains("no upstream performs the effect mail.send")
    );
    std::fs::write(effects.join("mail.toml"), upstream("mail.send")).unwrap();
    node.signal("HUP");
    until("the reload", || {
        let plan = deploy(&node, &definitions, &["--dry-run"]);
        plan.contains("unchanged  order  2").then_some(())
    });
}

#[test]
fn instances_are_moved_and_the_exit_code_says_whether_any_had_to_stay() {
    let home = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| home.path().join(name));
    let text = |version: u32, step: &str, migrates: &str| {
        format!(
            "saga: order\nversion: {version}\ncorrelate: id\nstart: OrderPlaced\nsteps:\n  - id: {step}\n    \
             do: {{ event: Paid }}\n{migrates}"
        )
    };
    for (folder, text) in [(&old, text(1, "pay", "")), (&new, text(2, "charge", ""))] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("order.saga.yaml"), text).unwrap();
    }
    let node = Node::start(&home.path().join("data"), &old);
    let event = |id: u32| {
        serde_json::json!({
            "specversion": "1.0", "id": id.to_string(), "source": "test", "type": "OrderPlaced", "data": { "id": id.to_string() },
        })
    };
    node.feed(&["publish"], &format!("{}\n{}\n", event(1), event(2)));
    until("instances", || {
        let listed = node.ask(&["saga", "list"]);
        (listed["items"].as_array().unwrap().len() == 2).then_some(())
    });
    deploy(&node, &new, &[]);
    let migrate = |more: &[&str]| {
        let args = [&["migrate", "order", "--from", "1", "--by", "alice", "--url", &node.url], more].concat();
        let output = run(&args);
        let texts = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        format!("exit {}\n{}", output.status.code().unwrap(), texts.concat())
    };
    let blocked = migrate(&[]);
    assert!(
        blocked.starts_with("exit 4\n") && blocked.contains("nothing says what becomes of step `pay`"),
        "{blocked}"
    );
    assert!(blocked.contains("0 safe, 0 mapped, 2 blocked; 0 go by version 2 now"), "{blocked}");
    assert!(migrate(&["--skip-blocked"]).starts_with("exit 0\n"));
    let mapped = text(2, "charge", "migrates: [{ from: 1, steps: { pay: charge } }]\n");
    std::fs::write(new.join("order.saga.yaml"), mapped).unwrap();
    let again = deploy(&node, &new, &[]);
    assert!(again.contains("version 2 again, with another text"), "{again}");
    let plan = migrate(&["--dry-run", "--only", "2"]);
    assert!(plan.contains("0 safe, 1 mapped, 0 blocked; nothing was changed: a dry run"), "{plan}");
    let done = migrate(&["--limit", "1"]);
    assert!(done.starts_with("exit 0\n") && done.contains("1 go by version 2 now"), "{done}");
    let rest = migrate(&[]);
    assert!(rest.contains("0 safe, 1 mapped, 0 blocked; 1 go by version 2 now"), "{rest}");
    assert!(migrate(&[]).contains("0 safe, 0 mapped, 0 blocked; 0 go by version 2 now"));
    assert!(migrate(&["--to", "9"]).starts_with("exit 3\n"));
}
