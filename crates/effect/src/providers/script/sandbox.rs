//! Sandbox of a job: the process restricts itself and becomes the interpreter.
//!
//! Order: its own session and process group; Landlock, which makes the file system read-only except
//! its directory; seccomp, which permits the system calls of a list and denies sockets; resource
//! limits; `exec`. All child processes inherit the restrictions, which cannot be removed.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};
use orlog_model::whole_seconds;
use rustix::process::{
    Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit, setsid,
};
use seccompiler::SeccompAction;

use super::descriptors::close_on_exec;
use super::spec::{
    self, FAILED, IN_NAMESPACES, Isolation, NO_COMMAND, ResourceLimits, SandboxSpec,
};
use super::system_calls;

/// Requested Landlock ABI, of Linux 6.12; an older kernel applies what it supports.
const REQUESTED_ABI: ABI = ABI::V6;

/// Processes that are in the namespaces of a job and do not belong to it.
const OF_NAMESPACES: u64 = 2;

/// Files that every program may write.
pub(super) const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

pub(super) fn run() -> ExitCode {
    let error = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        Ok(input) => confine(File::from(input)),
        Err(error) => error.to_string(),
    };
    // The directory belongs to the job; the supervisor's caller checks this file before the exit
    // code.
    std::fs::write(FAILED, &error).ok();
    ExitCode::FAILURE
}

/// Restricts the process and runs the interpreter. Returns only on failure, with the reason.
fn confine(input: File) -> String {
    let confined: SandboxSpec = match spec::read(&input) {
        Ok(confined) => confined,
        Err(error) => return format!("cannot read the job: {error}"),
    };

    // This is a copy. The input of the job remains at standard input.
    drop(input);

    if let Err(error) = setsid()
        .map(drop)
        .and_then(|()| set_parent_process_death_signal(Some(Signal::KILL)))
    {
        return format!("cannot create a session: {error}");
    }

    let in_namespaces = std::env::args_os()
        .nth(2)
        .is_some_and(|argument| argument == IN_NAMESPACES);

    if confined.isolation != Isolation::None {
        let filesystem = match restrict_files(&confined) {
            // The namespaces restrict files, processes and the network without Landlock.
            Err(_) if in_namespaces => Ok(()),
            restricted => restricted,
        };

        let restricted = filesystem
            .and_then(|()| system_calls::restrict())
            .and_then(|()| {
                if confined.network {
                    Ok(())
                } else {
                    deny_sockets()
                }
            });
        if let Err(error) = restricted
            && confined.isolation == Isolation::Required
        {
            return format!("isolation = \"required\" is not possible: {error}");
        }
    }

    let [program, arguments @ ..] = confined.command.as_slice() else {
        return NO_COMMAND.to_owned();
    };

    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(confined.env.iter().map(|(name, value)| (name, value)));

    // The limit of processes counts those that do not belong to the job, too.
    let others = if in_namespaces {
        OF_NAMESPACES
    } else {
        confined.running
    };
    if let Err(error) = limit(confined.limits, others) {
        return format!("cannot set a resource limit: {error}");
    }

    // Also without isolation: a descriptor that a parent left open is no right of the job.
    if let Err(error) = close_on_exec()
        && confined.isolation == Isolation::Required
    {
        return format!("cannot close inherited descriptors: {error}");
    }

    let error = command.exec();
    let path = confined
        .env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or("", |(_, path)| path);
    format!("cannot run {program} (search path {path}): {error}")
}

/// Restricts the file system, and the network as far as Landlock supports it.
fn restrict_files(confined: &SandboxSpec) -> Result<(), String> {
    match apply_ruleset(confined) {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(RulesetStatus::PartiallyEnforced) => {
            Err("the kernel supports only a part of Landlock (Linux 6.12 supports all)".to_owned())
        }
        Ok(RulesetStatus::NotEnforced) => Err("the kernel does not support Landlock".to_owned()),
        Err(error) => Err(format!("Landlock: {error}")),
    }
}

fn apply_ruleset(confined: &SandboxSpec) -> Result<RulesetStatus, landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(REQUESTED_ABI))?
        .scope(Scope::from_all(REQUESTED_ABI))?;
    if !confined.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(REQUESTED_ABI))?;
    }

    let status = ruleset
        .create()?
        .add_rules(path_beneath_rules(
            &confined.read,
            AccessFs::from_read(REQUESTED_ABI),
        ))?
        .add_rules(path_beneath_rules(
            DEVICES,
            AccessFs::from_file(REQUESTED_ABI),
        ))?
        .add_rules(path_beneath_rules(
            &confined.write,
            AccessFs::from_all(REQUESTED_ABI),
        ))?
        .add_rules(path_beneath_rules(
            [PathBuf::from(".")],
            AccessFs::from_all(REQUESTED_ABI),
        ))?
        .restrict_self()?;
    Ok(status.ruleset)
}

/// Returns the Landlock support of this kernel, for the log.
pub(super) fn landlock() -> &'static str {
    let has_files = |abi| {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi));
        ruleset.and_then(Ruleset::create).is_ok()
    };

    match (has_all_restrictions(), has_files(ABI::V1)) {
        (true, _) => "whole",
        (false, true) => "in part",
        (false, false) => "none",
    }
}

fn has_all_restrictions() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUESTED_ABI))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(REQUESTED_ABI)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(REQUESTED_ABI)))
        .and_then(Ruleset::create)
        .is_ok()
}

/// Denies all sockets, and `io_uring`, which could create sockets without this filter.
fn deny_sockets() -> Result<(), String> {
    let calls = SILENCED.iter().map(|call| (*call, Vec::new())).collect();
    let deny = SeccompAction::Errno(rustix::io::Errno::ACCESS.raw_os_error().cast_unsigned());
    system_calls::install(calls, SeccompAction::Allow, deny)
        .map_err(|error| format!("seccomp: {error}"))
}

/// `socket` and `io_uring_setup`, also of the x32 ABI, which has the same architecture. Other ABIs
/// of the processor have another architecture, for which the filter kills the process.
#[cfg(target_arch = "x86_64")]
const SILENCED: [i64; 4] = [41, 425, X32 + 41, X32 + 425];
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
#[cfg(not(target_arch = "x86_64"))]
const SILENCED: [i64; 2] = [198, 425];

fn limit(limits: ResourceLimits, others: u64) -> io::Result<()> {
    let set = |resource, max_value| {
        // A limit of the node itself, such as that of its unit, cannot be raised.
        let allowed = rustix::process::getrlimit(resource).maximum;
        let max_value = Some(allowed.map_or(max_value, |allowed: u64| allowed.min(max_value)));

        setrlimit(
            resource,
            Rlimit {
                current: max_value,
                maximum: max_value,
            },
        )
    };

    if let Some(cpu) = limits.cpu {
        // The limit has whole seconds. Rounded up: a script may use the time that is configured.
        let seconds = whole_seconds(cpu).max(1);
        // One second between the distinguishable signal and the kill.
        setrlimit(
            Resource::Cpu,
            Rlimit {
                current: Some(seconds),
                maximum: Some(seconds + 1),
            },
        )?;
    }

    set(Resource::Core, 0)?;
    set(Resource::Fsize, limits.file_bytes.get())?;
    set(Resource::Nofile, limits.open_files.get())?;
    set(
        Resource::Nproc,
        limits.processes.get().saturating_add(others),
    )?;
    set(Resource::Data, limits.memory_bytes.get())?;
    Ok(())
}
