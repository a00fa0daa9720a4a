//! The workflow with checkpoints: interrupt the program and start it again, and it continues.

use std::sync::Arc;

use orlog_example_workflow::{Order, order};
use orlog_workflow::{CheckpointingRunner, EmbeddedBackend, RunError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runner = CheckpointingRunner::new(Arc::new(EmbeddedBackend::open("data")?));
    let input = Order {
        number: 2,
        express: false,
        cents: 1250,
    };
    let receipt = match runner.run(&order()?, "order-2", input).await {
        Err(RunError::Exists { .. }) => runner.resume(&order()?, "order-2").await?,
        result => result?,
    };
    println!("{receipt:?}");
    Ok(())
}
