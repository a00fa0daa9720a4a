//! Crashes of a checkpointing runner at every change of its backend, before and after the change is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use orlog_testkit::wait::{until, within};
use orlog_workflow::backend::{
    BackendError, Claim, Fetched, Hub, InstanceId, NewInstance, Save, Signal, StoredInstance,
};
use orlog_workflow::{
    Backend, CheckpointingRunner, Clock, Context, Failure, RunError, TaskError, TaskRegistry,
    Workflow,
};
use tokio::sync::Notify;

use crate::support::BackendKind;
use crate::tasks::{Order, calls, step, undo};

/// Backend whose process crashes at a change: the caller never receives a response.
pub(crate) struct Crashing {
    inner: Arc<dyn Backend>,
    changes: AtomicUsize,
    at: usize,
    is_durable: bool,
    pub(crate) crashed: Notify,
}

impl Crashing {
    pub(crate) fn new(inner: &Arc<dyn Backend>, at: usize, is_durable: bool) -> Arc<Self> {
        let (inner, changes, crashed) = (Arc::clone(inner), AtomicUsize::new(0), Notify::new());
        Arc::new(Self {
            inner,
            changes,
            at,
            is_durable,
            crashed,
        })
    }

    async fn change<T>(&self, change: impl Future<Output = T>) -> T {
        if self.changes.fetch_add(1, Ordering::SeqCst) != self.at {
            return change.await;
        }
        if self.is_durable {
            change.await;
        }
        self.crashed.notify_one();
        std::future::pending().await
    }
}

#[async_trait]
impl Backend for Crashing {
    async fn create(&self, instance: NewInstance) -> Result<bool, BackendError> {
        self.change(self.inner.create(instance)).await
    }

    async fn load(&self, id: &str) -> Result<Option<StoredInstance>, BackendError> {
        self.inner.load(id).await
    }

    async fn save(&self, save: Save) -> Result<(), BackendError> {
        self.change(self.inner.save(save)).await
    }

    async fn fetch(&self, limit: usize, now_ms: u64) -> Result<Fetched, BackendError> {
        self.inner.fetch(limit, now_ms).await
    }

    async fn claim(
        &self,
        ids: &[InstanceId],
        claim: &Claim,
    ) -> Result<Vec<StoredInstance>, BackendError> {
        self.change(self.inner.claim(ids, claim)).await
    }

    async fn take_over(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<StoredInstance>, BackendError> {
        self.change(self.inner.take_over(id, holder)).await
    }

    async fn extend(
        &self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Result<Vec<InstanceId>, BackendError> {
        self.change(self.inner.extend(claims, until_ms)).await
    }

    async fn send_signal(
        &self,
        id: &str,
        name: &str,
        payload: Bytes,
    ) -> Result<bool, BackendError> {
        self.change(self.inner.send_signal(id, name, payload)).await
    }

    async fn signals(&self, id: &str, after: u64) -> Result<Vec<Signal>, BackendError> {
        self.inner.signals(id, after).await
    }

    async fn unended(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, BackendError> {
        self.inner.unended(after, limit).await
    }

    async fn put_graph(&self, hash: &str, graph: Bytes) -> Result<(), BackendError> {
        self.change(self.inner.put_graph(hash, graph)).await
    }

    async fn graph(&self, hash: &str) -> Result<Option<Bytes>, BackendError> {
        self.inner.graph(hash).await
    }

    async fn purge(&self, ended_before_ms: u64) -> Result<u64, BackendError> {
        self.change(self.inner.purge(ended_before_ms)).await
    }

    fn hub(&self) -> &Hub {
        self.inner.hub()
    }
}

fn workflow() -> Workflow<Order, usize> {
    Workflow::builder("order")
        .then("reserve", step)
        .undo(undo)
        .fork(|f| {
            f.branch("invoice", step)
                .undo(undo)
                .branch("label", step)
                .undo(undo)
        })
        .join(
            "pack",
            |(invoice, _): (Order, Order)| async move { Ok(invoice) },
        )
        .delay("pause", Duration::from_millis(1))
        .then("charge", step)
        .timeout(Duration::from_mins(5))
        .map(
            "count",
            |order: Order| async move { Ok(order.parcels.len()) },
        )
        .build()
        .expect("valid")
}

/// Crashes at one change, and resumes in a new process. Returns the calls, or `None` if the workflow ended before the change.
async fn crash_and_resume(
    kind: BackendKind,
    order: Order,
    at: usize,
    is_durable: bool,
) -> Option<Vec<String>> {
    let (workflow, key, fails) = (workflow(), order.key.clone(), !order.fails.is_empty());
    let test = kind.open().await;
    let crashing = Crashing::new(&test.backend, at, is_durable);
    let runner = CheckpointingRunner::new(crashing.clone());
    let has_ended = tokio::select! {
        _ = runner.run(&workflow, "o-1", order.clone()) => true,
        () = crashing.crashed.notified() => false,
    };
    drop((runner, crashing));
    if has_ended {
        return None;
    }
    let test = test.reopen().await;
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    let result = if test.backend.load("o-1").await.expect("reads").is_some() {
        runner.resume(&workflow, "o-1").await
    } else {
        runner.run(&workflow, "o-1", order).await
    };
    match result {
        Ok(3) if !fails => {}
        Err(RunError::Failed(Failure::TaskFailed { step, .. })) if fails => {
            assert_eq!(step, "charge");
        }
        other => panic!("change {at}, durable {is_durable}: {other:?}"),
    }
    Some(calls(&key))
}

async fn check_all_crashes(kind: BackendKind, order: impl Fn() -> Order, expected: &[&str]) {
    let mut at = 0;
    loop {
        for is_durable in [false, true] {
            let description = format!("{kind:?}, change {at}, durable: {is_durable}");
            let crash = crash_and_resume(kind, order(), at, is_durable);
            let Some(calls) = within(&description, crash).await else {
                assert!(at > 5, "the workflow has more than 5 changes");
                return;
            };
            let mut first = Vec::new();
            for call in &calls {
                if !first.contains(call) {
                    first.push(call.clone());
                }
            }
            let sorted = |mut calls: Vec<String>| {
                calls.sort();
                calls
            };
            let expected = expected.iter().map(ToString::to_string).collect();
            assert_eq!(sorted(first), sorted(expected), "{description}");
            // The tasks of one snapshot are executed again: at most the two branches of the fork.
            assert!(
                calls.len() <= expected_len(&calls) + 2,
                "{description}: {calls:?}"
            );
        }
        at += 1;
    }
}

fn expected_len(calls: &[String]) -> usize {
    let mut unique = calls.to_vec();
    unique.sort();
    unique.dedup();
    unique.len()
}

/// Requirements: S2.
#[tokio::test]
async fn a_workflow_survives_a_crash_at_every_change() {
    for kind in BackendKind::ALL {
        check_all_crashes(kind, Order::new, &["reserve", "invoice", "label", "charge"]).await;
    }
}

#[tokio::test]
async fn a_compensation_survives_a_crash_at_every_change() {
    let expected = [
        "reserve",
        "invoice",
        "label",
        "charge fails",
        "undo label",
        "undo invoice",
        "undo reserve",
    ];
    for kind in BackendKind::ALL {
        check_all_crashes(kind, || Order::failing("charge"), &expected).await;
    }
}

/// Requirements: S4.
#[tokio::test(start_paused = true)]
async fn a_deadline_that_expired_before_the_task_started_fails_without_the_task() {
    let workflow = Workflow::builder("deadline")
        .then("charge", step)
        .timeout(Duration::from_mins(1))
        .build()
        .expect("valid");
    let (order, clock) = (Order::new(), Clock::virtual_time());
    let key = order.key.clone();
    let test = BackendKind::Memory.open().await;
    // Change 0 stores the graph, change 1 the instance, change 2 the deadline.
    let crashing = Crashing::new(&test.backend, 2, true);
    let runner = CheckpointingRunner::new(crashing.clone()).clock(clock);
    tokio::select! {
        result = runner.run(&workflow, "o-1", order) => panic!("no crash: {result:?}"),
        () = crashing.crashed.notified() => {}
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend)).clock(clock);
    match runner.resume(&workflow, "o-1").await {
        Err(RunError::Failed(Failure::TaskTimedOut { step, .. })) => assert_eq!(step, "charge"),
        other => panic!("{other:?}"),
    }
    assert!(calls(&key).is_empty());
}

async fn deadline_after(context: &Context, (): ()) -> Result<u64, TaskError> {
    Ok(context.deadline_ms().expect("the task has a timeout"))
}

/// Requirements: S4.
#[tokio::test(start_paused = true)]
async fn a_deadline_is_refreshed_when_the_task_starts_again() {
    let timeout = Duration::from_mins(1);
    let workflow = Workflow::builder("refresh")
        .then("charge", deadline_after)
        .timeout(timeout)
        .build()
        .expect("valid");
    let clock = Clock::virtual_time();
    let test = BackendKind::Memory.open().await;
    let crashing = Crashing::new(&test.backend, 1, true);
    let runner = CheckpointingRunner::new(crashing.clone()).clock(clock);
    tokio::select! {
        result = runner.run(&workflow, "o-1", ()) => panic!("no crash: {result:?}"),
        () = crashing.crashed.notified() => {}
    }
    tokio::time::advance(Duration::from_secs(50)).await;
    let now_ms = clock.now_ms();
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend)).clock(clock);
    let deadline_ms: u64 = runner.resume(&workflow, "o-1").await.expect("completes");
    assert_eq!(deadline_ms, now_ms + 60_000);
}

#[tokio::test]
async fn all_instances_are_resumed() {
    let workflow = Workflow::builder("resume")
        .then("a", step)
        .signal::<u32>("go")
        .then("b", finish)
        .build();
    let workflow = workflow.expect("valid");
    let test = BackendKind::Embedded.open().await;
    let orders: Vec<Order> = (0..300).map(|_| Order::new()).collect();
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    let mut handles = Vec::new();
    for (number, order) in orders.iter().enumerate() {
        handles.push(
            runner
                .start(&workflow, &format!("o-{number:03}"), order.clone())
                .await
                .expect("starts"),
        );
    }
    runner.shutdown();
    for handle in handles {
        let result = handle.outcome().await;
        assert!(matches!(result, Err(RunError::Suspended)), "{result:?}");
    }
    drop(runner);
    let test = test.reopen().await;
    let registry = TaskRegistry::new().workflow(&workflow);
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    let resuming = tokio::spawn(async move { runner.resume_all(&registry).await });
    // The last instance ends while all others wait.
    for (number, order) in orders.iter().enumerate().rev() {
        let payload = Bytes::from(rmp_serde::to_vec(&number).expect("encodes"));
        let sent = test
            .backend
            .send_signal(&format!("o-{number:03}"), "go", payload)
            .await;
        assert!(sent.expect("stores"));
        if number == 299 {
            let ended = || async { calls(&order.key).contains(&"b".to_owned()).then_some(()) };
            until("the last instance ends", ended).await;
        }
    }
    let resumed = within("all instances end", resuming)
        .await
        .expect("no panic")
        .expect("lists");
    assert_eq!(resumed.len(), 300);
    assert!(
        resumed.iter().all(|resumed| resumed.result.is_ok()),
        "{resumed:?}"
    );
    for order in &orders {
        assert_eq!(calls(&order.key), ["a", "b"]);
    }
}

async fn finish(context: &Context, input: (Order, u32)) -> Result<u32, TaskError> {
    input.0.call(context)?;
    Ok(input.1)
}
