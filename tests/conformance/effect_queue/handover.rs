//! Jobs that a worker receives and does not execute: they are returned to other workers at once.

use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{RestartIntensity, WorkerPoolConfig};
use orlog_bus::effect_queue::{EffectQueue, JobSubscription};
use orlog_bus::nats::{Connection, NatsEffectQueue, Options, consumer_name};
use orlog_bus::signature::Signer;
use orlog_model::{EffectName, InDoubtPolicy};
use serde_json::json;

use super::workers::{CallCounter, doing, workers_with};
use crate::effect_queue::fixture::{QueueFixture, api, command, effect_mut, in_time, item, until};

/// Longer than any test: a job that its worker drops is not delivered again.
const NEVER: Duration = Duration::from_hours(1);

fn config() -> WorkerPoolConfig {
    WorkerPoolConfig {
        node: "worker".to_owned(),
        max_in_flight: 8,
        ack_wait: NEVER,
        tenants: None,
        intensity: RestartIntensity::default(),
    }
}

/// Returns the number of requests for jobs that wait at the server.
async fn waiting_requests(fixture: &QueueFixture, effect: &str) -> u64 {
    let name = consumer_name(&EffectName::new(effect).unwrap(), None);
    let operation = format!("CONSUMER.INFO.WORKFLOW_COMMANDS.{name}");
    let info = api(&fixture.connection, &operation, json!({})).await;
    info.and_then(|info| info["num_waiting"].as_u64())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_worker_returns_the_jobs_that_its_request_still_receives() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let drained = workers_with(&fixture, doing("a.b", &calls, "drained"), config()).await;
    until(async || (waiting_requests(&fixture, "a.b").await > 0).then_some(())).await;
    let drained = Arc::new(drained);
    let draining = tokio::spawn({
        let drained = Arc::clone(&drained);
        async move { drained.drain(Duration::from_mins(1)).await }
    });
    until(async || drained.is_draining().then_some(())).await;

    // Only the request of the drained worker is open.
    let mut job = item("a.b", 1);
    effect_mut(&mut job).in_doubt = Some(InDoubtPolicy::Fail);
    fixture.queue.enqueue(command(&job, 1), true).await.unwrap();
    assert!(in_time(draining).await.unwrap(), "the worker is drained");
    drained.stop().await;
    let other = workers_with(&fixture, doing("a.b", &calls, "other"), config()).await;
    let result = fixture.result_json(&job).await;
    assert_eq!(result["payload"]["user"], "other", "{result}");
    other.stop().await;
}

async fn signing(fixture: &QueueFixture, key: u8) -> Connection {
    let options = Options {
        servers: fixture.urls(),
        name: "test".to_owned(),
        signer: Arc::new(Signer::new(&[[key; 32]]).unwrap()),
        ..Options::default()
    };
    until(async || Connection::open(&options).await.ok()).await
}

fn subscription() -> JobSubscription {
    JobSubscription {
        effect: EffectName::new("a.b").unwrap(),
        tenant: None,
        served: Arc::default(),
        ack_wait: NEVER,
    }
}

/// The key of the sender has not reached all workers yet.
#[tokio::test(flavor = "multi_thread")]
async fn job_with_an_unknown_signature_is_returned_to_other_workers() {
    let fixture = QueueFixture::one().await;
    let sender = NatsEffectQueue::new(signing(&fixture, 1).await);
    let stranger = signing(&fixture, 2).await;
    let unsigned = fixture.queue.enqueue(command(&item("a.b", 1), 1), true);
    let unsigned = unsigned.await.unwrap();
    let signed = sender.enqueue(command(&item("a.b", 2), 1), true).await;
    let signed = signed.unwrap();

    let mut without_key = NatsEffectQueue::new(stranger.clone()).subscribe_jobs(subscription());
    tokio::select! {
        jobs = without_key.next(1) => panic!("job {} has no valid signature", jobs[0].sequence),
        () = until(async || {
            let rejected = stranger.signer().rejected().find(|(kind, _)| *kind == "effect");
            rejected.filter(|(_, count)| *count >= 2).map(drop)
        }) => {}
    }
    assert!(in_time(without_key.remaining()).await.is_empty());
    let mut with_key = sender.subscribe_jobs(subscription());
    let job = in_time(with_key.next(1)).await.remove(0);
    assert_eq!(job.sequence, signed.sequence);
    assert_ne!(job.sequence, unsigned.sequence, "it was terminated");
    assert!(job.deliveries > 1, "it was returned");
    job.ack.ack().await;
}
