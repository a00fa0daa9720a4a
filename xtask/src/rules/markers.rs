//! The code contains no task markers; open tasks belong in issues.

use crate::tree::Tree;
use crate::violation::{LintRule, Violation};

const RULE: LintRule = LintRule {
    name: "marker",
    reason: "a task marker in the code is not planned, counted or closed like an issue",
    remedy: "do the task now, or open an issue and delete the marker",
};

/// Split into halves, so that this file does not match itself.
const MARKERS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];
const EXTENSIONS: [&str; 5] = ["rs", "toml", "sh", "yaml", "yml"];

/// Checks every word of sources, scripts and configuration.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let files = EXTENSIONS
        .iter()
        .flat_map(|extension| tree.with_extension(extension));
    files
        .flat_map(|(path, text)| check_file(path, text))
        .collect()
}

fn check_file(path: &str, text: &str) -> Vec<Violation> {
    let marked = text
        .lines()
        .enumerate()
        .filter_map(|(at, line)| marker(line).map(|marker| (at + 1, marker)));
    marked
        .map(|(line, marker)| Violation::new(&RULE, path, line, format!("task marker `{marker}`")))
        .collect()
}

fn marker(line: &str) -> Option<&'static str> {
    let mut tokens = line.split(|char: char| !char.is_alphanumeric() && char != '_');
    tokens.find_map(|token| MARKERS.iter().copied().find(|marker| *marker == token))
}

#[cfg(test)]
mod tests {
    use super::{MARKERS, check as check_markers};
    use crate::tree::Tree;
    use crate::violation::violation_lines;

    #[test]
    fn rule_finds_markers_as_whole_identifiers() {
        for marker in MARKERS {
            let text = format!("fn f() {{}}\n// {marker}: later\nlet {marker}S = 1;\n");
            let violations = check_markers(&Tree::of(&[("src/a.rs", &text)]));
            assert_eq!(
                violation_lines(&violations),
                [format!("2: task marker `{marker}`")]
            );
        }
    }
}
