//! One definition: the program, and where it comes from.

use std::path::PathBuf;
use std::sync::Arc;

use orlog_program::{Compiled, Program};

/// A definition for new instances.
#[derive(Clone)]
pub struct Definition {
    /// The program.
    pub program: Arc<dyn Program>,
    /// The compiled form; `None` for a program written in Rust.
    pub compiled: Option<Arc<Compiled>>,
    /// The file it was read from; `None` for a program that was handed over.
    pub file: Option<PathBuf>,
}
