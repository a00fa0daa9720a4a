//! Guarantees of the effect queue on JetStream, with one server and with three.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::Message;
use orlog_bus::effect_queue::{
    self, EffectResult, Job, JobStream, JobSubscription, ReadConsistency, ResultPublish,
    StartRecord,
};
use orlog_model::{EffectName, Timestamp, WorkItem, WorkOutcome};
use serde_json::json;
use uuid::Uuid;

use crate::effect_queue::fixture::{
    QueueFixture, clock, command, connect, effect_of, in_time, item, item_of, until,
};

fn subscription(effect: &str, ack_wait: Duration) -> JobSubscription {
    JobSubscription {
        effect: EffectName::new(effect).unwrap(),
        tenant: None,
        served: Arc::default(),
        ack_wait,
    }
}

fn result_message(item: &WorkItem, by: usize) -> Message {
    let outcome = WorkOutcome::succeeded(None, json!({ "user": by }));
    let (facts, trace, attempt_log) = (Vec::new(), None, None);
    let result = EffectResult {
        command_id: item.id,
        outcome,
        attempts: 1,
        facts,
        trace,
        attempt_log,
        stored_at: None,
    };
    effect_queue::encode_result(item, effect_of(item), &result, Timestamp::from_millis(0))
}

async fn one(jobs: &mut Box<dyn JobStream>) -> Job {
    let mut found = in_time(jobs.next(1)).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn offers_lie_once(fixture: &QueueFixture) {
    let item = item("a.b", 104);
    let first = fixture
        .queue
        .enqueue(command(&item, 1), true)
        .await
        .unwrap();
    let repeated = fixture
        .queue
        .enqueue(command(&item, 1), true)
        .await
        .unwrap();
    assert_eq!(first.sequence, repeated.sequence);
    let other = fixture
        .queue
        .enqueue(command(&item, 2), false)
        .await
        .unwrap();
    let twice = fixture
        .queue
        .enqueue(command(&item, 2), false)
        .await
        .unwrap();
    assert_eq!(
        (other.sequence, other.sequence > first.sequence),
        (twice.sequence, true)
    );
    assert_eq!(fixture.count("WORKFLOW_COMMANDS", "effect.>").await, 2);
}

async fn first_result_wins(fixture: &QueueFixture) {
    let mut live = fixture.queue.subscribe_results().await.unwrap();
    for number in 0..20 {
        let item = item_of("acme", "a.b", number);
        let publications = (0..8).map(|by| fixture.queue.publish_result(result_message(&item, by)));
        let result = in_time(futures::future::join_all(publications)).await;
        let there = fixture
            .queue
            .result(
                &result_message(&item, 0).subject,
                ReadConsistency::Linearizable,
            )
            .await
            .unwrap()
            .unwrap();
        let ours = result
            .iter()
            .filter(|result| matches!(result, Ok(ResultPublish::Published)))
            .count();
        assert_eq!(ours, 1, "{result:?}");
        for result in result {
            if let ResultPublish::AlreadyPublished(result_message) = result.unwrap() {
                assert_eq!(result_message.payload, there.payload);
            }
        }
        let mut received = in_time(live.next()).await;
        assert_eq!(received.len(), 1);
        assert_eq!(received.remove(0).payload, there.payload);
    }
    assert_eq!(
        fixture
            .count("WORKFLOW_EVENTS", "tenant.acme.effect_result.>")
            .await,
        20
    );
}

async fn first_start_is_recorded(fixture: &QueueFixture) {
    let mut live = fixture.queue.subscribe_results().await.unwrap();
    let item = item_of("starts", "a.b", 1);
    let executions: Vec<_> = (1..=8).map(Uuid::from_u128).collect();
    let start = |execution| {
        let at = Timestamp::from_millis(0);
        effect_queue::encode_start(&item, effect_of(&item), execution, "node", at)
    };

    let records = executions
        .iter()
        .map(|execution| fixture.queue.record_start(start(*execution)));
    let records = in_time(futures::future::join_all(records)).await;
    let mut recorded = Vec::new();
    for (execution, record) in executions.iter().zip(records) {
        if record.unwrap() == StartRecord::Recorded {
            recorded.push(*execution);
        }
    }
    assert_eq!(recorded.len(), 1, "{recorded:?}");

    // A repeated record of the same execution is its own.
    let again = fixture.queue.record_start(start(recorded[0])).await;
    assert_eq!(again.unwrap(), StartRecord::Recorded);

    let result = result_message(&item, 1);
    let published = fixture.queue.publish_result(result.clone()).await;
    assert!(matches!(published, Ok(ResultPublish::Published)));
    let received = in_time(live.next()).await;
    assert_eq!(received.len(), 1, "records of starts are no results");
    assert_eq!(received[0].subject, result.subject);
}

async fn job_is_redelivered_until_acknowledged(fixture: &QueueFixture) {
    let effect = "jobs.on";
    let queue = &fixture.queue;
    let mut first = queue.subscribe_jobs(subscription(effect, Duration::from_millis(500)));
    let item = item(effect, 100);
    let offered = queue.enqueue(command(&item, 1), true).await.unwrap();
    let name = &effect_of(&item).name;
    assert!(queue.is_pending(name, &offered).await.unwrap());
    let job = one(&mut first).await;
    assert_eq!((job.deliveries, job.sequence), (1, offered.sequence));
    drop(first);
    let mut second = queue.subscribe_jobs(subscription(effect, Duration::from_millis(500)));
    let job = one(&mut second).await;
    assert_eq!(job.deliveries, 2, "nothing was heard of the first");
    job.ack.nak_with_delay(Duration::from_millis(1)).await;
    let job = one(&mut second).await;
    assert_eq!(job.deliveries, 3);
    assert!(queue.is_pending(name, &offered).await.unwrap());
    job.ack.ack().await;
    until(async || (!queue.is_pending(name, &offered).await.unwrap()).then_some(())).await;
}

async fn in_progress_extends_ack_wait(fixture: &QueueFixture) {
    let effect = "jobs.long";
    let mut jobs = fixture
        .queue
        .subscribe_jobs(subscription(effect, Duration::from_millis(400)));
    fixture
        .queue
        .enqueue(command(&item(effect, 101), 1), true)
        .await
        .unwrap();
    let job = one(&mut jobs).await;
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        job.ack.in_progress().await;
        if let Ok(found) = tokio::time::timeout(Duration::from_millis(100), jobs.next(1)).await {
            panic!(
                "it was handed out again, as delivery {}",
                found[0].deliveries
            );
        }
    }
    job.ack.term().await;
    let offered = fixture
        .queue
        .enqueue(command(&item(effect, 102), 1), true)
        .await
        .unwrap();
    assert_eq!(one(&mut jobs).await.sequence, offered.sequence);
}

async fn purged_command_is_not_pending(fixture: &QueueFixture) {
    let item = item("jobs.gone", 103);
    let offered = fixture
        .queue
        .enqueue(command(&item, 1), true)
        .await
        .unwrap();
    let name = &effect_of(&item).name;
    assert!(
        fixture.queue.is_pending(name, &offered).await.unwrap(),
        "no worker has fetched its jobs"
    );
    fixture.purge("WORKFLOW_COMMANDS").await;
    assert!(!fixture.queue.is_pending(name, &offered).await.unwrap());
}

async fn check_contract(fixture: &QueueFixture) {
    offers_lie_once(fixture).await;
    first_result_wins(fixture).await;
    first_start_is_recorded(fixture).await;
    job_is_redelivered_until_acknowledged(fixture).await;
    in_progress_extends_ack_wait(fixture).await;
    purged_command_is_not_pending(fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_server_satisfies_the_contract() {
    let fixture = QueueFixture::one().await;
    check_contract(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_satisfy_the_contract() {
    let fixture = QueueFixture::three().await;
    check_contract(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_received_after_a_server_crash() {
    let mut fixture = QueueFixture::one().await;
    let mut live = fixture.queue.subscribe_results().await.unwrap();
    let items: Vec<_> = (0..60).map(|number| item("a.b", number)).collect();
    for item in &items[..30] {
        fixture
            .queue
            .publish_result(result_message(item, 1))
            .await
            .unwrap();
    }
    fixture.restart();
    let queue = orlog_bus::nats::NatsEffectQueue::new(connect(&fixture.urls()).await);
    for item in &items[30..] {
        use orlog_bus::effect_queue::EffectQueue as _;
        until(async || queue.publish_result(result_message(item, 1)).await.ok()).await;
    }
    let mut received = Vec::new();
    while received.len() < items.len() {
        received.extend(
            in_time(live.next())
                .await
                .into_iter()
                .map(|result_message| result_message.subject),
        );
    }
    let expected: Vec<_> = items
        .iter()
        .map(|item| result_message(item, 1).subject)
        .collect();
    assert_eq!(received, expected, "each once, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_redelivered_after_a_server_crash() {
    let mut fixture = QueueFixture::one().await;
    let mut jobs = fixture
        .queue
        .subscribe_jobs(subscription("a.b", Duration::from_millis(500)));
    fixture
        .queue
        .enqueue(command(&item("a.b", 1), 1), true)
        .await
        .unwrap();
    one(&mut jobs).await.ack.in_progress().await;
    fixture.restart();
    let mut job = one(&mut jobs).await;
    // The job that was in flight when the server was killed may arrive first.
    while job.deliveries < 2 {
        job = one(&mut jobs).await;
    }
    job.ack.ack().await;
    let name = EffectName::new("a.b").unwrap();
    let offered = fixture
        .queue
        .enqueue(command(&item("a.b", 1), 1), true)
        .await
        .unwrap();
    assert!(offered.already_queued || offered.sequence == job.sequence);
    until(async || (!fixture.queue.is_pending(&name, &offered).await.ok()?).then_some(())).await;
    assert!(clock().now().as_millis() > 0);
}
