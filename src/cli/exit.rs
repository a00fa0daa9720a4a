//! Result of a command: exit codes, and errors with a message.

use std::io;
use std::process::ExitCode;

use orlog_program::Diagnostic;

use super::printable::printable;

/// Exit codes for `orlog --help`.
pub(crate) const HELP: &str = "\
Exit codes: 0 success, 1 failure, 2 usage error, 3 not found, 4 rejected or conflict, 5 \
unavailable (retry), \
6 not proved, 7 incomplete list, 70 node failure or internal error, 130 interrupted by a second \
signal.";

/// Result of a command as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandExit {
    /// The command succeeded.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The arguments or the configuration are invalid.
    Usage = 2,
    /// The requested object does not exist.
    NotFound = 3,
    /// The current state rejects the command.
    Rejected = 4,
    /// The node does not respond, or is temporarily unavailable.
    Unavailable = 5,
    /// A proof reached its limit or depends on values that are not known.
    NotProved = 6,
    /// The result is printed, and lacks the data of other pods.
    Incomplete = 7,
    /// Internal error, or failure of a node.
    Internal = 70,
    /// A second signal stopped the process immediately.
    Interrupted = 130,
}

/// Error of a command.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    exit: CommandExit,
    message: String,
}

impl CommandError {
    /// Creates an error with its exit code.
    pub fn new(exit: CommandExit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(CommandExit::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(CommandExit::Usage, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(CommandExit::Internal, message)
    }

    /// Appends what to do if the node did not respond.
    pub(crate) fn advise_if_unavailable(self, advice: &str) -> Self {
        match self.exit {
            // Other failures are responses of the node, so that the outcome is known.
            CommandExit::Unavailable => Self {
                message: format!("{}; {advice}", self.message),
                ..self
            },
            _ => self,
        }
    }

    /// Returns the exit code.
    #[must_use]
    pub fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Prints the error on standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        use io::Write as _;
        // A closed output pipe has no message: the reader, such as `head`, has what it needs.
        if !self.message.is_empty() {
            // If standard error is closed, the exit code still reports the failure.
            drop(writeln!(
                io::stderr(),
                "error: {}",
                printable(&self.message)
            ));
        }

        ExitCode::from(self.exit as u8)
    }
}

/// Converts an I/O error; a closed output pipe is not a failure.
impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // An error, not `Ok`, so that a command stops instead of fetching further pages.
            io::ErrorKind::BrokenPipe => Self::new(CommandExit::Done, ""),
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        let mut message = String::new();
        for cause in error.chain().map(ToString::to_string) {
            // Most errors contain the text of their cause.
            if !message.ends_with(&cause) {
                message = if message.is_empty() {
                    cause
                } else {
                    format!("{message}: {cause}")
                };
            }
        }

        Self::failed(message)
    }
}

impl From<orlog_node::config::Error> for CommandError {
    fn from(error: orlog_node::config::Error) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<Vec<Diagnostic>> for CommandError {
    fn from(problems: Vec<Diagnostic>) -> Self {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Self::failed(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_printed_once() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let wrapped = |text: String| {
            anyhow::Error::new(io::Error::other(text)).context("the node cannot start")
        };
        assert_eq!(
            CommandError::from(wrapped("key.pem: no key".to_owned())).to_string(),
            "the node cannot start: key.pem: no key"
        );
        let repeated =
            Err::<(), _>(missing()).with_context(|| format!("cannot read key.pem: {}", missing()));
        assert_eq!(
            CommandError::from(repeated.err().unwrap()).to_string(),
            format!("cannot read key.pem: {}", missing())
        );
    }
}
