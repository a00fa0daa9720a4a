//! Tests of the command line with the real binary: output and exit codes.

mod contexts;
mod deploy;
mod first_hour;
mod flow_logs;
mod hostile;
mod incomplete_lists;
mod keys;
mod messages;
pub(crate) mod node;
mod partial_results;
mod peers;
mod projects;
mod round_trip;
mod simulator;
mod texts;
