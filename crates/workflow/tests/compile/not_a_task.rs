//! The second task is a type that does not implement `Task`.

use orlog_workflow::{Context, TaskError, Workflow};

async fn count(_: &Context, text: String) -> Result<usize, TaskError> {
    Ok(text.len())
}

struct Shout;

fn main() {
    let _ = Workflow::builder("wrong").then("count", count).then("shout", Shout).build();
}
