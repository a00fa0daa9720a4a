//! A real log of fines by a police office through `examples/fines`: the saga commands the penalties
//! that the office recorded.
//!
//! The log is read from `../shared/data` beside the repository and is never part of it. If it is
//! missing, the test reports it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_actors::{
    EventSource, ProgramRegistry, Runtime, RuntimeConfig, RuntimeDependencies, ShardDependencies,
};
use orlog_bus::embedded::{Embedded, Options as BusOptions};
use orlog_bus::{Bus, codec};
use orlog_effect::{
    Attempt, Catalog, NoopObserver, Policy, Provider, ProviderError, Reply, Upstream,
};
use orlog_model::{
    Clock, CorrelationId, Event, EventId, EventType, InstanceKey, SLOTS, SagaName, Status,
    TenantId, Timestamp, Work, WorkItem,
};
use orlog_program::{CompiledDefinition, Program, compile_yaml};
use orlog_store::Reader;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::{SimClock, definition_suite};
use parking_lot::Mutex;
use serde_json::{Value, json};

const DEFINITIONS: [(&str, &str); 2] = [
    (
        "fine.saga.yaml",
        include_str!("../../examples/fines/fine.saga.yaml"),
    ),
    (
        "penalty.saga.yaml",
        include_str!("../../examples/fines/penalty.saga.yaml"),
    ),
];
const LOG: &str = "../shared/data/roadtraffic100traces.csv";
const DAY: i64 = 86_400_000;

fn definitions() -> [Arc<CompiledDefinition>; 2] {
    DEFINITIONS.map(|(file, text)| {
        Arc::new(compile_yaml(text, file).unwrap_or_else(|problems| panic!("{problems:?}")))
    })
}

#[test]
fn definitions_pass_the_definition_suite() {
    for definition in definitions() {
        let played = definition_suite::check(&definition);
        assert!(played.runs > 0, "{}", definition.definition_ref().saga);
    }
}

/// Day of the office's calendar, counted from 1970-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Day(i64);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Timestamp::from_millis(self.0 * DAY).to_string()[..10])
    }
}

/// Row of the log.
#[derive(Clone, Debug)]
struct LogRow {
    event: Event,
    /// Id of the case.
    case: String,
    /// Activity.
    label: String,
    /// Day in the office's calendar.
    day: Day,
    /// Offset of the office's clock to UTC in milliseconds.
    ahead: i64,
    /// Amount of this row in cents: the fine, the expense or the payment.
    cents: i64,
}

/// Reads the log in the order of event times; rows of equal time keep the order of the file.
fn log(path: &Path) -> Vec<LogRow> {
    let mut reader = csv::Reader::from_path(path).expect("the log can be read");
    let rows = reader.deserialize::<BTreeMap<String, String>>().enumerate();
    let mut lines: Vec<_> = rows
        .map(|(n, row)| line(n, &row.expect("each line has every column")))
        .collect();
    lines.sort_by_key(|line| line.event.time);
    lines
}

fn line(number: usize, row: &BTreeMap<String, String>) -> LogRow {
    let (case, label, stamp) = (
        &row["case:concept:name"],
        &row["concept:name"],
        &row["time:timestamp"],
    );
    let time = Timestamp::parse(stamp).unwrap();
    let local = Timestamp::parse(&format!("{}Z", &stamp[..19]))
        .unwrap()
        .as_millis();
    let money = |column: &str| {
        row[column]
            .parse::<f64>()
            .ok()
            .filter(|amount| *amount > 0.0)
    };
    let amount = ["paymentAmount", "expense", "amount"]
        .into_iter()
        .find_map(money)
        .unwrap_or_default();
    let event = Event {
        id: EventId::new(format!("line-{number}")).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(label.as_str()).unwrap(),
        source: "urn:office".to_owned(),
        subject: None,
        time,
        correlation: Some(CorrelationId::new(case.as_str()).unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({ "amount": amount }),
        user: None,
        attributes: None,
    };
    let (case, label) = (case.clone(), label.clone());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "amounts of fines are small"
    )]
    let cents = (amount * 100.0).round() as i64;
    LogRow {
        event,
        case,
        label,
        day: Day(local.div_euclid(DAY)),
        ahead: local - time.as_millis(),
        cents,
    }
}

/// Gateway that accepts every command and records the due date of each penalty.
#[derive(Default)]
struct CommandRecorder {
    penalties: Mutex<Vec<(String, Timestamp)>>,
}

#[async_trait]
impl Provider for CommandRecorder {
    async fn execute(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, ProviderError> {
        let Work::Command(command) = &item.work else {
            panic!("only commands come here")
        };
        if command.name.as_str() == "AddPenalty" {
            self.penalties
                .lock()
                .push((item.instance.correlation.to_string(), item.created_at));
        }
        Ok(Reply::from(Value::Null))
    }
}

/// Runtime with the definition, the command recorder and the simulated clock.
struct FineRuntime {
    runtime: Runtime,
    bus: Arc<dyn Bus>,
    clock: Arc<SimClock>,
    recorder: Arc<CommandRecorder>,
    fine: Arc<CompiledDefinition>,
    _dir: tempfile::TempDir,
}

impl FineRuntime {
    async fn open(now: Timestamp) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SimClock::new(now);
        let present = Arc::clone(&clock) as Arc<dyn Clock>;
        let bus: Arc<dyn Bus> = Arc::new(
            Embedded::open(dir.path(), &BusOptions::default(), Arc::clone(&present)).unwrap(),
        );
        let recorder = Arc::new(CommandRecorder::default());
        let gateway = Upstream::gateway(
            Arc::clone(&recorder) as Arc<dyn Provider>,
            Policy::in_process(),
        );
        let observer: Arc<dyn orlog_effect::EffectObserver> = Arc::new(NoopObserver);
        let catalog = Arc::new(Catalog::new(vec![gateway], &present, &observer).unwrap());
        let [fine, penalty] = definitions();
        let programs = [Arc::clone(&fine) as Arc<dyn Program>, penalty];
        let programs = Arc::new(ProgramRegistry::new(programs));
        let (writer, reader) = orlog_store::open_in_memory(orlog_store::Options::default());
        let shards = vec![ShardDependencies {
            index: 0,
            slots: 0..SLOTS,
            writer,
            reader,
        }];
        let sources = vec![EventSource::embedded(Arc::clone(&bus))];
        let dependencies = RuntimeDependencies {
            bus: Arc::clone(&bus),
            sources,
            catalog,
            programs,
            clock: present,
            running: Arc::default(),
            shards,
            dead_letter_encoder: orlog::dead_letters::view::publishable(
                orlog::redact::Redaction::default(),
            ),
            observer: None,
            tracer: None,
        };
        let runtime = Runtime::start(dependencies, RuntimeConfig::default())
            .await
            .unwrap();
        Self {
            runtime,
            bus,
            clock,
            recorder,
            fine,
            _dir: dir,
        }
    }

    fn reader(&self) -> Reader {
        self.runtime.readers().next().expect("there is one shard")
    }

    async fn until(&self, label: &str, fact: impl Fn(&Reader) -> bool) {
        let mut commits = self.reader().watch();
        let waiting = async {
            while !fact(&self.reader()) {
                commits.changed().await.expect("the store lives");
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, waiting)
            .await
            .unwrap_or_else(|_| panic!("{label}: not within {WAIT_TIMEOUT:?}"));
    }

    /// Advances the clock to `time`. Due timers fire at their own times, and the resulting work completes.
    async fn wait_until(&self, time: Timestamp) {
        while let Some(due) = self
            .reader()
            .next_timer()
            .unwrap()
            .filter(|due| *due <= time)
        {
            self.clock.advance_to(due);
            self.until("the timer fires", |reader| {
                reader.next_timer().unwrap() != Some(due)
            })
            .await;
            let follows = |reader: &Reader| {
                count(reader, "fine", Status::Failed) == count(reader, "penalty", Status::Completed)
            };
            self.until("the penalty follows", follows).await;
            // The result of a reminder is applied too: an event that follows is then the last input.
            self.until("the reminder is sent", |reader| {
                reader.outbox_depth().unwrap() == 0
            })
            .await;
        }
        self.clock.advance_to(time);
    }

    /// Publishes an event and waits until its instance has applied it. Does not wait for events without an
    /// instance.
    async fn take(&self, line: &LogRow) {
        let key = InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("fine").unwrap(),
            correlation: CorrelationId::new(line.case.as_str()).unwrap(),
        };
        let before = self.reader().instance(&key).unwrap();
        let trigger = self
            .fine
            .manifest()
            .subscriptions
            .iter()
            .find(|trigger| trigger.kind == line.event.kind);
        self.bus
            .publish(vec![
                codec::encode(&line.event, codec::aggregate_subject(&line.event)).into(),
            ])
            .await
            .unwrap();
        let is_awaited =
            trigger.is_some_and(|t| t.starts) || before.is_some_and(|i| !i.status.is_final());
        if trigger.is_some() && is_awaited {
            let is_applied = |reader: &Reader| {
                reader
                    .instance(&key)
                    .unwrap()
                    .is_some_and(|instance| instance.last_input == line.event.id)
            };
            self.until(
                &format!("{} of {} is taken", line.label, line.case),
                is_applied,
            )
            .await;
        }
    }

    /// Returns the days of the commanded penalties by case.
    fn penalties(&self, log: &[LogRow]) -> BTreeMap<String, Day> {
        let ahead = |case: &str| {
            let notified = log
                .iter()
                .find(|line| line.case == case && line.label == NOTIFIED);
            notified.expect("only a notified fine gets a penalty").ahead
        };
        let penalties = self.recorder.penalties.lock();
        let days: BTreeMap<_, _> = penalties
            .iter()
            .map(|(case, due)| {
                (
                    case.clone(),
                    Day((due.as_millis() + ahead(case)).div_euclid(DAY)),
                )
            })
            .collect();
        assert_eq!(
            days.len(),
            penalties.len(),
            "a penalty was commanded twice: {penalties:?}"
        );
        days
    }
}

fn count(reader: &Reader, saga: &str, status: Status) -> u64 {
    let counts = reader.count(&TenantId::default_tenant()).unwrap();
    counts
        .get(&(SagaName::new(saga).unwrap(), status))
        .copied()
        .unwrap_or_default()
}

const CREATED: &str = "Create Fine";
const SENT: &str = "Send Fine";
const NOTIFIED: &str = "Insert Fine Notification";
const PENALTY: &str = "Add penalty";
const PAID: &str = "Payment";
const APPEALED: &str = "Insert Date Appeal to Prefecture";

/// Result of the comparison of both records of a fine, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Comparison {
    SameDay,
    SameDayAlthoughAppealed,
    SameDayAlthoughPaidInPartBeforeNotification,
    NotCommandedPaidInPart,
    NotCommandedPaidInFullOnTheSixtiethDay,
    NeitherPaidAndNeverNotified,
    NeitherLogTruncated,
    Unexplained,
}

/// Fine in the log.
struct FineCase<'a>(Vec<&'a LogRow>);

impl FineCase<'_> {
    /// Returns the day of the first occurrence of an activity.
    fn day_of(&self, label: &str) -> Option<Day> {
        self.0
            .iter()
            .find(|line| line.label == label)
            .map(|line| line.day)
    }

    fn happened_before(&self, label: &str, day: Day) -> bool {
        self.day_of(label).is_some_and(|happened| happened < day)
    }

    /// Returns the amount due without penalty: the fine and the expenses.
    fn due(&self) -> i64 {
        self.0
            .iter()
            .filter(|line| [CREATED, SENT].contains(&line.label.as_str()))
            .map(|line| line.cents)
            .sum()
    }

    fn paid_until(&self, day: Day) -> i64 {
        self.0
            .iter()
            .filter(|line| line.label == PAID && line.day <= day)
            .map(|line| line.cents)
            .sum()
    }

    fn compare(&self, commanded: Option<Day>) -> Comparison {
        match (commanded, self.day_of(PENALTY), self.day_of(NOTIFIED)) {
            (Some(commanded), Some(recorded), Some(notified)) if commanded == recorded => {
                if self.happened_before(APPEALED, recorded) {
                    Comparison::SameDayAlthoughAppealed
                } else if self.happened_before(PAID, notified) {
                    Comparison::SameDayAlthoughPaidInPartBeforeNotification
                } else {
                    Comparison::SameDay
                }
            }
            (None, Some(recorded), Some(_)) => {
                let paid = self.paid_until(recorded);
                if 0 < paid && paid < self.due() {
                    Comparison::NotCommandedPaidInPart
                } else if paid >= self.due() && self.day_of(PAID) == Some(recorded) {
                    Comparison::NotCommandedPaidInFullOnTheSixtiethDay
                } else {
                    Comparison::Unexplained
                }
            }
            (None, None, None) if self.day_of(PAID).is_some() => {
                Comparison::NeitherPaidAndNeverNotified
            }
            (None, None, None) => Comparison::NeitherLogTruncated,
            _ => Comparison::Unexplained,
        }
    }
}

/// Prints the comparison of all cases and counts the results.
fn compare_all(log: &[LogRow], penalties: &BTreeMap<String, Day>) -> BTreeMap<Comparison, usize> {
    let mut cases: BTreeMap<&str, FineCase<'_>> = BTreeMap::new();
    for line in log {
        cases
            .entry(&line.case)
            .or_insert_with(|| FineCase(Vec::new()))
            .0
            .push(line);
    }
    let mut counts = BTreeMap::new();
    let show = |day: Option<Day>| day.map_or_else(|| "-".to_owned(), |day| day.to_string());
    println!(
        "{:<10}{:<13}{:<13}{:<13}comparison",
        "case", "notified", "commanded", "recorded"
    );
    for (name, case) in &cases {
        let commanded = penalties.get(*name).copied();
        let comparison = case.compare(commanded);
        *counts.entry(comparison).or_default() += 1;
        let (notified, recorded) = (show(case.day_of(NOTIFIED)), show(case.day_of(PENALTY)));
        println!(
            "{name:<10}{notified:<13}{:<13}{recorded:<13}{comparison:?}",
            show(commanded)
        );
    }
    println!("{counts:#?}");
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saga_reproduces_the_recorded_penalties() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(LOG);
    if !path.exists() {
        println!("skipped: the log is not here: {}", path.display());
        return;
    }
    let log = log(&path);
    let office = FineRuntime::open(log[0].event.time).await;
    for line in &log {
        office.wait_until(line.event.time).await;
        office.take(line).await;
    }
    let end = log[log.len() - 1].event.time;
    office
        .wait_until(end.saturating_add(Duration::from_hours(61 * 24)))
        .await;

    let counts = compare_all(&log, &office.penalties(&log));
    let expected = BTreeMap::from([
        (Comparison::SameDay, 50),
        (Comparison::SameDayAlthoughAppealed, 1),
        (Comparison::SameDayAlthoughPaidInPartBeforeNotification, 1),
        (Comparison::NotCommandedPaidInPart, 4),
        (Comparison::NotCommandedPaidInFullOnTheSixtiethDay, 1),
        (Comparison::NeitherPaidAndNeverNotified, 27),
        (Comparison::NeitherLogTruncated, 16),
    ]);
    assert_eq!(counts, expected);
    let fines = [Status::Running, Status::Completed, Status::Failed]
        .map(|s| count(&office.reader(), "fine", s));
    assert_eq!(fines, [0, 5, 52]);
    assert_eq!(
        office
            .reader()
            .dead_letters(&TenantId::default_tenant(), None, 10)
            .unwrap()
            .len(),
        0
    );
    office.runtime.stop().await.unwrap();
}
