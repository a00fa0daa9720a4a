//! The compensation does not take the output of its task.

use orlog_workflow::{Context, TaskError, Workflow};

async fn count(_: &Context, text: String) -> Result<usize, TaskError> {
    Ok(text.len())
}

async fn forget(_: &Context, _: String, _: String) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = Workflow::builder("wrong").then("count", count).undo(forget).build();
}
