//! Built-in sagas: batches, schedules, shadows, flows and messages.
//!
//! Every node has them beside its definitions. Each is a
//! [`NativeSaga`](orlog_program::NativeSaga), so its instances have the guarantees of instances:
//! what they decide is durable, and the owner of their shard continues them after a restart or a
//! takeover. Only requests and parent sagas start and change them; events on the bus do not.

pub mod batch;
mod event_types;
pub mod flow;
pub mod message;
mod page;
pub mod schedule;
pub mod shadow;

use std::sync::Arc;

use orlog_program::Program;

/// Returns the programs of all built-in sagas.
#[must_use]
pub fn programs() -> Vec<Arc<dyn Program>> {
    vec![
        Arc::new(schedule::program()),
        Arc::new(flow::program()),
        Arc::new(message::program()),
        Arc::new(message::inbox_program()),
        Arc::new(batch::program()),
        Arc::new(batch::page_program()),
        Arc::new(shadow::program()),
        Arc::new(shadow::page_program()),
    ]
}
