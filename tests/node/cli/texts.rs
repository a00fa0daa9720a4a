//! Output of the commands: help, errors, results.

use insta::assert_snapshot;

use crate::cli::node::{Node, command_output, run};
use crate::harness::process::orlog;

const VALID: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: { effect: stock.reserve }\n";
const INVALID: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    doo: { effect: stock.reserve }\n";

fn saga_dir(text: &str) -> tempfile::TempDir {
    let saga_dir = tempfile::tempdir().unwrap();
    std::fs::write(saga_dir.path().join("order.saga.yaml"), text).unwrap();
    saga_dir
}

#[test]
fn help_lists_commands_and_exit_codes() {
    assert_snapshot!("help", command_output(&["-h"]));
}

#[test]
fn every_command_has_help_text() {
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
        "rebuild",
        "drain",
        "log-level",
        "export",
        "deploy",
        "migrate",
        "reload",
        "check",
        "test",
        "simulate",
        "explore",
        "prove",
        "graph",
        "schema",
        "bench",
        "completions",
    ];
    for command in commands {
        let args: Vec<_> = command.split(' ').chain(["-h"]).collect();
        assert!(run(&args).status.success(), "{command}");
    }
    assert_snapshot!("help_of_publish", command_output(&["publish", "-h"]));
    assert_snapshot!("help_of_dev", command_output(&["dev", "-h"]));
}

#[test]
fn usage_error_exits_with_2() {
    assert_snapshot!("usage_error", command_output(&["sagga"]));
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["publish", "--csv"]).status.code(), Some(2));
    assert_eq!(
        run(&["timers", "--url", "not a url"]).status.code(),
        Some(2)
    );
}

#[test]
fn invalid_configuration_exits_with_2_and_names_the_position() {
    let saga_dir = tempfile::tempdir().unwrap();
    let path = saga_dir.path().join("orlog.toml");
    std::fs::write(&path, "[store]\ndurabilty = \"sync\"\n").unwrap();
    let command_output = command_output(&["run", "--config", path.to_str().unwrap()]);
    let command_output = command_output.replace(&saga_dir.path().display().to_string(), "DIR");
    assert_snapshot!("invalid_configuration", command_output);
}

#[test]
fn unreachable_node_exits_with_5() {
    let text = command_output(&["saga", "list", "--url", "http://127.0.0.1:1"]);
    assert_snapshot!("unreachable_node", text);
}

#[test]
fn check_reports_valid_definitions() {
    let saga_dir = saga_dir(VALID);
    let text = command_output(&["check", saga_dir.path().to_str().unwrap()]);
    assert_snapshot!(
        "check_valid",
        text.replace(&saga_dir.path().display().to_string(), "DIR")
    );
}

#[test]
fn check_reports_file_line_and_column() {
    let saga_dir = saga_dir(INVALID);
    let text = command_output(&["check", saga_dir.path().to_str().unwrap()]);
    assert_snapshot!(
        "check_invalid",
        text.replace(&saga_dir.path().display().to_string(), "DIR")
    );
}

#[test]
fn check_deny_warnings_fails_on_warnings() {
    let saga_dir = saga_dir(&format!(
        "{VALID}  - id: charge\n    do: {{ effect: payments.charge }}\n"
    ));
    let dir = saga_dir.path().to_str().unwrap();
    let run = run(&["check", "--output", "json", dir]);
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(
        (run.status.code(), report["warnings"][0]["code"].as_str()),
        (Some(0), Some("OL03")),
        "{report:#}"
    );
    let text = command_output(&["check", "--deny-warnings", "--format", "github", dir]);
    assert_snapshot!("check_warns", text.replace(dir, "DIR"));
}

#[test]
fn check_compares_fields_with_the_data_of_tests() {
    let definition = "saga: pay\nversion: 1\ncorrelate: orderId\nstart: Placed\nvars: { id: =event.orderId, total: =event.totl }\n\
        steps:\n  - { id: charge, do: { effect: e.charge }, undo: { effect: e.refund }, save: { no: =event.receipt } }\n\
        completed: { fact: Paid, data: { id: =vars.id, total: =vars.total, no: =vars.no } }\n";
    let dir = saga_dir(definition);
    let report = |expected: usize| {
        let run = run(&["check", "--output", "json", dir.path().to_str().unwrap()]);
        let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let warnings = report["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), expected, "{report:#}");
        warnings
            .iter()
            .map(|warning| warning["message"].to_string())
            .collect::<String>()
    };
    report(0);
    let file = std::fs::read_dir(dir.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .file_name();
    let test = format!(
        "saga: {}\ntests:\n- name: t\n  given:\n  - {{ event: Placed, data: {{ orderId: o-1, total: 5 }} }}\n  - {{ ok: charge, \
         data: {{ number: 7 }} }}\n  expect: {{ status: completed }}\n",
        file.to_str().unwrap()
    );
    std::fs::write(dir.path().join("pay.saga.test.yaml"), test).unwrap();
    let messages = report(2);
    assert!(
        messages.contains("no sample of Placed has the field `totl`"),
        "{messages}"
    );
    assert!(
        messages.contains("no sample of the result of step `charge` has the field `receipt`"),
        "{messages}"
    );
}

#[test]
fn examples_have_no_warnings() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let entries = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let has = |saga_dir: &std::path::PathBuf| {
        let mut files = std::fs::read_dir(saga_dir).into_iter().flatten();
        files.any(|file| {
            file.unwrap()
                .path()
                .to_string_lossy()
                .ends_with(".saga.yaml")
        })
    };
    let saga_dirs: Vec<_> = entries
        .filter(has)
        .map(|saga_dir| saga_dir.display().to_string())
        .collect();
    assert!(saga_dirs.len() >= 2, "{saga_dirs:?}");
    let args = ["check", "--deny-warnings"]
        .into_iter()
        .chain(saga_dirs.iter().map(String::as_str));
    let run = run(&args.collect::<Vec<_>>());
    assert_eq!(
        run.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
}

#[test]
fn schema_matches_docs() {
    let schema = String::from_utf8(run(&["schema"]).stdout).unwrap();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/saga.schema.json");
    if std::env::var_os("ORLOG_WRITE_DOCS").is_some() {
        std::fs::write(&file, &schema).unwrap();
    }
    assert_eq!(schema, std::fs::read_to_string(file).unwrap());
}

#[test]
fn check_accepts_wasm_modules() {
    let saga_dir = tempfile::tempdir().unwrap();
    let module = r#"(module
        (@custom "orlog.manifest" "{\22saga\22:\22fine\22,\22version\22:3,\22events\22:[{\22type\22:\22FineSent\22,\22starts\22:true}]}")
        (memory (export "memory") 1)
        (func (export "alloc") (param i32) (result i32) (i32.const 1024))
        (func (export "apply") (param i32 i32 i32 i32) (result i64) (i64.const 0)))"#;
    std::fs::write(
        saga_dir.path().join("fine.saga.wasm"),
        wat::parse_str(module).unwrap(),
    )
    .unwrap();
    std::fs::write(saga_dir.path().join("odd.saga.wasm"), "saga: order").unwrap();
    let text = command_output(&["check", saga_dir.path().to_str().unwrap()]);
    assert_snapshot!(
        "check_modules",
        text.replace(&saga_dir.path().display().to_string(), "DIR")
    );
}

#[test]
fn check_fails_on_a_directory_without_definitions() {
    let saga_dir = tempfile::tempdir().unwrap();
    assert_eq!(
        run(&["check", saga_dir.path().to_str().unwrap()])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn missing_provider_prevents_startup() {
    let saga_dir = saga_dir(VALID);
    let dir = saga_dir.path().to_str().unwrap();
    let text = command_output(&[
        "dev",
        "--strict",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &format!("{dir}/data"),
        "--definitions-dir",
        dir,
    ]);
    assert_snapshot!("missing_provider", text.replace(dir, "DIR"));
}

#[test]
fn data_directory_in_use_is_rejected() {
    let saga_dir = saga_dir(VALID);
    let data = saga_dir.path().join("data");
    let _node = Node::start(&data, saga_dir.path());
    let dir = saga_dir.path().to_str().unwrap();
    let text = command_output(&[
        "run",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    assert_snapshot!("data_in_use", text.replace(dir, "DIR"));
    let text = command_output(&["inspect", "saga", "--data-dir", data.to_str().unwrap()]);
    assert!(text.starts_with("exit 1"), "{text}");
}

#[test]
fn broken_pipe_is_not_an_error() {
    let mut child = orlog(&["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
