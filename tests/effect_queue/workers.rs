//! Whoever offers and whoever performs, with the queue between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlog_actors::{Desk, Dispatch, Intensity, Metrics, Pool, PoolConfig, PoolParts};
use orlog_bus::Message;
use orlog_bus::effect_queue::EffectQueue;
use orlog_bus::nats::NatsEffects;
use orlog_effect::{
    Catalog, Done, Native, NativeCall, Observer, Performer, Policy, Refusal, Silent, Upstream,
};
use orlog_model::{InDoubt, Verdict, WorkItem};
use serde_json::json;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::fixture::{Ground, clock, command, connect, effect_mut, effect_of, in_time, item, item_of, until};

const SOON: Duration = Duration::from_millis(300);

/// Workers of these functions, on a connection of their own.
async fn workers(ground: &Ground, native: Native) -> Pool {
    let queue: Arc<dyn EffectQueue> = Arc::new(NatsEffects::new(connect(&ground.urls()).await));
    let observer = Arc::new(Silent) as Arc<dyn Observer>;
    let upstream = native.upstream("native", Policy::in_process());
    let catalog = Arc::new(Catalog::new(vec![upstream], &clock(), &observer).unwrap());
    let parts =
        PoolParts { queue, catalog, clock: clock(), metrics: Arc::new(Metrics::default()), tracer: None };
    let config = PoolConfig {
        node: "worker".to_owned(),
        in_flight: 64,
        ack_wait: SOON,
        tenants: None,
        intensity: Intensity::default(),
    };
    Pool::start(parts, config).await.unwrap()
}

/// What a node without hands has for an effect.
async fn asks(ground: &Ground, patience: Duration) -> Arc<Performer> {
    let desk = Desk::open(Arc::clone(&ground.queue), clock()).await.unwrap();
    let upstream = Upstream::rest("elsewhere", Arc::new(Dispatch::new(desk, patience)), Policy::worker());
    Performer::new(upstream, clock())
}

fn payload(done: &Done) -> serde_json::Value {
    let Verdict::Succeeded { payload, .. } = &done.verdict else { panic!("{done:?}") };
    payload.clone()
}

/// A function that counts how often it is called with each key.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<Uuid, usize>>>);

impl Calls {
    fn note(&self, key: Uuid) -> usize {
        let mut calls = self.0.lock().unwrap();
        let count = calls.entry(key).or_default();
        *count += 1;
        *count
    }

    fn all(&self) -> BTreeMap<Uuid, usize> {
        self.0.lock().unwrap().clone()
    }
}

fn doing(name: &str, calls: &Calls, by: &'static str) -> Native {
    let calls = calls.clone();
    Native::new().effect(name, move |call: NativeCall| {
        let count = calls.note(call.key);
        async move { Ok::<_, Refusal>(json!({ "by": by, "count": count })) }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_offered_is_performed_elsewhere_and_heard_here() {
    let Some(ground) = Ground::one().await else { return };
    let calls = Calls::default();
    let pool = workers(&ground, doing("a.b", &calls, "one")).await;
    let performer = asks(&ground, Duration::from_mins(1)).await;
    let item = item_of("acme", "a.b", 1);
    assert_eq!(payload(&in_time(performer.perform(&item)).await), json!({ "by": "one", "count": 1 }));
    // It is asked for again, as after a crash: the word that lies there counts, and nobody performs it again.
    assert_eq!(payload(&in_time(performer.perform(&item)).await), json!({ "by": "one", "count": 1 }));
    assert_eq!(payload(&in_time(performer.resume(&item)).await), json!({ "by": "one", "count": 1 }));
    assert_eq!(calls.all(), BTreeMap::from([(item.id, 1)]));
    let refuses = Native::new().effect("c.d", |_: NativeCall| async {
        Err::<serde_json::Value, _>(Refusal::failed("no_funds", "the card is empty"))
    });
    let other = workers(&ground, refuses).await;
    let answered = in_time(performer.perform(&crate::fixture::item("c.d", 2))).await;
    assert!(matches!(&answered.verdict, Verdict::Failed { failure, .. } if failure.code == "no_funds"));
    assert!(pool.drain(Duration::from_secs(10)).await && other.drain(Duration::from_secs(10)).await);
    pool.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_comes_twice_is_performed_once() {
    let Some(ground) = Ground::one().await else { return };
    let calls = Calls::default();
    let item = item("a.b", 1);
    for offer in 1..=4 {
        ground.queue.offer(command(&item, offer), offer == 1).await.unwrap();
    }
    let pool = workers(&ground, doing("a.b", &calls, "one")).await;
    let last = ground.queue.offer(command(&item, 5), false).await.unwrap();
    let name = &effect_of(&item).name;
    until(async || (!ground.queue.is_waiting(name, &last).await.ok()?).then_some(())).await;
    assert_eq!(calls.all(), BTreeMap::from([(item.id, 1)]));
    assert_eq!(ground.count("WORKFLOW_EVENTS", "effect_result.>").await, 1);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_takes_what_a_dead_one_had() {
    let Some(ground) = Ground::one().await else { return };
    let begun = Arc::new(Semaphore::new(0));
    let hangs = Native::new().effect("a.b", {
        let begun = Arc::clone(&begun);
        move |_: NativeCall| {
            begun.add_permits(1);
            std::future::pending::<Result<serde_json::Value, Refusal>>()
        }
    });
    let dies = workers(&ground, hangs).await;
    let performer = asks(&ground, Duration::from_mins(1)).await;
    let item = item("a.b", 1);
    let asked = tokio::spawn({
        let item = item.clone();
        async move { performer.perform(&item).await }
    });
    in_time(begun.acquire()).await.unwrap().forget();
    dies.stop().await;
    let calls = Calls::default();
    let pool = workers(&ground, doing("a.b", &calls, "another")).await;
    assert_eq!(payload(&in_time(asked).await.unwrap()), json!({ "by": "another", "count": 1 }));
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_be_tried_twice_is_not_given_to_another() {
    let Some(ground) = Ground::one().await else { return };
    let begun = Arc::new(Semaphore::new(0));
    let hangs = Native::new().effect("a.b", {
        let begun = Arc::clone(&begun);
        move |_: NativeCall| {
            begun.add_permits(1);
            std::future::pending::<Result<serde_json::Value, Refusal>>()
        }
    });
    let dies = workers(&ground, hangs).await;
    let performer = asks(&ground, Duration::from_mins(1)).await;
    let mut item = item("a.b", 1);
    effect_mut(&mut item).in_doubt = Some(InDoubt::Fail);
    let asked = tokio::spawn(async move { performer.perform(&item).await });
    in_time(begun.acquire()).await.unwrap().forget();
    dies.stop().await;
    let calls = Calls::default();
    let pool = workers(&ground, doing("a.b", &calls, "another")).await;
    let done = in_time(asked).await.unwrap();
    assert!(matches!(&done.verdict, Verdict::TimedOut { failure } if failure.code == "in_doubt"), "{done:?}");
    assert_eq!(calls.all(), BTreeMap::new());
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_workers_that_race_one_is_heard() {
    let Some(ground) = Ground::one().await else { return };
    let gate = Arc::new(tokio::sync::Barrier::new(2));
    let racing = |by: &'static str| {
        let gate = Arc::clone(&gate);
        Native::new().effect("a.b", move |_: NativeCall| {
            let gate = Arc::clone(&gate);
            async move {
                gate.wait().await;
                Ok::<_, Refusal>(json!({ "by": by }))
            }
        })
    };
    let (one, two) = (workers(&ground, racing("one")).await, workers(&ground, racing("two")).await);
    let performer = asks(&ground, Duration::from_mins(1)).await;
    let item = item("a.b", 1);
    let asked = tokio::spawn({
        let (performer, item) = (Arc::clone(&performer), item.clone());
        async move { performer.perform(&item).await }
    });
    // Offered again while the first is under way: the other worker has it now too, or this one has it later.
    for offer in 2.. {
        ground.queue.offer(command(&item, offer), false).await.unwrap();
        if tokio::time::timeout(Duration::from_millis(200), ground.word(&item)).await.is_ok() {
            break;
        }
    }
    let heard = payload(&in_time(asked).await.unwrap());
    assert_eq!(heard, ground.said(&item).await["payload"]);
    assert!(one.drain(Duration::from_secs(20)).await && two.drain(Duration::from_secs(20)).await);
    assert_eq!(ground.count("WORKFLOW_EVENTS", "effect_result.>").await, 1);
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_lost_is_offered_again() {
    let Some(ground) = Ground::one().await else { return };
    let performer = asks(&ground, SOON).await;
    let items: Vec<_> = (1..=5).map(|number| item("a.b", number)).collect();
    let asked: Vec<_> = items
        .iter()
        .map(|item| {
            let (performer, item) = (Arc::clone(&performer), item.clone());
            tokio::spawn(async move { performer.perform(&item).await })
        })
        .collect();
    until(async || (ground.count("WORKFLOW_COMMANDS", "effect.>").await == 5).then_some(())).await;
    ground.purge("WORKFLOW_COMMANDS").await;
    until(async || (ground.count("WORKFLOW_COMMANDS", "effect.>").await == 5).then_some(())).await;
    let calls = Calls::default();
    let pool = workers(&ground, doing("a.b", &calls, "one")).await;
    for done in asked {
        assert_eq!(payload(&in_time(done).await.unwrap())["by"], "one");
    }
    assert_eq!(calls.all(), items.iter().map(|item| (item.id, 1)).collect());
    assert_eq!(ground.count("WORKFLOW_EVENTS", "effect_result.>").await, 5);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_waits_its_turn_is_not_offered_again() {
    let Some(ground) = Ground::one().await else { return };
    let performer = asks(&ground, Duration::from_millis(20)).await;
    let one = item("a.b", 1);
    let asked = tokio::spawn({
        let (performer, item) = (Arc::clone(&performer), one.clone());
        async move { performer.perform(&item).await }
    });
    until(async || (ground.count("WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    // Another one waits out its whole deadline meanwhile: patience has run out many times.
    let mut other = item("c.d", 2);
    other.deadline = Some(clock().now().after(Duration::from_secs(1)));
    let done = in_time(performer.perform(&other)).await;
    assert!(matches!(&done.verdict, Verdict::TimedOut { .. }), "{done:?}");
    assert_eq!(ground.count("WORKFLOW_COMMANDS", "effect.>").await, 2);
    let pool = workers(&ground, doing("a.b", &Calls::default(), "one")).await;
    assert_eq!(payload(&in_time(asked).await.unwrap())["count"], 1);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_is_a_word_too_and_counts_if_it_is_the_first() {
    let Some(ground) = Ground::one().await else { return };
    let performer = asks(&ground, Duration::from_mins(1)).await;
    let mut late = item("a.b", 1);
    late.deadline = Some(clock().now().after(SOON));
    let done = in_time(performer.perform(&late)).await;
    assert!(matches!(&done.verdict, Verdict::TimedOut { .. }), "{done:?}");
    assert_eq!(ground.said(&late).await["result_type"], "TimedOut");
    // Whoever takes the command later sees that there is a word, and performs nothing.
    let calls = Calls::default();
    let pool = workers(&ground, doing("a.b", &calls, "late")).await;
    let other = item("a.b", 2);
    assert_eq!(payload(&in_time(performer.perform(&other)).await)["by"], "late");
    assert_eq!(calls.all(), BTreeMap::from([(other.id, 1)]));
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_came_while_nobody_listened_is_found() {
    let Some(ground) = Ground::one().await else { return };
    let item = item("a.b", 1);
    let performer = asks(&ground, Duration::from_mins(1)).await;
    let asked = tokio::spawn({
        let item = item.clone();
        async move { performer.perform(&item).await }
    });
    until(async || (ground.count("WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    asked.abort();
    drop(asked.await);
    let calls = Calls::default();
    let pool = workers(&ground, doing("a.b", &calls, "meanwhile")).await;
    ground.word(&item).await;
    pool.stop().await;
    let performer = asks(&ground, Duration::from_mins(1)).await;
    assert_eq!(payload(&in_time(performer.resume(&item)).await)["by"], "meanwhile");
    assert_eq!(calls.all(), BTreeMap::from([(item.id, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_nobody_can_read_becomes_a_dead_letter() {
    let Some(ground) = Ground::one().await else { return };
    let pool = workers(&ground, doing("a.b", &Calls::default(), "one")).await;
    let mut poison = command(&item_of("acme", "a.b", 1), 1);
    poison.payload = poison.payload.iter().map(|byte| if *byte == b'{' { b'[' } else { *byte }).collect();
    let elsewhere = Message {
        subject: poison.subject.replace("acme", "other"),
        ..command(&item_of("acme", "a.b", 2), 1)
    };
    for bad in [poison, elsewhere] {
        ground.queue.offer(bad, true).await.unwrap();
    }
    let performer = asks(&ground, Duration::from_mins(1)).await;
    in_time(performer.perform(&item("a.b", 3))).await;
    let buried = || async { ground.count("WORKFLOW_DEADLETTERS", "tenant.*.deadletter.effect.*").await };
    until(async || (buried().await == 2).then_some(())).await;
    assert_eq!(ground.count("WORKFLOW_DEADLETTERS", "tenant.other.deadletter.effect.*").await, 1);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_drains_ends_what_it_has_and_takes_no_more() {
    let Some(ground) = Ground::one().await else { return };
    let (begun, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let waits = Native::new().effect("a.b", {
        let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
        move |_: NativeCall| {
            let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
            async move {
                begun.add_permits(1);
                drop(go_on.acquire().await);
                Ok::<_, Refusal>(json!({ "by": "the one that drains" }))
            }
        }
    });
    let pool = Arc::new(workers(&ground, waits).await);
    let (first, second) = (item("a.b", 1), item("a.b", 2));
    ground.queue.offer(command(&first, 1), true).await.unwrap();
    in_time(begun.acquire()).await.unwrap().forget();
    let drained = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.drain(Duration::from_secs(30)).await }
    });
    until(async || pool.is_draining().then_some(())).await;
    let offered = ground.queue.offer(command(&second, 1), true).await.unwrap();
    go_on.add_permits(1);
    assert!(in_time(drained).await.unwrap());
    assert_eq!(ground.said(&first).await["payload"]["by"], "the one that drains");
    assert_eq!(pool.jobs(), 0);
    let name = &effect_of(&second).name;
    assert!(ground.queue.is_waiting(name, &offered).await.unwrap());
    pool.stop().await;
}

/// Ten thousand effects, two workers, of which one is given up under way; each order has one result and one key.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_ten_thousand_effects_has_one_result() {
    const COUNT: u128 = 10_000;
    let Some(ground) = Ground::one().await else { return };
    let (calls, done) = (Calls::default(), Arc::new(AtomicUsize::new(0)));
    let performer = asks(&ground, Duration::from_secs(20)).await;
    let dies = workers(&ground, doing("a.b", &calls, "the one that dies")).await;
    let lives = workers(&ground, doing("a.b", &calls, "the one that lives")).await;
    let begun = std::time::Instant::now();
    let asked: Vec<_> = (0..COUNT)
        .map(|number| {
            let (performer, done, item) = (Arc::clone(&performer), Arc::clone(&done), item("a.b", number));
            tokio::spawn(async move {
                let verdict = performer.perform(&item).await;
                done.fetch_add(1, Ordering::AcqRel);
                (item, verdict)
            })
        })
        .collect();
    until(async || (done.load(Ordering::Acquire) > 2_000).then_some(())).await;
    dies.stop().await;
    let mut results: Vec<(WorkItem, Done)> = Vec::new();
    for asked in asked {
        results.push(in_time(asked).await.unwrap());
    }
    println!("{COUNT} effects in {:?}", begun.elapsed());
    let keys = calls.all();
    assert_eq!(keys.len(), results.len());
    for (item, result) in &results {
        assert!(keys.contains_key(&item.id));
        assert!(matches!(result.verdict, Verdict::Succeeded { .. }), "{result:?}");
    }
    assert_eq!(ground.count("WORKFLOW_EVENTS", "effect_result.>").await, results.len());
    lives.stop().await;
}
