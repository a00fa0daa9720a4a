//! Test harness of complete nodes: in this process and as processes of the real binary.

pub(crate) mod http;
pub(crate) mod node;
pub(crate) mod process;
