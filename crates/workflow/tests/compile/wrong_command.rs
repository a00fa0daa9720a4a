//! The handler does not take the output of the step before it.

use orlog_workflow::{Context, Contract, Handler, HandlerError, NoFailure, TaskError, Workflow};

async fn count(_: &Context, text: String) -> Result<usize, TaskError> {
    Ok(text.len())
}

struct Charge;

impl Contract for Charge {
    const EFFECT: &'static str = "bank.charge";
    type Command = String;
    type Ok = NoFailure;
    type Fail = NoFailure;
}

impl Handler for Charge {
    async fn handle(&self, _: &Context, _: String) -> Result<NoFailure, HandlerError<NoFailure>> {
        Err(TaskError::permanent("declined").into())
    }
}

fn main() {
    let _ = Workflow::builder("wrong").then("count", count).handle("charge", Charge).build();
}
