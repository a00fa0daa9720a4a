//! One definition: the program, and where it comes from.

use std::path::PathBuf;
use std::sync::Arc;

use orlog_program::{Compiled, Program};

/// A definition for new instances.
#[derive(Clone)]
pub struct Definition {
    /// The program.
    pub program: Arc<dyn Program>,
    /// The compiled form; `None` for a WebAssembly module or a program that was handed over.
    pub compiled: Option<Arc<Compiled>>,
    /// Its source, text or module; `None` for a program that was handed over. Loading it again gives the same program.
    pub source: Option<Arc<[u8]>>,
    /// The file it was read from; `None` for a program that was handed over.
    pub file: Option<PathBuf>,
}
