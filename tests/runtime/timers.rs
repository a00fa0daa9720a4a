//! Timers of an instance that is restarted, migrated, replayed or restored while they are armed: each fires once, at its
//! time, and an old timer has no effect.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{
    Clock, ControlAction, ControlRequest, CorrelationId, Event, EventId, EventType, HistoryEntry,
    Input, Instance, InstanceKey, InstanceReplacement, SagaName, Status, Timestamp,
};
use orlog_program::{Program, compile_yaml};
use orlog_simulator::rebuild::{RebuildInput, TimeMode, rebuild};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, control_request_id, tenant};
use serde_json::{Value, json};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const MINUTE: Duration = Duration::from_mins(1);

const FIRST: &str = "saga: timed
version: 1
correlate: id
start: Opened
timeout: 1h
steps:
  - { id: confirm, do: { event: Confirmed }, timeout: 10m }
  - { id: deliver, do: { event: Delivered } }
";
/// Steps take the names of each other, and the timeouts are others: armed timers keep their times.
const SECOND: &str = "saga: timed
version: 2
correlate: id
start: Opened
timeout: 2h
migrations: [{ from: 1, steps: { confirm: deliver, deliver: confirm } }]
steps:
  - { id: deliver, do: { event: Confirmed }, timeout: 20m }
  - { id: confirm, do: { event: Delivered } }
";

/// Timer of the table: which one is armed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// Timeout of the first step.
    Step,
    /// Timeout of the saga; the first step is completed.
    Saga,
    /// Signal for a later time; the first step is completed.
    Signal,
}

/// Change of the instance two minutes after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Restart,
    Crash,
    Migration,
    /// The timer becomes due while the instance is paused; then it is migrated and resumed.
    MigrationWhilePaused,
    /// Replay with recorded times.
    Replay,
    /// Replay that applies all inputs at its own time.
    ImmediateReplay,
    /// Restore of a copy of the data directory. Meanwhile the original has ended.
    Restore,
    /// Restore after the timer was due.
    LateRestore,
}

const CHANGES: [Change; 9] = [
    Change::None,
    Change::Restart,
    Change::Crash,
    Change::Migration,
    Change::MigrationWhilePaused,
    Change::Replay,
    Change::ImmediateReplay,
    Change::Restore,
    Change::LateRestore,
];

fn at(minutes: u32) -> Timestamp {
    START.saturating_add(MINUTE * minutes)
}

fn program(text: &str) -> Arc<dyn Program> {
    Arc::new(
        compile_yaml(text, "timed.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}")),
    )
}

fn key() -> InstanceKey {
    let saga = SagaName::new("timed").unwrap();
    InstanceKey {
        tenant: tenant(),
        saga,
        correlation: CorrelationId::new("t-1").unwrap(),
    }
}

fn event(kind: &str, time: Timestamp) -> Event {
    Event {
        id: EventId::new(kind).unwrap(),
        tenant: tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time,
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({ "id": "t-1" }),
        user: None,
        attributes: None,
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runtime with one instance, on a simulated clock.
struct Case {
    config: TestRuntimeConfig,
    clock: Arc<SimClock>,
    upstreams: Arc<FakeUpstreams>,
    runtime: TestRuntime,
    inputs: Vec<(Timestamp, Input)>,
    requests: usize,
    home: tempfile::TempDir,
}

impl Case {
    async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = SimClock::new(START);
        let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let config = TestRuntimeConfig::new(home.path().join("data"), vec![program(FIRST)], now);
        let runtime = config.start(&upstreams).await;
        let mut case = Self {
            config,
            clock,
            upstreams,
            runtime,
            inputs: Vec::new(),
            requests: 0,
            home,
        };
        case.publish("Opened").await;
        case
    }

    async fn publish(&mut self, kind: &str) {
        let (event, now) = (event(kind, self.clock.now()), self.clock.now());
        self.runtime.publish(&event).await;
        self.inputs.push((now, Input::Event(event)));
        let applied = self.inputs.len();
        self.runtime
            .wait_until("the event is applied", |_| self.history().len() >= applied)
            .await;
    }

    fn instance(&self) -> Option<Instance> {
        self.runtime.reader().instance(&key()).unwrap()
    }

    fn history(&self) -> Vec<HistoryEntry> {
        self.runtime.reader().history(&key(), 0, 100).unwrap()
    }

    /// Returns the times at which timers of the instance were applied.
    fn fired(&self) -> Vec<Timestamp> {
        let history = self.history().into_iter();
        history
            .filter(|entry| entry.input_id.as_str().starts_with("timer:"))
            .map(|entry| entry.at)
            .collect()
    }

    fn request(&mut self, action: ControlAction) -> ControlRequest {
        self.requests += 1;
        ControlRequest {
            id: control_request_id("request", self.requests),
            action,
            expected_version: None,
            at: self.clock.now(),
            user: None,
            reason: None,
            trace: None,
            wait_token: None,
        }
    }

    async fn control(&mut self, action: ControlAction) {
        let request = self.request(action);
        let result = self.runtime.runtime.control(&key(), request).await.unwrap();
        assert!(result.applied, "{:?}", result.reason);
    }

    /// Stops the runtime, and starts it on the current directory with the current programs.
    async fn restart(self) -> Self {
        let Self {
            config,
            clock,
            upstreams,
            runtime,
            inputs,
            requests,
            home,
        } = self;
        runtime.stop().await;
        let runtime = config.start(&upstreams).await;
        Self {
            config,
            clock,
            upstreams,
            runtime,
            inputs,
            requests,
            home,
        }
    }

    async fn crash(self) -> Self {
        let Self {
            config,
            clock,
            upstreams,
            runtime,
            inputs,
            requests,
            home,
        } = self;
        runtime.crash().await;
        let runtime = config.start(&upstreams).await;
        Self {
            config,
            clock,
            upstreams,
            runtime,
            inputs,
            requests,
            home,
        }
    }

    async fn migrate(mut self, pauses_until: Option<Timestamp>) -> Self {
        let newer = program(SECOND);
        let to = newer.definition_ref().hash;
        self.config.programs.push(newer);
        let mut case = self.restart().await;
        if let Some(until) = pauses_until {
            case.control(ControlAction::Pause).await;
            let instance = case.instance().unwrap();
            let armed = instance.timers.iter();
            let signals = armed.filter(|timer| timer.signal.is_some()).count();
            case.clock.advance_to(until);
            let has_fired = |case: &Self| {
                let due = case.runtime.reader().timers_due(until, 9).unwrap();
                due.is_empty()
            };
            case.runtime
                .wait_until("the timer has fired", |_| has_fired(&case))
                .await;

            // Only a signal is buffered. The resume arms the timers of the program again.
            let buffered = case.runtime.reader().buffered_inputs(&key(), 9).unwrap();
            assert_eq!(buffered.len(), signals);
        }
        case.control(ControlAction::Migrate { to }).await;
        if pauses_until.is_some() {
            case.control(ControlAction::Resume).await;
        }
        case
    }

    async fn replay(&mut self, mode: TimeMode) {
        let (results, key) = (BTreeMap::new(), key());
        let input = RebuildInput {
            program: program(FIRST),
            key: &key,
            inputs: &self.inputs,
            results: &results,
            history_payload_bytes: 0,
        };
        let rebuilt = rebuild(&input, mode);
        let version = self.instance().unwrap().version;
        let mut instance = rebuilt.instance.unwrap();
        instance.version = version + 1;
        let mut history = rebuilt.history;
        history.last_mut().unwrap().version = instance.version;
        let replacement = InstanceReplacement {
            key: key.clone(),
            instance,
            history,
            dedupe_keys: rebuilt.dedupe_keys,
            tasks: rebuilt.tasks,
            work: Vec::new(),
            removed_work: Vec::new(),
        };
        let request = ControlRequest {
            expected_version: Some(version),
            ..self.request(ControlAction::Replay)
        };
        let replaced = self
            .runtime
            .runtime
            .replace_instance(replacement, request)
            .await
            .unwrap();
        assert!(replaced.applied);
    }

    /// Stops the runtime and copies its data. The original continues until its instance has ended; then the runtime
    /// starts on the copy.
    async fn restore(self, ends_at: Option<Timestamp>) -> Self {
        let Self {
            mut config,
            clock,
            upstreams,
            runtime,
            inputs,
            requests,
            home,
        } = self;
        let backup = home.path().join("backup");
        runtime.stop().await;
        copy(&config.data_dir, &backup);
        let original = config.start(&upstreams).await;
        match ends_at {
            Some(until) => clock.advance_to(until),
            None => {
                for kind in ["Confirmed", "Delivered"] {
                    original
                        .publish(&Event {
                            id: EventId::new(format!("o-{kind}")).unwrap(),
                            ..event(kind, START)
                        })
                        .await;
                }
            }
        }
        original.wait_until_ended(&[key()]).await;
        original.stop().await;
        config.data_dir = backup;
        let runtime = config.start(&upstreams).await;
        Self {
            config,
            clock,
            upstreams,
            runtime,
            inputs,
            requests,
            home,
        }
    }
}

/// Fires the timer of a case after a change, and checks that nothing else fires.
async fn check(timer: Timer, change: Change) {
    let label = format!("{timer:?} {change:?}");
    let mut case = Case::start().await;
    let minutes = match timer {
        Timer::Step => 10,
        Timer::Saga => 60,
        Timer::Signal => 30,
    };
    if timer != Timer::Step {
        case.clock.advance_to(at(1));
        case.publish("Confirmed").await;
    }
    if timer == Timer::Signal {
        let kind = EventType::new("Delivered").unwrap();
        let action = ControlAction::Signal {
            kind,
            data: Value::Null,
            due_at: Some(at(minutes)),
        };
        case.control(action).await;
    }
    case.clock.advance_to(at(2));
    let late = at(minutes + 5);
    let (mut case, expected) = match change {
        Change::None => (case, at(minutes)),
        Change::Restart => (case.restart().await, at(minutes)),
        Change::Crash => (case.crash().await, at(minutes)),
        Change::Migration => (case.migrate(None).await, at(minutes)),
        Change::MigrationWhilePaused => (case.migrate(Some(late)).await, late),
        Change::Replay => {
            case.replay(TimeMode::Recorded(at(2))).await;
            (case, at(minutes))
        }
        Change::ImmediateReplay => {
            case.replay(TimeMode::Immediate(at(2))).await;
            (case, at(minutes + 2))
        }
        Change::Restore => (case.restore(None).await, at(minutes)),
        Change::LateRestore => (case.restore(Some(late)).await, late),
    };
    if expected > case.clock.now() {
        assert_eq!(case.fired(), [], "{label}");
        case.clock
            .advance_to(Timestamp::from_millis(expected.as_millis() - 1));
        // A timer that is armed for an earlier time would be applied before this request.
        case.control(ControlAction::Pause).await;
        case.control(ControlAction::Resume).await;
        assert_eq!(case.fired(), [], "{label}");
        case.clock.advance_to(expected);
    }
    case.runtime.wait_until_ended(&[key()]).await;
    let ended = case.instance().unwrap();
    assert_eq!(case.fired(), [expected], "{label}");
    let code = ended.last_error.as_ref().map(|error| error.code.as_str());
    let (status, expected_code) = match timer {
        Timer::Step => (Status::Failed, Some("timeout")),
        Timer::Saga => (Status::Failed, Some("saga_timeout")),
        Timer::Signal => (Status::Completed, None),
    };
    assert_eq!((ended.status, code), (status, expected_code), "{label}");
    let case = case.restart().await;
    case.clock.advance(Duration::from_hours(3));
    let case = case.crash().await;
    assert_eq!(case.runtime.reader().timers_armed().unwrap(), 0, "{label}");
    assert_eq!(case.instance().unwrap(), ended, "{label}");
    case.runtime.stop().await;
}

/// Requirements: E2, E6, R11, T6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_timeout_fires_once_at_its_time_after_each_change() {
    for change in CHANGES {
        check(Timer::Step, change).await;
    }
}

/// Requirements: E6, R11, T6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saga_timeout_fires_once_at_its_time_after_each_change() {
    for change in CHANGES {
        check(Timer::Saga, change).await;
    }
}

/// A replay is not part of the table: the bus has no signals of the API, so a replay skips their instances.
///
/// Requirements: E3, E6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_signal_is_delivered_once_at_its_time_after_each_change() {
    for change in CHANGES {
        if !matches!(change, Change::Replay | Change::ImmediateReplay) {
            check(Timer::Signal, change).await;
        }
    }
}
