//! Flows: graphs of jobs that users submit at run time.
//!
//! A flow is an instance of a built-in saga, whose state contains the text of the flow. The program
//! compiles the text like a definition and applies each input with the step machine, so jobs of
//! flows and of definitions have the same rules. Nothing is deployed, and the text is durable with
//! the start.
//!
//! In contrast to a saga, a flow has no compensations: if a job fails, the jobs that do not follow
//! it continue.

mod cache;
mod program;
mod state;

pub use orlog_program::flow::{FlowJob, FlowSpec, MAX_FLOW_BYTES, SAGA, SUBMIT, compile};
pub use program::{FlowSaga, program};
pub use state::{FlowState, SubmitFlow, check_id};

/// Signal that executes the failed jobs again.
pub const RETRY: &str = "orlog.flow.retry";
/// Signal that executes a job and all jobs that follow it again; its data is `{"job": id}`.
pub const RERUN: &str = "orlog.flow.rerun";

/// Fact with which a flow that returns its results finishes; its data are the results by job.
const FINISHED: &str = "orlog.flow.finished";

#[cfg(test)]
mod tests;
