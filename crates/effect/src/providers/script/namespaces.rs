//! Namespaces of a job: its own user, mounts, processes, System V IPC, and network.
//!
//! Two processes stand between the supervisor and the process of [`super::sandbox`]. The first one
//! creates the namespaces. The second one is the first process in them: it mounts only the paths
//! that the job may use, reaps all processes, and writes how the job ended to a file that the job
//! cannot reach. When it ends, the kernel kills all processes of the job.
//!
//! If the system does not permit the namespaces, the second process reports that instead, and the
//! job has not started.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getegid, geteuid, set_dumpable_behavior,
    set_parent_process_death_signal, wait,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities,
};

use super::mounts;
use super::spec::{
    self, FAILED, IN_NAMESPACES, INIT_COMMAND, JobEnd, Report, SANDBOX_COMMAND, STATUS,
    SandboxSpec, read_failure,
};

/// Creates the namespaces, and runs the first process in them to its end.
pub(super) fn run() -> ExitCode {
    let status = PathBuf::from("..").join(STATUS);
    match enter() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            File::create(status)
                .and_then(|file| report(file, &JobEnd::NoNamespaces(reason)))
                .ok();
            ExitCode::FAILURE
        }
    }
}

fn enter() -> Result<(), String> {
    let text = |what: &str, error: io::Error| format!("{what}: {error}");
    let mut input = stdin().map_err(|error| text("cannot read the job", error))?;
    let spec: SandboxSpec =
        spec::read(&mut input).map_err(|error| text("cannot read the job", error))?;

    // If the supervisor is killed, nothing must survive it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| text("prctl", error.into()))?;
    rustix::process::setsid().map_err(|error| text("cannot create a session", error.into()))?;

    // Read before the process has its own user namespace, in which it has no user until the maps
    // are written.
    let user = geteuid().as_raw();
    let group = getegid().as_raw();
    let network = if spec.network {
        UnshareFlags::empty()
    } else {
        UnshareFlags::NEWNET
    };
    let all =
        UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;

    #[expect(
        deprecated,
        reason = "the replacement is unsafe because of FILES, which is not set; this process has \
                  one thread"
    )]
    rustix::thread::unshare(all | UnshareFlags::NEWUTS | network)
        .map_err(|error| text("user namespaces are not permitted", error.into()))?;

    // The kernel permits a map of groups only if `setgroups` is denied.
    let map = |file: &str, line: String| {
        std::fs::write(format!("/proc/self/{file}"), line)
            .map_err(|error| text(&format!("cannot write {file}"), error))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))?;

    keep_mount_right().map_err(|error| text("cannot keep the right to mount", error))?;

    let mut first = Command::new("/proc/self/exe");
    first.arg(INIT_COMMAND).env_clear();
    let ended = first
        .status()
        .map_err(|error| text("cannot start a process in the namespaces", error))?;

    if ended.success() {
        Ok(())
    } else {
        Err(format!(
            "the first process in the namespaces failed: {ended}"
        ))
    }
}

/// Keeps the capability to mount when this process executes the next one.
fn keep_mount_right() -> io::Result<()> {
    let own = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            inheritable: own.inheritable | CapabilitySet::SYS_ADMIN,
            ..own
        },
    )?;
    Ok(configure_capability_in_ambient_set(
        CapabilitySet::SYS_ADMIN,
        true,
    )?)
}

/// Runs as the first process in the namespaces.
pub(super) fn run_first() -> ExitCode {
    // Opened before the mounts change; the job has no path to it.
    let Ok(status) = File::create(PathBuf::from("..").join(STATUS)) else {
        return ExitCode::FAILURE;
    };
    let end = match isolate() {
        Ok(()) => {
            run_job().unwrap_or_else(|error| JobEnd::Failed(format!("cannot run the job: {error}")))
        }
        Err(reason) => JobEnd::NoNamespaces(reason),
    };

    match report(status, &end) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn isolate() -> Result<(), String> {
    let mut input = stdin().map_err(|error| error.to_string())?;
    let spec: SandboxSpec =
        spec::read(&mut input).map_err(|error| format!("cannot read the job: {error}"))?;

    set_parent_process_death_signal(Some(Signal::KILL))
        // The job cannot trace this process, which is outside its sandbox.
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|error| format!("prctl: {}", io::Error::from(error)))?;

    mounts::isolate(&spec)?;
    drop_rights().map_err(|error| format!("cannot drop the right to mount: {error}"))
}

fn drop_rights() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    Ok(())
}

fn run_job() -> io::Result<JobEnd> {
    let mut job = Command::new("/proc/self/exe");
    // The environment of the job is in its specification.
    job.args([SANDBOX_COMMAND, IN_NAMESPACES])
        .env_clear()
        .stdin(Stdio::inherit());
    let job = Pid::from_child(&job.spawn()?);

    // This process must not keep the input and the output of the job open.
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;

    // As the first process of its namespace, it also inherits the orphans of the job, and reaps
    // them.
    let end = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((process, status))) if process == job => {
                break status.exit_status().map_or_else(
                    || Report::Signal(status.terminating_signal().unwrap_or_default()),
                    Report::Exit,
                );
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };

    Ok(match read_failure(Path::new(FAILED)) {
        Some(reason) => JobEnd::Failed(reason),
        None => JobEnd::Ended(end),
    })
}

fn stdin() -> io::Result<File> {
    Ok(File::from(rustix::io::fcntl_dupfd_cloexec(
        rustix::stdio::stdin(),
        3,
    )?))
}

fn report(mut file: File, end: &JobEnd) -> io::Result<()> {
    file.write_all(&serde_json::to_vec(end)?)
}
