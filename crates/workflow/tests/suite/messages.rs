//! Messages of the compiler for wrong chains, the flowchart, and the progress.

use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt as _;
use orlog_testkit::wait::within;
use orlog_workflow::{InProcessRunner, Progress, RunError, Workflow};

use crate::tasks::{Order, step, undo};

/// Compiles a file of `tests/compile` against the library that this test uses; returns the messages of the compiler.
///
/// The compiler is called directly, because a build with Cargo would compile all dependencies again.
fn compile(name: &str) -> String {
    let test = std::env::current_exe().expect("the path of the test");
    let dependencies = test.parent().expect("the directory of the test");
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("liborlog_workflow-") && name.ends_with(".rlib")
    };
    let files = std::fs::read_dir(dependencies)
        .expect("the directory is readable")
        .flatten();
    let libraries = files.map(|file| file.path()).filter(is_library);
    let library =
        libraries.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    let library = library.expect("Cargo compiled the library before the test");
    let out = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/compile")
        .join(name);
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition=2024",
            "--crate-type=bin",
            "--emit=metadata",
            "--out-dir",
        ])
        .arg(out.path())
        .arg(format!("--extern=orlog_workflow={}", library.display()))
        .arg(format!("-Ldependency={}", dependencies.display()))
        .arg(source)
        .output()
        .expect("rustc is installed");
    assert!(!output.status.success(), "{name} compiles");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_wrong_chain_does_not_compile_and_the_message_names_the_types() {
    for (name, messages) in [
        (
            "wrong_input.rs",
            [
                "expected function signature `fn(&orlog_workflow::Context, usize) -> _`",
                "found function signature `fn(&orlog_workflow::Context, String) -> _`",
            ],
        ),
        (
            "wrong_compensation.rs",
            [
                "expected function signature `fn(&orlog_workflow::Context, String, usize) -> _`",
                "found function signature `fn(&orlog_workflow::Context, String, String) -> _`",
            ],
        ),
        (
            "not_a_task.rs",
            [
                "this step receives `usize`, but `Shout` is not a task for `usize`",
                "a task is `async fn(&Context, usize) -> Result<Out, TaskError>`; its input is the output of the step before it",
            ],
        ),
        (
            "wrong_command.rs",
            [
                "type mismatch resolving `<Charge as Contract>::Command == usize`",
                "note: expected this to be `usize`",
            ],
        ),
        (
            "undo_without_task.rs",
            [
                "no method named `undo` found",
                "orlog_workflow::Builder<In, Out, TaskStep<Input>>",
            ],
        ),
    ] {
        let output = compile(name);
        for message in messages {
            assert!(
                output.contains(message),
                "{name}: no {message:?} in {output}"
            );
        }
    }
}

#[test]
fn a_workflow_is_a_flowchart() {
    let workflow: Workflow<Order, usize> = Workflow::builder("order")
        .then("reserve", step)
        .fork(|f| f.branch("invoice", step).branch("label", step))
        .join(
            "pack",
            |(order, _): (Order, Order)| async move { Ok(order) },
        )
        .when(
            "express",
            |order| order.express,
            |b| b.then("courier", step),
        )
        .otherwise(|b| b.then("post", step))
        .map(
            "count",
            |order: Order| async move { Ok(order.parcels.len()) },
        )
        .build()
        .expect("valid");
    let expected = r#"flowchart TD
  n0(["start"])
  n1["reserve"]
  n0 --> n1
  n2[["pack-fork"]]
  n1 --> n2
  n3["invoice"]
  n2 -->|"invoice"| n3
  n4["label"]
  n2 -->|"label"| n4
  n5["pack"]
  n3 --> n5
  n4 --> n5
  n6{"express"}
  n5 --> n6
  n7["courier"]
  n6 -->|"yes"| n7
  n8["post"]
  n6 -->|"no"| n8
  n9["count"]
  n7 --> n9
  n8 --> n9
  n10(["end"])
  n9 --> n10
"#;
    assert_eq!(workflow.to_mermaid(), expected);
}

#[tokio::test]
async fn the_progress_of_an_instance_is_a_stream() {
    let workflow = Workflow::builder("p")
        .then("a", step)
        .undo(undo)
        .then("b", step)
        .build()
        .expect("valid");
    let handle = InProcessRunner::new().start(&workflow, Order::failing("b"));
    let events: Vec<_> = handle.events().collect().await;
    let step = |name: &str| name.to_owned();
    assert_eq!(
        events[0],
        Progress::TaskStarted {
            step: step("a"),
            attempt: 1
        }
    );
    assert_eq!(events[1], Progress::TaskCompleted { step: step("a") });
    assert_eq!(
        events[2],
        Progress::TaskStarted {
            step: step("b"),
            attempt: 1
        }
    );
    assert!(
        matches!(&events[3], Progress::TaskFailed { retry_in: None, .. }),
        "{events:?}"
    );
    assert_eq!(events[4], Progress::Compensating { tasks: 1 });
    assert_eq!(events[5], Progress::Compensated { step: step("a") });
    assert!(matches!(events[6], Progress::Failed(_)));
    assert!(handle.outcome().await.is_err());
}

#[tokio::test]
async fn a_loop_of_tasks_that_are_ready_at_once_can_be_cancelled() {
    let workflow = Workflow::builder("loop")
        .repeat(
            "spin",
            u32::MAX,
            |_: &u64| true,
            |body| body.map("add", |count: u64| async move { Ok(count + 1) }),
        )
        .build()
        .expect("valid");
    let handle = InProcessRunner::new().start(&workflow, 0);
    handle.events().next().await.expect("the loop runs");
    handle.cancel().await.expect("the loop runs");
    let result = within("the loop ends", handle.outcome()).await;
    assert!(matches!(result, Err(RunError::Cancelled)), "{result:?}");
}
