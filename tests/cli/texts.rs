//! What the commands say: help, mistakes, results.

use insta::assert_snapshot;

use crate::node::{Node, orlog, run, shown};

const GOOD: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: { effect: stock.reserve }\n";
const BAD: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    doo: { effect: stock.reserve }\n";

fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("order.saga.yaml"), text).unwrap();
    folder
}

#[test]
fn the_help_lists_the_commands_and_the_exit_codes() {
    assert_snapshot!("help", shown(&["-h"]));
}

#[test]
fn every_command_has_help() {
    let commands = [
        "dev",
        "run",
        "publish",
        "saga",
        "saga list",
        "saga show",
        "saga signal",
        "saga cancel",
        "saga pause",
        "saga resume",
        "saga retry",
        "dlq",
        "dlq list",
        "dlq show",
        "dlq redrive",
        "dlq discard",
        "timers",
        "inspect",
        "audit",
        "doctor",
        "backup",
        "backup verify",
        "restore",
        "drain",
        "log-level",
        "export",
        "deploy",
        "migrate",
        "check",
        "test",
        "simulate",
        "explore",
        "graph",
        "schema",
        "bench",
        "completions",
    ];
    for command in commands {
        let args: Vec<_> = command.split(' ').chain(["-h"]).collect();
        assert!(run(&args).status.success(), "{command}");
    }
    assert_snapshot!("help_of_publish", shown(&["publish", "-h"]));
    assert_snapshot!("help_of_dev", shown(&["dev", "-h"]));
}

#[test]
fn wrong_usage_ends_with_2() {
    assert_snapshot!("wrong_usage", shown(&["sagga"]));
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["publish", "--csv"]).status.code(), Some(2));
    assert_eq!(run(&["timers", "--url", "not a url"]).status.code(), Some(2));
}

#[test]
fn a_wrong_configuration_ends_with_2_and_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orlog.toml");
    std::fs::write(&path, "[store]\ndurabilty = \"sync\"\n").unwrap();
    let shown = shown(&["run", "--config", path.to_str().unwrap()]);
    let shown = shown.replace(&folder.path().display().to_string(), "DIR");
    assert_snapshot!("wrong_configuration", shown);
}

#[test]
fn nobody_at_the_address_ends_with_5() {
    let text = shown(&["saga", "list", "--url", "http://127.0.0.1:1"]);
    assert_snapshot!("nobody_there", text);
}

#[test]
fn check_praises_good_definitions() {
    let folder = folder(GOOD);
    let text = shown(&["check", folder.path().to_str().unwrap()]);
    assert_snapshot!("check_good", text.replace(&folder.path().display().to_string(), "DIR"));
}

#[test]
fn check_names_file_line_and_column_of_a_mistake() {
    let folder = folder(BAD);
    let text = shown(&["check", folder.path().to_str().unwrap()]);
    assert_snapshot!("check_bad", text.replace(&folder.path().display().to_string(), "DIR"));
}

#[test]
fn check_warns_and_fails_on_warnings_where_told() {
    let folder = folder(&format!("{GOOD}  - id: charge\n    do: {{ effect: payments.charge }}\n"));
    let dir = folder.path().to_str().unwrap();
    let run = run(&["check", "--output", "json", dir]);
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(
        (run.status.code(), report["warnings"][0]["code"].as_str()),
        (Some(0), Some("OL03")),
        "{report:#}"
    );
    let text = shown(&["check", "--deny-warnings", "--format", "github", dir]);
    assert_snapshot!("check_warns", text.replace(dir, "DIR"));
}

#[test]
fn every_example_is_free_of_warnings() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path());
    let has = |folder: &std::path::PathBuf| {
        let mut files = std::fs::read_dir(folder).into_iter().flatten();
        files.any(|file| file.unwrap().path().to_string_lossy().ends_with(".saga.yaml"))
    };
    let folders: Vec<_> = entries.filter(has).map(|folder| folder.display().to_string()).collect();
    assert!(folders.len() >= 2, "{folders:?}");
    let args = ["check", "--deny-warnings"].into_iter().chain(folders.iter().map(String::as_str));
    let run = run(&args.collect::<Vec<_>>());
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stdout));
}

#[test]
fn the_schema_is_the_one_in_docs() {
    let schema = run(&["schema"]).stdout;
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/saga.schema.json");
    assert_eq!(String::from_utf8(schema).unwrap(), std::fs::read_to_string(file).unwrap());
}

#[test]
fn check_takes_webassembly_modules_too() {
    let folder = tempfile::tempdir().unwrap();
    let module = r#"(module
        (@custom "orlog.manifest" "{\22saga\22:\22fine\22,\22version\22:3,\22events\22:[{\22type\22:\22FineSent\22,\22starts\22:true}]}")
        (memory (export "memory") 1)
        (func (export "alloc") (param i32) (result i32) (i32.const 1024))
        (func (export "apply") (param i32 i32 i32 i32) (result i64) (i64.const 0)))"#;
    std::fs::write(folder.path().join("fine.saga.wasm"), wat::parse_str(module).unwrap()).unwrap();
    std::fs::write(folder.path().join("odd.saga.wasm"), "saga: order").unwrap();
    let text = shown(&["check", folder.path().to_str().unwrap()]);
    assert_snapshot!("check_modules", text.replace(&folder.path().display().to_string(), "DIR"));
}

#[test]
fn a_folder_without_definitions_is_told_apart_from_good_ones() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&["check", folder.path().to_str().unwrap()]).status.code(), Some(1));
}

#[test]
fn a_definition_that_nobody_can_perform_keeps_the_node_from_starting() {
    let folder = folder(GOOD);
    let dir = folder.path().to_str().unwrap();
    let text =
        shown(&["dev", "--listen", "127.0.0.1:0", "--data", &format!("{dir}/data"), "--definitions", dir]);
    assert_snapshot!("nobody_performs", text.replace(dir, "DIR"));
}

#[test]
fn a_data_folder_in_use_is_refused() {
    let folder = folder(GOOD);
    let data = folder.path().join("data");
    let _node = Node::start(&data, folder.path());
    let dir = folder.path().to_str().unwrap();
    let text = shown(&["run", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    assert_snapshot!("data_in_use", text.replace(dir, "DIR"));
    let text = shown(&["inspect", "saga", "--data", data.to_str().unwrap()]);
    assert!(text.starts_with("exit 1"), "{text}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = orlog(&["completions", "bash"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
