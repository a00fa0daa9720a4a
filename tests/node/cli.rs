//! Tests of the command line with the real binary: output and exit codes.

mod contexts;
mod deploy;
mod first_hour;
mod hostile;
mod keys;
pub(crate) mod node;
mod projects;
mod round_trip;
mod simulator;
mod texts;
