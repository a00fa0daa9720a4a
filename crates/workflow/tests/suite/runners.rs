//! Suite over all runners and backends.

use orlog_workflow::{Context, InProcessRunner, RunError, TaskError, Workflow};

use crate::cases::{self, Interaction, Runner as _, hang, undo_unknown};
use crate::support::{BackendKind, RunnerKind};
use crate::tasks::{Order, calls, step, undo};

suite! {
    in_process => RunnerKind::InProcess;
    checkpointing_in_memory => RunnerKind::Checkpointing(BackendKind::Memory);
    checkpointing_embedded => RunnerKind::Checkpointing(BackendKind::Embedded);
    pooled_in_memory => RunnerKind::Pooled(BackendKind::Memory);
    pooled_embedded => RunnerKind::Pooled(BackendKind::Embedded);
    checkpointing_on_postgres => RunnerKind::Checkpointing(BackendKind::Postgres);
    pooled_on_postgres => RunnerKind::Pooled(BackendKind::Postgres);
    checkpointing_on_nats => RunnerKind::Checkpointing(BackendKind::Nats);
    pooled_on_nats => RunnerKind::Pooled(BackendKind::Nats);
}

/// Requirements: S4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_drops_the_task_and_compensates() {
    let backends = BackendKind::ALL.into_iter();
    let stored =
        backends.flat_map(|kind| [RunnerKind::Checkpointing(kind), RunnerKind::Pooled(kind)]);
    for runner in stored.chain([RunnerKind::InProcess]) {
        let workflow = Workflow::builder("cancel")
            .then("a", step)
            .undo(undo)
            .then("hang", hang)
            .undo_unknown(undo_unknown)
            .build()
            .expect("valid");
        let order = Order::new();
        let key = order.key.clone();
        let is_hanging = || calls(&key).len() == 2;
        let result = runner
            .interact(&workflow, order, Interaction::Cancel, is_hanging)
            .await;
        assert!(matches!(result, Err(RunError::Cancelled)), "{result:?}");
        let mut calls = calls(&key);
        assert_eq!(calls.pop().as_deref(), Some("undo a"));
        // The future is dropped before or while the compensation starts.
        calls.sort();
        assert_eq!(calls, ["a", "dropped", "hang", "undo unknown hang"]);
    }
}

#[tokio::test]
async fn the_key_of_a_task_contains_its_path() {
    async fn key(context: &Context, _: u32) -> Result<String, TaskError> {
        Ok(context.idempotency_key())
    }
    let workflow = Workflow::builder("each")
        .each(
            "parcels",
            |parcels: &Vec<u32>| parcels.clone(),
            |b| b.then("weigh", key),
        )
        .build()
        .expect("valid");
    let keys = InProcessRunner::new()
        .run(&workflow, vec![5, 6])
        .await
        .expect("completes");
    assert!(
        keys[1].starts_with("each/") && keys[1].ends_with("/weigh[1]"),
        "{keys:?}"
    );
}
