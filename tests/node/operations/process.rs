//! The real binary as a node, for tests that kill it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use crate::operations::node::{TIMEOUT, orlog};

const DEV: [&str; 5] = ["dev", "--listen", "127.0.0.1:0", "--output", "json"];

fn unauthenticated(mut command: Command) -> Command {
    command.env("ORLOG_AUTH__ALLOW_UNAUTHENTICATED", "true");
    command
}

/// Node on a free port; killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) url: String,
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(unauthenticated(orlog(&DEV)), args)
    }

    /// Starts a node that requires the token of its session.
    pub(crate) fn start_with_session(args: &[&str]) -> Self {
        Self::spawn(orlog(&DEV), args)
    }

    /// Starts a node that requires the token of the administrator, like a container.
    pub(crate) fn start_with_admin_token(args: &[&str]) -> Self {
        let mut command = orlog(&DEV);
        command.env("ORLOG_AUTH__MODE", "token");
        Self::spawn(command, args)
    }

    /// Starts a node with this hard limit of open files.
    pub(crate) fn start_with_open_files(limit: usize, args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        command.arg(orlog(&[]).get_program()).args(DEV);
        Self::spawn(unauthenticated(command), args)
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        let sent = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn spawn(mut command: Command, args: &[&str]) -> Self {
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in stdout.lines().map_while(Result::ok) {
                text.push_str(&line);
                if line == "}" {
                    drop(sender.send(text));
                    return;
                }
            }
        });
        let greeting = receiver.recv_timeout(TIMEOUT).expect("the node says that it is ready");
        let greeting: serde_json::Value = serde_json::from_str(&greeting).unwrap();
        Self { child, url: greeting["url"].as_str().unwrap().to_owned() }
    }

    /// Stops the process with SIGTERM and waits for its end.
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Kills the process like `kill -9`.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail if the process has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
