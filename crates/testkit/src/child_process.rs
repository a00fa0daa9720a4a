//! Child processes that a test starts, signals and ends by process id, and that never outlive the test.
//!
//! A shell supervises each process. It waits for the end of its standard input, which closes in every
//! case when the test process ends. Then it kills the process by its id.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::WAIT_TIMEOUT;

/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Prints the process id on the first line, and kills the process when its input ends.
const SUPERVISOR_SCRIPT: &str = r#"log=$1; shift
"$@" </dev/null >>"$log" 2>&1 & process=$!
echo "$process"
read -r _
kill -9 "$process" 2>/dev/null
wait "$process""#;

/// Supervised process. Dropping it kills the process.
pub struct ChildProcess {
    supervisor: Child,
    pid: Pid,
}

impl ChildProcess {
    /// Starts a program; its output is appended to a file.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn start(
        program: &Path,
        arguments: &[&str],
        variables: &[(String, String)],
        log: &Path,
    ) -> Self {
        File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log file opens");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SUPERVISOR_SCRIPT, "supervisor"])
            .arg(log)
            .arg(program)
            .args(arguments);
        // The variables belong to the test. The runner rejects unknown keys.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORLOG_"))
        {
            command.env_remove(name);
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut supervisor = command.spawn().expect("the shell starts");
        let mut line = String::new();
        let stdout = supervisor.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the supervisor prints the process id");
        let pid = line
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        Self { supervisor, pid }
    }

    /// Sends a signal. Has no effect if the process has ended.
    pub fn signal(&self, signal: Signal) {
        if !self.has_ended() {
            kill_process(self.pid, signal).ok();
        }
    }

    /// Returns whether the process has ended. Its id is not reused while the supervisor runs.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| {
            stat.rsplit_once(')')
                .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
        }) || !Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Sends a signal, also to a paused process, and waits until the process has ended; kills it on
    /// timeout.
    pub fn end(mut self, signal: Signal) {
        self.end_with(signal);
    }

    fn end_with(&mut self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
        let started = Instant::now();
        while !self.has_ended() && started.elapsed() < WAIT_TIMEOUT {
            std::thread::park_timeout(POLL_INTERVAL);
        }
        drop(self.supervisor.stdin.take());
        self.supervisor.wait().ok();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end_with(Signal::KILL);
    }
}
