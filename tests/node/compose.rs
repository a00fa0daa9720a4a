//! Compose files against the schema of the Compose specification.

use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Returns what the checker prints if a file does not follow the specification.
fn check(file: &Path) -> Result<(), String> {
    let tools = Path::new(ROOT).join(".tools/check-jsonschema");
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", &tools)
        .arg(tools.join("bin/check-jsonschema"));
    command
        .args(["--builtin-schema", "vendor.compose-spec"])
        .arg(file);
    let output = command.output().expect("python3 starts");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(printed)
    }
}

/// Requirements: R17.
#[test]
fn compose_files_follow_the_compose_specification() {
    for file in [
        "deploy/compose.yml",
        "src/cli/init/jobs/compose.yaml",
        "src/cli/init/service/compose.yaml",
    ] {
        check(&Path::new(ROOT).join(file)).unwrap_or_else(|errors| panic!("{file}: {errors}"));
    }
}

#[test]
fn unknown_key_of_a_compose_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("compose.yml");
    std::fs::write(&file, "services: { orlog: { image: orlog, volume: [] } }").unwrap();
    let errors = check(&file).unwrap_err();
    assert!(errors.contains("volume"), "{errors}");
}
