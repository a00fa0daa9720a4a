//! Chaos test: actors of every kind are killed at random under load; the final state equals that of a
//! run without kills.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use orlog_actors::RestartIntensity;
use orlog_model::{Clock, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, seed, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed, random_plan};
use ractor::ActorCell;

const TIMEOUT: Duration = Duration::from_hours(1);
/// Actor kinds without the root: effects, provider, publisher, shard, committer, relay, timer,
/// dead-letter publisher, ingester, saga.
const KINDS: usize = 10;

type KillCounts = BTreeMap<TypeId, usize>;

/// Collects all descendants of an actor by kind. The type of its messages identifies the kind.
fn below(actor: &ActorCell, found: &mut BTreeMap<TypeId, Vec<ActorCell>>) {
    for child in actor.get_children() {
        below(&child, found);
        found.entry(child.get_type_id()).or_default().push(child);
    }
}

/// Kills an actor of a random kind; half of the time it is stopped normally instead.
fn kill_one(runtime: &TestRuntime, rng: &mut Rng, killed: &mut KillCounts) {
    let mut kinds = BTreeMap::new();
    below(&runtime.runtime.root(), &mut kinds);
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    if kinds.is_empty() {
        return;
    }
    let (kind, actors) = kinds.swap_remove(rng.usize(..kinds.len()));
    let victim = &actors[rng.usize(..actors.len())];
    *killed.entry(kind).or_default() += 1;
    if rng.bool() {
        victim.kill();
    } else {
        victim.stop(None);
    }
}

/// Waits for some commits under load.
async fn breathe(runtime: &TestRuntime, commits: usize) {
    let mut watch = runtime.reader().watch();
    for _ in 0..commits {
        drop(tokio::time::timeout(Duration::from_millis(5), watch.changed()).await);
    }
}

async fn chaos(seed: u64, kills_of_each_kind: usize, shards: u16) {
    let mut rng = Rng::with_seed(seed);
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![order(TIMEOUT)],
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    setup.shards = shards;
    let runtime = setup.start(&world).await;
    let (mut orders, mut killed) = (Vec::new(), KillCounts::new());
    while killed.len() < KINDS || killed.values().any(|count| *count < kills_of_each_kind) {
        for _ in 0..2 {
            let key = order_key(&tenant(), orders.len());
            let plan = random_plan(&mut rng, true);
            runtime
                .publish(&order_placed(&key, &plan, clock.now()))
                .await;
            orders.push((key, plan));
        }
        kill_one(&runtime, &mut rng, &mut killed);
        breathe(&runtime, rng.usize(1..12)).await;
        assert!(
            orders.len() < 10_000,
            "not every kind of actor was found: {killed:?}"
        );
    }
    assert_eq!(killed.len(), KINDS, "kinds of actors");
    println!(
        "{} orders, kills by kind {:?}",
        orders.len(),
        killed.values().collect::<Vec<_>>()
    );
    runtime.finish(&orders, &clock, TIMEOUT).await;
    runtime.assert_consistent(&orders).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_loss_and_no_duplicates_when_actors_are_killed_under_load() {
    chaos(seed(1), 2, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn no_loss_and_no_duplicates_when_actors_are_killed_under_load_long() {
    let first = seed(1000);
    for seed in first..first + 50 {
        println!("seed {seed}");
        chaos(seed, 5, 1 + u16::try_from(seed % 3).expect("it is small")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_several_shards_do_not_add_up() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(Timestamp::from_millis(0));
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut setup = TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], clock);
    setup.intensity = RestartIntensity {
        max_restarts: 3,
        period: Duration::from_mins(1),
    };
    setup.shards = 6;
    let runtime = setup.start(&world).await;
    let root = runtime.runtime.root();
    let ids = |cells: &[ActorCell]| cells.iter().map(ActorCell::get_id).collect::<Vec<_>>();
    for _ in 0..2 {
        let before = root.get_children();
        assert_eq!(before.len(), 7, "the shards and the effects supervisor");
        before.iter().for_each(ActorCell::kill);
        let all_restarted = |_: &TestRuntime| {
            let (before, now) = (ids(&before), ids(&root.get_children()));
            now.len() == before.len() && now.iter().all(|id| !before.contains(id))
        };
        runtime
            .wait_until("every child is restarted", all_restarted)
            .await;
    }
    runtime
        .wait_until("every shard runs", |runtime| {
            runtime.runtime.health().is_running
        })
        .await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_stops_when_a_shard_exceeds_restart_intensity() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock: Arc<dyn Clock> = SimClock::new(Timestamp::from_millis(0));
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut setup = TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], clock);
    setup.intensity = RestartIntensity {
        max_restarts: 3,
        period: Duration::from_mins(1),
    };
    let runtime = setup.start(&world).await;
    let root = runtime.runtime.root();
    let killing = async {
        loop {
            root.get_children().iter().for_each(ActorCell::kill);
            tokio::task::yield_now().await;
        }
    };
    let stopped = async {
        tokio::select! {
            () = runtime.runtime.ended() => {}
            () = killing => {}
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, stopped)
        .await
        .expect("the root gives up");
    assert!(
        !runtime.runtime.health().is_running,
        "a tree that has failed is not healthy"
    );
    // Commits are durable, and the next start continues from them.
    runtime.crash().await;
    setup.start(&world).await.stop().await;
}
