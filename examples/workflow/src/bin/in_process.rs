//! The workflow in process: nothing is stored.

use orlog_example_workflow::{Order, order};
use orlog_workflow::InProcessRunner;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let input = Order {
        number: 1,
        express: true,
        cents: 1250,
    };
    let receipt = InProcessRunner::new().run(&order()?, input).await?;
    println!("{receipt:?}");
    Ok(())
}
