//! What a queue of effects promises, asked of JetStream on one server and on three.

use std::time::Duration;

use orlog_bus::Message;
use orlog_bus::effect_queue::{self, FirstWord, Job, Jobs, Look, Said, Wanted};
use orlog_model::{EffectName, Timestamp, Verdict, WorkItem};
use serde_json::json;

use crate::fixture::{Ground, clock, command, connect, effect_of, in_time, item, item_of, until};

fn wanted(effect: &str, ack_wait: Duration) -> Wanted {
    Wanted { effect: EffectName::new(effect).unwrap(), tenants: None, ack_wait }
}

fn word(item: &WorkItem, by: usize) -> Message {
    let verdict = Verdict::Succeeded { event: None, payload: json!({ "by": by }) };
    let said = Said { command_id: item.id, verdict, attempts: 1, facts: Vec::new(), trace: None };
    effect_queue::encode_result(item, effect_of(item), &said, Timestamp::from_millis(0))
}

async fn one(jobs: &mut Box<dyn Jobs>) -> Job {
    let mut found = in_time(jobs.next(1)).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn offers_lie_once(ground: &Ground) {
    let item = item("a.b", 104);
    let first = ground.queue.offer(command(&item, 1), true).await.unwrap();
    let again = ground.queue.offer(command(&item, 1), true).await.unwrap();
    assert_eq!(first.sequence, again.sequence);
    let other = ground.queue.offer(command(&item, 2), false).await.unwrap();
    let twice = ground.queue.offer(command(&item, 2), false).await.unwrap();
    assert_eq!((other.sequence, other.sequence > first.sequence), (twice.sequence, true));
    assert_eq!(ground.count("WORKFLOW_COMMANDS", "effect.>").await, 2);
}

async fn the_first_word_counts(ground: &Ground) {
    let mut live = ground.queue.listen().await.unwrap();
    for number in 0..20 {
        let item = item_of("acme", "a.b", number);
        let says = (0..8).map(|by| ground.queue.say(word(&item, by)));
        let said = in_time(futures::future::join_all(says)).await;
        let there = ground.queue.word(&word(&item, 0).subject, Look::Sure).await.unwrap().unwrap();
        let ours = said.iter().filter(|said| matches!(said, Ok(FirstWord::Ours))).count();
        assert_eq!(ours, 1, "{said:?}");
        for said in said {
            if let FirstWord::Theirs(word) = said.unwrap() {
                assert_eq!(word.payload, there.payload);
            }
        }
        let mut heard = in_time(live.next()).await;
        assert_eq!(heard.len(), 1);
        assert_eq!(heard.remove(0).payload, there.payload);
    }
    assert_eq!(ground.count("WORKFLOW_EVENTS", "tenant.acme.effect_result.>").await, 20);
}

async fn a_job_goes_on_to_another_until_it_is_done(ground: &Ground) {
    let effect = "jobs.on";
    let queue = &ground.queue;
    let mut first = queue.jobs(wanted(effect, Duration::from_millis(500))).await.unwrap();
    let item = item(effect, 100);
    let offered = queue.offer(command(&item, 1), true).await.unwrap();
    let name = &effect_of(&item).name;
    assert!(queue.is_waiting(name, &offered).await.unwrap());
    let job = one(&mut first).await;
    assert_eq!((job.deliveries, job.sequence), (1, offered.sequence));
    drop(first);
    let mut second = queue.jobs(wanted(effect, Duration::from_millis(500))).await.unwrap();
    let job = one(&mut second).await;
    assert_eq!(job.deliveries, 2, "nothing was heard of the first");
    job.receipt.later(Duration::from_millis(1)).await;
    let job = one(&mut second).await;
    assert_eq!(job.deliveries, 3);
    assert!(queue.is_waiting(name, &offered).await.unwrap());
    job.receipt.done().await;
    until(async || (!queue.is_waiting(name, &offered).await.unwrap()).then_some(())).await;
}

async fn somebody_is_at_it_for_as_long_as_they_say_so(ground: &Ground) {
    let effect = "jobs.long";
    let mut jobs = ground.queue.jobs(wanted(effect, Duration::from_millis(400))).await.unwrap();
    ground.queue.offer(command(&item(effect, 101), 1), true).await.unwrap();
    let job = one(&mut jobs).await;
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        job.receipt.alive().await;
        if let Ok(found) = tokio::time::timeout(Duration::from_millis(100), jobs.next(1)).await {
            panic!("it was handed out again, as delivery {}", found[0].deliveries);
        }
    }
    job.receipt.never().await;
    let offered = ground.queue.offer(command(&item(effect, 102), 1), true).await.unwrap();
    assert_eq!(one(&mut jobs).await.sequence, offered.sequence);
}

async fn what_is_gone_does_not_wait(ground: &Ground) {
    let item = item("jobs.gone", 103);
    let offered = ground.queue.offer(command(&item, 1), true).await.unwrap();
    let name = &effect_of(&item).name;
    assert!(ground.queue.is_waiting(name, &offered).await.unwrap(), "nobody has ever taken its jobs");
    ground.purge("WORKFLOW_COMMANDS").await;
    assert!(!ground.queue.is_waiting(name, &offered).await.unwrap());
}

async fn keeps_its_promises(ground: &Ground) {
    offers_lie_once(ground).await;
    the_first_word_counts(ground).await;
    a_job_goes_on_to_another_until_it_is_done(ground).await;
    somebody_is_at_it_for_as_long_as_they_say_so(ground).await;
    what_is_gone_does_not_wait(ground).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_keeps_the_promises() {
    let Some(ground) = Ground::one().await else { return };
    keeps_its_promises(&ground).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_keep_the_promises() {
    let Some(ground) = Ground::three().await else { return };
    keeps_its_promises(&ground).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_heard_across_a_crash_of_the_server() {
    let Some(mut ground) = Ground::one().await else { return };
    let mut live = ground.queue.listen().await.unwrap();
    let items: Vec<_> = (0..60).map(|number| item("a.b", number)).collect();
    for item in &items[..30] {
        ground.queue.say(word(item, 1)).await.unwrap();
    }
    ground.restart();
    let queue = orlog_bus::nats::NatsEffects::new(connect(&ground.urls()).await);
    for item in &items[30..] {
        use orlog_bus::effect_queue::EffectQueue as _;
        until(async || queue.say(word(item, 1)).await.ok()).await;
    }
    let mut heard = Vec::new();
    while heard.len() < items.len() {
        heard.extend(in_time(live.next()).await.into_iter().map(|word| word.subject));
    }
    let expected: Vec<_> = items.iter().map(|item| word(item, 1).subject).collect();
    assert_eq!(heard, expected, "each once, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_handed_out_again_after_a_crash_of_the_server() {
    let Some(mut ground) = Ground::one().await else { return };
    let mut jobs = ground.queue.jobs(wanted("a.b", Duration::from_millis(500))).await.unwrap();
    ground.queue.offer(command(&item("a.b", 1), 1), true).await.unwrap();
    one(&mut jobs).await.receipt.alive().await;
    ground.restart();
    let mut job = one(&mut jobs).await;
    // The one that was under way as the server died may come first.
    while job.deliveries < 2 {
        job = one(&mut jobs).await;
    }
    job.receipt.done().await;
    let name = EffectName::new("a.b").unwrap();
    let offered = ground.queue.offer(command(&item("a.b", 1), 1), true).await.unwrap();
    assert!(offered.found || offered.sequence == job.sequence);
    until(async || (!ground.queue.is_waiting(&name, &offered).await.ok()?).then_some(())).await;
    assert!(clock().now().millis() > 0);
}
