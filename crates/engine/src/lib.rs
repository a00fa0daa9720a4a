//! Decision engine: (instance, input) → commit. Pure: no I/O, no async, no clock, no randomness.
//!
//! [`decide`] runs the program of the instance on an input and converts the output into one
//! [`orlog_model::Commit`] with deterministic ids. The same input on the same snapshot always
//! produces the same commit, byte for byte.

mod abandoned_work;
mod child_saga;
mod commit_builder;
mod context;
mod dead_letter;
mod decide;
mod decision;
mod early_input;
mod excluded_users;
mod last_error;
mod migrate;
mod pause;
mod publish_result;
mod record;
mod result_facts;
mod run_program;
mod signal;
mod start;
mod task_updates;
mod tasks;
mod unapplied;
mod wait_origin;

pub use context::BufferedInputRef;
pub use context::DecisionContext;
pub use dead_letter::{DeadLetterCause, dead_letter_input, dead_letter_message};
pub use decide::{decide, decide_without_definition, forbidden};
pub use decision::{Decision, Rejection};
pub use early_input::MAX_EARLY_INPUTS;
pub use migrate::{MigrationPlan, decide_migration, plan_migration};
pub use publish_result::publish_result;
pub use result_facts::{emit_facts, without_published};
pub use unapplied::mark_unapplied;
