//! Cases of sayiir.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use sayiir_core::context::WorkflowContext;
use sayiir_core::error::BoxError;
use sayiir_core::registry::TaskRegistry;
use sayiir_core::workflow::{Workflow, WorkflowBuilder, WorkflowStatus};
use sayiir_postgres::{PoolOptions, PostgresBackend};
use sayiir_runtime::persistence::{InMemoryBackend, PersistentBackend};
use sayiir_runtime::serialization::JsonCodec;
use sayiir_runtime::{
    CheckpointingRunner, InProcessRunner, PooledWorker, WorkflowClient, WorkflowRunner as _,
};
use tokio::sync::oneshot;

use crate::load::{Measurement, apply};
use crate::servers::Servers;

type Increment = Arc<Workflow<JsonCodec, u64, ()>>;

/// Connections to PostgreSQL: twice the default of sqlx.
const CONNECTIONS: u32 = 20;
/// Interval of the polls that find what a notification missed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of tasks that a poll returns.
const BATCH: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
/// Time until the snapshot of a workflow whose last task has ended is stored.
const END_LIMIT: Duration = Duration::from_mins(1);

async fn increment(number: u64) -> Result<u64, BoxError> {
    Ok(number + 1)
}

fn context() -> WorkflowContext<JsonCodec, ()> {
    WorkflowContext::new("increment", Arc::new(JsonCodec), Arc::new(()))
}

fn workflow() -> Result<Increment> {
    let workflow = WorkflowBuilder::new(context())
        .then("first", increment)
        .then("second", increment)
        .then("third", increment)
        .build()?;
    Ok(Arc::new(workflow))
}

async fn connect(servers: &Servers) -> Result<PostgresBackend<JsonCodec>> {
    let url = servers.new_database().await?;
    let options = PoolOptions {
        max_connections: Some(CONNECTIONS),
        ..PoolOptions::default()
    };
    Ok(PostgresBackend::connect_with_options(&url, options).await?)
}

pub(crate) async fn in_process(in_flight: usize, seconds: u64) -> Result<Measurement> {
    let workflow = workflow()?;
    let run = move |number| {
        let workflow = Arc::clone(&workflow);
        async move { completed(&InProcessRunner.run(&workflow, number).await?) }
    };
    Ok(apply(in_flight, seconds, run).await?.0)
}

pub(crate) async fn checkpoints_memory(in_flight: usize, seconds: u64) -> Result<Measurement> {
    checkpoints(InMemoryBackend::new(), in_flight, seconds).await
}

pub(crate) async fn checkpoints_postgres(
    servers: &Servers,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    checkpoints(connect(servers).await?, in_flight, seconds).await
}

async fn checkpoints<B: PersistentBackend + 'static>(
    backend: B,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let workflow = workflow()?;
    let runner = Arc::new(CheckpointingRunner::new(backend));
    let run = move |number: u64| {
        let (workflow, runner) = (Arc::clone(&workflow), Arc::clone(&runner));
        async move { completed(&runner.run(&workflow, format!("i-{number}"), number).await?) }
    };
    Ok(apply(in_flight, seconds, run).await?.0)
}

fn completed(status: &WorkflowStatus) -> Result<()> {
    ensure!(
        matches!(status, WorkflowStatus::Completed),
        "unexpected status: {status:?}"
    );
    Ok(())
}

/// Workflows that wait for the end of their last task, by its output.
#[derive(Default)]
struct Ends(Mutex<HashMap<u64, oneshot::Sender<()>>>);

impl Ends {
    fn wait(&self, output: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().insert(output, sender);
        receiver
    }

    fn end(&self, output: u64) {
        if let Some(sender) = self.0.lock().remove(&output) {
            // The load may have failed and stopped to wait.
            sender.send(()).ok();
        }
    }
}

pub(crate) async fn pooled_postgres(
    servers: &Servers,
    workers: usize,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let ends = Arc::new(Ends::default());
    let last = Arc::clone(&ends);
    let third = move |number: u64| {
        let last = Arc::clone(&last);
        async move {
            last.end(number + 1);
            Ok::<_, BoxError>(number + 1)
        }
    };
    let workflow = WorkflowBuilder::new(context())
        .then("first", increment)
        .then("second", increment)
        .then("third", third)
        .build()?;
    let workflow: Increment = Arc::new(workflow);
    let backend = connect(servers).await?;
    let workers: Vec<_> = (1..=workers)
        .map(|number| {
            let worker = PooledWorker::new(
                format!("worker-{number}"),
                backend.clone(),
                TaskRegistry::new(),
            );
            let workflows = vec![(*workflow.definition_hash(), Arc::clone(&workflow))];
            worker
                .with_batch_size(BATCH)
                .spawn(POLL_INTERVAL, workflows)
        })
        .collect();
    let client = Arc::new(WorkflowClient::new(backend));
    let submit = Arc::clone(&client);
    let run = move |number: u64| {
        let (workflow, client, ends) = (
            Arc::clone(&workflow),
            Arc::clone(&submit),
            Arc::clone(&ends),
        );
        async move {
            // The client cannot wait for an end. The notification by the task costs less than a poll of the status.
            let end = ends.wait(number + 3);
            client
                .submit(&workflow, format!("i-{number}"), number)
                .await?;
            end.await.context("the last task was not executed")
        }
    };
    let (measurement, count) = apply(in_flight, seconds, run).await?;
    for number in 0..count {
        tokio::time::timeout(END_LIMIT, completes(&client, number)).await??;
    }
    for worker in &workers {
        worker.shutdown();
        worker.join().await?;
    }
    Ok(measurement)
}

/// Waits until a workflow whose last task was executed has completed.
async fn completes(client: &WorkflowClient<PostgresBackend<JsonCodec>>, number: u64) -> Result<()> {
    loop {
        match client.status(&format!("i-{number}")).await? {
            WorkflowStatus::InProgress => tokio::time::sleep(POLL_INTERVAL).await,
            status => return completed(&status),
        }
    }
}
