//! Packages of `make dist`: each is installed into an empty environment and runs the quick start of README.md.
//!
//! They contain the binary of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::quick_start;

/// Directory of the packages, which all tests use; the next run replaces it.
static PACKAGES: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    // An earlier run can have packages of another version.
    drop(std::fs::remove_dir_all(&dir));
    std::fs::create_dir_all(&dir).expect("the directory is writable");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/dist.py");
    run(Command::new("python3")
        .arg(script)
        .args(["--binary", env!("CARGO_BIN_EXE_orlog"), "--fast", "--out"])
        .arg(&dir));
    dir
});

/// Returns the package with this suffix.
fn package(suffix: &str) -> PathBuf {
    let entries = std::fs::read_dir(&*PACKAGES).expect("the packages are built");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .find(|path| path.to_string_lossy().ends_with(suffix))
        .unwrap_or_else(|| panic!("no package {suffix}"))
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn empty() -> TempDir {
    tempfile::tempdir().expect("a directory can be created")
}

#[test]
fn archive_contains_binary_manual_and_completions() {
    let dir = empty();
    run(Command::new("tar")
        .arg("-xzf")
        .arg(package("-linux.tar.gz"))
        .arg("-C")
        .arg(dir.path())
        .arg("--strip-components=1"));
    for file in [
        "man/man1/orlog.1",
        "man/man1/orlog-saga-show.1",
        "completions/orlog.bash",
        "orlog.service",
        "LICENSE",
    ] {
        assert!(dir.path().join(file).is_file(), "{file}");
    }
    quick_start::play(&dir.path().join("bin"));
}

#[test]
fn debian_package_is_installed_with_its_service_and_configuration() {
    let dir = empty();
    let (root, deb) = (dir.path(), package(".deb"));
    let admin = root.join("var/lib/dpkg");
    std::fs::create_dir_all(admin.join("info")).expect("the directory is writable");
    for file in ["status", "available"] {
        std::fs::write(admin.join(file), "").expect("the directory is writable");
    }
    // An empty system without the libraries; the test runs with those of the host.
    let flags = [
        "--force-depends",
        "--force-not-root",
        "--log=/dev/null",
        "--install",
    ];
    run(Command::new("dpkg")
        .arg(format!("--root={}", root.display()))
        .args(flags)
        .arg(deb));
    for file in [
        "usr/lib/systemd/system/orlog.service",
        "usr/share/man/man1/orlog.1.gz",
        "etc/orlog/sagas",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    let orlog = root.join("usr/bin/orlog");
    let config =
        std::fs::read_to_string(root.join("etc/orlog/orlog.toml")).expect("a configuration");
    let config = config.replace("/etc/", &format!("{}/etc/", root.display()));
    let config = config.replace(
        "/var/lib/orlog",
        &root.join("var/lib/orlog").display().to_string(),
    );
    let file = root.join("test.toml");
    std::fs::write(&file, config).expect("the directory is writable");
    run(Command::new(&orlog).args(["doctor", "--config"]).arg(file));
    quick_start::play(&root.join("usr/bin"));
}

#[test]
fn wheel_is_installed_into_an_empty_environment() {
    let dir = empty();
    run(Command::new("python3")
        .args(["-m", "venv", "--without-pip"])
        .arg(dir.path()));
    let python = dir.path().join("bin/python");
    // The pip of the host installs into the environment.
    run(Command::new("python3")
        .args(["-m", "pip", "--disable-pip-version-check", "--python"])
        .arg(python)
        .args(["install", "--no-index", "-q"])
        .arg(package(".whl")));
    quick_start::play(&dir.path().join("bin"));
}

#[test]
fn npm_package_is_installed_into_an_empty_project() {
    let dir = empty();
    std::fs::write(dir.path().join("package.json"), "{}").expect("the directory is writable");
    run(Command::new("npm")
        .args([
            "install",
            "--offline",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .arg(package(".tgz"))
        .current_dir(dir.path()));
    quick_start::play(&dir.path().join("node_modules/.bin"));
}

#[test]
fn checksums_match_the_packages() {
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&*PACKAGES));
}
