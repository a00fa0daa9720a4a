//! The hands: providers that act on the world, and the policies under which they try.

mod provider;

pub use provider::{Attempt, Probe, Provider, Refusal, Reply};
