//! Decides: (instance, input) → commit. Pure: no I/O, no async, no clock, no chance.
//!
//! [`decide`] shows an input to the instance's program and turns the answer into one [`orlog_model::Commit`] with
//! deterministic ids: deciding the same input on the same snapshot again makes the same commit, byte for byte.

mod child_saga;
mod commit_builder;
mod context;
mod dead_letter;
mod decide;
mod decision;
mod early_buffer;
mod early_input;
mod execute;
mod migrate;
mod pause;
mod task_updates;
mod tasks;

pub use context::Subject;
pub use dead_letter::{Grounds, dead_letter, set_aside};
pub use decide::{decide, decide_undefined};
pub use decision::{Decision, Refusal};
pub use early_buffer::Kept;
pub use early_input::MAX_EARLY;
pub use migrate::{Plan, migrate, plan};
