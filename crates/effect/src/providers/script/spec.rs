//! Messages between Orlog and the supervisor of a job.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum size of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Maximum length of a reason for which a job was not started, in bytes.
const MAX_FAILURE_BYTES: u64 = 4096;

/// Argument that makes this program a supervisor.
pub(super) const SUPERVISE_COMMAND: &str = "__supervise-script";

/// Argument that makes this program sandbox itself and become an interpreter.
pub(super) const SANDBOX_COMMAND: &str = "__sandbox-script";

/// Argument that makes this program create the namespaces of a job.
pub(super) const NAMESPACES_COMMAND: &str = "__isolate-script";

/// Argument that makes this program the first process in the namespaces of a job.
pub(super) const INIT_COMMAND: &str = "__init-script";

/// Second argument of [`SANDBOX_COMMAND`] in the namespaces of a job.
pub(super) const IN_NAMESPACES: &str = "in-namespaces";

/// Empty directory beside the directory of the job, on which its root is mounted.
pub(super) const ROOT: &str = "root";

/// File beside the directory of the job with its [`JobEnd`].
pub(super) const STATUS: &str = "status";

/// Error of a job without a command: its sandbox is complete.
pub(super) const NO_COMMAND: &str = "the interpreter has no command";

/// File in the directory of the job with the error of the sandbox.
pub(super) const FAILED: &str = ".orlog-failed";

/// File beside the directory of the job with the report of the supervisor.
pub(super) const REPORT: &str = "report";

/// Working directory of the job, inside the directory that is created for it.
pub(super) const WORK: &str = "work";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    /// Directory that is removed when the job is cancelled. The job runs in [`WORK`] below it.
    pub(super) dir: PathBuf,
    pub(super) input: String,
    /// User id of the job; `None`: that of the supervisor.
    pub(super) user: Option<u32>,
    pub(super) confined: SandboxSpec,
}

/// Command of the process and its sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SandboxSpec {
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) limits: ResourceLimits,
    pub(super) isolation: Isolation,
    pub(super) network: bool,
    /// Number of processes and threads that the user of the job has outside its namespaces.
    pub(super) running: u64,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

/// Resource limits of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLimits {
    /// CPU time per process. Default: unlimited.
    #[serde(with = "crate::duration::option")]
    pub cpu: Option<Duration>,
    /// Memory per process, in bytes.
    pub memory_bytes: NonZeroU64,
    /// Size per file, in bytes.
    pub file_bytes: NonZeroU64,
    /// Open files per process.
    pub open_files: NonZeroU64,
    /// Maximum number of concurrent processes and threads.
    pub processes: NonZeroU64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        let number = |number| NonZeroU64::new(number).expect("it is not zero");
        Self {
            cpu: None,
            memory_bytes: number(2 << 30),
            file_bytes: number(1 << 30),
            open_files: number(256),
            processes: number(64),
        }
    }
}

/// Whether a job runs on a system that does not support the whole sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// It does not run.
    #[default]
    Required,
    /// It runs with the supported restrictions.
    BestEffort,
    /// It runs without a sandbox, with resource limits.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    Exit(i32),
    Signal(i32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JobEnd {
    Ended(Report),
    /// The job was not started, for this reason.
    Failed(String),
    /// The system does not permit the namespaces; the job was not started.
    NoNamespaces(String),
}

/// Returns the reason for which a job was not started, from a file that the job can replace:
/// neither a link nor a pipe is read.
pub(super) fn read_failure(path: &Path) -> Option<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .ok()?;

    if !file.metadata().ok()?.is_file() {
        return None;
    }

    let mut text = Vec::new();
    file.take(MAX_FAILURE_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Writes a message with a length prefix.
pub(super) fn write(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode_framed(message)?)?;
    to.flush()
}

pub(super) fn encode_framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = vec![0; 8];
    // The length is known only when the text is complete. Its place is reserved, so that the text
    // is not copied.
    serde_json::to_writer(&mut text, message)?;
    let length = (text.len() - 8) as u64;
    text[..8].copy_from_slice(&length.to_be_bytes());
    Ok(text)
}

pub(super) fn read<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;

    // A damaged length must not exhaust the memory.
    let length = usize::try_from(u64::from_be_bytes(length))
        .ok()
        .filter(|length| *length <= MAX_MESSAGE_BYTES);
    let mut text = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
