//! Results that arrive after their saga has ended: what was executed is compensated.

use std::sync::Arc;

use orlog_model::{Event, EventId, EventType, InstanceKey, SagaName, Status, Timestamp};
use orlog_program::{Program, compile_yaml};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, drive_clock, tenant};
use serde_json::json;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

const LOAN: &str = "
saga: loan
version: 1
start: Begun
on: [{ event: Off, then: cancel }]
steps:
  - id: open
    do: { command: loans.OpenFile, data: { tag: open } }
    undo: { command: loans.CloseFile, data: { tag: compensate:open } }
  - id: reserve
    after: []
    do: { effect: payments.charge, data: { tag: reserve } }
    undo: { effect: payments.refund, data: { tag: compensate:reserve } }
";

fn loan_event(kind: &str) -> Event {
    Event {
        id: EventId::new(kind).unwrap(),
        tenant: tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: START,
        correlation: Some("loan-1".parse().unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({}),
        user: None,
        attributes: None,
    }
}

fn status(runtime: &TestRuntime, key: &InstanceKey) -> Option<Status> {
    let reader = runtime.runtime.reader(key)?;
    reader
        .instance(key)
        .ok()
        .flatten()
        .map(|instance| instance.status)
}

/// The gateway is down while the saga starts and is cancelled. When it is up again, the command is accepted
/// and the effect executed, and both are compensated.
///
/// Requirements: T4.
#[tokio::test]
async fn work_that_succeeds_after_the_end_is_compensated() {
    let clock = SimClock::new(START);
    let _driver = drive_clock(&clock);
    let dir = tempfile::tempdir().unwrap();
    let program: Arc<dyn Program> = Arc::new(compile_yaml(LOAN, "loan.saga.yaml").unwrap());
    let upstreams = FakeUpstreams::new(Arc::<SimClock>::clone(&clock), 1);
    upstreams.set_down(true);
    let config = TestRuntimeConfig::new(dir.path().to_owned(), vec![program], clock);
    let runtime = config.start(&upstreams).await;
    let key = InstanceKey {
        tenant: tenant(),
        saga: SagaName::new("loan").unwrap(),
        correlation: "loan-1".parse().unwrap(),
    };

    runtime.publish(&loan_event("Begun")).await;
    runtime
        .wait_until("the work is attempted", |runtime| {
            runtime.upstreams.attempts() >= 2
        })
        .await;
    runtime.publish(&loan_event("Off")).await;
    runtime
        .wait_until("the saga has ended", |runtime| {
            status(runtime, &key) == Some(Status::Cancelled)
        })
        .await;
    upstreams.set_down(false);
    runtime
        .wait_until("both compensations are executed", |runtime| {
            let executed = runtime.upstreams.executed_for(&key);
            ["compensate:open", "compensate:reserve"]
                .iter()
                .all(|tag| executed.iter().any(|it| it == tag))
        })
        .await;
    runtime.wait_until_ended(std::slice::from_ref(&key)).await;
    let mut executed = upstreams.executed_for(&key);
    executed.sort();
    assert_eq!(
        executed,
        ["compensate:open", "compensate:reserve", "open", "reserve"]
    );
    runtime.stop().await;
}
