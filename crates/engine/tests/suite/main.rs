//! What an input means for an instance, row by row: what came early, instructions, tasks, other sagas, migration.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child_saga;
mod controls;
mod early_input;
mod migration;
mod support;
mod tasks;
