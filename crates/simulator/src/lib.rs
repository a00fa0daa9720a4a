//! Simulation of definitions without a runner: no store, no bus, no clock; in memory and virtual
//! time.
//!
//! [`Simulator`] acts as the runner around `orlog_engine::decide`. It is the base of [`test_file`]
//! (test files of definitions), [`simulate`] (recorded events), [`explore`] (random runs with
//! invariants) and [`prove`] (all runs of small definitions). [`shadow`] compares two definitions
//! with the recorded inputs of an instance. [`graph`] (graphs of definitions) does not use it. The
//! crate does no I/O: its inputs are texts and its outputs are reports.

pub mod explore;
mod findings;
pub mod graph;
mod invariants;
#[cfg(test)]
mod mutants;
pub mod prove;
pub mod rebuild;
mod responses;
mod runner;
pub mod shadow;
pub mod simulate;
mod simulator;
mod state_key;
mod step;
pub mod test_file;

pub use invariants::{Invariant, InvariantChecker, Violation};
pub use responses::{ResponseSource, ResponseSpec, WorkTag, response_spec};
pub use runner::{ScenarioRunner, StepError, StepResult};
pub use simulator::{
    DecisionObserver, EndlessSaga, InputResult, ObservedDecision, RecordedAction, RequestedWork,
    SimulatedInstance, Simulator, SimulatorPrograms,
};
pub use step::{EventStep, OperatorAction, SimulationStep, StepEnvelope};
