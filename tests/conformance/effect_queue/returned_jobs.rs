//! Doubt about jobs that are delivered more than once. The queue is a fake, because its redeliveries must be exact.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_actors::{
    Metrics, RestartIntensity, WorkerPool, WorkerPoolConfig, WorkerPoolDependencies,
};
use orlog_bus::effect_queue::{
    self, EffectQueue, EnqueuedCommand, Job, JobAck, JobBacklog, JobStream, JobSubscription,
    ReadConsistency, ResultPublish, ResultStream, StartRecord, SubscriptionState,
};
use orlog_bus::{Error, Message};
use orlog_effect::{
    Catalog, EffectObserver, FunctionCall, FunctionProvider, NoopObserver, Policy, ProviderError,
    Upstream,
};
use orlog_model::{EffectName, InDoubtPolicy, TenantId, Timestamp, WorkItem, WorkOutcome};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, watch};

use crate::effect_queue::fixture::{clock, command, effect_mut, in_time, item_of};

/// Queue without results, whose jobs the test delivers.
struct FakeQueue {
    jobs: Arc<Mutex<UnboundedReceiver<Job>>>,
    results: UnboundedSender<Message>,
    starts: Arc<Mutex<HashMap<String, Message>>>,
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

    async fn record_start(&self, start: Message) -> Result<StartRecord, Error> {
        let mut starts = self.starts.lock().await;
        let recorded = starts
            .entry(start.subject.clone())
            .or_insert_with(|| start.clone());
        Ok(if recorded.payload == start.payload {
            StartRecord::Recorded
        } else {
            StartRecord::AlreadyRecorded
        })
    }

    async fn subscribe_results(&self) -> Result<Box<dyn ResultStream>, Error> {
        Err(Error::Unavailable(
            "the test reads the published results".to_owned(),
        ))
    }

    fn subscribe_jobs(&self, _: JobSubscription) -> Box<dyn JobStream> {
        Box::new(FakeJobs(Arc::clone(&self.jobs)))
    }

    async fn backlog(&self, _: &str) -> Result<JobBacklog, Error> {
        Ok(JobBacklog::default())
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

    fn state(&self) -> watch::Receiver<SubscriptionState> {
        watch::channel(SubscriptionState::Opening(None)).1
    }

    async fn remaining(&mut self) -> Vec<Job> {
        Vec::new()
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

/// A pool whose jobs a test delivers.
struct DeliveredJobs {
    pool: WorkerPool,
    catalog: Arc<Catalog>,
    jobs: UnboundedSender<Job>,
    returns: UnboundedSender<()>,
    returned: UnboundedReceiver<()>,
    published: UnboundedReceiver<Message>,
    starts: Arc<Mutex<HashMap<String, Message>>>,
}

impl DeliveredJobs {
    /// Starts a pool that executes effects of this tenant.
    async fn of(tenant: &str) -> Self {
        let (jobs, receiver) = unbounded_channel();
        let (results, published) = unbounded_channel();
        let (returns, returned) = unbounded_channel();
        let starts = Arc::default();
        let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
        let catalog = Arc::new(Catalog::new(vec![upstream(tenant)], &clock(), &observer).unwrap());
        let dependencies = WorkerPoolDependencies {
            queue: Arc::new(FakeQueue {
                jobs: Arc::new(Mutex::new(receiver)),
                results,
                starts: Arc::clone(&starts),
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
        Self {
            pool: WorkerPool::start(dependencies, config).await.unwrap(),
            catalog,
            jobs,
            returns,
            returned,
            published,
            starts,
        }
    }

    fn deliver(&self, item: &WorkItem, deliveries: u64, dispatch_count: u32) {
        let job = Job {
            message: Arc::new(command(item, dispatch_count)),
            sequence: 7,
            deliveries,
            ack_wait: Duration::from_mins(1),
            ack: Arc::new(FakeAck(self.returns.clone())),
        };
        assert!(self.jobs.send(job).is_ok());
    }

    /// Waits until the job is returned.
    async fn returned(&mut self) {
        in_time(self.returned.recv()).await.unwrap();
    }

    /// Returns the code of the failure of the next result; `None` if the effect was executed.
    async fn failure(&mut self) -> Option<String> {
        let message = in_time(self.published.recv()).await.unwrap();
        match effect_queue::decode_result(&message).unwrap().outcome {
            WorkOutcome::Succeeded { .. } => None,
            WorkOutcome::TimedOut { failure } => Some(format!("timed out: {}", failure.code)),
            WorkOutcome::Failed { failure, .. } => Some(format!("failed: {}", failure.code)),
            other @ WorkOutcome::Accepted => panic!("{other:?}"),
        }
    }

    fn serve(&self, tenant: &str) {
        let next = self.catalog.rebuild(vec![upstream(tenant)]).unwrap();
        self.catalog.replace_with(&next);
    }
}

fn effect_that_must_not_be_repeated(number: u128) -> WorkItem {
    let mut item = item_of("acme", "a.b", number);
    effect_mut(&mut item).in_doubt = Some(InDoubtPolicy::Fail);
    item
}

/// Another worker returned the job, or received it without an attempt before it was stopped.
#[tokio::test]
async fn redelivered_job_without_a_recorded_start_is_executed() {
    let mut worker = DeliveredJobs::of("acme").await;
    for (number, deliveries, dispatch_count) in [(1, 2, 1), (2, 1, 2), (3, 9, 4)] {
        let item = effect_that_must_not_be_repeated(number);
        worker.deliver(&item, deliveries, dispatch_count);
        assert_eq!(
            worker.failure().await,
            None,
            "delivery {deliveries} of dispatch {dispatch_count}"
        );
    }
    worker.pool.stop().await;
}

#[tokio::test]
async fn job_with_a_recorded_start_of_another_execution_is_in_doubt() {
    let mut worker = DeliveredJobs::of("acme").await;
    let item = effect_that_must_not_be_repeated(1);
    worker.deliver(&item, 1, 1);
    assert_eq!(worker.failure().await, None);
    // The result is lost: the worker ended before it published it. Even a first delivery is then in doubt, because another
    // consumer can deliver the job.
    worker.deliver(&item, 1, 1);
    assert_eq!(
        worker.failure().await.as_deref(),
        Some("timed out: in_doubt")
    );
    worker.pool.stop().await;
}

/// The deadline passes before the first attempt of this execution, and an earlier one made an attempt.
#[tokio::test]
async fn late_job_is_in_doubt_only_if_a_start_is_recorded() {
    let mut worker = DeliveredJobs::of("acme").await;
    let mut item = effect_that_must_not_be_repeated(1);
    worker.deliver(&item, 1, 1);
    assert_eq!(worker.failure().await, None);
    item.deadline = Some(Timestamp::from_millis(1));
    worker.deliver(&item, 2, 1);
    assert_eq!(
        worker.failure().await.as_deref(),
        Some("timed out: in_doubt")
    );
    let mut unattempted = effect_that_must_not_be_repeated(2);
    unattempted.deadline = item.deadline;
    worker.deliver(&unattempted, 2, 1);
    assert_eq!(
        worker.failure().await.as_deref(),
        Some("failed: deadline_passed")
    );
    worker.pool.stop().await;
}

/// An effect that is attempted again in any case pays nothing for a record. If its deadline passes, each delivery that its
/// worker did not return counts as an attempt.
#[tokio::test]
async fn job_with_the_policy_retry_records_no_start() {
    let mut worker = DeliveredJobs::of("beta").await;
    let item = item_of("acme", "a.b", 1);
    worker.deliver(&item, 1, 1);
    worker.returned().await;
    worker.serve("acme");
    worker.deliver(&item, 2, 1);
    assert_eq!(worker.failure().await, None);
    assert!(worker.starts.lock().await.is_empty());

    for (number, returns, expected) in [(2, 2, "failed"), (3, 1, "timed out")] {
        worker.serve("beta");
        let mut late = item_of("acme", "a.b", number);
        late.deadline = Some(Timestamp::from_millis(1));
        for delivery in 1..=returns {
            worker.deliver(&late, delivery, 1);
            worker.returned().await;
        }
        worker.serve("acme");
        worker.deliver(&late, 3, 1);
        let failure = worker.failure().await;
        assert_eq!(failure, Some(format!("{expected}: deadline_passed")));
    }
    worker.pool.stop().await;
}
