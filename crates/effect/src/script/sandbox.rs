//! A process confines itself and becomes the interpreter.
//!
//! In this order: a session and a process group of its own; the file system, with Landlock, read-only but for its folder;
//! no sockets, with seccomp; limits; `exec`. All of it is inherited by whatever the script starts, and cannot be undone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit, setsid};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::spec::{self, Confined, FAILED, Isolation, Limits};

/// What of Landlock is asked for; a kernel that has less gives what it has.
const WANTED: ABI = ABI::V6;

/// Files that every program may write.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub(super) fn run() -> ExitCode {
    let error = match rustix::io::dup(rustix::stdio::stdin()) {
        Ok(input) => confine(File::from(input)),
        Err(error) => error.to_string(),
    };
    // The folder is the job's own; the keeper's caller looks there before it believes the exit code.
    std::fs::write(FAILED, &error).ok();
    ExitCode::FAILURE
}

/// Comes back only with the reason why it was not possible.
fn confine(input: File) -> String {
    let confined: Confined = match spec::read(&input) {
        Ok(confined) => confined,
        Err(error) => return format!("the job cannot be read: {error}"),
    };
    drop(input);
    if let Err(error) = setsid().map(drop).and_then(|()| set_parent_process_death_signal(Some(Signal::KILL)))
    {
        return format!("no session of its own: {error}");
    }
    if confined.isolation != Isolation::None {
        let fenced = fence(&confined).and_then(|()| if confined.network { Ok(()) } else { mute() });
        if let Err(error) = fenced
            && confined.isolation == Isolation::Required
        {
            return format!("isolation = \"required\", and {error}");
        }
    }
    let [program, arguments @ ..] = confined.command.as_slice() else {
        return "the interpreter has no command".to_owned();
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(confined.env.iter().map(|(name, value)| (name, value)));
    if let Err(error) = limit(confined.limits) {
        return format!("a limit cannot be set: {error}");
    }
    let error = command.exec();
    let path = confined.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path);
    format!("{program} cannot be run (looked for in {path}): {error}")
}

/// The file system, and the network as far as Landlock knows it.
fn fence(confined: &Confined) -> Result<(), String> {
    let restrict = || -> Result<RulesetStatus, landlock::RulesetError> {
        let here = PathBuf::from(".");
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(WANTED))?
            .scope(Scope::from_all(WANTED))?;
        if !confined.network {
            ruleset = ruleset.handle_access(AccessNet::from_all(WANTED))?;
        }
        let status = ruleset
            .create()?
            .add_rules(path_beneath_rules(&confined.read, AccessFs::from_read(WANTED)))?
            .add_rules(path_beneath_rules(DEVICES, AccessFs::from_file(WANTED)))?
            .add_rules(path_beneath_rules(&confined.write, AccessFs::from_all(WANTED)))?
            .add_rules(path_beneath_rules([here], AccessFs::from_all(WANTED)))?
            .restrict_self()?;
        Ok(status.ruleset)
    };
    match restrict() {
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => Ok(()),
        Ok(RulesetStatus::NotEnforced) => Err("the kernel has no Landlock".to_owned()),
        Err(error) => Err(format!("Landlock: {error}")),
    }
}

/// What of Landlock this kernel has, for the log.
pub(super) fn landlock() -> &'static str {
    let has = |abi| {
        let asked = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi));
        asked.and_then(Ruleset::create).is_ok()
    };
    match (has(ABI::V5), has(ABI::V1)) {
        (true, _) => "whole",
        (false, true) => "in part",
        (false, false) => "none",
    }
}

/// No sockets of any kind, nor the interface that makes them past this filter.
fn mute() -> Result<(), String> {
    let calls = SILENCED.iter().map(|call| (*call, Vec::new())).collect::<BTreeMap<_, _>>();
    let refuse = SeccompAction::Errno(rustix::io::Errno::ACCESS.raw_os_error().cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("seccomp: {error}"))?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, refuse, arch);
    let program: BpfProgram =
        filter.and_then(TryInto::try_into).map_err(|error| format!("seccomp: {error}"))?;
    seccompiler::apply_filter(&program).map_err(|error| format!("seccomp: {error}"))
}

/// `socket` and `io_uring_setup`.
#[cfg(target_arch = "x86_64")]
const SILENCED: [i64; 2] = [41, 425];
#[cfg(not(target_arch = "x86_64"))]
const SILENCED: [i64; 2] = [198, 425];

fn limit(limits: Limits) -> io::Result<()> {
    let set = |resource, most| {
        let allowed = rustix::process::getrlimit(resource).maximum;
        let most = Some(allowed.map_or(most, |allowed: u64| allowed.min(most)));
        setrlimit(resource, Rlimit { current: most, maximum: most })
    };
    if let Some(seconds) = limits.cpu_seconds {
        // A second between the signal that can be told from others and the end.
        setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    }
    set(Resource::Core, 0)?;
    set(Resource::Fsize, limits.file_bytes)?;
    set(Resource::Nofile, limits.open_files)?;
    set(Resource::Nproc, limits.processes)?;
    set(Resource::Data, limits.memory_bytes)?;
    Ok(())
}
