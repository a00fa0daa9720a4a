//! Commands of the binary, and a node that they use.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Output;

use crate::harness::process::{self, Process, orlog};

/// Runs a command and waits for its end.
pub(crate) fn run(args: &[&str]) -> Output {
    orlog(args).output().unwrap()
}

/// Returns exit code, standard output and standard error of a command as one text.
pub(crate) fn command_output(args: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = run(args);
    let (stdout, stderr) = (
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    );
    format!("exit {}\n{stdout}{stderr}", status.code().unwrap())
}

/// Node on a free port with the stand-in; killed on drop.
pub(crate) struct Node(Process);

impl Deref for Node {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}

impl Node {
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
        let [data, definitions] = [data, definitions].map(|path| path.to_str().unwrap());
        let dirs = ["--data-dir", data, "--definitions-dir", definitions];
        Self(Process::start_with(
            &[&dirs[..], flags].concat(),
            environment,
        ))
    }

    /// Runs a command against the node and parses its JSON.
    pub(crate) fn query(&self, args: &[&str]) -> serde_json::Value {
        let Output {
            status,
            stdout,
            stderr,
        } = run(&self.args(args));
        assert!(
            status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&stderr)
        );
        serde_json::from_slice(&stdout).unwrap()
    }

    /// Runs a command against the node with `input` as standard input.
    pub(crate) fn feed(&self, args: &[&str], input: &str) -> Output {
        process::feed(orlog(&self.args(args)), input)
    }

    /// Sends a signal by name and returns the exit code.
    pub(crate) fn end(self, signal: &str) -> Option<i32> {
        self.0.end(signal)
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        args.iter()
            .copied()
            .chain(["--output", "json", "--url", &self.url])
            .collect()
    }
}
