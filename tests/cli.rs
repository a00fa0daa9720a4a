//! The command line as people and scripts meet it: the real binary, its texts, its exit codes.

#[path = "cli/node.rs"]
mod node;
#[path = "cli/round_trip.rs"]
mod round_trip;
#[path = "cli/texts.rs"]
mod texts;
