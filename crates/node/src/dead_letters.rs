//! Dead letters: inputs and messages that could not be applied, to be redriven or discarded.

pub(crate) mod tenant_redrive;
pub mod view;
