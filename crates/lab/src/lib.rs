//! Tries definitions without a runner: no store, no bus, no clock; everything in memory and in virtual time.
//!
//! [`Lab`] plays the runner around `orlog_engine::decide`. On it stand [`trial`] (test files beside definitions),
//! [`simulate`] (recorded events), [`explore`] (random lives under rules) and, without it, [`graph`] (pictures). Nothing here does I/O: texts come in and reports go out.

mod answers;
pub mod explore;
pub mod graph;
mod lab;
mod moves;
mod player;
pub mod rebuild;
pub mod simulate;
pub mod trial;
mod watch;

pub use answers::{Answering, By, Tag, answering};
pub use lab::{Asked, Did, Entry, Lab, Observer, Programs, Seen, Taken};
pub use moves::{EventMove, Move, Verb};
pub use player::{Cannot, Played, Player};
pub use watch::{Broken, Rule, Watch};
