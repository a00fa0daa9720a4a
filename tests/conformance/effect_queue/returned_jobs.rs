//! Jobs that a worker returns to the queue without an attempt. The queue is a fake, because its redeliveries must be exact.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_actors::{
    Metrics, RestartIntensity, WorkerPool, WorkerPoolConfig, WorkerPoolDependencies,
};
use orlog_bus::effect_queue::{
    self, EffectQueue, EnqueuedCommand, Job, JobAck, JobStream, JobSubscription, ReadConsistency,
    ResultPublish, ResultStream,
};
use orlog_bus::{Error, Message};
use orlog_effect::{
    Catalog, EffectObserver, FunctionCall, FunctionProvider, NoopObserver, Policy, ProviderError,
    Upstream,
};
use orlog_model::{EffectName, InDoubtPolicy, TenantId, WorkOutcome};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::effect_queue::fixture::{clock, command, effect_mut, in_time, item_of};

/// Queue without results, whose jobs the test delivers.
struct FakeQueue {
    jobs: Arc<Mutex<UnboundedReceiver<Job>>>,
    results: UnboundedSender<Message>,
}

#[async_trait]
impl EffectQueue for FakeQueue {
    async fn enqueue(&self, _: Message, _: bool) -> Result<EnqueuedCommand, Error> {
        Err(Error::Unavailable("the test delivers the jobs".to_owned()))
    }

    async fn is_pending(&self, _: &EffectName, _: &EnqueuedCommand) -> Result<bool, Error> {
        Ok(true)
    }

    async fn result(&self, _: &str, _: ReadConsistency) -> Result<Option<Message>, Error> {
        Ok(None)
    }

    async fn publish_result(&self, result: Message) -> Result<ResultPublish, Error> {
        self.results
            .send(result)
            .expect("the test receives results");
        Ok(ResultPublish::Published)
    }

    async fn subscribe_results(&self) -> Result<Box<dyn ResultStream>, Error> {
        Err(Error::Unavailable(
            "the test reads the published results".to_owned(),
        ))
    }

    async fn subscribe_jobs(&self, _: JobSubscription) -> Result<Box<dyn JobStream>, Error> {
        Ok(Box::new(FakeJobs(Arc::clone(&self.jobs))))
    }

    async fn dead_letter(&self, message: Message) -> Result<(), Error> {
        panic!("{message:?}")
    }
}

struct FakeJobs(Arc<Mutex<UnboundedReceiver<Job>>>);

#[async_trait]
impl JobStream for FakeJobs {
    async fn next(&mut self, _: usize) -> Vec<Job> {
        match self.0.lock().await.recv().await {
            Some(job) => vec![job],
            None => std::future::pending().await,
        }
    }
}

/// Acknowledgement that sends each returned job.
struct FakeAck(UnboundedSender<()>);

#[async_trait]
impl JobAck for FakeAck {
    async fn in_progress(&self) {}

    async fn ack(&self) {}

    async fn nak_with_delay(&self, _: Duration) {
        self.0.send(()).expect("the test receives returned jobs");
    }

    async fn term(&self) {}
}

fn upstream(tenant: &str) -> Upstream {
    let provider = FunctionProvider::new().effect("a.b", |_: FunctionCall| async {
        Ok::<_, ProviderError>(json!({ "executed": true }))
    });
    let upstream = provider.upstream("native", Policy::in_process());
    upstream.for_tenants(Some([TenantId::new(tenant).unwrap()].into()))
}

/// A reload removes the executor of a tenant and adds it again.
#[tokio::test]
async fn returned_job_is_not_in_doubt_at_the_next_delivery_to_its_worker() {
    let ((jobs, receiver), (results, mut published)) = (unbounded_channel(), unbounded_channel());
    let (returns, mut returned) = unbounded_channel();
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let catalog = Arc::new(Catalog::new(vec![upstream("beta")], &clock(), &observer).unwrap());
    let dependencies = WorkerPoolDependencies {
        queue: Arc::new(FakeQueue {
            jobs: Arc::new(Mutex::new(receiver)),
            results,
        }),
        catalog: Arc::clone(&catalog),
        clock: clock(),
        metrics: Arc::new(Metrics::default()),
        tracer: None,
    };
    let config = WorkerPoolConfig {
        node: "worker".to_owned(),
        max_in_flight: 4,
        ack_wait: Duration::from_mins(1),
        tenants: None,
        intensity: RestartIntensity::default(),
    };
    let pool = WorkerPool::start(dependencies, config).await.unwrap();
    let deliver = |number: u128, deliveries| {
        let mut item = item_of("acme", "a.b", number);
        effect_mut(&mut item).in_doubt = Some(InDoubtPolicy::Fail);
        let (message, ack) = (
            Arc::new(command(&item, 1)),
            Arc::new(FakeAck(returns.clone())),
        );
        let sequence = u64::try_from(number).unwrap();
        assert!(
            jobs.send(Job {
                message,
                sequence,
                deliveries,
                ack
            })
            .is_ok()
        );
    };
    for deliveries in [1, 2] {
        deliver(1, deliveries);
        in_time(returned.recv()).await.unwrap();
    }
    let next = catalog.rebuild(vec![upstream("acme")]).unwrap();
    catalog.replace_with(&next);
    for (number, deliveries, is_executed) in [(1, 3, true), (2, 2, false), (1, 5, false)] {
        deliver(number, deliveries);
        let result =
            effect_queue::decode_result(&in_time(published.recv()).await.unwrap()).unwrap();
        match result.outcome {
            WorkOutcome::Succeeded { .. } => {
                assert!(is_executed, "job {number}, delivery {deliveries}");
            }
            WorkOutcome::TimedOut { failure } => {
                assert!(!is_executed && failure.code == "in_doubt");
            }
            other => panic!("{other:?}"),
        }
    }
    pool.stop().await;
}
