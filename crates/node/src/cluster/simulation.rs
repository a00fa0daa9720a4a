//! Simulation of a cluster on one thread and in simulated time: three pods with the shard controller of
//! the product, and simulated servers that lose responses, partition pods, elect leaders and lose the
//! bucket of the leases.
//!
//! Stores, programs and providers are not part of it: a host applies numbered events. A seed determines
//! the whole run, because tokio runs on one thread and its time advances only when all tasks wait. A
//! failed run prints its seed; `ORLOG_SEED` repeats it.

mod nodes;
mod pod;
mod servers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant as RealInstant};

use pod::{Defect, SimPod};
use servers::{Request, Servers};
use tokio::time::Instant;

/// Number of shards.
const SHARDS: u16 = 4;
/// Time to live of the leases.
const TTL: Duration = Duration::from_secs(3);
/// Number of faults of a run.
const FAULTS: usize = 12;
/// Time in which the work of a run ends after the last fault.
const SETTLE: Duration = Duration::from_mins(5);
const PODS: [&str; 3] = ["orlog-0", "orlog-1", "orlog-2"];

/// Result of a run.
struct Outcome {
    violations: Vec<String>,
    requests: Vec<Request>,
    faults: BTreeMap<&'static str, u64>,
    events: u64,
    takeovers: u64,
    simulated: Duration,
}

/// Runs one seed.
fn run(seed: u64, defect: Defect) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime
        .expect("a runtime can be built")
        .block_on(simulate(seed, defect))
}

async fn simulate(seed: u64, defect: Defect) -> Outcome {
    let (servers, started_at) = (Servers::new(seed), Instant::now());
    let mut pods = PODS.map(|name| Some(SimPod::start(&servers, name, defect)));
    for _ in 0..FAULTS {
        accept_events(&servers);
        servers.pause(TTL * 4).await;
        inject_fault(&servers, &mut pods, defect).await;
    }
    servers.lock().heal();
    settle(&servers).await;
    let mut state = servers.lock();
    check_logs(&mut state);
    Outcome {
        violations: std::mem::take(&mut state.violations),
        requests: std::mem::take(&mut state.requests),
        faults: std::mem::take(&mut state.faults),
        events: state.logs.iter().map(|log| log.accepted).sum(),
        takeovers: state.takeovers,
        simulated: started_at.elapsed(),
    }
}

fn accept_events(servers: &Servers) {
    let mut state = servers.lock();
    for shard in 0..usize::from(SHARDS) {
        let count = state.rng.u64(..12);
        state.logs[shard].accepted += count;
    }
}

async fn inject_fault(servers: &Arc<Servers>, pods: &mut [Option<SimPod>; 3], defect: Defect) {
    let (fault, chosen, duration) = {
        let mut state = servers.lock();
        let millis = state.rng.u64(100..15_000);
        (
            state.rng.u8(..10),
            state.rng.usize(..3),
            Duration::from_millis(millis),
        )
    };
    let name = PODS[chosen];
    match fault {
        0..4 => {
            let mut state = servers.lock();
            state.count("partition");
            state.cut(name, duration);
        }
        4 => {
            let mut state = servers.lock();
            state.count("leader change");
            for pod in PODS {
                state.cut(pod, duration / 3);
            }
        }
        5 => {
            let mut state = servers.lock();
            state.count("bucket recreated");
            state.recreate_bucket();
        }
        6..8 => {
            servers.lock().count("crash");
            pods[chosen].take().expect("the pod runs").crash().await;
            tokio::time::sleep(duration / 2).await;
            pods[chosen] = Some(SimPod::start(servers, name, defect));
        }
        _ => {
            servers.lock().count("restart");
            pods[chosen].take().expect("the pod runs").leave().await;
            pods[chosen] = Some(SimPod::start(servers, name, defect));
        }
    }
}

/// Waits until every accepted event is applied.
async fn settle(servers: &Servers) {
    let is_done = || {
        let state = servers.lock();
        state
            .logs
            .iter()
            .all(|log| log.committed.len() as u64 >= log.accepted)
    };
    let done = async {
        while !is_done() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    drop(tokio::time::timeout(SETTLE, done).await);
}

/// Checks that each accepted event was applied once and in order.
fn check_logs(state: &mut servers::State) {
    let mut violations = Vec::new();
    for (shard, log) in state.logs.iter().enumerate() {
        if !log.committed.iter().copied().eq(0..log.accepted) {
            let (applied, accepted) = (log.committed.len(), log.accepted);
            violations.push(format!(
                "shard {shard} does not end: {applied} of {accepted} events are applied"
            ));
        }
    }
    state.violations.extend(violations);
}

/// Runs seeds and prints the totals. `ORLOG_SEED` runs one seed.
fn run_all(first: u64, count: u64) {
    let only = std::env::var("ORLOG_SEED")
        .ok()
        .map(|seed| seed.parse().expect("ORLOG_SEED is a number"));
    let seeds = only.map_or(first..first + count, |seed: u64| seed..seed + 1);
    let (started_at, mut simulated, mut faults) =
        (RealInstant::now(), Duration::ZERO, BTreeMap::new());
    let (mut events, mut requests, mut takeovers, total) = (0, 0, 0, seeds.end - seeds.start);
    for seed in seeds {
        let outcome = run(seed, Defect::None);
        assert!(
            outcome.violations.is_empty(),
            "ORLOG_SEED={seed}: {:#?}",
            outcome.violations
        );
        outcome
            .faults
            .into_iter()
            .for_each(|(fault, count)| *faults.entry(fault).or_insert(0) += count);
        (events, requests) = (events + outcome.events, requests + outcome.requests.len());
        (takeovers, simulated) = (takeovers + outcome.takeovers, simulated + outcome.simulated);
    }
    let rate = simulated.as_secs_f64() / started_at.elapsed().as_secs_f64() * 60.0;
    println!(
        "{total} seeds, {events} events, {requests} requests, {takeovers} takeovers, faults {faults:?}, {rate:.0} simulated seconds a minute"
    );
}

#[test]
fn clusters_apply_every_event_once_under_faults() {
    run_all(1, 200);
}

#[test]
#[ignore = "long; make stress"]
fn clusters_apply_every_event_once_under_faults_long() {
    let count =
        std::env::var("ORLOG_SEEDS").map_or(20_000, |count| count.parse().expect("a number"));
    run_all(10_000, count);
}

#[test]
fn a_seed_determines_the_run() {
    let (first, second) = (run(7, Defect::None), run(7, Defect::None));
    assert!(!first.requests.is_empty());
    assert_eq!(first.requests, second.requests);
}

/// Returns the first violation that contains `text` and that the same seed has only with the defect.
fn find(defect: Defect, text: &str) -> String {
    let found = (1..41).find_map(|seed| {
        let found = run(seed, defect)
            .violations
            .into_iter()
            .find(|violation| violation.contains(text))?;
        assert!(
            run(seed, Defect::None).violations.is_empty(),
            "seed {seed} fails without the defect"
        );
        Some(format!("seed {seed}: {found}"))
    });
    let found = found.unwrap_or_else(|| panic!("the simulation does not find {defect:?}"));
    println!("{defect:?}: {found}");
    found
}

#[test]
fn attempts_of_a_stopped_shard_are_found() {
    find(Defect::StoppedShardWorks, "began an attempt");
}

#[test]
fn a_shard_that_stops_late_is_found() {
    find(Defect::StopsLate, "began an attempt");
}
