//! Permissions of the files that nodes and commands create.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::harness::process::Process;
use crate::harness::process::{orlog, run};
use crate::operations::node::{ORDER, placed};

/// Returns all files and directories below a path, with their permissions.
fn permissions(path: &Path, found: &mut Vec<(PathBuf, u32)>) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    found.push((path.to_owned(), metadata.permissions().mode() & 0o777));
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            permissions(&entry.unwrap().path(), found);
        }
    }
}

#[track_caller]
fn check_private(path: &Path, at_least: usize) {
    let mut found = Vec::new();
    permissions(path, &mut found);
    let exposed: Vec<_> = found.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(exposed.is_empty(), "{exposed:?}");
    assert!(found.len() >= at_least, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_files_are_private_and_exposed_ones_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    std::fs::write(definitions.join("order.saga.yaml"), ORDER).unwrap();
    let (data, copy, restored) = (
        dir.path().join("data"),
        dir.path().join("copy"),
        dir.path().join("restored"),
    );
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let node = Process::start(&[
        "--data-dir",
        &text(&data),
        "--definitions-dir",
        &text(&definitions),
    ]);
    let http = orlog_effect::http::client().build().unwrap();
    let published = http
        .post(format!("{}/v1/events", node.url))
        .json(&placed("o-1"))
        .send()
        .await
        .unwrap();
    assert_eq!(published.status(), 202);
    let (code, _, error) = run(orlog(&["backup", "--to", &text(&copy), "--url", &node.url])).await;
    assert_eq!(code, 0, "{error}");
    // Journals, tables, the audit trail, the layout.
    check_private(&data, 12);
    check_private(&copy, 3);
    node.stop();
    let (code, _, error) = run(orlog(&[
        "restore",
        "--from",
        &text(&copy),
        "--to",
        &text(&restored),
    ]))
    .await;
    assert_eq!(code, 0, "{error}");
    check_private(&restored, 3);

    let doctor = || {
        run(orlog(&[
            "doctor",
            "--data-dir",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ]))
    };
    let (_, report, _) = doctor().await;
    assert!(!report.contains("other users can read"), "{report}");
    // As an earlier release created them.
    for (path, mode) in [(data.clone(), 0o755), (data.join("layout.toml"), 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let (_, report, _) = doctor().await;
    assert!(
        report.contains("other users can read") && report.contains("chmod -R o="),
        "{report}"
    );
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (_, report, _) = doctor().await;
    assert!(
        !report.contains("other users can read"),
        "access ends at the directory: {report}"
    );
}
