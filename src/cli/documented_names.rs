//! Checks that each key, command, metric and panel that documentation, dashboards, alerts and
//! messages name exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use serde_json::Value;
use toml::Table;

use super::Cli;
use orlog_node::config::{DEFAULT, rule_of};
use orlog_node::telemetry::metric_specs;

/// Names that look like keys, and what they are.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("cluster.current", "field of /info"),
    ("cluster.failing_shards", "field of /info"),
    ("cluster.lease_failure", "field of /info"),
    ("cluster.pods", "field of /info"),
    ("cluster.shards", "field of /info"),
    ("http.post", "effect of an example"),
    ("http.request.method", "attribute of spans"),
    ("http.response.status_code", "attribute of spans"),
    ("http.route", "attribute of spans"),
    ("nats.conf", "file of the NATS servers"),
    ("nats.nats", "service of Kubernetes"),
    ("results.probe.frames", "expression of a flow"),
    ("log.csv", "file of a flow"),
    ("telemetry.sdk", "attribute of resources"),
];
/// Names that look like metrics, and what they are.
const OTHER_SERIES: &[(&str, &str)] = &[
    ("orlog_effect_queue", "metric of the adapter of Kubernetes"),
    ("orlog_example_wasm", "crate of an example"),
];
/// Words after which a command starts in a line of a shell.
const BEFORE_COMMAND: [&str; 7] = ["", "until", "while", "sudo", "exec", "$", "!"];

/// A file with its text.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn is(&self, extension: &str) -> bool {
        self.path
            .extension()
            .is_some_and(|found| found == extension)
    }

    /// Returns the code of a page: its inline code and the lines of its blocks.
    fn code(&self) -> Vec<String> {
        let mut code = Vec::new();
        let mut is_block = false;
        let joined = self.text.replace("\\\n", " ");
        for line in joined.lines() {
            if line.trim_start().starts_with("```") {
                is_block = !is_block;
            } else if is_block {
                code.push(line.trim().to_owned());
            } else {
                code.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }

        code
    }

    /// Returns the string literals of the product part of a Rust file.
    fn literals(&self) -> Vec<String> {
        let product = self.text.split("#[cfg(test)]").next().unwrap_or_default();
        let joined = product.replace("\\\n", "");
        let lines = joined
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));

        lines
            .flat_map(|line| line.split('"').skip(1).step_by(2))
            .map(str::to_owned)
            .collect()
    }

    /// Returns the texts in which names occur.
    fn texts(&self) -> Vec<String> {
        if self.is("md") {
            self.code()
        } else if self.is("rs") {
            self.literals()
        } else {
            vec![self.text.clone()]
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path, into: &mut Vec<Source>) {
    if path.is_dir() {
        let mut entries: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for entry in &entries {
            read(entry, into);
        }
    } else if let Ok(text) = std::fs::read_to_string(path) {
        into.push(Source {
            path: path.strip_prefix(root()).unwrap().to_owned(),
            text,
        });
    }
}

/// Returns the files that users read. Decision records describe earlier states.
fn documents() -> Vec<Source> {
    let mut found = Vec::new();
    for path in ["docs", "deploy", "README.md", "examples/README.md"] {
        read(&root().join(path), &mut found);
    }
    found.retain(|source| !source.path.starts_with("docs/adr"));
    assert!(found.len() > 100, "{} files", found.len());
    found
}

/// Returns the Rust files whose messages users read.
fn programs() -> Vec<Source> {
    let mut found = Vec::new();
    for path in ["src", "actors/src", "crates"] {
        read(&root().join(path), &mut found);
    }

    found.retain(|source| {
        let path = source.path.to_string_lossy();
        source.is("rs") && !path.contains("tests") && !path.contains("testkit")
    });
    assert!(found.len() > 300, "{} files", found.len());
    found
}

/// Returns the words of a text that can be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_./:-<>*{}$@".contains(c)))
        .map(|word| word.trim_end_matches(['.', ':', '*']))
}

#[test]
fn every_key_exists() {
    let defaults: Table = DEFAULT.parse().unwrap();
    let chosen = ["upstreams", "gateway", "webhooks", "peers"].map(str::to_owned);
    let tables: BTreeSet<String> = defaults
        .iter()
        .filter(|(_, value)| value.is_table())
        .map(|(name, _)| name.clone())
        .chain(chosen)
        .collect();
    let is_table = |key: &str| {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| defaults.get(part));
        let found = parts.try_fold(first, |value, part| Some(value?.get(part)));
        found.flatten().is_some_and(toml::Value::is_table)
    };

    let is_known = |key: &str| {
        rule_of(key).is_some()
            || is_table(key)
            || OTHER_NAMES.iter().any(|(name, _)| *name == key)
            || [".md", ".rs", ".toml", ".js", ".json"]
                .iter()
                .any(|end| key.ends_with(end))
    };
    let mut unknown = BTreeSet::new();

    for source in documents().into_iter().chain(programs()) {
        for text in source.texts() {
            let keys = words(&text).filter(|word| {
                let is_name = word
                    .bytes()
                    .all(|c| c.is_ascii_lowercase() || b"_.".contains(&c));
                let table = word.split_once('.').map(|(table, _)| table);
                is_name && table.is_some_and(|table| tables.contains(table))
            });
            for key in keys.filter(|key| !is_known(key)) {
                unknown.insert(format!("{}: {key}", source.path.display()));
            }
        }
    }

    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Returns the commands in a line, without the name of the program.
fn commands(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in line.split([';', '&', '|', '(', ')', '#', '`', '>']) {
        let Some((before, command)) = part.split_once("orlog ") else {
            continue;
        };
        let before = before.trim();
        let before = before.strip_suffix("./").unwrap_or(before);
        if BEFORE_COMMAND.contains(&before) {
            found.push(command.trim().to_owned());
        }
    }

    found
}

/// Returns what is wrong with a command.
fn error_of(root: &clap::Command, command: &str) -> Option<String> {
    let mut words = command.split_whitespace().peekable();
    let mut current = root;
    while let Some(next) = words.peek().and_then(|word| current.find_subcommand(word)) {
        current = next;
        words.next();
    }

    let is_word = |word: &&str| word.bytes().all(|c| c.is_ascii_lowercase() || c == b'-');
    if current.has_subcommands()
        && let Some(word) = words
            .peek()
            .filter(|word| is_word(word) && !word.starts_with('-'))
    {
        return Some(format!("no command {word:?}"));
    }

    let known: BTreeSet<&str> = current
        .get_arguments()
        .flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default())
        .chain(["help", "version"])
        .collect();
    let is_flag = |c: char| c.is_ascii_lowercase() || c == '-';

    words
        .filter_map(|word| word.strip_prefix("--"))
        .map(|word| word.split(|c| !is_flag(c)).next().unwrap_or_default())
        .find(|flag| !flag.is_empty() && !known.contains(flag))
        .map(|flag| format!("no flag --{flag}"))
}

#[test]
fn every_command_exists() {
    let mut root = Cli::command();
    root.build();
    assert!(error_of(&root, "saga list --saga order").is_none());
    assert!(error_of(&root, "saga lists").is_some() && error_of(&root, "run --no").is_some());

    let mut checked = 0;
    let mut unknown = BTreeSet::new();
    for source in documents().into_iter().chain(programs()) {
        let lines: Vec<String> = if source.is("rs") {
            // In messages, commands are between backticks.
            let joined = source.literals().join("\n");
            joined
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        } else if source.is("md") {
            source.code()
        } else {
            continue;
        };
        for command in lines.iter().flat_map(|line| commands(line)) {
            checked += 1;
            if let Some(error) = error_of(&root, &command) {
                unknown.insert(format!(
                    "{}: orlog {command}: {error}",
                    source.path.display()
                ));
            }
        }
    }

    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(checked > 300, "{checked} commands");
}

#[test]
fn every_metric_exists() {
    let known: BTreeSet<&str> = metric_specs::ALL.iter().map(|spec| spec.name).collect();
    let mut crates: BTreeSet<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| format!("orlog_{}", entry.unwrap().file_name().display()))
        .collect();
    crates.insert("orlog_actors".to_owned());

    let is_known = |name: &str| {
        let bare = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let is_family = name.ends_with('_') && known.iter().any(|metric| metric.starts_with(name));
        known.contains(name)
            || bare.is_some_and(|bare| known.contains(bare))
            || is_family
            || crates.contains(name)
            || OTHER_SERIES.iter().any(|(other, _)| *other == name)
    };

    let mut unknown = BTreeSet::new();
    // The page about exports has the tables of an external copy.
    let sources = documents()
        .into_iter()
        .filter(|source| source.path != Path::new("docs/export.md"));
    for source in sources {
        let names = source
            .text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|name| name.starts_with("orlog_"));
        for name in names.filter(|name| !is_known(name)) {
            unknown.insert(format!("{}: {name}", source.path.display()));
        }
    }

    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Returns the titles of the panels of each dashboard.
fn dashboards() -> BTreeMap<String, BTreeSet<String>> {
    let mut sources = Vec::new();
    read(&root().join("deploy/grafana/dashboards"), &mut sources);
    let title = |value: &Value| value["title"].as_str().unwrap_or_default().to_owned();
    sources
        .iter()
        .map(|source| {
            let dashboard: Value = serde_json::from_str(&source.text).unwrap();
            let panels = dashboard["panels"].as_array().unwrap();
            let name = title(&dashboard);
            let name = name.rsplit(['·', ':', '/']).next().unwrap_or_default();
            (name.trim().to_owned(), panels.iter().map(title).collect())
        })
        .collect()
}

#[test]
fn every_panel_of_a_runbook_exists() {
    let dashboards = dashboards();
    let mut sources = Vec::new();
    read(&root().join("docs/runbooks"), &mut sources);
    let mut checked = 0;

    for source in sources {
        let Some((_, text)) = source.text.split_once("**Dashboard.** ") else {
            continue;
        };

        let paragraph = text.split("\n\n").next().unwrap_or_default();
        for part in paragraph.split('*').collect::<Vec<_>>()[1..].chunks(2) {
            let [dashboard, panels] = part else { continue };
            let known = dashboards.get(*dashboard).unwrap_or_else(|| {
                panic!(
                    "{}: no dashboard {dashboard:?}: {:?}",
                    source.path.display(),
                    dashboards.keys()
                )
            });

            for panel in panels.split('"').skip(1).step_by(2) {
                checked += 1;
                assert!(
                    known.contains(panel.trim_end_matches(',')),
                    "{}: {dashboard} has no panel {panel:?}",
                    source.path.display()
                );
            }
        }
    }

    assert!(checked > 20, "{checked} panels");
}
