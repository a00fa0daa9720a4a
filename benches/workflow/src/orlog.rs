//! Cases of orlog-workflow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use orlog_workflow::{
    Backend, CheckpointingRunner, Client, Context, EmbeddedBackend, InProcessRunner, MemoryBackend,
    NatsBackend, PooledWorker, PostgresBackend, TaskError, TaskRegistry, WorkerHandle, Workflow,
};

use crate::load::{Measurement, apply};
use crate::servers::Servers;

async fn increment(_: &Context, number: u64) -> Result<u64, TaskError> {
    Ok(number + 1)
}

fn workflow() -> Result<Arc<Workflow<u64, u64>>> {
    let workflow = Workflow::builder("increment")
        .then("first", increment)
        .then("second", increment)
        .then("third", increment)
        .build()?;
    Ok(Arc::new(workflow))
}

pub(crate) async fn in_process(in_flight: usize, seconds: u64) -> Result<Measurement> {
    let workflow = workflow()?;
    let run = move |number| {
        let workflow = Arc::clone(&workflow);
        async move {
            let output = InProcessRunner::new().run(&workflow, number).await?;
            ensure!(output == number + 3, "wrong output");
            Ok(())
        }
    };
    Ok(apply(in_flight, seconds, run).await?.0)
}

pub(crate) async fn checkpoints_memory(in_flight: usize, seconds: u64) -> Result<Measurement> {
    checkpoints(Arc::new(MemoryBackend::new()), in_flight, seconds).await
}

pub(crate) async fn checkpoints_postgres(
    servers: &Servers,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let backend = PostgresBackend::connect(&servers.new_database().await?).await?;
    checkpoints(Arc::new(backend), in_flight, seconds).await
}

pub(crate) async fn checkpoints_embedded(
    servers: &Servers,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let dir = servers.new_dir()?;
    checkpoints(
        Arc::new(EmbeddedBackend::open(dir.path())?),
        in_flight,
        seconds,
    )
    .await
}

async fn checkpoints(
    backend: Arc<dyn Backend>,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let workflow = workflow()?;
    let runner = CheckpointingRunner::new(backend);
    let run = move |number: u64| {
        let (workflow, runner) = (Arc::clone(&workflow), runner.clone());
        async move {
            let output = runner
                .run(&workflow, &format!("i-{number}"), number)
                .await?;
            ensure!(output == number + 3, "wrong output");
            Ok(())
        }
    };
    Ok(apply(in_flight, seconds, run).await?.0)
}

pub(crate) async fn pooled_postgres(
    servers: &Servers,
    workers: usize,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let backend = PostgresBackend::connect(&servers.new_database().await?).await?;
    pooled(Arc::new(backend), workers, in_flight, seconds).await
}

pub(crate) async fn pooled_nats(
    servers: &Servers,
    workers: usize,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let stream = format!(
        "bench-{}-{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    );
    let backend = NatsBackend::connect(&servers.nats, &stream).await?;
    pooled(Arc::new(backend), workers, in_flight, seconds).await
}

async fn pooled(
    backend: Arc<dyn Backend>,
    workers: usize,
    in_flight: usize,
    seconds: u64,
) -> Result<Measurement> {
    let workflow = workflow()?;
    let registry = TaskRegistry::new().workflow(&workflow);
    let workers: Vec<WorkerHandle> = (1..=workers)
        .map(|number| {
            let worker = PooledWorker::new(
                format!("worker-{number}"),
                Arc::clone(&backend),
                registry.clone(),
            );
            worker.batch(64).spawn()
        })
        .collect();
    let client = Client::new(backend);
    let run = move |number: u64| {
        let (workflow, client) = (Arc::clone(&workflow), client.clone());
        async move {
            let id = format!("i-{number}");
            client.start(&workflow, &id, number).await?;
            let output: u64 = client.outcome(&id).await?;
            ensure!(output == number + 3, "wrong output");
            Ok(())
        }
    };
    let (measurement, _) = apply(in_flight, seconds, run).await?;
    workers.iter().for_each(WorkerHandle::shutdown);
    for worker in workers {
        worker.join().await;
    }
    Ok(measurement)
}
