//! The quick start of README.md: its saga, its commands and their output, as they are in the text.

use std::path::Path;
use std::process::{Command, Stdio};

use orlog_testkit::host::free_port;
use orlog_testkit::wait::until_blocking;

use crate::harness::process::Killed;

const README: &str = include_str!("../../README.md");

/// Returns the fenced blocks of a language, in the order of the text.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let starts = README.split(fence.as_str()).skip(1);
    starts
        .map(|rest| rest.split("```").next().expect("a split has a first part"))
        .collect()
}

/// Returns the command of the quick start that contains a text.
fn command(part: &str) -> &'static str {
    let all = blocks("sh");
    all.into_iter()
        .find(|block| block.contains(part))
        .unwrap_or_else(|| panic!("README.md has no command {part:?}"))
}

/// Prepares a shell command with the binary in the directory `bin` in the path; `port` replaces the default port.
fn shell(text: &str, (bin, dir): (&Path, &Path), port: u16) -> Command {
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").expect("there is a path")
    );
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!(
            "exec {}",
            text.trim()
                .replace("localhost:7070", &format!("127.0.0.1:{port}"))
        ),
    ]);
    command
        .current_dir(dir)
        .env("PATH", path)
        .env("ORLOG_LISTEN", format!("127.0.0.1:{port}"));
    command.env("ORLOG_URL", format!("http://127.0.0.1:{port}"));
    let token_file = self::command("export")
        .trim()
        .strip_prefix("export ORLOG_TOKEN_FILE=")
        .expect("a token file");
    if !text.contains("orlog dev") {
        command.env("ORLOG_TOKEN_FILE", token_file);
    }
    command
}

fn output(text: &str, dirs: (&Path, &Path), port: u16) -> String {
    let output = shell(text, dirs, port).output().expect("sh runs");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// Returns the words of an output; times, hashes, ids and the name of the host differ between runs.
fn normalized(text: &str) -> Vec<String> {
    let is_time = |word: &str| word.contains('T') && word.ends_with('Z') && word.contains(':');
    let is_hash = |word: &str| word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit());
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let varies =
            is_time(word) || is_hash(word) || words.last().is_some_and(|last| last == "by");
        words.push(if varies {
            "…".to_owned()
        } else {
            word.to_owned()
        });
    }
    words
}

#[test]
fn readme_quick_start_completes_the_saga() {
    play(
        Path::new(env!("CARGO_BIN_EXE_orlog"))
            .parent()
            .expect("the binary is in a directory"),
    );
}

/// Runs the quick start with the binary in this directory.
pub(crate) fn play(bin: &Path) {
    let dir = tempfile::tempdir().expect("a directory can be created");
    let saga = blocks("yaml")[0];
    assert!(saga.starts_with("# order.saga.yaml"), "{saga}");
    std::fs::write(dir.path().join("order.saga.yaml"), saga).expect("the directory is writable");
    let port = free_port();

    let mut start = shell(command("orlog dev"), (bin, dir.path()), port);
    let _node = Killed::start(start.stderr(Stdio::null()));
    let show = command("orlog saga show");
    let displayed = until_blocking("the saga completes", || {
        // The event has an id, so that a repetition has no effect.
        output(command("curl"), (bin, dir.path()), port);
        let shown = output(show, (bin, dir.path()), port);
        // The facts are published after the instance has ended.
        Some(shown).filter(|shown| shown.contains("completed") && !shown.contains("  outbox "))
    });
    assert_eq!(
        normalized(&displayed),
        normalized(blocks("console")[0]),
        "{displayed}"
    );
}
