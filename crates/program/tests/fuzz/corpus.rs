//! What the fuzzer starts from: every definition under `examples/` and beside the tests.

use std::path::{Path, PathBuf};

use orlog_program::{Compiled, compile_yaml};

/// The texts, in the order of their paths.
pub(super) fn texts() -> Vec<String> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    find(&crate_folder.join("tests"), &mut paths);
    find(&crate_folder.join("../../examples"), &mut paths);
    paths.sort();
    assert!(paths.len() >= 2, "the examples are not where they were");
    paths.iter().map(|path| std::fs::read_to_string(path).expect("an example is a text")).collect()
}

fn find(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, into);
        } else if path.to_string_lossy().ends_with(".saga.yaml") {
            into.push(path);
        }
    }
}

/// Those that compile, which is each.
pub(super) fn sagas() -> Vec<Compiled> {
    texts().iter().map(|text| compile_yaml(text, "example").expect("an example compiles")).collect()
}
