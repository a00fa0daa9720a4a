//! The real binary: commands, and nodes that are signalled and killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use orlog_testkit::WAIT_TIMEOUT;
use serde_json::Value;

const DEV: [&str; 5] = ["dev", "--listen", "127.0.0.1:0", "--output", "json"];

/// Creates a command of the real binary with a clean environment and no input.
pub(crate) fn orlog(args: &[&str]) -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_orlog")), args)
}

fn clean(mut command: Command, args: &[&str]) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORLOG_") {
            command.env_remove(name);
        }
    }
    // No command signs with a key of the developer.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
        .env_remove("RUST_BACKTRACE")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .args(args);
    command
}

/// Returns exit code, standard output and standard error.
pub(crate) async fn run(mut command: Command) -> (i32, String, String) {
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Runs a command with this text as its input.
pub(crate) fn feed(mut command: Command, input: &str) -> Output {
    let pipes = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

/// Child process; killed on drop.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    /// Starts a command without input and output.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Returns the exit code if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.0.try_wait().unwrap().and_then(|status| status.code())
    }

    /// Waits for the end of the process and returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Both calls fail if the process has already ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Node on a free port; killed on drop.
pub(crate) struct Process {
    child: Killed,
    pub(crate) url: String,
}

impl Process {
    /// Starts a node without authentication.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// Starts a node like [`Process::start`], with environment variables.
    pub(crate) fn start_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::spawn(
            unauthenticated(orlog(&DEV))
                .args(args)
                .envs(environment.iter().copied()),
        )
    }

    /// Starts a node in this directory with the configuration there, without authentication.
    pub(crate) fn start_in(dir: &Path) -> Self {
        Self::spawn(unauthenticated(orlog(&DEV)).current_dir(dir))
    }

    /// Starts a node that requires the token of its session.
    pub(crate) fn start_with_session(args: &[&str]) -> Self {
        Self::spawn(orlog(&DEV).args(args))
    }

    /// Starts a node that requires the token of the administrator, like a container.
    pub(crate) fn start_with_admin_token(args: &[&str]) -> Self {
        Self::spawn(orlog(&DEV).args(args).env("ORLOG_AUTH__MODE", "token"))
    }

    /// Starts a node with this hard limit of open files.
    pub(crate) fn start_with_open_files(limit: usize, args: &[&str]) -> Self {
        Self::spawn(unauthenticated(limited(limit, &DEV)).args(args))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = Killed(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit())
                .spawn()
                .unwrap(),
        );
        let ready = read_document(&mut child.0);
        Self {
            url: ready["url"].as_str().unwrap().to_owned(),
            child,
        }
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        self.child.signal(signal);
    }

    /// Sends a signal by name and returns the exit code.
    pub(crate) fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.wait()
    }

    /// Stops the process with SIGTERM and waits for its end.
    pub(crate) fn stop(self) {
        assert_eq!(self.end("TERM"), Some(0));
    }

    /// Waits for the end of the process and returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait()
    }

    /// Kills the process like `kill -9`.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// Creates a command of the real binary with this hard limit of open files.
pub(crate) fn limited(open_files: usize, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {open_files}; exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_orlog"));
    clean(command, args)
}

fn unauthenticated(mut command: Command) -> Command {
    command.env("ORLOG_AUTH__ALLOW_UNAUTHENTICATED", "true");
    command
}

/// Returns the JSON document that reports readiness. It is read on a thread, so that a silent node
/// fails the test.
fn read_document(child: &mut Child) -> Value {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        for line in stdout.lines().map_while(Result::ok) {
            text.push_str(&line);
            text.push('\n');
            if line == "}" {
                drop(sender.send(text));
                return;
            }
        }
    });
    let text = receiver
        .recv_timeout(WAIT_TIMEOUT)
        .expect("the node reports that it is ready");
    serde_json::from_str(&text).unwrap()
}
