//! Supervisor of a job: starts it, and terminates all its processes at the end.
//!
//! A process below the supervisor that loses its parent becomes a child of the supervisor, even outside
//! the process group of the job. The supervisor kills all remaining processes when the job ends, when
//! Orlog closes the supervisor's input because the job was cancelled, and when Orlog exits.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, geteuid, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};

use super::spec::{self, REPORT, Report, SANDBOX_COMMAND, Spec, WORK};

/// Delay before the process table is scanned again for running processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(super) fn run() -> ExitCode {
    let Ok(mut control) = rustix::io::dup(rustix::stdio::stdin()).map(File::from) else {
        return ExitCode::FAILURE;
    };
    match spec::read::<Spec>(&mut control).and_then(|spec| supervise(spec, control)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orlog: cannot start the job: {error}");
            ExitCode::FAILURE
        }
    }
}

fn supervise(mut spec: Spec, mut control: File) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let user = spec.user.unwrap_or_else(|| geteuid().as_raw());
    // The limit counts all processes of this user, so the running ones are added.
    spec.confined.limits.processes += threads_of(user);
    let mut job = start(&spec)?;
    let group = Pid::from_child(&job);
    let (dir, report) = (spec.dir.clone(), spec.dir.join(REPORT));
    let end = Arc::new(Mutex::new(()));
    let cancelled = Arc::clone(&end);
    let waiting = std::thread::spawn(move || {
        // No data is ever sent; it closes after the report was read, or when the job is cancelled.
        control.read_to_end(&mut Vec::new()).ok();
        let _mine = cancelled.lock();
        kill_all(group);
        std::fs::remove_dir_all(dir).ok();
        std::process::exit(0);
    });
    feed(&mut job, spec);
    let status = job.wait();
    {
        // Never acquired after a cancellation.
        let _mine = end.lock();
        kill_all(group);
        let status = status?;
        let ended =
            status.code().map_or_else(|| Report::Signal(status.signal().unwrap_or_default()), Report::Exit);
        std::fs::write(report, serde_json::to_vec(&ended)?)?;
        // The result is complete: no other process has the pipe open.
        rustix::stdio::dup2_stdout(nowhere()?)?;
    }
    waiting.join().map_err(|_| io::Error::other("the control thread panicked"))
}

fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}

fn start(spec: &Spec) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(SANDBOX_COMMAND).env_clear().current_dir(spec.dir.join(WORK)).stdin(Stdio::piped());
    // Libraries with fork handlers (such as libmdbx) may write to standard error in between; it is reserved
    // for the job.
    let errors = rustix::io::dup(rustix::stdio::stderr())?;
    rustix::stdio::dup2_stderr(nowhere()?)?;
    command.stderr(errors);
    if let Some(user) = spec.user {
        command.uid(user).gid(user);
    }
    command.spawn()
}

/// Writes the input. A job may ignore it; the broken pipe is not an error.
fn feed(job: &mut Child, spec: Spec) {
    let Some(mut stdin) = job.stdin.take() else { return };
    std::thread::spawn(move || {
        spec::write(&mut stdin, &spec.confined).and_then(|()| stdin.write_all(spec.input.as_bytes())).ok();
    });
}

/// Kills the process group of the job and all processes outside it, until none is left.
fn kill_all(group: Pid) {
    loop {
        kill_process_group(group, Signal::KILL).ok();
        for process in descendants() {
            kill_process(process, Signal::KILL).ok();
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Returns all descendants of this process, by the parent ids in `/proc`.
fn descendants() -> Vec<Pid> {
    let parents: Vec<(i32, i32)> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![getpid().as_raw_pid()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the fourth field; the second one, in parentheses, may contain any character.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn threads_of(user: u32) -> u64 {
    let of_user = |path: &Path| std::fs::metadata(path).is_ok_and(|data| data.uid() == user);
    let threads = processes().map(|pid| format!("/proc/{pid}")).filter(|path| of_user(Path::new(path)));
    threads.map(|path| std::fs::read_dir(path + "/task").map_or(0, |tasks| tasks.count() as u64)).sum()
}
