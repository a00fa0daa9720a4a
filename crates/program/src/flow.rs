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
mod spec;
mod state;

pub use program::{FlowSaga, program};
pub use spec::{CompiledFlow, FlowJob, FlowSpec, MAX_FLOW_BYTES, check_id, compile};
pub use state::{FlowState, SubmitFlow};

pub use crate::machine::Rerun;

/// Name of the saga of flows.
pub const SAGA: &str = "orlog.flow";
/// Signal that submits a flow, and event with which a parent saga starts one; its data is a
/// [`SubmitFlow`].
pub const SUBMIT: &str = "orlog.flow.submit";
/// Signal that executes the failed jobs again.
pub const RETRY: &str = "orlog.flow.retry";
/// Signal that executes a job and all jobs that follow it again; its data is `{"job": id}`.
pub const RERUN: &str = "orlog.flow.rerun";

/// Fact with which a flow that returns its results finishes; its data are the results by job.
const FINISHED: &str = "orlog.flow.finished";

#[cfg(test)]
mod tests;
