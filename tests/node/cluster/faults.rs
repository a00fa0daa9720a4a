//! Random faults of pods, NATS servers and links under an endless load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::nats_server::NatsCluster;
use orlog_testkit::wait::POLL_INTERVAL;

use crate::cluster::orders::EndlessOrders;
use crate::cluster::pods::Pods;
use crate::cluster::proxy::Proxy;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Orders that begin between a recovery and the next fault, at most.
const MAX_ORDERS_BETWEEN: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    PodKilled,
    PodPaused,
    LinkCut,
    PodDrained,
    ServerKilled,
}

const FAULTS: [Fault; 5] = [
    Fault::PodKilled,
    Fault::PodPaused,
    Fault::LinkCut,
    Fault::PodDrained,
    Fault::ServerKilled,
];

/// Times from a fault to the next commit of every shard that it concerned.
pub(crate) type Recoveries = BTreeMap<Fault, Vec<Duration>>;

/// Injects `count` faults one after another into three pods on three servers, then reconciles. Returns
/// the recovery times and the number of orders.
pub(crate) async fn inject(count: usize, seed: u64) -> (Recoveries, usize) {
    let mut nats = NatsCluster::start(3);
    let mut pods = Pods::new(&nats.urls(), 3).await;
    let mut links = BTreeMap::new();
    for name in NAMES {
        let mut proxies = Vec::new();
        for node in &nats.nodes {
            proxies.push(Proxy::to(node.port).await);
        }
        pods.start_through(
            name,
            proxies.iter().map(|proxy| proxy.url.clone()).collect(),
        )
        .await;
        links.insert(name, proxies);
    }
    pods.until_spread().await;
    let load = EndlessOrders::begin(&pods);
    let mut rng = Rng::with_seed(seed);
    let mut recoveries = Recoveries::new();
    for _ in 0..count {
        load.more_begun(rng.usize(..MAX_ORDERS_BETWEEN)).await;
        let (fault, victim) = (FAULTS[rng.usize(..FAULTS.len())], rng.usize(..3));
        let duration = inject_one(fault, victim, &mut pods, &mut nats, &links).await;
        println!("seed {seed}: {fault:?} of {victim}: {duration:?}");
        recoveries.entry(fault).or_default().push(duration);
        pods.until_spread().await;
    }
    let orders = load.stop().await;
    orders.check(&pods).await;
    (recoveries, orders.count)
}

/// Injects one fault, waits until every shard that it concerns commits again, and ends the fault.
async fn inject_one(
    fault: Fault,
    victim: usize,
    pods: &mut Pods,
    nats: &mut NatsCluster,
    links: &BTreeMap<&str, Vec<Arc<Proxy>>>,
) -> Duration {
    let name = NAMES[victim];
    let mut shards = BTreeSet::new();
    for owner in if fault == Fault::ServerKilled {
        &NAMES[..]
    } else {
        &NAMES[victim..=victim]
    } {
        shards.extend(pods.shards_of(owner).await);
    }
    let started = Instant::now();
    match fault {
        Fault::PodKilled => pods.kill(name),
        Fault::PodPaused => pods.pause(name),
        Fault::PodDrained => pods.drain(name),
        Fault::LinkCut => {
            pods.exclude(name);
            links[name].iter().for_each(|link| link.partition());
        }
        Fault::ServerKilled => nats.nodes[victim].kill(),
    }
    until_committed(pods, shards, fault).await;
    let duration = started.elapsed();
    match fault {
        Fault::PodKilled | Fault::PodDrained => pods.start(name).await,
        Fault::PodPaused => pods.resume(name),
        Fault::LinkCut => links[name].iter().for_each(|link| link.heal()),
        Fault::ServerKilled => nats.nodes[victim].restart(),
    }
    duration
}

/// Waits until a reachable pod has committed to each of these shards.
async fn until_committed(pods: &Pods, mut shards: BTreeSet<u64>, fault: Fault) {
    let first = pods.positions().await;
    let mut first: BTreeMap<(String, u64), u64> = first;
    let committed = async {
        let mut look = tokio::time::interval(POLL_INTERVAL);
        while !shards.is_empty() {
            look.tick().await;
            for (place, position) in pods.positions().await {
                if *first.entry(place.clone()).or_insert(position) < position {
                    shards.remove(&place.1);
                }
            }
        }
    };
    let recovered = tokio::time::timeout(WAIT_TIMEOUT, committed).await;
    assert!(
        recovered.is_ok(),
        "no commit in {shards:?} within {WAIT_TIMEOUT:?} of {fault:?}: {}",
        pods.all_logs_contain()
    );
}
