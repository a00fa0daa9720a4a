//! The second task does not take the output of the first one.

use orlog_workflow::{Context, TaskError, Workflow};

async fn count(_: &Context, text: String) -> Result<usize, TaskError> {
    Ok(text.len())
}

async fn shout(_: &Context, text: String) -> Result<String, TaskError> {
    Ok(text.to_uppercase())
}

fn main() {
    let _ = Workflow::builder("wrong").then("count", count).then("shout", shout).build();
}
