//! Supervisor of a job: starts it, and terminates all its processes at the end.
//!
//! A process below the supervisor that loses its parent becomes a child of the supervisor, even
//! outside the process group of the job. The supervisor kills all remaining processes when the job
//! ends, when Orlog closes the supervisor's input because the job was cancelled, and when Orlog
//! exits.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, geteuid, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};

use super::spec::{
    self, FAILED, Isolation, JobEnd, NAMESPACES_COMMAND, REPORT, Report, SANDBOX_COMMAND, STATUS,
    Spec, WORK, read_failure,
};

/// Delay before the process table is scanned again for running processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(super) fn run() -> ExitCode {
    let Ok(mut control) =
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map(File::from)
    else {
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
    // Processes that lose their parent become children of this one, which can then find and kill
    // them.
    set_child_subreaper(Some(getpid()))?;

    let user = spec.user.unwrap_or_else(|| geteuid().as_raw());
    // Outside namespaces, the limit counts all processes of this user, so the running ones are
    // added.
    spec.confined.running = threads_of(user);

    let spec = Arc::new(spec);
    let dir = spec.dir.clone();
    // Locked while a process starts and while all are killed; it contains the process group.
    let group = Arc::new(Mutex::new(None));
    let cancelled = Arc::clone(&group);

    let waiting = std::thread::spawn(move || {
        // No data is ever sent; it closes after the report was read, or when the job is cancelled.
        control.read_to_end(&mut Vec::new()).ok();
        let group = cancelled.lock();
        kill_all(*group);
        std::fs::remove_dir_all(dir).ok();
        std::process::exit(0);
    });

    // Without namespaces, only the sandbox of the process remains. The specification decides
    // whether that is enough.
    let ended = match in_namespaces(&spec, &group)? {
        JobEnd::NoNamespaces(reason) => directly(&spec, &group, &reason)?,
        ended => ended,
    };

    let report = match ended {
        JobEnd::Ended(report) => report,
        JobEnd::Failed(reason) | JobEnd::NoNamespaces(reason) => {
            std::fs::write(spec.dir.join(FAILED), reason)?;
            Report::Exit(1)
        }
    };

    // Before the end of the output: the node reads the report when the pipe is closed.
    std::fs::write(spec.dir.join(REPORT), serde_json::to_vec(&report)?)?;

    // The result is complete: no other process has the pipe open.
    rustix::stdio::dup2_stdout(nowhere()?)?;
    rustix::stdio::dup2_stderr(nowhere()?)?;

    waiting
        .join()
        .map_err(|_| io::Error::other("the control thread panicked"))
}

/// Runs the job in its own namespaces, unless it runs without a sandbox.
fn in_namespaces(spec: &Arc<Spec>, group: &Mutex<Option<Pid>>) -> io::Result<JobEnd> {
    if spec.confined.isolation == Isolation::None {
        return Ok(JobEnd::NoNamespaces(String::new()));
    }

    let ended = run_to_end(spec, NAMESPACES_COMMAND, group)?;
    let status = std::fs::read(spec.dir.join(STATUS))?;
    // Empty if the process was killed before it could report.
    Ok(serde_json::from_slice(&status).unwrap_or(JobEnd::Ended(ended)))
}

/// Runs the job without namespaces, which are not available for this reason.
fn directly(spec: &Arc<Spec>, group: &Mutex<Option<Pid>>, unavailable: &str) -> io::Result<JobEnd> {
    let ended = run_to_end(spec, SANDBOX_COMMAND, group)?;
    Ok(match read_failure(&spec.dir.join(WORK).join(FAILED)) {
        Some(reason) if unavailable.is_empty() => JobEnd::Failed(reason),
        Some(reason) => JobEnd::Failed(format!("{reason}; namespaces: {unavailable}")),
        None => JobEnd::Ended(ended),
    })
}

/// Runs a process with the job to its end, and kills all processes that it leaves.
fn run_to_end(spec: &Arc<Spec>, command: &str, group: &Mutex<Option<Pid>>) -> io::Result<Report> {
    let lock = || group.lock();
    // Cancellation waits for the lock: a process that starts must be in the group before all are
    // killed.
    let mut job = {
        let mut group = lock();
        let job = start(spec, command)?;
        *group = Some(Pid::from_child(&job));
        job
    };

    // Each process before the job reads the specification once: three with namespaces.
    feed(
        &mut job,
        Arc::clone(spec),
        if command == NAMESPACES_COMMAND { 3 } else { 1 },
    );

    let status = job.wait();

    // Never acquired after a cancellation.
    kill_all(lock().take());

    let status = status?;
    Ok(status.code().map_or_else(
        || Report::Signal(status.signal().unwrap_or_default()),
        Report::Exit,
    ))
}

fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}

fn start(spec: &Spec, argument: &str) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");

    command
        .arg(argument)
        .env_clear()
        .current_dir(spec.dir.join(WORK))
        .stdin(Stdio::piped());

    // Libraries with fork handlers (such as libmdbx) may write to standard error in between; it is
    // reserved for the job.
    let errors = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
    let own = rustix::io::fcntl_dupfd_cloexec(&errors, 3)?;
    rustix::stdio::dup2_stderr(nowhere()?)?;
    command.stderr(errors);

    if let Some(user) = spec.user {
        command.uid(user).gid(user);
    }

    let job = command.spawn();
    rustix::stdio::dup2_stderr(own)?;
    job
}

/// Writes the specification once for each process before the job, then the input. A job may ignore
/// it; the broken pipe is not an error.
fn feed(job: &mut Child, spec: Arc<Spec>, copies: usize) {
    let Some(mut stdin) = job.stdin.take() else {
        return;
    };
    std::thread::spawn(move || {
        let specifications = (0..copies).try_for_each(|_| spec::write(&mut stdin, &spec.confined));
        specifications
            .and_then(|()| stdin.write_all(spec.input.as_bytes()))
            .ok();
    });
}

/// Kills the process group of the job and all processes outside it, until none is left.
fn kill_all(group: Option<Pid>) {
    loop {
        if let Some(group) = group {
            kill_process_group(group, Signal::KILL).ok();
        }

        for process in descendants() {
            kill_process(process, Signal::KILL).ok();
        }

        // The killed processes are reaped, because a process that waits to be reaped is still found
        // in `/proc`.
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                // No child is left. All descendants that lost their parent are children of this
                // process.
                Err(_) => return,
            }
        }

        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Returns all descendants of this process, by the parent ids in `/proc`.
fn descendants() -> Vec<Pid> {
    let parents: Vec<(i32, i32)> = processes()
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();

    // The list grows while it is read: the children of each found process follow it.
    let mut found = vec![getpid().as_raw_pid()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }

    found
        .into_iter()
        .skip(1)
        .filter_map(Pid::from_raw)
        .collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the fourth field; the second one, in parentheses, may contain any character.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

fn threads_of(user: u32) -> u64 {
    let mut threads = 0;
    for pid in processes() {
        let path = format!("/proc/{pid}");
        let is_of_user = std::fs::metadata(&path).is_ok_and(|data| data.uid() == user);
        if is_of_user {
            threads += std::fs::read_dir(path + "/task").map_or(0, |tasks| tasks.count() as u64);
        }
    }
    threads
}
