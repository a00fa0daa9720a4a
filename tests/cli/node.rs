//! The binary as a child process, for tests: commands that end, and a node that runs until it is told otherwise.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long anything may take before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A command without what the surroundings say.
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

/// Runs a command to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    orlog(args).stdin(Stdio::null()).output().unwrap()
}

/// Exit code, standard output and standard error of a command, as one text.
pub(crate) fn shown(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(args);
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    format!("exit {}\n{stdout}{stderr}", status.code().unwrap())
}

/// A node that listens on a free port. Killed when it is dropped.
pub(crate) struct Node {
    child: Child,
    pub(crate) url: String,
}

impl Node {
    /// Starts one that stands in for every upstream.
    pub(crate) fn start(data: &Path, definitions: &Path) -> Self {
        Self::start_with(data, definitions, &[])
    }

    /// The same with variables in its environment.
    pub(crate) fn start_with(data: &Path, definitions: &Path, environment: &[(&str, &str)]) -> Self {
        let paths = [data, definitions].map(|path| path.to_str().unwrap());
        let args = ["dev", "--listen", "127.0.0.1:0", "--stand-in", "--output", "json"];
        let mut command = orlog(&args);
        command.args(["--data", paths[0], "--definitions", paths[1]]).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let greeting = greeting(&mut child);
        let url = greeting["url"].as_str().unwrap().to_owned();
        Self { child, url }
    }

    /// Runs a command against it and reads its JSON.
    pub(crate) fn ask(&self, args: &[&str]) -> serde_json::Value {
        let Output { status, stdout, stderr } = run(&self.args(args));
        assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).unwrap()
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        args.iter().copied().chain(["--output", "json", "--url", &self.url]).collect()
    }

    /// Runs a command against it that reads `input`.
    pub(crate) fn feed(&self, args: &[&str], input: &str) -> Output {
        let mut command = orlog(&self.args(args));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends it a signal by name and gives its exit code.
    pub(crate) fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.wait()
    }

    /// Its exit code, once it ends by itself.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both fail when it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The JSON document with which it says that it is ready; read on a thread, so that a node that says nothing fails the test.
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
    let text = receiver.recv_timeout(PATIENCE).expect("the node says that it is ready");
    serde_json::from_str(&text).unwrap()
}

/// Asks again until the answer is as wanted.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "{what} did not happen");
    }
}
