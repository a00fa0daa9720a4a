//! The binary as a child process: commands, and a node that runs until it is stopped.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Timeout of all waits.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Creates a command with a clean environment.
pub(crate) fn orlog(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlog"));
    for name in
        ["ORLOG_URL", "ORLOG_TENANT", "ORLOG_CONFIG", "ORLOG_OUTPUT", "ORLOG_NATS_SERVER", "RUST_BACKTRACE"]
    {
        command.env_remove(name);
    }
    command.env("COLUMNS", "100").args(args);
    command
}

/// Runs a command and waits for its end.
pub(crate) fn run(args: &[&str]) -> Output {
    orlog(args).stdin(Stdio::null()).output().unwrap()
}

/// Returns exit code, standard output and standard error of a command as one text.
pub(crate) fn command_output(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(args);
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    format!("exit {}\n{stdout}{stderr}", status.code().unwrap())
}

/// Node on a free port; killed on drop.
pub(crate) struct Node {
    child: Child,
    pub(crate) url: String,
}

impl Node {
    /// Starts a node with the stand-in.
    pub(crate) fn start(data: &Path, definitions: &Path) -> Self {
        Self::start_with(data, definitions, &[], &[])
    }

    /// Starts a node with environment variables and flags.
    pub(crate) fn start_with(
        data: &Path,
        definitions: &Path,
        environment: &[(&str, &str)],
        flags: &[&str],
    ) -> Self {
        let paths = [data, definitions].map(|path| path.to_str().unwrap());
        let args = ["dev", "--listen", "127.0.0.1:0", "--output", "json"];
        let mut command = orlog(&[&args[..], flags].concat());
        command
            .args(["--data-dir", paths[0], "--definitions-dir", paths[1]])
            .env("ORLOG_AUTH__ALLOW_UNAUTHENTICATED", "true")
            .envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let greeting = greeting(&mut child);
        let url = greeting["url"].as_str().unwrap().to_owned();
        Self { child, url }
    }

    /// Runs a command against the node and parses its JSON.
    pub(crate) fn query(&self, args: &[&str]) -> serde_json::Value {
        let Output { status, stdout, stderr } = run(&self.args(args));
        assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).unwrap()
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        args.iter().copied().chain(["--output", "json", "--url", &self.url]).collect()
    }

    /// Runs a command against the node with `input` as standard input.
    pub(crate) fn feed(&self, args: &[&str], input: &str) -> Output {
        let mut command = orlog(&self.args(args));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends a signal by name and returns the exit code.
    pub(crate) fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.wait()
    }

    /// Waits for the end of the process and returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both calls fail if the process has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the JSON document that reports readiness. It is read on a thread, so that a silent node
/// fails the test.
fn greeting(child: &mut Child) -> serde_json::Value {
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
    let text = receiver.recv_timeout(TIMEOUT).expect("the node says that it is ready");
    serde_json::from_str(&text).unwrap()
}

/// Repeats a call until it returns a value.
#[track_caller]
pub(crate) fn until<T>(label: &str, mut query: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = query() {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "{label} did not happen");
    }
}
