//! The workflow with pooled workers. With `PostgresBackend` the workers can be many processes.

use std::sync::Arc;

use orlog_example_workflow::{Order, Receipt, order};
use orlog_workflow::{Client, MemoryBackend, PooledWorker, TaskRegistry};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (backend, workflow) = (Arc::new(MemoryBackend::new()), order()?);
    let registry = TaskRegistry::new().workflow(&workflow);
    let worker = PooledWorker::new("worker-1", backend.clone(), registry).spawn();
    let client = Client::new(backend);
    client
        .start(
            &workflow,
            "order-3",
            Order {
                number: 3,
                express: true,
                cents: 1250,
            },
        )
        .await?;
    println!("{:?}", client.outcome::<Receipt>("order-3").await?);
    worker.shutdown();
    worker.join().await;
    Ok(())
}
