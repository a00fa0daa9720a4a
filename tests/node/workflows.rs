//! Workflows of the Rust library on a node.

#[path = "../../crates/workflow/tests/suite/cases.rs"]
#[macro_use]
mod cases;
mod booking;
mod deployment;
mod runner;
#[path = "../../crates/workflow/tests/suite/tasks.rs"]
mod tasks;

/// The cases of all runners hold for a node.
mod suite {
    use super::cases;
    use super::runner::NodeRunner;

    suite! {
        node => NodeRunner;
    }
}
