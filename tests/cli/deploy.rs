//! `orlog deploy`, from a folder to a running node.

use std::path::Path;

use crate::node::{Node, run};

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
