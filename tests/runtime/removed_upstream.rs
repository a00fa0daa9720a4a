//! Upstreams that are removed while an attempt is in doubt: what may have been executed is compensated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlog_effect::{
    Catalog, EffectObserver, FunctionProvider, NoopObserver, Policy, ProviderError, Upstream,
};
use orlog_model::{Clock, Event, EventId, EventType, InstanceKey, SagaName, Status, Timestamp};
use orlog_program::compile_yaml;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use serde_json::{Value, json};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

const LEGACY: &str = "
saga: legacy
version: 1
start: Begun
steps:
  - { id: pay, do: { effect: legacy.charge }, undo: { effect: payments.refund, data: { tag: refund } } }
";

/// A saga whose effect is executed, and whose response is lost at each attempt.
struct Stage {
    dir: tempfile::TempDir,
    clock: Arc<dyn Clock>,
    upstreams: Arc<FakeUpstreams>,
    key: InstanceKey,
    attempts: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = SimClock::new(START);
        let saga = SagaName::new("legacy").unwrap();
        Self {
            dir: tempfile::tempdir().unwrap(),
            upstreams: FakeUpstreams::new(Arc::clone(&clock), 1),
            clock,
            key: InstanceKey {
                tenant: tenant(),
                saga,
                correlation: "l-1".parse().unwrap(),
            },
            attempts: Arc::default(),
        }
    }

    fn config(&self) -> TestRuntimeConfig {
        let program = Arc::new(compile_yaml(LEGACY, "legacy.saga.yaml").unwrap());
        TestRuntimeConfig::new(
            self.dir.path().to_owned(),
            vec![program],
            Arc::clone(&self.clock),
        )
    }

    fn legacy(&self) -> Upstream {
        let attempts = Arc::clone(&self.attempts);
        let provider = FunctionProvider::new().effect("legacy.charge", move |_| {
            attempts.fetch_add(1, Ordering::SeqCst);
            async { Err::<Value, _>(ProviderError::response_lost("lost", "charged, no response")) }
        });
        provider.upstream(
            "legacy",
            Policy {
                max_attempts: None,
                ..Policy::in_process()
            },
        )
    }

    /// Starts the saga and waits for its first attempt.
    async fn charge(&self) -> TestRuntime {
        let runtime = TestRuntimeConfig {
            more_upstreams: vec![self.legacy()],
            ..self.config()
        }
        .start(&self.upstreams)
        .await;
        let event = Event {
            id: EventId::new("e-1").unwrap(),
            tenant: tenant(),
            kind: EventType::new("Begun").unwrap(),
            source: "urn:test".to_owned(),
            subject: None,
            time: START,
            correlation: Some(self.key.correlation.clone()),
            causation: None,
            trace: None,
            schema_version: 1,
            data: json!({}),
            user: None,
            attributes: None,
        };
        runtime.publish(&event).await;
        runtime
            .wait_until("an attempt is made", |_| {
                self.attempts.load(Ordering::SeqCst) > 0
            })
            .await;
        runtime
    }

    async fn assert_refunded(&self, runtime: TestRuntime) {
        runtime
            .wait_until_ended(std::slice::from_ref(&self.key))
            .await;
        let instance = runtime.reader().instance(&self.key).unwrap().unwrap();
        assert_eq!(instance.status, Status::Failed);
        assert_eq!(instance.last_error.unwrap().code, "effect_unknown");
        assert_eq!(self.upstreams.executed_for(&self.key), ["refund"]);
        runtime.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_in_doubt_of_an_upstream_that_a_reload_removes_is_compensated() {
    let stage = Stage::new();
    let runtime = stage.charge().await;
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let next = Catalog::new(stage.upstreams.upstreams(), &stage.clock, &observer).unwrap();
    runtime
        .runtime
        .reload_catalog(Arc::new(next))
        .await
        .unwrap();
    stage.assert_refunded(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_in_doubt_of_an_upstream_that_is_missing_after_a_restart_is_compensated() {
    let stage = Stage::new();
    stage.charge().await.stop().await;
    let runtime = stage.config().start(&stage.upstreams).await;
    stage.assert_refunded(runtime).await;
}
