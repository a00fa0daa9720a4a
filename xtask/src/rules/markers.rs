//! No note to a later self stays in the tree; what is to be done stands in an issue.

use crate::tree::Tree;
use crate::violation::{Finding, Rule};

const RULE: Rule = Rule {
    name: "marker",
    reason: "a note in the code is an issue that nobody plans, counts or closes",
    remedy: "do it now, or open an issue and delete the note",
};

/// Spelled in halves, so that this file does not find itself.
const MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
const EXTENSIONS: [&str; 5] = ["rs", "toml", "sh", "yaml", "yml"];

/// Looks at every word of sources, scripts and configuration.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let files = EXTENSIONS.iter().flat_map(|extension| tree.with_extension(extension));
    files.flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let marked =
        text.lines().enumerate().filter_map(|(at, line)| marker(line).map(|marker| (at + 1, marker)));
    marked.map(|(line, marker)| Finding::new(&RULE, path, line, format!("the marker `{marker}`"))).collect()
}

fn marker(line: &str) -> Option<&'static str> {
    let mut words = line.split(|char: char| !char.is_alphanumeric() && char != '_');
    words.find_map(|word| MARKERS.iter().copied().find(|marker| *marker == word))
}

#[cfg(test)]
mod tests {
    use super::{MARKERS, check as check_markers};
    use crate::tree::Tree;
    use crate::violation::lines;

    #[test]
    fn finds_each_marker_as_a_whole_word() {
        for marker in MARKERS {
            let text = format!("fn f() {{}}\n// {marker}: later\nlet {marker}S = 1;\n");
            let findings = check_markers(&Tree::of(&[("src/a.rs", &text)]));
            assert_eq!(lines(&findings), [format!("2: the marker `{marker}`")]);
        }
    }
}
