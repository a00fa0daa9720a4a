//! Tests of the command line with the real binary: output and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cli/deploy.rs"]
mod deploy;
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/node.rs"]
mod node;
#[path = "cli/round_trip.rs"]
mod round_trip;
#[path = "cli/simulator.rs"]
mod simulator;
#[path = "cli/texts.rs"]
mod texts;
