//! Tests of workflows: one suite over all runners, one over all backends, crashes and claims, programs of nodes.

mod backends;
#[macro_use]
mod cases;
mod fleet;
mod kills;
mod messages;
mod processes;
mod program;
mod runners;
mod support;
mod tasks;
mod versions;
