//! Versions: a stored instance continues only under a compatible workflow.

use std::sync::Arc;

use orlog_testkit::wait::within;
use orlog_workflow::{CheckpointingRunner, RunError, Workflow};

use crate::support::BackendKind;
use crate::tasks::{Order, calls, step};

/// Stores an instance of a workflow that waits between two steps.
async fn suspended(backend: &Arc<dyn orlog_workflow::Backend>, order: &Order) {
    let workflow = Workflow::builder("v")
        .then("reserve", step)
        .delay("pause", std::time::Duration::from_millis(1))
        .then("charge", step)
        .build()
        .expect("valid");
    let runner = CheckpointingRunner::new(Arc::clone(backend));
    runner.shutdown();
    let result = runner.run(&workflow, "v-1", order.clone()).await;
    assert!(matches!(result, Err(RunError::Suspended)), "{result:?}");
}

#[tokio::test]
async fn a_renamed_step_continues_with_its_new_name() {
    let (test, order) = (BackendKind::Memory.open().await, Order::new());
    suspended(&test.backend, &order).await;
    let workflow = Workflow::builder("v")
        .then("hold", step)
        .delay("pause", std::time::Duration::from_millis(1))
        .then("charge", step)
        .renamed("reserve", "hold")
        .build()
        .expect("valid");
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    within("the instance ends", runner.resume(&workflow, "v-1"))
        .await
        .expect("completes");
    assert_eq!(calls(&order.key), ["hold", "charge"]);
}

#[tokio::test]
async fn another_version_is_an_error_that_names_the_difference() {
    let (test, order) = (BackendKind::Memory.open().await, Order::new());
    suspended(&test.backend, &order).await;
    let workflow = Workflow::builder("v")
        .then("reserve", step)
        .then("charge", step)
        .build()
        .expect("valid");
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    let error = runner
        .resume(&workflow, "v-1")
        .await
        .expect_err("incompatible");
    assert_eq!(
        error.to_string(),
        "instance \"v-1\" cannot continue: it started with another version of workflow \"v\": step \"pause\" is missing now; \
         register that version too, or map its names with `renamed`"
    );
    assert!(calls(&order.key).is_empty());
}

#[tokio::test]
async fn an_id_that_exists_is_not_run_again() {
    let test = BackendKind::Memory.open().await;
    let workflow = Workflow::builder("once")
        .then("a", step)
        .build()
        .expect("valid");
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    runner
        .run(&workflow, "o-1", Order::new())
        .await
        .expect("completes");
    let error = runner
        .run(&workflow, "o-1", Order::new())
        .await
        .expect_err("exists");
    assert_eq!(
        error.to_string(),
        "instance \"o-1\" exists; resume it, or use another id"
    );
    assert!(matches!(
        runner.resume(&workflow, "o-2").await,
        Err(RunError::NotFound { .. })
    ));
}

#[test]
fn a_workflow_with_errors_is_not_built() {
    let error = Workflow::builder("w")
        .then("a", step)
        .timeout(std::time::Duration::ZERO)
        .then("a", step)
        .retry(orlog_workflow::Retry::attempts(0))
        .undo_retry(orlog_workflow::Retry::attempts(1))
        .build()
        .expect_err("invalid");
    assert_eq!(
        error.to_string(),
        "workflow \"w\" cannot be built: step \"a\" has no compensation; call `undo` before `undo_retry`; \
         step \"a\": a timeout needs at least 1 ms; step \"a\" occurs twice or has no name; give each step its own name; \
         step \"a\": a retry policy needs at least 1 attempt"
    );
}
