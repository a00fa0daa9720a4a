//! Seed corpus of the fuzzer: every definition under `examples/` and in the test directories.

use std::path::{Path, PathBuf};

use orlog_program::{CompiledDefinition, compile_yaml};

/// Returns the texts in the order of their paths.
pub(super) fn texts() -> Vec<String> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    find(&crate_dir.join("tests"), &mut paths);
    find(&crate_dir.join("../../examples"), &mut paths);
    paths.sort();
    assert!(paths.len() >= 2, "no examples found");
    paths
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("an example is readable"))
        .collect()
}

fn find(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir)
        .expect("the directory exists")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            find(&path, into);
        } else if path.to_string_lossy().ends_with(".saga.yaml") {
            into.push(path);
        }
    }
}

/// Returns the compiled definitions of the corpus; every text compiles.
pub(super) fn sagas() -> Vec<CompiledDefinition> {
    texts()
        .iter()
        .map(|text| compile_yaml(text, "example").expect("an example compiles"))
        .collect()
}
