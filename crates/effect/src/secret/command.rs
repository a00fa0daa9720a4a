//! Secrets that a command prints: the command lines of vaults and clouds.
//!
//! The command runs without a shell. Its output is the secret for a lease. After half of the lease
//! the command runs again in the background; while it fails, the last secret applies until its
//! lease ends.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::value::{InvalidSecretRef, Secret};

/// Default maximum duration of a run. Default: 10s.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Default time for which the output of a run is the secret. Default: 5m.
const LEASE: Duration = Duration::from_mins(5);
/// Maximum size of the output in bytes.
const MAX_OUTPUT: u64 = 64 * 1024;
/// Minimum time between the start of a failed run and the next run.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Command whose output is a secret. Clones share the last output.
#[derive(Clone)]
pub(super) struct SecretCommand {
    reference: String,
    argv: Arc<[String]>,
    timeout: Duration,
    lease: Duration,
    state: Arc<Mutex<CommandState>>,
    /// Lock that serializes runs.
    turn: Arc<Mutex<()>>,
}

#[derive(Default)]
struct CommandState {
    last: Option<Output>,
    failed: Option<(Instant, String)>,
    is_refreshing: bool,
}

struct Output {
    secret: Secret,
    at: Instant,
}

/// Reference with options: `{"argv": […], "timeout": "10s", "lease": "5m"}`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CommandForm {
    argv: Vec<String>,
    timeout: Option<String>,
    lease: Option<String>,
}

impl FromStr for SecretCommand {
    type Err = InvalidSecretRef;

    /// Reads a path, a JSON list of the program and its arguments, or an object with options.
    fn from_str(text: &str) -> Result<Self, InvalidSecretRef> {
        let form = match text.chars().next() {
            Some('[') => serde_json::from_str(text).map(|argv| CommandForm {
                argv,
                ..CommandForm::default()
            }),
            Some('{') => serde_json::from_str(text),
            _ => Ok(CommandForm {
                argv: vec![text.to_owned()],
                ..CommandForm::default()
            }),
        };

        let form = form.map_err(|_| InvalidSecretRef)?;
        let positive = |found: Option<String>, default| {
            found.map_or(Ok(default), |found| {
                let found = found
                    .parse::<SignedDuration>()
                    .ok()
                    .and_then(|found| found.try_into().ok());
                found
                    .filter(|found: &Duration| !found.is_zero())
                    .ok_or(InvalidSecretRef)
            })
        };

        let is_valid = form
            .argv
            .first()
            .is_some_and(|program| program.starts_with('/'))
            && form.argv.iter().all(|argument| !argument.contains('\0'));
        if !is_valid {
            return Err(InvalidSecretRef);
        }

        Ok(Self {
            reference: text.to_owned(),
            timeout: positive(form.timeout, TIMEOUT)?,
            lease: positive(form.lease, LEASE)?,
            argv: form.argv.into(),
            state: Arc::default(),
            turn: Arc::default(),
        })
    }
}

impl SecretCommand {
    /// Returns the secret: the last output, or that of a new run if there is none or if its lease
    /// has ended. Blocks during a run.
    pub(super) fn secret(&self) -> Result<Secret, String> {
        if let Some(secret) = self.leased() {
            return Ok(secret);
        }

        // The command can take seconds. Of the threads that need the secret, one runs it; the
        // others wait for its output.
        in_blocking_thread(|| {
            let _alone = self.turn.lock();
            // Meanwhile another thread can have run the command.
            if let Some(secret) = self.leased() {
                return Ok(secret);
            }

            // While the vault is unavailable, each effect asks for the secret. They must not all
            // run the command.
            if let Some((at, reason)) = &self.state.lock().failed
                && at.elapsed() < RETRY_DELAY
            {
                return Err(reason.clone());
            }

            self.run_and_store()
        })
    }

    /// Returns the last output if its lease has not ended; starts a run in the background after
    /// half of the lease.
    fn leased(&self) -> Option<Secret> {
        let mut state = self.state.lock();
        let age = state
            .last
            .as_ref()
            .map(|last| last.at.elapsed())
            .filter(|age| *age < self.lease)?;

        let may_retry = state
            .failed
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() >= RETRY_DELAY);

        // In the background, so that no effect waits for the command while the last secret is
        // valid.
        if age >= self.lease / 2 && !state.is_refreshing && may_retry {
            let command = self.clone();
            let refresh = move || {
                let _alone = command.turn.lock();
                if let Err(reason) = command.run_and_store() {
                    tracing::warn!(
                        secret = %command.program(),
                        reason,
                        "secret not renewed; its lease continues"
                    );
                }
                command.state.lock().is_refreshing = false;
            };

            let thread = std::thread::Builder::new()
                .name("orlog-secret".to_owned())
                .spawn(refresh);
            // Without a thread, the next use tries again.
            state.is_refreshing = thread.is_ok();
        }

        state.last.as_ref().map(|last| last.secret.clone())
    }

    fn run_and_store(&self) -> Result<Secret, String> {
        // The lease counts from the start of the run: the secret can be as old as that.
        let at = Instant::now();
        let found = self.run();

        let mut state = self.state.lock();
        match &found {
            Ok(secret) => {
                state.last = Some(Output {
                    secret: secret.clone(),
                    at,
                });
                state.failed = None;
            }
            Err(reason) => state.failed = Some((at, reason.clone())),
        }

        found
    }

    /// Runs the command. Errors contain neither its output nor its messages, which can contain the
    /// secret.
    fn run(&self) -> Result<Secret, String> {
        let mut command = Command::new(&self.argv[0]);
        // A group of its own, so that the timeout also ends the processes that the command has
        // started.
        command.args(&self.argv[1..]).process_group(0);

        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());

        let child = command
            .spawn()
            .map_err(|error| format!("it cannot be started: {}", error.kind()))?;

        // The process is waited for in a thread, because only that wait can be abandoned at the
        // timeout.
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (sender, receiver) = mpsc::channel();
        // An error means that the run has timed out.
        let thread = std::thread::Builder::new()
            .name("orlog-secret".to_owned())
            .spawn(move || drop(sender.send(output(child, group))));

        let ended = thread
            .map_err(|error| error.kind().to_string())
            .map(|_| receiver.recv_timeout(self.timeout))?;

        let Ok(ended) = ended else {
            kill(group);
            return Err(format!("it did not end within {:?}", self.timeout));
        };

        let (bytes, status) = ended.map_err(|error| error.kind().to_string())?;

        if bytes.len() as u64 > MAX_OUTPUT {
            return Err(format!("it printed more than {MAX_OUTPUT} bytes"));
        }
        if !status.success() {
            return Err(format!("it failed: {status}"));
        }

        let text =
            String::from_utf8(bytes).map_err(|_| "its output is not valid UTF-8".to_owned())?;
        let text = text.trim_end_matches(['\n', '\r']);

        if text.is_empty() {
            Err("it printed nothing".to_owned())
        } else {
            Ok(Secret::new(text))
        }
    }

    fn program(&self) -> &str {
        &self.argv[0]
    }
}

/// Reads the output of a process and waits for its end; kills it if it prints too much.
fn output(mut child: Child, group: Option<Pid>) -> io::Result<(Vec<u8>, ExitStatus)> {
    let mut bytes = Vec::new();
    let stdout = child.stdout.take().expect("standard output is a pipe");

    let read = stdout.take(MAX_OUTPUT + 1).read_to_end(&mut bytes);

    if read.is_err() || bytes.len() as u64 > MAX_OUTPUT {
        kill(group);
    }

    // Reaped only after its output has ended: until then no other process can have its id.
    let status = child.wait()?;
    read.map(|_| (bytes, status))
}

fn kill(group: Option<Pid>) {
    // An error means that the process has already ended.
    group.map(|group| kill_process_group(group, Signal::KILL).ok());
}

/// Runs a blocking function. On a thread of the runtime, other tasks move to another thread first.
fn in_blocking_thread<T>(blocking: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(blocking),
        _ => blocking(),
    }
}

impl fmt::Display for SecretCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command:{}", self.reference)
    }
}

impl fmt::Debug for SecretCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for SecretCommand {
    fn eq(&self, other: &Self) -> bool {
        self.reference == other.reference
    }
}

impl Eq for SecretCommand {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};

    use super::*;

    const CANARY: &str = "canary-7f3a";

    /// Writes a program that appends a line to `runs` and then executes the text.
    fn program(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("program");
        let runs = dir.join("runs");
        let text = format!("#!/bin/sh\necho x >> {}\n{text}\n", runs.display());
        let next = dir.join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::rename(next, &path).unwrap();
        path
    }

    fn runs(dir: &Path) -> usize {
        std::fs::read_to_string(dir.join("runs"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    fn reference(argv: &[&str], timeout: &str, lease: &str) -> SecretCommand {
        let form = serde_json::json!({ "argv": argv, "timeout": timeout, "lease": lease });
        form.to_string().parse().unwrap()
    }

    #[test]
    fn command_receives_its_arguments_without_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path(), "printf '%s\\n' \"$1\"");
        let list = serde_json::json!([path, "$(id) a b;c"]);
        let secret: SecretCommand = list.to_string().parse().unwrap();
        assert_eq!(secret.secret().unwrap().expose(), "$(id) a b;c");
        assert_eq!(secret.to_string(), format!("command:{list}"));
        program(dir.path(), "echo alone");
        let one: SecretCommand = path.to_str().unwrap().parse().unwrap();
        assert_eq!(one.secret().unwrap().expose(), "alone");
    }

    #[test]
    fn invalid_commands_are_rejected_without_echo() {
        for text in [
            "canary",
            "",
            "[]",
            "[\"canary\"]",
            "{\"argv\":[]}",
            "[1]",
            "{\"argv\":[\"/a\"],\"x\":1}",
        ] {
            let error = text.parse::<SecretCommand>().unwrap_err().to_string();
            assert!(
                !error.contains("canary") && error.contains("command:"),
                "{error}"
            );
        }
        let zero = "{\"argv\":[\"/a\"],\"lease\":\"0s\"}";
        assert!(zero.parse::<SecretCommand>().is_err());
    }

    #[test]
    fn output_is_used_for_its_lease_and_survives_failures_until_the_lease_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path(), "echo first");
        let secret = reference(&[path.to_str().unwrap()], "10s", "4s");
        for _ in 0..3 {
            assert_eq!(secret.secret().unwrap().expose(), "first");
        }
        assert_eq!(runs(dir.path()), 1);
        program(
            dir.path(),
            &format!("echo {CANARY}; echo {CANARY} >&2; exit 3"),
        );
        // After half of the lease the command fails in the background, and the last secret applies until the lease ends.
        let (mut kept, deadline) = (0, Instant::now() + Duration::from_secs(30));
        let error = loop {
            match secret.secret() {
                Ok(found) => {
                    assert_eq!(found.expose(), "first");
                    kept += usize::from(runs(dir.path()) > 1);
                }
                Err(error) => break error,
            }
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        };
        assert!(kept > 0, "a failed run did not end the lease");
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(!error.contains(CANARY), "{error}");
        program(dir.path(), "echo second");
        let found = loop {
            if let Ok(found) = secret.secret() {
                break found;
            }
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        };
        assert_eq!(found.expose(), "second");
    }

    #[test]
    fn runs_are_limited_in_time_and_output() {
        let dir = tempfile::tempdir().unwrap();
        let check = |text: &str, expected: &str| {
            let path = program(dir.path(), text);
            let secret = reference(&[path.to_str().unwrap()], "500ms", "1m");
            let error = secret.secret().unwrap_err();
            assert!(error.contains(expected), "{error}");
            // The next call within a second does not run the command again.
            let before = runs(dir.path());
            assert!(secret.secret().is_err());
            assert_eq!(runs(dir.path()), before);
        };
        check("sleep 60", "did not end within 500ms");
        check("echo x; exec >&-; sleep 60", "did not end within 500ms");
        check("yes", "printed more than 65536 bytes");
        check("true", "printed nothing");
        check("printf '\\377'", "not valid UTF-8");
        let missing = reference(&["/nothing/here"], "1s", "1m")
            .secret()
            .unwrap_err();
        assert!(missing.contains("cannot be started"), "{missing}");
    }
}
