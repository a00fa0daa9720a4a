//! The tree is the text of the checkout: every file a rule may want to look at, read once.
//!
//! Hidden folders, build output and data folders are left out; so are files that are not UTF-8. Paths are relative to
//! the root, with `/` between the parts, and come sorted, so that findings come in the same order on every machine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Error;

const LEFT_OUT: [&str; 3] = ["target", "data", "node_modules"];
const READ: [&str; 6] = ["rs", "toml", "md", "sh", "yaml", "yml"];

/// The files of a checkout: path to text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    others: Vec<String>,
}

impl Tree {
    /// Reads the checkout that lies in `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// A tree of texts that need no disk, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { texts, others: Vec::new() }
    }

    /// All files whose name ends in `.{extension}`.
    pub(crate) fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts
            .iter()
            .filter(move |(path, _)| Path::new(path).extension().is_some_and(|found| found == extension))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Whether `path` is a file, or a folder that holds one.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let mut all = self.texts.keys().chain(&self.others);
        path.is_empty() || all.any(|known| known == path || known.starts_with(&folder))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> Result<(), Error> {
        let failed = |source| Error::Read { path: folder.display().to_string(), source };
        for entry in folder.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(failed)?;
            let path = format!("{prefix}{name}");
            if kind.is_dir() && !name.starts_with('.') && !LEFT_OUT.contains(&name.as_str()) {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() {
                self.read_file(&entry.path(), path);
            }
        }
        Ok(())
    }

    fn read_file(&mut self, file: &Path, path: String) {
        let wanted = file.extension().is_some_and(|extension| READ.iter().any(|read| extension == *read));
        match std::fs::read_to_string(file) {
            Ok(text) if wanted => {
                self.texts.insert(path, text);
            }
            _ => self.others.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn reads_sources_and_leaves_out_build_output_and_hidden_folders() {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in
            [("src/a.rs", "//! a"), ("target/b.rs", ""), (".git/c.md", ""), ("README.md", "#"), ("p.png", "")]
        {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("folder");
            std::fs::write(file, text).expect("file");
        }
        let tree = Tree::read(root.path()).expect("readable");
        assert_eq!(tree.texts.keys().collect::<Vec<_>>(), ["README.md", "src/a.rs"]);
        assert!(tree.holds("p.png") && tree.holds("src") && !tree.holds("target"));
    }
}
