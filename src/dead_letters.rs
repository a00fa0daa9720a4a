//! Dead letters: inputs and messages that could not be applied, to be redriven or discarded.

pub(crate) mod api;
pub(crate) mod cli;
pub mod view;
