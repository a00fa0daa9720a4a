//! Page of docs/runbooks and the commands that its exercises have executed.
//!
//! A page ends with its last exercise. Then each of its commands must have been executed: all lines of its code blocks, all
//! `orlog` commands of its text, and the `nats` commands of its resolution.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Commands that no exercise executes, each with its page.
///
/// Both need the system account of a NATS cluster with more servers than a test starts.
const NOT_EXECUTED: [(&str, &str); 2] = [
    ("nats-quorum.md", "nats server cluster peer-remove <name>"),
    (
        "subscription-fails.md",
        "nats stream cluster peer-remove <stream>",
    ),
];

/// Page. Clones share the commands that were executed.
#[derive(Clone)]
pub(super) struct RunbookPage(Arc<PageState>);

struct PageState {
    name: &'static str,
    /// Lines of the code blocks before the resolution.
    diagnosis: Vec<String>,
    /// Lines of the code blocks of the resolution.
    resolution: Vec<String>,
    /// Commands in the text.
    inline: Vec<String>,
    executed: Mutex<BTreeSet<String>>,
}

impl From<&'static str> for RunbookPage {
    fn from(name: &'static str) -> Self {
        Self::open(name)
    }
}

impl RunbookPage {
    pub(super) fn open(name: &'static str) -> Self {
        let path = directory().join(name);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // A page can have a table of causes with their resolutions instead.
        let (before, resolution) = text.split_once("\n## Resolution\n").unwrap_or((&text, ""));
        let mut inline = spans(before, &["orlog "]);
        inline.extend(spans(resolution, &["orlog ", "nats "]));
        Self(Arc::new(PageState {
            name,
            diagnosis: fenced(before),
            resolution: fenced(resolution),
            inline,
            executed: Mutex::default(),
        }))
    }

    /// Returns the lines of the code blocks before the resolution.
    pub(super) fn diagnosis(&self) -> &[String] {
        &self.0.diagnosis
    }

    /// Returns the lines of the code blocks of the resolution.
    pub(super) fn resolution(&self) -> &[String] {
        &self.0.resolution
    }

    /// Records that a command was executed.
    pub(super) fn record(&self, command: &str) {
        self.0.executed.lock().insert(command.to_owned());
    }

    /// Records a command of the page that the test has executed without its program: another tool or another server
    /// executes it.
    pub(super) fn perform(&self, command: &str) {
        let is_known = self.0.commands().any(|known| known == command);
        assert!(is_known, "{} has no command {command:?}", self.0.name);
        self.record(command);
    }
}

impl PageState {
    fn commands(&self) -> impl Iterator<Item = &String> {
        let blocks = self.diagnosis.iter().chain(&self.resolution);
        blocks.chain(&self.inline)
    }
}

/// The check is here so that no exercise can omit it.
impl Drop for PageState {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let executed = self.executed.lock();
        let missing: Vec<&String> = self
            .commands()
            .filter(|command| !executed.contains(*command))
            .filter(|command| !NOT_EXECUTED.contains(&(self.name, command.as_str())))
            .collect();
        assert!(
            missing.is_empty(),
            "no exercise of {} executes {missing:#?}",
            self.name
        );
    }
}

/// Returns the directory of the pages.
pub(super) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks")
}

/// Returns the lines of the code blocks.
fn fenced(part: &str) -> Vec<String> {
    let blocks = part
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the commands of these programs that are in the text, each once. A command can continue on the next line.
fn spans(part: &str, programs: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    // Every second part is in a code block, and of the others, every second part is a span.
    for text in part.split("```").step_by(2) {
        for span in text.split('`').skip(1).step_by(2) {
            let command = span.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_command = programs.iter().any(|program| command.starts_with(program));
            if is_command && !found.contains(&command) {
                found.push(command);
            }
        }
    }
    found
}

#[test]
fn commands_of_a_page_are_those_of_its_blocks_and_of_its_text() {
    let text = "Call `orlog saga list` or\n`orlog dlq\n  show <id>`, `nats stream info`, `x`.\n\n\
                1. Then:\n\n   ```sh\n   orlog reload\n\n   curl `echo`\n   ```\n\nEnd: `orlog drain`, `orlog drain`.\n";
    assert_eq!(fenced(text), ["orlog reload", "curl `echo`"]);
    let commands = ["orlog saga list", "orlog dlq show <id>", "orlog drain"];
    assert_eq!(spans(text, &["orlog "]), commands);
}

#[test]
#[should_panic(expected = "orlog saga retry order stuck-1")]
fn page_with_a_command_that_no_exercise_executes_is_rejected() {
    let page = RunbookPage::open("stuck-saga.md");
    page.perform("orlog saga list --status stuck");
}
