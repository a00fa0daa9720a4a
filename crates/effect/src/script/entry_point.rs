//! Helper processes between Orlog and a script: a *supervisor* of the job, and the process that
//! sandboxes itself before it becomes the interpreter.
//!
//! Both are the current program with a hidden argument. Self-restriction of a process is safe in Rust.
//! The same code between `fork` and `exec` of a multi-threaded program is not.

use std::process::ExitCode;

use super::spec::{INIT_COMMAND, NAMESPACES_COMMAND, SANDBOX_COMMAND, SUPERVISE_COMMAND};
use super::{namespaces, sandbox, supervisor};

/// Runs the helper if the process was started as one, and returns its exit code. Call it first in
/// `main` of a program in which Orlog runs scripts.
#[must_use]
pub fn run_if_helper() -> Option<ExitCode> {
    match std::env::args_os().nth(1)?.to_str()? {
        SUPERVISE_COMMAND => Some(supervisor::run()),
        NAMESPACES_COMMAND => Some(namespaces::run()),
        INIT_COMMAND => Some(namespaces::run_first()),
        SANDBOX_COMMAND => Some(sandbox::run()),
        _ => None,
    }
}
