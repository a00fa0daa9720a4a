//! What a saga does: the one boundary [`Program`], and the front-ends that produce programs.

mod program;

pub use program::{Context, Fault, Manifest, Program, Reaction, Stimulus, Trigger};
