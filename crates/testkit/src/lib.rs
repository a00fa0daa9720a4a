//! For tests only: what takes the world's place, and the suites that hold an implementation to its contract.

pub mod bus_suite;
pub mod provider_suite;
pub mod quartet;
mod sim_clock;
pub mod store_suite;

pub use sim_clock::SimClock;
