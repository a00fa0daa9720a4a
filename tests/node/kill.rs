//! The real binary is killed with SIGKILL under load; nothing is lost or duplicated.
//!
//! The shop of `examples/orders` runs in this process with its own record, which is reconciled with the
//! runner's record at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlog_example_shop::crash_test::{CrashTestPlan, CrashTestReport, run};
use orlog_example_shop::orlog::RunnerPaths;
use orlog_program::compile_yaml;
use orlog_testkit::definition_suite;
use orlog_testkit::runtime::seed;
use orlog_testkit::{WAIT_TIMEOUT, distribution, long_run_size};

const DEFINITION: &str = include_str!("../../examples/orders/order.saga.yaml");

#[test]
fn order_definition_passes_the_definition_suite() {
    let compiled = compile_yaml(DEFINITION, "order.saga.yaml")
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    let played = definition_suite::check(&compiled);
    assert!(played.runs > 8, "{played:?}");
}

/// Runs a crash test; returns the number of orders and the times from a kill to the first new commit.
async fn check(
    kills: usize,
    orders_per_kill: usize,
    seed: u64,
    within: Duration,
) -> (usize, Vec<Duration>) {
    let dir = tempfile::tempdir().expect("a directory can be created");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/orders");
    let paths = RunnerPaths {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_orlog")),
        files,
        dir: dir.path().to_owned(),
    };
    let plan = CrashTestPlan {
        place: paths,
        seed,
        kills,
        orders_per_kill,
        wait: WAIT_TIMEOUT,
    };
    let run = tokio::time::timeout(within, run(plan)).await;
    let CrashTestReport { audit, recoveries } = run
        .unwrap_or_else(|_| panic!("seed {seed}: not over within {within:?}"))
        .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    assert!(audit.is_clean(), "seed {seed}: {:#?}", audit.mismatches);
    assert_eq!(audit.totals.started, kills * orders_per_kill, "seed {seed}");
    (audit.totals.started, recoveries)
}

/// Requirements: R9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_loss_and_no_duplicates_after_three_sigkills() {
    let (_, recoveries) = check(3, 40, seed(20_261_121), Duration::from_mins(2)).await;
    println!(
        "from a kill to the first new commit: {}",
        distribution(recoveries)
    );
}

/// `ORLOG_KILLS` kills (50), in groups with a new directory each; `ORLOG_SEED` is the seed of the first
/// group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn no_loss_and_no_duplicates_after_many_sigkills() {
    const GROUP: usize = 50;
    let (kills, first_seed) = (long_run_size("ORLOG_KILLS", GROUP), seed(1));
    let (mut orders, mut recoveries) = (0, Vec::new());
    for begun in (0..kills).step_by(GROUP) {
        let group_seed = first_seed + (begun / GROUP) as u64;
        let size = GROUP.min(kills - begun);
        let (placed, durations) = check(size, 30, group_seed, Duration::from_mins(15)).await;
        orders += placed;
        recoveries.extend(durations);
        let recovery = distribution(recoveries.clone());
        println!(
            "{orders} orders, lost 0, duplicated 0; from a kill to the first new commit: {recovery}"
        );
    }
}
