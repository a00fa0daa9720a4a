//! Damaged tables: the start and the doctor report them with a code, and no node ends with a signal.

use std::path::Path;

use orlog_testkit::WAIT_TIMEOUT;

use crate::harness::process::Process;
use crate::harness::process::{orlog, run};
use crate::operations::node::placed;

/// Size of a page of the tables, in bytes.
const PAGE: usize = 4096;
/// Pages with the metadata of the environment.
const META_PAGES: usize = 3;

/// Returns the data directory of a stopped node with a few hundred rows.
async fn stopped_node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("definitions")).unwrap();
    std::fs::write(
        dir.path().join("definitions/order.saga.yaml"),
        crate::operations::node::ORDER,
    )
    .unwrap();
    let node = Process::start(
        &arguments(dir.path())
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    let events: Vec<_> = (0..300)
        .map(|n| placed(&format!("o-{n}")).to_string())
        .collect();
    let file = dir.path().join("events.jsonl");
    std::fs::write(&file, events.join("\n")).unwrap();
    let (code, output, errors) = run(orlog(&[
        "publish",
        file.to_str().unwrap(),
        "--url",
        &node.url,
    ]))
    .await;
    assert_eq!(code, 0, "{output} {errors}");
    node.stop();
    dir
}

fn arguments(dir: &Path) -> Vec<String> {
    let path = |name: &str| dir.join(name).display().to_string();
    vec![
        "--data-dir".to_owned(),
        path("data"),
        "--definitions-dir".to_owned(),
        path("definitions"),
    ]
}

fn tables(dir: &Path) -> std::path::PathBuf {
    dir.join("data/shard-0/tables/mdbx.dat")
}

/// Runs the doctor with `--deep`; returns the exit code and the output.
async fn doctor(dir: &Path) -> (i32, String) {
    let mut args = vec![
        "doctor".to_owned(),
        "--deep".to_owned(),
        "--listen".to_owned(),
        "127.0.0.1:0".to_owned(),
    ];
    args.extend(arguments(dir));
    let (code, output, errors) =
        run(orlog(&args.iter().map(String::as_str).collect::<Vec<_>>())).await;
    (code, output + &errors)
}

#[tokio::test(flavor = "multi_thread")]
async fn overwritten_page_is_reported_at_start_and_by_the_doctor() {
    let dir = stopped_node().await;
    let intact = std::fs::read(tables(dir.path())).unwrap();
    let (_, output) = doctor(dir.path()).await;
    assert!(
        output.contains("rows are readable") && !output.contains("OR0062"),
        "{output}"
    );
    let mut reported = 0;
    let pages: Vec<usize> = (META_PAGES..intact.len() / PAGE)
        .filter(|page| {
            intact[page * PAGE..(page + 1) * PAGE]
                .iter()
                .any(|byte| *byte != 0)
        })
        .collect();
    assert!(pages.len() > 12, "{}", pages.len());
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let page = pages[random.usize(..pages.len())];
        let mut bytes = intact.clone();
        random.fill(&mut bytes[page * PAGE..(page + 1) * PAGE]);
        std::fs::write(tables(dir.path()), bytes).unwrap();
        let (_, output) = doctor(dir.path()).await;
        if !output.contains("OR0062") {
            // The page is free: no row is affected.
            assert!(
                output.contains("rows are readable"),
                "seed {seed}: {output}"
            );
            continue;
        }
        reported += 1;
        let mut args = vec![
            "dev".to_owned(),
            "--listen".to_owned(),
            "127.0.0.1:0".to_owned(),
        ];
        args.extend(arguments(dir.path()));
        let mut command = orlog(&args.iter().map(String::as_str).collect::<Vec<_>>());
        // On a busy machine the check of a small store can take longer than its default limit.
        command.env("ORLOG_STORE__START_CHECK_TIMEOUT", "30s");
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(WAIT_TIMEOUT, output)
            .await
            .expect("the node does not start")
            .unwrap();
        let (code, errors) = (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            code == Some(1) && errors.contains("OR0062"),
            "seed {seed}: {code:?} {errors}"
        );
        assert!(
            errors.contains("shard-0") && errors.contains("restore a backup"),
            "seed {seed}: {errors}"
        );
    }
    assert!(reported >= 4, "{reported} of 12 pages are in use");
}
