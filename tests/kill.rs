//! The real binary is killed with SIGKILL under load; nothing is lost or duplicated.
//!
//! The shop of `examples/orders` runs in this process with its own record, which is reconciled with the
//! runner's record at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlog_example_shop::crash_test::{CrashTestPlan, run};
use orlog_example_shop::orlog::RunnerPaths;
use orlog_program::compile_yaml;
use orlog_testkit::definition_suite;
use orlog_testkit::runtime::seed;

const DEFINITION: &str = include_str!("../examples/orders/order.saga.yaml");

#[test]
fn order_definition_passes_the_definition_suite() {
    let compiled =
        compile_yaml(DEFINITION, "order.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}"));
    let played = definition_suite::check(&compiled);
    assert!(played.runs > 8, "{played:?}");
}

async fn check(kills: usize, orders_per_kill: usize, within: Duration) {
    let dir = tempfile::tempdir().expect("a directory can be created");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/orders");
    let paths =
        RunnerPaths { binary: PathBuf::from(env!("CARGO_BIN_EXE_orlog")), files, dir: dir.path().to_owned() };
    let settle_time = Duration::from_mins(1);
    let plan =
        CrashTestPlan { place: paths, seed: seed(20_261_121), kills, orders_per_kill, wait: settle_time };
    let run = tokio::time::timeout(within, run(plan)).await;
    let audit = run
        .unwrap_or_else(|_| panic!("not over within {within:?}"))
        .unwrap_or_else(|error| panic!("{error:#}"));
    println!("{:#?}", audit.totals);
    assert!(audit.is_clean(), "{:#?}", audit.mismatches);
    assert_eq!(audit.totals.started, kills * orders_per_kill);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_loss_and_no_duplicates_after_three_sigkills() {
    check(3, 40, Duration::from_mins(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn no_loss_and_no_duplicates_after_fifty_sigkills() {
    check(50, 60, Duration::from_mins(15)).await;
}
