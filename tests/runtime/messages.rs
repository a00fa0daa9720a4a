//! Messages of each type survive a crash after any commit: one message at the receiver, one result at the sender, and nothing remains.

use std::cell::RefCell;
use std::sync::Arc;

use orlog_actors::{CommitObserver, ControlError};
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use orlog_model::{
    Clock, ControlAction, ControlRequest, CorrelationId, EventType, Instance, InstanceKey,
    SagaName, Status, Timestamp,
};
use orlog_program::{Program, SagaState as _};
use orlog_sagas::flow;
use orlog_sagas::message::{
    self, Message, MessageFormat, MessageStatus, MessageType, PeerTask, ReceivedMessage,
    SendMessage, SentMessage, Timeouts,
};
use orlog_store::InstanceQuery;
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{
    TestRuntime, TestRuntimeConfig, control_request_id, drive_clock, tenant,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::crash_points::{CrashAfterCommit, CrashKind};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const FLOW: &str =
    "jobs: [{ id: a, type: t, script: s }, { id: b, type: t, script: s, dependencies: a }]";

/// Effect of a message, and where its result goes.
type Call = (FunctionCall, oneshot::Sender<Result<Value, ProviderError>>);

fn key(saga: &str, correlation: CorrelationId) -> InstanceKey {
    InstanceKey {
        tenant: tenant(),
        saga: SagaName::new(saga).expect("a valid name"),
        correlation,
    }
}

fn message(kind: MessageType) -> Message {
    Message {
        id: CorrelationId::new("m-1").expect("a valid id"),
        from: "acme@one".parse().expect("a valid address"),
        to: "acme@two".parse().expect("a valid address"),
        kind,
        format: MessageFormat::Text,
        thread: "t".to_owned(),
        subject: None,
        body: FLOW.to_owned(),
        user: None,
        sent_at: Timestamp::from_millis(0),
    }
}

fn sent_key(message: &Message) -> InstanceKey {
    key(message::SAGA, message.id.clone())
}

fn received_key(message: &Message) -> InstanceKey {
    key(
        message::INBOX_SAGA,
        message::inbox_id(&message.from, &message.id),
    )
}

/// Returns the upstreams of the jobs and of messages; the second one hands its calls over.
fn upstreams(calls: &mpsc::UnboundedSender<Call>) -> Vec<Upstream> {
    let calls = calls.clone();
    let hand_over = move |call: FunctionCall| {
        let (reply, result) = oneshot::channel();
        let sent = calls.send((call, reply));
        async move {
            let lost = || ProviderError::response_lost("lost", "the process stopped");
            drop(sent);
            result.await.map_err(|_| lost())?
        }
    };
    let policy = || Policy {
        max_attempts: None,
        ..Policy::in_process()
    };
    let jobs = FunctionProvider::new().effect("job.t", |_| async { Ok(json!(7)) });
    let add = |messages: FunctionProvider, effect| messages.effect(effect, hand_over.clone());
    let messages = message::EFFECTS
        .into_iter()
        .fold(FunctionProvider::new(), add);
    vec![
        jobs.upstream("jobs", policy()),
        messages.upstream(message::EFFECT, policy()),
    ]
}

fn instance(runtime: &TestRuntime, key: &InstanceKey) -> Option<Instance> {
    runtime.reader().instance(key).ok().flatten()
}

fn received(runtime: &TestRuntime, message: &Message) -> Option<ReceivedMessage> {
    let instance = instance(runtime, &received_key(message))?;
    Some(ReceivedMessage::decode(&instance.state).expect("the state is readable"))
}

fn sent(runtime: &TestRuntime, message: &Message) -> Option<SentMessage> {
    let instance = instance(runtime, &sent_key(message))?;
    Some(SentMessage::decode(&instance.state).expect("the state is readable"))
}

/// Sends a signal; returns whether it was applied or ignored.
async fn signal(
    runtime: &TestRuntime,
    key: &InstanceKey,
    kind: &str,
    data: Value,
) -> Result<(), ControlError> {
    let kind = EventType::new(kind).expect("a valid type");
    // Each attempt has its own id: the programs ignore repetitions.
    let number = usize::try_from(fastrand::u32(..)).expect("a number");
    let control = ControlRequest {
        id: control_request_id("signal", number),
        action: ControlAction::Signal {
            kind,
            data,
            due_at: None,
        },
        expected_version: None,
        at: START,
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    };
    runtime.runtime.control(key, control).await.map(drop)
}

/// Sends a signal until the shard is available. A message that has ended meanwhile rejects it.
async fn send(runtime: &TestRuntime, key: &InstanceKey, kind: &str, data: Value) {
    while let Err(ControlError::Unavailable) = signal(runtime, key, kind, data.clone()).await {
        tokio::task::yield_now().await;
    }
}

/// Makes one attempt of an effect, as a node does: what it sends is the current state.
async fn execute(
    runtime: &TestRuntime,
    message: &Message,
    task: PeerTask,
) -> Result<Value, ProviderError> {
    let unavailable =
        |error: ControlError| ProviderError::unavailable("unavailable", error.to_string());
    let missing = || ProviderError::unavailable("unavailable", "the shard restarts");
    match task {
        PeerTask::Deliver | PeerTask::Withdraw => {
            let sent = sent(runtime, message).ok_or_else(missing)?;
            let delivery = if task == PeerTask::Deliver {
                sent.delivery()
            } else {
                sent.withdrawal()
            };
            let to = received_key(message);
            signal(runtime, &to, message::DELIVER, json!(delivery))
                .await
                .map_err(unavailable)?;
            Ok(json!(
                received(runtime, message).ok_or_else(missing)?.report()
            ))
        }
        PeerTask::Report { .. } => {
            let report = received(runtime, message).ok_or_else(missing)?.report();
            let to = sent_key(message);
            signal(runtime, &to, message::REPORT, json!(report))
                .await
                .map_err(unavailable)?;
            Ok(Value::Null)
        }
    }
}

/// Executes the effects of messages.
async fn serve(
    runtime: &TestRuntime,
    message: &Message,
    calls: &mut mpsc::UnboundedReceiver<Call>,
) {
    while let Some((call, reply)) = calls.recv().await {
        let task = serde_json::from_value(call.payload).expect("the arguments are a task");
        drop(reply.send(execute(runtime, message, task).await));
    }
}

/// Runs the scenario. After a crash it runs again; repeated requests are no-ops.
async fn play(runtime: &TestRuntime, message: &Message) {
    let kind = message.kind;
    let submission = SendMessage {
        message: message.clone(),
        timeouts: Timeouts::of(kind),
        acts_for_receiver: false,
    };
    send(
        runtime,
        &sent_key(message),
        message::SEND,
        json!(submission),
    )
    .await;
    if kind != MessageType::Job {
        runtime
            .wait_until("the message is delivered", |runtime| {
                received(runtime, message).is_some()
            })
            .await;
        let to = received_key(message);
        send(runtime, &to, message::ACKNOWLEDGE, Value::Null).await;
        send(runtime, &to, message::PROCESS, json!({ "result": 7 })).await;
    }
    runtime
        .wait_until("the message has ended, and nothing is pending", |runtime| {
            let keys = [sent_key(message), received_key(message)];
            keys.iter().all(|key| {
                instance(runtime, key)
                    .is_some_and(|it| it.status.is_final() && it.pending_work.is_empty())
            }) && runtime.outbox_depth() == 0
        })
        .await;
}

/// Sent message, number of instances of each saga, status and number of timers of both instances.
type MessageEnd = (SentMessage, [usize; 3], [(Status, usize); 2]);

/// Returns the end of a message, once both instances exist.
fn end(runtime: &TestRuntime, message: &Message) -> Option<MessageEnd> {
    let count = |saga: &str| {
        let saga = Some(SagaName::new(saga).expect("a valid name"));
        let query = InstanceQuery {
            tenant: tenant(),
            saga,
            ..InstanceQuery::default()
        };
        Some(runtime.reader().instances(&query).ok()?.items.len())
    };
    let of = |key: &InstanceKey| instance(runtime, key).map(|it| (it.status, it.timers.len()));
    let counts = [
        count(message::SAGA)?,
        count(message::INBOX_SAGA)?,
        count(flow::SAGA)?,
    ];
    Some((
        sent(runtime, message)?,
        counts,
        [of(&sent_key(message))?, of(&received_key(message))?],
    ))
}

/// Runs the scenario with a crash after commit `at`; returns whether the crash occurred.
async fn run(kind: MessageType, at: usize, crash: CrashKind) -> bool {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let _clock_driver = drive_clock(&clock);
    let world = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let programs: Vec<Arc<dyn Program>> = vec![
        Arc::new(message::program()),
        Arc::new(message::inbox_program()),
        Arc::new(flow::program()),
    ];
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        programs,
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let (crasher, thaw) = CrashAfterCommit::new(at, crash);
    let (calls, mut received_calls) = mpsc::unbounded_channel();
    setup.more_upstreams = upstreams(&calls);
    setup.limits.max_group_commit = 1;
    setup.limits.max_in_flight_per_instance = 1;
    setup.observer = Some(Arc::clone(&crasher) as Arc<dyn CommitObserver>);
    let message = message(kind);
    let mut runtime = setup.start(&world).await;
    let finished = tokio::select! {
        () = play(&runtime, &message) => true,
        () = serve(&runtime, &message, &mut received_calls) => unreachable!("the upstream lives"),
        () = crasher.frozen.notified() => false,
    };
    if finished {
        // A commit after the end of the scenario waits as well.
        drop(thaw);
    } else {
        runtime.crash().await;
        drop(thaw);
        runtime = setup.start(&world).await;
        tokio::select! {
            () = play(&runtime, &message) => {}
            () = serve(&runtime, &message, &mut received_calls) => unreachable!("the upstream lives"),
        }
    }
    let context = format!("{kind:?}, after a crash at {at}, {crash:?}");
    // The shard may restart after the last commit.
    let found = RefCell::new(None);
    let is_found = |runtime: &TestRuntime| {
        *found.borrow_mut() = end(runtime, &message);
        found.borrow().is_some()
    };
    runtime.wait_until("the shard is available", is_found).await;
    let (sent, counts, instances) = found.take().expect("it was found");
    let result = if kind == MessageType::Job {
        json!({ "a": 7, "b": 7 })
    } else {
        json!(7)
    };
    assert_eq!(
        (sent.status, sent.result),
        (MessageStatus::Processed, result),
        "{context}"
    );
    let flows = usize::from(kind == MessageType::Job);
    assert_eq!(counts, [1, 1, flows], "each message exists once, {context}");
    assert_eq!(instances, [(Status::Completed, 0); 2], "{context}");
    runtime.stop().await;
    crasher.has_crashed()
}

async fn after_every_commit(kind: MessageType, crash: CrashKind) {
    let mut at = 1;
    while run(kind, at, crash).await {
        at += 1;
    }
    assert!(at > 5, "only {} commits were made", at - 1);
}

/// Requirements: F6, R8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_crash_does_not_change_a_message() {
    for kind in [MessageType::Job, MessageType::Chat, MessageType::Mail] {
        after_every_commit(kind, CrashKind::Process).await;
    }
}

/// Requirements: F6, R9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committer_crash_does_not_change_a_message() {
    for kind in [MessageType::Job, MessageType::Chat, MessageType::Mail] {
        after_every_commit(kind, CrashKind::Shard).await;
    }
}
