//! The processes between Orlog and a script: a *keeper* that stands over a job, and the moment in which the job's process
//! confines itself before it becomes the interpreter.
//!
//! Both are this very program, called with a hidden argument. What a process may do to itself in Rust is safe; what it would
//! have to do between `fork` and `exec` of a program with many threads is not.

use std::process::ExitCode;

use super::spec::{CONFINE, KEEP};
use super::{sandbox, supervisor};

/// Call it first in `main` of a program in which Orlog runs scripts: where the process was started as a helper it does what a
/// helper does, and its exit code comes back.
#[must_use]
pub fn helper() -> Option<ExitCode> {
    match std::env::args_os().nth(1)?.to_str()? {
        KEEP => Some(supervisor::run()),
        CONFINE => Some(sandbox::run()),
        _ => None,
    }
}
