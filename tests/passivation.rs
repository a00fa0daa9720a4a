//! Passivation, shutdown and death of actors lose nothing: each input is applied once, in the order of its instance.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fastrand::Rng;
use orlog_model::{Clock, CorrelationId, Event, InstanceKey, ProgramRef, Timestamp};
use orlog_program::{Context, Fault, Manifest, Program, Reaction, Stimulus};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::World;
use orlog_testkit::runtime::{DEADLINE, Rig, Setup, passing, seed, tenant};
use orlog_testkit::sagas::{Ledger, Order, order, order_key, order_placed, random_plan};

const TIMEOUT: Duration = Duration::from_hours(1);
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn numbers(rig: &Rig, key: &InstanceKey) -> Vec<u32> {
    let instance = rig.reader().instance(key).ok().flatten();
    instance.map_or_else(Vec::new, |instance| Ledger::numbers(&instance.state))
}

/// Kills some saga actors: they are the shard's children that take inputs, and there are more of them than helpers.
fn kill_sagas(rig: &Rig, rng: &mut Rng, count: usize) {
    let shards = rig.runtime.root().get_children().into_iter().max_by_key(|shard| shard.get_children().len());
    let mut children = shards.map_or_else(Vec::new, |shard| shard.get_children());
    let helpers = 4;
    children.sort_by_key(ractor::ActorCell::get_id);
    let mut sagas = children.split_off(helpers.min(children.len()));
    rng.shuffle(&mut sagas);
    sagas.iter().take(count).for_each(ractor::ActorCell::kill);
}

/// Publishes the events of many ledgers, mixed, each ledger's own in order.
async fn load(
    rig: &Rig,
    rng: &mut Rng,
    ledgers: usize,
    events: u32,
    mut between: impl FnMut(&Rig, &mut Rng),
) {
    let mut open: Vec<(usize, u32)> = (0..ledgers).map(|ledger| (ledger, 0)).collect();
    let mut published = 0;
    while !open.is_empty() {
        let chosen = rng.usize(..open.len());
        let (ledger, number) = open[chosen];
        rig.publish(&Ledger::event(&Ledger::key(&tenant(), ledger), number, START)).await;
        open[chosen].1 += 1;
        if number + 1 == events {
            open.swap_remove(chosen);
        }
        published += 1;
        if published % 50 == 0 {
            between(rig, rng);
        }
    }
}

async fn until_full(rig: &Rig, ledgers: usize, events: u32) {
    let keys: Vec<InstanceKey> = (0..ledgers).map(|ledger| Ledger::key(&tenant(), ledger)).collect();
    rig.until("every ledger is full", |rig| {
        keys.iter().all(|key| numbers(rig, key).len() >= events as usize)
    })
    .await;
    for key in &keys {
        assert!(numbers(rig, key).into_iter().eq(0..events), "{key}: {:?}", numbers(rig, key));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_far_below_the_number_of_instances_loses_no_input_and_no_order() {
    let mut rng = Rng::with_seed(seed(1));
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = World::new(Arc::clone(&clock), 1);
    let mut setup = Setup::new(home.path().to_owned(), vec![Ledger::program()], clock);
    setup.limits.live_instances = 5;
    setup.limits.in_flight_per_instance = 4;
    let rig = setup.start(&world).await;
    let mut most = 0;
    load(&rig, &mut rng, 60, 15, |rig, _| most = most.max(rig.runtime.metrics().live_instances())).await;
    until_full(&rig, 60, 15).await;
    rig.until("idle instances are put to rest", |rig| rig.runtime.metrics().live_instances() <= 5).await;
    println!("at most {most} live instances were seen, 5 allowed");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_applies_its_events_in_order_while_actors_are_killed_and_passivated() {
    let mut rng = Rng::with_seed(seed(2));
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = World::new(Arc::clone(&clock), 1);
    let mut setup = Setup::new(home.path().to_owned(), vec![Ledger::program()], clock);
    setup.limits.live_instances = 8;
    setup.limits.idle = Duration::from_millis(4);
    let rig = setup.start(&world).await;
    load(&rig, &mut rng, 12, 60, |rig, rng| kill_sagas(rig, rng, 3)).await;
    until_full(&rig, 12, 60).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_load_comes_to_rest_and_what_was_not_taken_goes_on_after_the_next_start() {
    let mut rng = Rng::with_seed(seed(3));
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock = SimClock::new(START);
    let _passing = passing(&clock);
    let world = World::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let setup =
        Setup::new(home.path().to_owned(), vec![order(TIMEOUT)], Arc::clone(&clock) as Arc<dyn Clock>);
    let mut orders: Vec<Order> = Vec::new();
    for _ in 0..4 {
        let rig = setup.start(&world).await;
        for _ in 0..25 {
            let key = order_key(&tenant(), orders.len());
            let plan = random_plan(&mut rng, false);
            rig.publish(&order_placed(&key, &plan, clock.now())).await;
            orders.push((key, plan));
        }
        assert!(rig.runtime.drain(DEADLINE).await, "at rest in time: {}", rig.state());
        let (position, deeds) = (rig.reader().position(), world.deeds());
        assert_eq!(rig.outbox_depth(), 0, "a drained runtime has no work");
        let late = order_key(&tenant(), orders.len());
        rig.publish(&order_placed(&late, &serde_json::json!({}), clock.now())).await;
        orders.push((late, serde_json::json!({})));
        assert_eq!(rig.runtime.reader(&orders[0].0).map(|reader| reader.position()), Some(position));
        assert_eq!(world.deeds(), deeds, "a drained runtime does nothing");
        assert!(!rig.runtime.health().accepting);
        rig.stop().await;
    }
    let rig = setup.start(&world).await;
    rig.finish(&orders, &clock, TIMEOUT).await;
    rig.audit(&orders).await;
    rig.stop().await;
}

/// A ledger that applies nothing while the test holds the gate.
struct Gated {
    ledger: Arc<dyn Program>,
    gate: Arc<RwLock<()>>,
}

impl Program for Gated {
    fn reference(&self) -> &ProgramRef {
        self.ledger.reference()
    }

    fn manifest(&self) -> &Manifest {
        self.ledger.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        self.ledger.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.ledger.apply(state, stimulus, context)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[expect(
    clippy::await_holding_lock,
    reason = "the gate is closed by holding the lock, and nobody waits for it here"
)]
async fn the_depth_of_a_mailbox_is_counted_and_bounded() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let world = World::new(Arc::clone(&clock), 1);
    let gate = Arc::new(RwLock::new(()));
    let program: Arc<dyn Program> = Arc::new(Gated { ledger: Ledger::program(), gate: Arc::clone(&gate) });
    let mut setup = Setup::new(home.path().to_owned(), vec![program], clock);
    setup.limits.in_flight_per_instance = 16;
    let rig = setup.start(&world).await;
    let key = Ledger::key(&tenant(), 0);
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    for number in 0..50 {
        rig.publish(&Ledger::event(&key, number, START)).await;
    }
    let deepest = |rig: &Rig| rig.runtime.deepest_mailboxes(1).first().map_or(0, |(_, depth)| *depth);
    rig.until("the mailbox is as deep as it may be", |rig| deepest(rig) == 16).await;
    drop(closed);
    until_full(&rig, 1, 50).await;
    rig.until("the mailbox is empty", |rig| deepest(rig) == 0).await;
    rig.stop().await;
}
