//! Decides: (instance, input) → commit. Pure: no I/O, no async, no clock, no chance.
//!
//! [`decide`] shows an input to the instance's program and turns the answer into one [`orlog_model::Commit`] with
//! deterministic ids: deciding the same input on the same snapshot again makes the same commit, byte for byte.

mod apply;
mod aside;
mod child;
mod decide;
mod decision;
mod early;
mod family;
mod flag;
mod kept;
mod migrate;
mod note;
mod react;
mod set_aside;
mod subject;
mod task_log;
mod tasks;

pub use decide::{decide, decide_undefined};
pub use decision::{Decision, Refusal};
pub use early::MAX_EARLY;
pub use kept::Kept;
pub use migrate::{Plan, migrate, plan};
pub use set_aside::{Grounds, dead_letter, set_aside};
pub use subject::Subject;
