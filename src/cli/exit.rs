//! How a command ends: exit codes, and failures with a sentence.

use std::io;
use std::process::ExitCode;

/// The exit codes, for `orlog --help`.
pub(super) const HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused or in conflict, 5 not available (try again), \
70 a node gave up or met a bug, 130 ended by a second signal.";

/// How a command ended, as the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It was done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// The arguments or the configuration are wrong.
    Usage = 2,
    /// What it is about is not there.
    NotFound = 3,
    /// The state of things forbids it.
    Refused = 4,
    /// Nobody answers, or not now.
    Unavailable = 5,
    /// A bug, or a node that gave up.
    Internal = 70,
    /// A second signal ended it at once.
    Interrupted = 130,
}

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// A failure with its exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Says on standard error what happened and gives the exit code.
    pub(super) fn report(&self) -> ExitCode {
        use io::Write as _;
        if !self.message.is_empty() {
            // When nobody hears it, the exit code still tells.
            drop(writeln!(io::stderr(), "error: {}", self.message));
        }
        ExitCode::from(self.exit as u8)
    }
}

/// Whoever reads the output has seen enough: that is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Exit::Done, ""),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<crate::config::Error> for Failure {
    fn from(error: crate::config::Error) -> Self {
        Self::usage(error.to_string())
    }
}
