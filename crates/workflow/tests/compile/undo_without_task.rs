//! A delay has no compensation.

use std::time::Duration;

use orlog_workflow::{Context, TaskError, Workflow};

async fn forget(_: &Context, _: String, _: String) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = Workflow::builder::<String>("wrong").delay("pause", Duration::from_secs(1)).undo(forget).build();
}
