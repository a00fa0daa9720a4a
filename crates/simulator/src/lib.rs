//! Tries definitions without a runner: no store, no bus, no clock; everything in memory and in virtual time.
//!
//! [`Lab`] plays the runner around `orlog_engine::decide`. On it stand [`trial`] (test files beside definitions),
//! [`simulate`] (recorded events), [`explore`] (random lives under rules) and, without it, [`graph`] (pictures). Nothing here does I/O: texts come in and reports go out.

pub mod explore;
pub mod graph;
mod invariants;
pub mod rebuild;
mod responses;
mod runner;
pub mod simulate;
mod simulator;
mod step;
pub mod test_file;

pub use invariants::{Broken, Rule, Watch};
pub use responses::{Answering, By, Tag, answering};
pub use runner::{Cannot, Played, Player};
pub use simulator::{Asked, Did, Entry, Lab, Observer, Programs, Seen, Taken};
pub use step::{EventMove, Move, Verb};
