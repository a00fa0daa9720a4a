//! Runs a job under a keeper, and reads what it writes while it runs.

use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use super::spec::{self, Confined, FAILED, KEEP, REPORT, Report, Spec, WORK};
use crate::job_logs::LINE;

/// A job that is ready to run.
pub(super) struct Job {
    /// The file with the source, and the source.
    pub(super) source: (String, String),
    pub(super) input: String,
    pub(super) user: Option<u32>,
    pub(super) confined: Confined,
    /// The most that it may answer, in bytes.
    pub(super) max_output: usize,
}

/// What a job came to.
pub(super) struct Ended {
    pub(super) report: Report,
    pub(super) output: Vec<u8>,
}

/// Why there is no end to tell of.
pub(super) enum Trouble {
    /// It was not begun.
    NotBegun(String),
    /// It could not be confined, or there is no interpreter.
    Confinement(String),
    /// It said too much.
    Output,
    /// Its keeper died.
    Lost(String),
}

/// A keeper. Dropping it ends the job and everything that the job has begun, and removes its folder.
struct Keeper {
    child: Option<(Child, PathBuf)>,
    /// Its end is the word to the keeper that nobody waits any more.
    control: Option<ChildStdin>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.control.take());
        let Some((mut child, folder)) = self.child.take() else { return };
        // The keeper removes the folder itself, if it is still there.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            child.wait().await.ok();
            std::fs::remove_dir_all(folder).ok();
        });
    }
}

/// Runs it to its end; `line` gets every line that it writes to its standard error.
pub(super) async fn run(
    program: &PathBuf,
    mut job: Job,
    line: impl FnMut(String) + Send,
) -> Result<Ended, Trouble> {
    let begin = |error: io::Error| Trouble::NotBegun(error.to_string());
    let folder = prepare(&job).map_err(begin)?;
    let home = folder.join(WORK).display().to_string();
    let own = ["HOME", "TMPDIR"].map(|name| (name.to_owned(), home.clone()));
    job.confined.env.splice(0..0, own);
    let mut command = Command::new(program);
    command.arg(KEEP).env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| {
        std::fs::remove_dir_all(&folder).ok();
        Trouble::NotBegun(format!("{}: {error}", program.display()))
    })?;
    let (mut output, errors) = (child.stdout.take(), child.stderr.take());
    let mut keeper = Keeper { control: child.stdin.take(), child: Some((child, folder.clone())) };
    let spec = Spec { folder: folder.clone(), input: job.input, user: job.user, confined: job.confined };
    let message = spec::framed(&spec).map_err(begin)?;
    if let Some(control) = &mut keeper.control {
        control.write_all(&message).await.map_err(begin)?;
    }
    let most = job.max_output;
    let (output, ()) = tokio::try_join!(async { gather(output.as_mut(), most).await }, async {
        lines(errors, line).await;
        Ok(())
    },)?;
    let failed = tokio::fs::read_to_string(folder.join(WORK).join(FAILED)).await;
    if let Ok(why) = failed {
        return Err(Trouble::Confinement(why));
    }
    let report = tokio::fs::read(folder.join(REPORT)).await.ok();
    let report = report.and_then(|report| serde_json::from_slice(&report).ok());
    // Heard; the keeper may go, and takes the folder along.
    drop(keeper.control.take());
    let (child, _) = keeper.child.as_mut().expect("it is taken when it is dropped");
    let status = child.wait().await.map_err(|error| Trouble::Lost(error.to_string()))?;
    let report = report.ok_or_else(|| Trouble::Lost(format!("its keeper ended with {status}")))?;
    keeper.child = None;
    Ok(Ended { report, output })
}

/// A folder of its own, with the source in it, which is the job's alone.
fn prepare(job: &Job) -> io::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("orlog-job-").tempdir()?;
    let work = folder.path().join(WORK);
    std::fs::create_dir(&work)?;
    std::fs::set_permissions(&work, std::fs::Permissions::from_mode(0o700))?;
    let (name, source) = &job.source;
    let file = work.join(name);
    std::fs::write(&file, source)?;
    if let Some(user) = job.user {
        chown(&file, Some(user), Some(user))?;
        chown(&work, Some(user), Some(user))?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    }
    Ok(folder.keep())
}

async fn gather(output: Option<impl AsyncRead + Unpin>, most: usize) -> Result<Vec<u8>, Trouble> {
    let mut read = Vec::new();
    if let Some(output) = output {
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        output.take(limit).read_to_end(&mut read).await.map_err(|error| Trouble::Lost(error.to_string()))?;
    }
    if read.len() > most { Err(Trouble::Output) } else { Ok(read) }
}

/// Cuts what is written into lines; of a long one the beginning is kept.
async fn lines(errors: Option<impl AsyncRead + Unpin>, mut line: impl FnMut(String)) {
    let Some(mut errors) = errors else { return };
    // A character takes four bytes at most.
    let (mut chunk, mut current, most) = (vec![0; 8192], Vec::new(), LINE * 4);
    let mut tell = |current: &mut Vec<u8>| {
        line(String::from_utf8_lossy(current).trim_end().to_owned());
        current.clear();
    };
    while let Ok(length @ 1..) = errors.read(&mut chunk).await {
        for byte in &chunk[..length] {
            match byte {
                b'\n' => tell(&mut current),
                byte if current.len() < most => current.push(*byte),
                _ => {}
            }
        }
    }
    if !current.is_empty() {
        tell(&mut current);
    }
}
