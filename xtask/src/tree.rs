//! Text of the checkout: every file that a rule may check, read once.
//!
//! Hidden directories, build output, data directories and files that are not UTF-8 are omitted. Paths
//! are relative to the root, with `/` between the parts. They are sorted, so that violations have the
//! same order on every machine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Error;

const EXCLUDED_DIRS: [&str; 3] = ["target", "data", "node_modules"];
const READ: [&str; 12] = [
    "rs", "toml", "md", "sh", "yaml", "yml", "js", "html", "css", "py", "ts", "txt",
];
const READ_BY_NAME: [&str; 2] = ["Makefile", "Dockerfile"];

/// Files of a checkout: path to text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    others: Vec<String>,
}

impl Tree {
    /// Reads the checkout in `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        tree.read_dir(root, "")?;
        Ok(tree)
    }

    /// Creates a tree from texts without disk access, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Self {
            texts,
            others: Vec::new(),
        }
    }

    /// Returns all text files.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns all files with the suffix `.{extension}`.
    pub(crate) fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| {
            Path::new(path)
                .extension()
                .is_some_and(|found| found == extension)
        })
    }

    /// Returns whether `path` is a file, or a directory that contains one.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let dir = format!("{path}/");
        let mut all = self.texts.keys().chain(&self.others);
        path.is_empty() || all.any(|known| known == path || known.starts_with(&dir))
    }

    fn read_dir(&mut self, dir: &Path, prefix: &str) -> Result<(), Error> {
        let failed = |source| Error {
            path: dir.display().to_string(),
            source,
        };
        for entry in dir.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(failed)?;
            let path = format!("{prefix}{name}");
            if kind.is_dir() && !name.starts_with('.') && !EXCLUDED_DIRS.contains(&name.as_str()) {
                self.read_dir(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                self.read_file(&entry.path(), path);
            }
        }
        Ok(())
    }

    fn read_file(&mut self, file: &Path, path: String) {
        match std::fs::read_to_string(file) {
            Ok(text) if is_text(file) => {
                self.texts.insert(path, text);
            }
            _ => self.others.push(path),
        }
    }
}

fn is_text(file: &Path) -> bool {
    let by_extension = file
        .extension()
        .is_some_and(|extension| READ.iter().any(|read| extension == *read));
    by_extension
        || file
            .file_name()
            .is_some_and(|name| READ_BY_NAME.iter().any(|read| name == *read))
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn reads_sources_except_build_output_and_hidden_directories() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in [
            ("src/a.rs", "//! a"),
            ("target/b.rs", ""),
            (".git/c.md", ""),
            ("README.md", "#"),
            ("Makefile", ""),
            ("p.png", ""),
        ] {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("directory");
            std::fs::write(file, text).expect("file");
        }
        let tree = Tree::read(root.path()).expect("readable");
        assert_eq!(
            tree.texts.keys().collect::<Vec<_>>(),
            ["Makefile", "README.md", "src/a.rs"]
        );
        assert!(tree.contains("p.png") && tree.contains("src") && !tree.contains("target"));
    }
}
