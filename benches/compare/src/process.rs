//! Child processes, and their CPU time and memory from `/proc`.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

/// A child process. Dropping it kills the process.
pub(crate) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts a program. Its error output, and its output unless `piped`, goes to `<name>.log` in `dir`.
    pub(crate) fn start(
        name: &str,
        command: &mut Command,
        dir: &Path,
        piped: bool,
    ) -> Result<Self> {
        let path = dir.join(format!("{name}.log"));
        let log =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let output = if piped {
            Stdio::piped()
        } else {
            log.try_clone()?.into()
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        let program = command.as_std().get_program().display().to_string();
        let child =
            child.with_context(|| format!("cannot start {program}; `make compare` installs it"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> Result<u32> {
        self.child
            .id()
            .with_context(|| format!("{} has exited", self.name))
    }

    /// Returns the pipe of the output.
    pub(crate) fn output(&mut self) -> Result<tokio::process::ChildStdout> {
        self.child.stdout.take().context("the output is not piped")
    }

    /// Waits until the process exits.
    ///
    /// # Errors
    /// The process failed.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("{} failed with {status}", self.name);
        }
        Ok(())
    }

    /// Kills the process and waits until it has ended.
    ///
    /// # Errors
    /// The process ended before.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended during the run with {status}", self.name);
        }
        self.child
            .kill()
            .await
            .with_context(|| format!("cannot stop {}", self.name))
    }
}

/// Returns the CPU time of a process in seconds, user and system.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {path}; the process has ended"))?;
    // The second field is the program in parentheses; it can contain spaces.
    let (_, fields) = stat
        .rsplit_once(')')
        .with_context(|| format!("{path} has no program"))?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| -> Result<f64> {
        Ok(fields
            .get(index)
            .with_context(|| format!("{path} is too short"))?
            .parse()?)
    };
    #[expect(clippy::cast_precision_loss, reason = "100 on Linux")]
    Ok((ticks(11)? + ticks(12)?) / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the peak resident memory of a process in MiB.
pub(crate) fn peak_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {path}; the process has ended"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak
        .and_then(|peak| peak.trim().strip_suffix(" kB"))
        .with_context(|| format!("{path} has no VmHWM"))?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}

/// Returns the load average of the last minute.
pub(crate) fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    Ok(text
        .split_whitespace()
        .next()
        .context("/proc/loadavg is empty")?
        .parse()?)
}

/// Returns free loopback ports. Another process could take one before its server binds it; the run then fails.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free loopback port")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
