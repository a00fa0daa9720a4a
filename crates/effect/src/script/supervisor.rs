//! The keeper of a job: starts it, and sees to it that nothing of it is left.
//!
//! Every process that loses its parent below the keeper becomes the keeper's child, also one that has left the job's process
//! group. So when the job is over, when Orlog closes the keeper's input because nobody waits for the job any more, and when
//! Orlog dies, whatever still runs is found and killed.

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

use super::spec::{self, CONFINE, REPORT, Report, Spec, WORK};

/// How long to wait for the dead before looking again for the living.
const AGAIN: Duration = Duration::from_millis(2);

pub(super) fn run() -> ExitCode {
    let Ok(mut control) = rustix::io::dup(rustix::stdio::stdin()).map(File::from) else {
        return ExitCode::FAILURE;
    };
    match spec::read::<Spec>(&mut control).and_then(|spec| keep(spec, control)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orlog: the job cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

fn keep(mut spec: Spec, mut control: File) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let user = spec.user.unwrap_or_else(|| geteuid().as_raw());
    // The limit counts all that this user runs, so what runs already comes on top.
    spec.confined.limits.processes += threads_of(user);
    let mut job = start(&spec)?;
    let group = Pid::from_child(&job);
    let (folder, report) = (spec.folder.clone(), spec.folder.join(REPORT));
    let end = Arc::new(Mutex::new(()));
    let given_up = Arc::clone(&end);
    let waiting = std::thread::spawn(move || {
        // Nothing is ever said here; it ends when the report has been read, or when nobody waits any more.
        control.read_to_end(&mut Vec::new()).ok();
        let _mine = given_up.lock();
        kill_all(group);
        std::fs::remove_dir_all(folder).ok();
        std::process::exit(0);
    });
    feed(&mut job, spec);
    let status = job.wait();
    {
        // Where nobody waits any more this never gets it.
        let _mine = end.lock();
        kill_all(group);
        let status = status?;
        let ended =
            status.code().map_or_else(|| Report::Signal(status.signal().unwrap_or_default()), Report::Exit);
        std::fs::write(report, serde_json::to_vec(&ended)?)?;
        // Now the answer is whole: nobody has its pipe open any more.
        rustix::stdio::dup2_stdout(nowhere()?)?;
    }
    waiting.join().map_err(|_| io::Error::other("the control line broke"))
}

fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}

fn start(spec: &Spec) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(CONFINE).env_clear().current_dir(spec.folder.join(WORK)).stdin(Stdio::piped());
    // Libraries with handlers for forks (libmdbx is one) may write to the standard error in between; the job's is for the job.
    let errors = rustix::io::dup(rustix::stdio::stderr())?;
    rustix::stdio::dup2_stderr(nowhere()?)?;
    command.stderr(errors);
    if let Some(user) = spec.user {
        command.uid(user).gid(user);
    }
    command.spawn()
}

/// A job need not read what it is given; then the pipe breaks, and that is no fault.
fn feed(job: &mut Child, spec: Spec) {
    let Some(mut stdin) = job.stdin.take() else { return };
    std::thread::spawn(move || {
        spec::write(&mut stdin, &spec.confined).and_then(|()| stdin.write_all(spec.input.as_bytes())).ok();
    });
}

/// Kills the job's group and everything that has left it, until nothing is left.
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
        std::thread::park_timeout(AGAIN);
    }
}

/// All processes below this one, by the parents that `/proc` names.
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

/// The fourth field; the second, in parentheses, may hold anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn threads_of(user: u32) -> u64 {
    let of_user = |path: &Path| std::fs::metadata(path).is_ok_and(|data| data.uid() == user);
    let threads = processes().map(|pid| format!("/proc/{pid}")).filter(|path| of_user(Path::new(path)));
    threads.map(|path| std::fs::read_dir(path + "/task").map_or(0, |tasks| tasks.count() as u64)).sum()
}
