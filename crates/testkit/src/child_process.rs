//! Processes that a test starts, signals and ends by number, and that never outlive it.
//!
//! A shell stands over each. It waits for the end of its input, which is the end of the test's process however it comes, and
//! then kills the process by its number.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// One that has not ended by then does not obey.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Tells the number of what it runs on its first line, and kills it when its input ends.
const KEEPER: &str = r#"log=$1; shift
"$@" </dev/null >>"$log" 2>&1 & process=$!
echo "$process"
read -r _
kill -9 "$process" 2>/dev/null
wait "$process""#;

/// A process under its keeper. Dropping it kills it.
pub struct Kept {
    keeper: Child,
    pid: Pid,
}

impl Kept {
    /// Starts a program; what it says goes to the end of a file.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(program: &Path, arguments: &[&str], variables: &[(String, String)], log: &Path) -> Self {
        File::options().create(true).append(true).open(log).expect("a place for the log");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER, "keeper"]).arg(log).arg(program).args(arguments);
        // Of the test, not of the runner, which refuses keys that it does not know.
        command.env_remove("ORLOG_NATS_SERVER");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = command.spawn().expect("there is a shell");
        let mut line = String::new();
        let stdout = keeper.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("it tells the number");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw).expect("a process number");
        Self { keeper, pid }
    }

    /// Sends it a signal. Harmless when it has ended.
    pub fn signal(&self, signal: Signal) {
        if !self.has_ended() {
            kill_process(self.pid, signal).ok();
        }
    }

    /// Whether it has ended. Its number stays its own until the keeper goes.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| {
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
        }) || !Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Ends it with a signal, paused or not, and waits until it has ended; what does not end in time is killed.
    pub fn end(mut self, signal: Signal) {
        self.end_with(signal);
    }

    fn end_with(&mut self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < PATIENCE {
            std::thread::park_timeout(LOOK);
        }
        drop(self.keeper.stdin.take());
        self.keeper.wait().ok();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end_with(Signal::KILL);
    }
}
