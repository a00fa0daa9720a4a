//! The real binary is killed with SIGKILL in the middle of everything, and nothing is lost or doubled.
//!
//! The shop of `examples/orders` keeps its own book in this process; at the end it is compared with what the runner says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlog_example_shop::crash_test::{Plan, run};
use orlog_example_shop::orlog::Place;
use orlog_program::compile_yaml;
use orlog_testkit::definition_suite;
use orlog_testkit::runtime::seed;

const DEFINITION: &str = include_str!("../examples/orders/order.saga.yaml");

#[test]
fn the_order_definition_stands_the_quartet() {
    let compiled =
        compile_yaml(DEFINITION, "order.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}"));
    let played = definition_suite::check(&compiled);
    assert!(played.lives > 8, "{played:?}");
}

async fn check(kills: usize, orders_per_kill: usize, within: Duration) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/orders");
    let place =
        Place { binary: PathBuf::from(env!("CARGO_BIN_EXE_orlog")), files, folder: folder.path().to_owned() };
    let settle = Duration::from_mins(1);
    let plan = Plan { place, seed: seed(20_261_121), kills, orders_per_kill, settle };
    let run = tokio::time::timeout(within, run(plan)).await;
    let audit = run
        .unwrap_or_else(|_| panic!("not over within {within:?}"))
        .unwrap_or_else(|error| panic!("{error:#}"));
    println!("{:#?}", audit.figures);
    assert!(audit.is_clean(), "{:#?}", audit.disagreements);
    assert_eq!(audit.figures.started, kills * orders_per_kill);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_when_the_process_is_killed_three_times() {
    check(3, 40, Duration::from_mins(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make torture"]
async fn nothing_is_lost_or_doubled_when_the_process_is_killed_fifty_times() {
    check(50, 60, Duration::from_mins(15)).await;
}
