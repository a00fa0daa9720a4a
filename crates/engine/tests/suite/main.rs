//! Tests of decisions, row by row: early inputs, control requests, tasks, child sagas, migration.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child_saga;
mod controls;
mod early_input;
mod excluded_users;
mod migration;
mod new_run;
mod signals;
mod start;
mod support;
mod tasks;
