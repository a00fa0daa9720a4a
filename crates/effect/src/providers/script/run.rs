//! Runs a job under a supervisor process, and reads its output while it runs.

use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use super::spec::{
    self, FAILED, REPORT, ROOT, Report, STATUS, SUPERVISE_COMMAND, SandboxSpec, Spec, WORK,
};
use crate::job_logs::MAX_LINE_BYTES;

pub(super) struct ScriptRun {
    pub(super) source: SourceFile,
    pub(super) input: String,
    pub(super) user: Option<u32>,
    pub(super) confined: SandboxSpec,
    pub(super) max_output: usize,
}

pub(super) struct SourceFile {
    pub(super) name: String,
    pub(super) text: String,
}

pub(super) struct ScriptExit {
    pub(super) report: Report,
    pub(super) output: Vec<u8>,
}

pub(super) enum RunError {
    NotStarted(String),
    /// The sandbox could not be created, or the interpreter is missing.
    Confinement(String),
    Output,
    Lost(String),
}

/// Supervisor process. Dropping it terminates the job with all its processes and removes its
/// directory.
struct SupervisorProcess {
    child: Option<(Child, PathBuf)>,
    /// Closing it signals the supervisor that the job is cancelled.
    control: Option<ChildStdin>,
}

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        drop(self.control.take());
        let Some((mut child, dir)) = self.child.take() else {
            return;
        };
        // The supervisor removes the directory itself if it still exists.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            child.wait().await.ok();
            std::fs::remove_dir_all(dir).ok();
        });
    }
}

/// Runs the job to its end; `line` receives every line of its standard error.
pub(super) async fn run(
    program: &PathBuf,
    mut job: ScriptRun,
    line: impl FnMut(String) + Send,
) -> Result<ScriptExit, RunError> {
    let not_started = |error: io::Error| RunError::NotStarted(error.to_string());
    let dir = prepare(&job).map_err(not_started)?;
    let home = dir.join(WORK).display().to_string();
    let own = ["HOME", "TMPDIR"].map(|name| (name.to_owned(), home.clone()));
    // In front: a configured variable of the same name replaces it.
    job.confined.env.splice(0..0, own);

    let mut command = Command::new(program);
    command
        .arg(SUPERVISE_COMMAND)
        .env_clear()
        .current_dir("/")
        .process_group(0);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());

    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| {
        std::fs::remove_dir_all(&dir).ok();
        RunError::NotStarted(format!("{}: {error}", program.display()))
    })?;

    let mut output = child.stdout.take();
    let errors = child.stderr.take();

    let mut supervisor = SupervisorProcess {
        control: child.stdin.take(),
        child: Some((child, dir.clone())),
    };

    let spec = Spec {
        dir: dir.clone(),
        input: job.input,
        user: job.user,
        confined: job.confined,
    };
    let message = spec::encode_framed(&spec).map_err(not_started)?;
    if let Some(control) = &mut supervisor.control {
        control.write_all(&message).await.map_err(not_started)?;
    }

    // Both pipes are read at the same time: a job that fills one of them would otherwise stop.
    let max_bytes = job.max_output;
    let (output, ()) =
        tokio::try_join!(async { gather(output.as_mut(), max_bytes).await }, async {
            lines(errors, line).await;
            Ok(())
        },)?;

    // First: the supervisor also writes a report for a job whose sandbox failed.
    let sandbox_failure = tokio::fs::read_to_string(dir.join(FAILED)).await;
    if let Ok(reason) = sandbox_failure {
        return Err(RunError::Confinement(reason));
    }

    let report = tokio::fs::read(dir.join(REPORT)).await.ok();
    let report = report.and_then(|report| serde_json::from_slice(&report).ok());

    // The report was read; the supervisor may exit and remove the directory.
    drop(supervisor.control.take());

    let (child, _) = supervisor
        .child
        .as_mut()
        .expect("the child is removed only on drop");
    let status = child
        .wait()
        .await
        .map_err(|error| RunError::Lost(error.to_string()))?;

    let report =
        report.ok_or_else(|| RunError::Lost(format!("its supervisor exited with {status}")))?;
    // The supervisor has removed the directory, so the drop has nothing to do.
    supervisor.child = None;
    Ok(ScriptExit { report, output })
}

/// Creates the private directory of the job with the source file.
fn prepare(job: &ScriptRun) -> io::Result<PathBuf> {
    let dir = tempfile::Builder::new().prefix("orlog-job-").tempdir()?;
    let work = dir.path().join(WORK);
    std::fs::create_dir(&work)?;
    std::fs::set_permissions(&work, std::fs::Permissions::from_mode(0o700))?;

    let file = work.join(&job.source.name);
    std::fs::write(&file, &job.source.text)?;

    // Beside the directory of the job: the job cannot reach them.
    std::fs::create_dir(dir.path().join(ROOT))?;
    let status = dir.path().join(STATUS);
    std::fs::write(&status, "")?;

    // The user of the job reaches its directory, but cannot list this one.
    if let Some(user) = job.user {
        chown(&status, Some(user), Some(user))?;
        chown(&file, Some(user), Some(user))?;
        chown(&work, Some(user), Some(user))?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711))?;
    }

    // From here on, the caller removes the directory, or the supervisor does.
    Ok(dir.keep())
}

async fn gather(
    output: Option<impl AsyncRead + Unpin>,
    max_bytes: usize,
) -> Result<Vec<u8>, RunError> {
    let mut read = Vec::new();
    // One byte more than allowed shows that there is more, without reading it.
    if let Some(output) = output {
        let limit = u64::try_from(max_bytes)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        output
            .take(limit)
            .read_to_end(&mut read)
            .await
            .map_err(|error| RunError::Lost(error.to_string()))?;
    }

    if read.len() > max_bytes {
        Err(RunError::Output)
    } else {
        Ok(read)
    }
}

/// Splits output into lines; truncates long ones.
async fn lines(errors: Option<impl AsyncRead + Unpin>, mut line: impl FnMut(String)) {
    let Some(mut errors) = errors else { return };
    // A character has four bytes at most.
    let max_bytes = MAX_LINE_BYTES * 4;
    let mut chunk = vec![0; 8192];
    let mut current = Vec::new();

    let mut emit = |current: &mut Vec<u8>| {
        line(String::from_utf8_lossy(current).trim_end().to_owned());
        current.clear();
    };

    while let Ok(length @ 1..) = errors.read(&mut chunk).await {
        for byte in &chunk[..length] {
            match byte {
                b'\n' => emit(&mut current),
                byte if current.len() < max_bytes => current.push(*byte),
                _ => {}
            }
        }
    }

    if !current.is_empty() {
        emit(&mut current);
    }
}
