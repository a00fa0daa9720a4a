//! What a job's keeper is told, and what it tells.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message, in bytes.
const MOST: usize = 64 << 20;

/// The argument that makes this program a keeper.
pub(super) const KEEP: &str = "__keep-script";

/// The argument that makes it confine itself and become an interpreter.
pub(super) const CONFINE: &str = "__confine-script";

/// The file in the job's folder in which the confinement says why it was not possible.
pub(super) const FAILED: &str = ".orlog-failed";

/// The file beside the job's folder in which the keeper says how the job ended.
pub(super) const REPORT: &str = "report";

/// The job's own folder, in the folder that is made for it.
pub(super) const WORK: &str = "work";

/// A job for a keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    /// What is removed when nobody waits for the job any more. The job runs in [`WORK`] below it.
    pub(super) folder: PathBuf,
    /// What the job gets on its standard input.
    pub(super) input: String,
    /// As whom it runs; `None`: as the keeper.
    pub(super) user: Option<u32>,
    pub(super) confined: Confined,
}

/// A process to be, and how it is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Confined {
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) limits: Limits,
    pub(super) isolation: Isolation,
    /// Whether it may use the network.
    pub(super) network: bool,
    /// Folders and files that may be read.
    pub(super) read: Vec<PathBuf>,
    /// Folders and files that may be written, too.
    pub(super) write: Vec<PathBuf>,
}

/// What a job may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Seconds of processor time of each process.
    pub(crate) cpu_seconds: Option<u64>,
    /// Bytes of data of each process.
    pub(crate) memory_bytes: u64,
    /// Bytes of each file.
    pub(crate) file_bytes: u64,
    /// Open files of each process.
    pub(crate) open_files: u64,
    /// Processes and threads at once.
    pub(crate) processes: u64,
}

/// Whether a job runs where it cannot be confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// It does not.
    Required,
    /// It does, as confined as may be.
    #[default]
    BestEffort,
    /// It is not confined, but limited.
    None,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    Exit(i32),
    Signal(i32),
}

/// Writes a message behind its length.
pub(super) fn write(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&framed(message)?)?;
    to.flush()
}

pub(super) fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = vec![0; 8];
    serde_json::to_writer(&mut text, message)?;
    let length = (text.len() - 8) as u64;
    text[..8].copy_from_slice(&length.to_be_bytes());
    Ok(text)
}

/// Reads a message and not a byte more.
pub(super) fn read<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_be_bytes(length)).ok().filter(|length| *length <= MOST);
    let mut text = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
