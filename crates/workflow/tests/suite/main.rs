//! Tests of workflows: one suite over all runners, one over all backends, crashes and claims.

mod backends;
mod fleet;
mod kills;
mod messages;
mod processes;
mod runners;
mod support;
mod versions;
