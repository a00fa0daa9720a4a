//! Typed workflows in Rust: one workflow, executed in process, with checkpoints, or with pooled
//! workers.
//!
//! A workflow is a sequence of steps whose types the compiler checks. A step can have retries, a
//! durable timeout and a compensation. The same workflow runs with each of three runners:
//!
//! - [`InProcessRunner`]: nothing is stored.
//! - [`CheckpointingRunner`]: one process stores a snapshot after each task and resumes after a
//!   crash.
//! - [`PooledWorker`]: many processes share a [`Backend`] and claim its instances.
//!
//! ```
//! use orlog_workflow::{Context, InProcessRunner, Retry, TaskError, Workflow};
//!
//! async fn reserve(_: &Context, items: u32) -> Result<String, TaskError> {
//!     Ok(format!("{items} items"))
//! }
//!
//! async fn release(_: &Context, items: u32, _reserved: String) -> Result<(), TaskError> {
//!     println!("{items} items are free again");
//!     Ok(())
//! }
//!
//! async fn charge(_: &Context, reserved: String) -> Result<String, TaskError> {
//!     Ok(format!("paid: {reserved}"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let order = Workflow::builder("order")
//!     .then("reserve", reserve)
//!     .undo(release)
//!     .then("charge", charge)
//!     .retry(Retry::attempts(3))
//!     .build()?;
//! assert_eq!(InProcessRunner::new().run(&order, 3).await?, "paid: 3 items");
//! # Ok(())
//! # }
//! ```
//!
//! Implementation: the builder compiles a workflow to a graph (`graph.rs`); the state machine
//! (`machine.rs`) applies events to the state of an instance without I/O; the driver (`driver.rs`)
//! executes tasks and stores snapshots for all runners.

pub mod backend;
pub mod builder;
mod checkpoint;
mod client;
mod clock;
mod context;
mod definition;
mod driver;
mod error;
mod event;
mod execute;
mod function;
mod graph;
mod handle;
mod handled;
mod handler;
mod machine;
mod mermaid;
mod outcome;
#[cfg(feature = "program")]
mod program;
mod progress;
mod registry;
mod retry;
mod runner;
mod state;
mod submit;
mod task;
mod value;
mod version;
mod workflow;

#[cfg(feature = "embedded")]
pub use backend::EmbeddedBackend;
#[cfg(feature = "nats")]
pub use backend::NatsBackend;
#[cfg(feature = "postgres")]
pub use backend::PostgresBackend;
pub use backend::{Backend, MemoryBackend};
pub use builder::{BuildError, Builder};
pub use client::Client;
pub use clock::Clock;
pub use context::Context;
pub use error::{Failure, TaskError};
pub use event::{Event, Identifier, NoFailure, Trigger};
pub use graph::{Body, Graph, Step, StepKind, TaskPolicy};
pub use handle::Handle;
pub use handler::{Contract, Handler, HandlerError, ProbeOutcome};
pub use outcome::RunError;
#[cfg(feature = "program")]
pub use program::{DeployError, NodeParts, NodeWorkflow, StepRef, is_stored_graph, start_event};
pub use progress::Progress;
pub use registry::{AssembleError, TaskRegistry};
pub use retry::Retry;
pub use runner::{CheckpointingRunner, InProcessRunner, PooledWorker, Resumed, WorkerHandle};
pub use task::{Compensation, Task};
pub use value::Data;
pub use workflow::Workflow;
