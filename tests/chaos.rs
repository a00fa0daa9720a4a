//! Chaos inside: actors of every kind are killed at random under load, and the end is the same as without.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_actors::Intensity;
use orlog_model::{Clock, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::runtime::{DEADLINE, Rig, Setup, passing, seed, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed, random_plan};
use ractor::ActorCell;

const TIMEOUT: Duration = Duration::from_hours(1);
/// Without the root: effects, provider, publisher, shard, committer, relay, timer, postman, ingester, saga.
const KINDS: usize = 10;

type Killed = BTreeMap<TypeId, usize>;

/// Everybody below an actor, by kind. A kind is told by the type of its messages.
fn below(actor: &ActorCell, found: &mut BTreeMap<TypeId, Vec<ActorCell>>) {
    for child in actor.get_children() {
        below(&child, found);
        found.entry(child.get_type_id()).or_default().push(child);
    }
}

/// Kills an actor of a kind drawn by lot; half of the time it is stopped instead, as if it had come to its end.
fn kill_one(rig: &Rig, rng: &mut Rng, killed: &mut Killed) {
    let mut kinds = BTreeMap::new();
    below(&rig.runtime.root(), &mut kinds);
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    if kinds.is_empty() {
        return;
    }
    let (kind, actors) = kinds.swap_remove(rng.usize(..kinds.len()));
    let victim = &actors[rng.usize(..actors.len())];
    *killed.entry(kind).or_default() += 1;
    if rng.bool() { victim.kill() } else { victim.stop(None) }
}

/// Lets the load go on for a few commits.
async fn breathe(rig: &Rig, commits: usize) {
    let mut watch = rig.reader().watch();
    for _ in 0..commits {
        drop(tokio::time::timeout(Duration::from_millis(5), watch.changed()).await);
    }
}

async fn chaos(seed: u64, kills_of_each_kind: usize, shards: u16) {
    let mut rng = Rng::with_seed(seed);
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let mut setup =
        Setup::new(home.path().to_owned(), vec![order(TIMEOUT)], Arc::clone(&clock) as Arc<dyn Clock>);
    setup.shards = shards;
    let rig = setup.start(&world).await;
    let (mut orders, mut killed) = (Vec::new(), Killed::new());
    while killed.len() < KINDS || killed.values().any(|count| *count < kills_of_each_kind) {
        for _ in 0..2 {
            let key = order_key(&tenant(), orders.len());
            let plan = random_plan(&mut rng, true);
            rig.publish(&order_placed(&key, &plan, clock.now())).await;
            orders.push((key, plan));
        }
        kill_one(&rig, &mut rng, &mut killed);
        breathe(&rig, rng.usize(1..12)).await;
        assert!(orders.len() < 10_000, "not every kind of actor was found: {killed:?}");
    }
    assert_eq!(killed.len(), KINDS, "kinds of actors");
    println!("{} orders, kills by kind {:?}", orders.len(), killed.values().collect::<Vec<_>>());
    rig.finish(&orders, &clock, TIMEOUT).await;
    rig.audit(&orders).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actors_of_every_kind_killed_under_load_lose_and_double_nothing() {
    chaos(seed(1), 2, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make torture"]
async fn actors_of_every_kind_killed_under_load_lose_and_double_nothing_long() {
    let first = seed(1000);
    for seed in first..first + 50 {
        println!("seed {seed}");
        chaos(seed, 5, 1 + u16::try_from(seed % 3).expect("it is small")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_root_gives_up_when_a_shard_dies_too_often() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock: Arc<dyn Clock> = SimClock::new(Timestamp::from_millis(0));
    let world = World::new(Arc::clone(&clock), 1);
    let mut setup = Setup::new(home.path().to_owned(), vec![order(TIMEOUT)], clock);
    setup.intensity = Intensity { restarts: 3, period: Duration::from_mins(1) };
    let rig = setup.start(&world).await;
    let root = rig.runtime.root();
    let killing = async {
        loop {
            root.get_children().iter().for_each(ActorCell::kill);
            tokio::task::yield_now().await;
        }
    };
    let given_up = async {
        tokio::select! {
            () = rig.runtime.ended() => {}
            () = killing => {}
        }
    };
    tokio::time::timeout(DEADLINE, given_up).await.expect("the root gives up");
    assert!(!rig.runtime.health().up, "a tree that has given up is not healthy");
    // What was committed is safe, and the next start goes on.
    rig.crash().await;
    setup.start(&world).await.stop().await;
}
