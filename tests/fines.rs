//! A real log of a police office through `examples/fines`: the penalties the saga commands are those the office recorded.
//!
//! The log is read from `../shared/data` beside the repository and never part of it; where it is absent, the test says so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use orlog_actors::{Config, EventSource, Parts, Programs, Runtime, ShardParts};
use orlog_bus::embedded::{Embedded, Options as BusOptions};
use orlog_bus::{Bus, codec};
use orlog_effect::{Attempt, Catalog, Policy, Provider, Refusal, Reply, Silent, Upstream};
use orlog_model::{
    Clock, CorrelationId, Event, EventId, EventType, InstanceKey, SLOTS, SagaName, Status, TenantId,
    Timestamp, Work, WorkItem,
};
use orlog_program::{Compiled, Program, compile_yaml};
use orlog_store::Reader;
use orlog_testkit::{SimClock, definition_suite};
use serde_json::{Value, json};

const DEFINITIONS: [(&str, &str); 2] = [
    ("fine.saga.yaml", include_str!("../examples/fines/fine.saga.yaml")),
    ("penalty.saga.yaml", include_str!("../examples/fines/penalty.saga.yaml")),
];
const LOG: &str = "../shared/data/roadtraffic100traces.csv";
const DEADLINE: Duration = Duration::from_secs(30);
const DAY: i64 = 86_400_000;

fn definitions() -> [Arc<Compiled>; 2] {
    DEFINITIONS.map(|(file, text)| {
        Arc::new(compile_yaml(text, file).unwrap_or_else(|problems| panic!("{problems:?}")))
    })
}

#[test]
fn the_definitions_stand_the_quartet() {
    for definition in definitions() {
        let played = definition_suite::check(&definition);
        assert!(played.lives > 0, "{}", definition.reference().saga);
    }
}

/// A day of the office's calendar, counted from 1970-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Day(i64);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Timestamp::from_millis(self.0 * DAY).to_string()[..10])
    }
}

/// A line of the log.
#[derive(Clone, Debug)]
struct Line {
    event: Event,
    /// The case.
    case: String,
    /// What happened.
    what: String,
    /// When, in the office's calendar.
    day: Day,
    /// How far the office's clock was ahead of UTC, in milliseconds.
    ahead: i64,
    /// The money on this line: the fine, the expense or the payment.
    cents: i64,
}

/// The log in the order of event times; lines of one time in the order of the file.
fn log(path: &Path) -> Vec<Line> {
    let mut reader = csv::Reader::from_path(path).expect("the log can be read");
    let rows = reader.deserialize::<BTreeMap<String, String>>().enumerate();
    let mut lines: Vec<_> = rows.map(|(n, row)| line(n, &row.expect("each line has every column"))).collect();
    lines.sort_by_key(|line| line.event.time);
    lines
}

fn line(number: usize, row: &BTreeMap<String, String>) -> Line {
    let (case, what, stamp) = (&row["case:concept:name"], &row["concept:name"], &row["time:timestamp"]);
    let time = Timestamp::parse(stamp).unwrap();
    let local = Timestamp::parse(&format!("{}Z", &stamp[..19])).unwrap().millis();
    let money = |column: &str| row[column].parse::<f64>().ok().filter(|amount| *amount > 0.0);
    let amount = ["paymentAmount", "expense", "amount"].into_iter().find_map(money).unwrap_or_default();
    let event = Event {
        id: EventId::new(format!("line-{number}")).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(what.as_str()).unwrap(),
        source: "urn:office".to_owned(),
        subject: None,
        time,
        correlation: Some(CorrelationId::new(case.as_str()).unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({ "amount": amount }),
    };
    let (case, what) = (case.clone(), what.clone());
    #[expect(clippy::cast_possible_truncation, reason = "amounts of fines are small")]
    let cents = (amount * 100.0).round() as i64;
    Line { event, case, what, day: Day(local.div_euclid(DAY)), ahead: local - time.millis(), cents }
}

/// The office's command desk: takes every command and writes down when each penalty was due.
#[derive(Default)]
struct Desk {
    penalties: Mutex<Vec<(String, Timestamp)>>,
}

#[async_trait]
impl Provider for Desk {
    async fn perform(&self, item: &WorkItem, _attempt: Attempt) -> Result<Reply, Refusal> {
        let Work::Command(command) = &item.work else { panic!("only commands come here") };
        if command.name.as_str() == "AddPenalty" {
            self.penalties.lock().unwrap().push((item.instance.correlation.to_string(), item.created_at));
        }
        Ok(Reply::from(Value::Null))
    }
}

/// A runtime with the definition, the desk and the simulated clock.
struct Office {
    runtime: Runtime,
    bus: Arc<dyn Bus>,
    clock: Arc<SimClock>,
    desk: Arc<Desk>,
    fine: Arc<Compiled>,
    _folder: tempfile::TempDir,
}

impl Office {
    async fn open(now: Timestamp) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = SimClock::new(now);
        let present = Arc::clone(&clock) as Arc<dyn Clock>;
        let bus: Arc<dyn Bus> =
            Arc::new(Embedded::open(folder.path(), &BusOptions::default(), Arc::clone(&present)).unwrap());
        let desk = Arc::new(Desk::default());
        let gateway = Upstream::gateway(Arc::clone(&desk) as Arc<dyn Provider>, Policy::in_process());
        let silent: Arc<dyn orlog_effect::Observer> = Arc::new(Silent);
        let catalog = Arc::new(Catalog::new(vec![gateway], &present, &silent).unwrap());
        let [fine, penalty] = definitions();
        let programs = [Arc::clone(&fine) as Arc<dyn Program>, penalty];
        let programs = Arc::new(Programs::new(programs));
        let (writer, reader) = orlog_store::memory(orlog_store::Options::default());
        let shards = vec![ShardParts { index: 0, slots: 0..SLOTS, writer, reader }];
        let sources = vec![EventSource::embedded(Arc::clone(&bus))];
        let parts = Parts {
            bus: Arc::clone(&bus),
            sources,
            catalog,
            programs,
            clock: present,
            shards,
            letters: orlog::dead_letters::published(orlog::redact::Redact::default()),
            observer: None,
            tracer: None,
        };
        let runtime = Runtime::start(parts, Config::default()).await.unwrap();
        Self { runtime, bus, clock, desk, fine, _folder: folder }
    }

    fn reader(&self) -> Reader {
        self.runtime.readers().next().expect("there is one shard")
    }

    async fn until(&self, what: &str, fact: impl Fn(&Reader) -> bool) {
        let mut commits = self.reader().watch();
        let waiting = async {
            while !fact(&self.reader()) {
                commits.changed().await.expect("the store lives");
            }
        };
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"));
    }

    /// Moves the clock to `time`; timers that fall due on the way fire at their own times, and what follows is done.
    async fn wait_until(&self, time: Timestamp) {
        while let Some(due) = self.reader().next_timer().unwrap().filter(|due| *due <= time) {
            self.clock.advance_to(due);
            self.until("the timer fires", |reader| reader.next_timer().unwrap() != Some(due)).await;
            let follows = |reader: &Reader| {
                count(reader, "fine", Status::Failed) == count(reader, "penalty", Status::Completed)
            };
            self.until("the penalty follows", follows).await;
        }
        self.clock.advance_to(time);
    }

    /// Publishes an event and waits until the instance it is for has taken it. What no instance takes is not waited for.
    async fn take(&self, line: &Line) {
        let key = InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("fine").unwrap(),
            correlation: CorrelationId::new(line.case.as_str()).unwrap(),
        };
        let before = self.reader().instance(&key).unwrap();
        let trigger = self.fine.manifest().triggers.iter().find(|trigger| trigger.kind == line.event.kind);
        self.bus.publish(vec![codec::encode(&line.event, codec::subject_of(&line.event))]).await.unwrap();
        let is_awaited = trigger.is_some_and(|t| t.starts) || before.is_some_and(|i| !i.status.is_final());
        if trigger.is_some() && is_awaited {
            let taken = |reader: &Reader| {
                reader.instance(&key).unwrap().is_some_and(|instance| instance.last_input == line.event.id)
            };
            self.until(&format!("{} of {} is taken", line.what, line.case), taken).await;
        }
    }

    /// The days on which penalties were commanded, by case.
    fn penalties(&self, log: &[Line]) -> BTreeMap<String, Day> {
        let ahead = |case: &str| {
            let notified = log.iter().find(|line| line.case == case && line.what == NOTIFIED);
            notified.expect("only a notified fine gets a penalty").ahead
        };
        let penalties = self.desk.penalties.lock().unwrap();
        let days: BTreeMap<_, _> = penalties
            .iter()
            .map(|(case, due)| (case.clone(), Day((due.millis() + ahead(case)).div_euclid(DAY))))
            .collect();
        assert_eq!(days.len(), penalties.len(), "a penalty was commanded twice: {penalties:?}");
        days
    }
}

fn count(reader: &Reader, saga: &str, status: Status) -> u64 {
    let counts = reader.count(&TenantId::default_tenant()).unwrap();
    counts.get(&(SagaName::new(saga).unwrap(), status)).copied().unwrap_or_default()
}

const CREATED: &str = "Create Fine";
const SENT: &str = "Send Fine";
const NOTIFIED: &str = "Insert Fine Notification";
const PENALTY: &str = "Add penalty";
const PAID: &str = "Payment";
const APPEALED: &str = "Insert Date Appeal to Prefecture";

/// How the two accounts of one fine compare, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Comparison {
    SameDay,
    SameDayAlthoughAppealed,
    SameDayAlthoughPaidInPartBeforeNotification,
    NotCommandedPaidInPart,
    NotCommandedPaidInFullOnTheSixtiethDay,
    NeitherPaidAndNeverNotified,
    NeitherTheLogEnds,
    Unexplained,
}

/// One fine in the log.
struct Case<'a>(Vec<&'a Line>);

impl Case<'_> {
    /// The day on which something first happened.
    fn day_of(&self, what: &str) -> Option<Day> {
        self.0.iter().find(|line| line.what == what).map(|line| line.day)
    }

    fn happened_before(&self, what: &str, day: Day) -> bool {
        self.day_of(what).is_some_and(|happened| happened < day)
    }

    /// What was due without penalty: the fine and the expenses.
    fn due(&self) -> i64 {
        self.0
            .iter()
            .filter(|line| [CREATED, SENT].contains(&line.what.as_str()))
            .map(|line| line.cents)
            .sum()
    }

    fn paid_until(&self, day: Day) -> i64 {
        self.0.iter().filter(|line| line.what == PAID && line.day <= day).map(|line| line.cents).sum()
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
            (None, None, None) if self.day_of(PAID).is_some() => Comparison::NeitherPaidAndNeverNotified,
            (None, None, None) => Comparison::NeitherTheLogEnds,
            _ => Comparison::Unexplained,
        }
    }
}

/// Prints the comparison of all cases and counts the kinds.
fn compare_all(log: &[Line], penalties: &BTreeMap<String, Day>) -> BTreeMap<Comparison, usize> {
    let mut cases: BTreeMap<&str, Case<'_>> = BTreeMap::new();
    for line in log {
        cases.entry(&line.case).or_insert_with(|| Case(Vec::new())).0.push(line);
    }
    let mut counts = BTreeMap::new();
    let show = |day: Option<Day>| day.map_or_else(|| "-".to_owned(), |day| day.to_string());
    println!("{:<10}{:<13}{:<13}{:<13}comparison", "case", "notified", "commanded", "recorded");
    for (name, case) in &cases {
        let commanded = penalties.get(*name).copied();
        let comparison = case.compare(commanded);
        *counts.entry(comparison).or_default() += 1;
        let (notified, recorded) = (show(case.day_of(NOTIFIED)), show(case.day_of(PENALTY)));
        println!("{name:<10}{notified:<13}{:<13}{recorded:<13}{comparison:?}", show(commanded));
    }
    println!("{counts:#?}");
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_saga_commands_the_penalties_that_the_office_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(LOG);
    if !path.exists() {
        println!("skipped: the log is not here: {}", path.display());
        return;
    }
    let log = log(&path);
    let office = Office::open(log[0].event.time).await;
    for line in &log {
        office.wait_until(line.event.time).await;
        office.take(line).await;
    }
    let end = log[log.len() - 1].event.time;
    office.wait_until(end.after(Duration::from_hours(61 * 24))).await;

    let counts = compare_all(&log, &office.penalties(&log));
    let expected = BTreeMap::from([
        (Comparison::SameDay, 50),
        (Comparison::SameDayAlthoughAppealed, 1),
        (Comparison::SameDayAlthoughPaidInPartBeforeNotification, 1),
        (Comparison::NotCommandedPaidInPart, 4),
        (Comparison::NotCommandedPaidInFullOnTheSixtiethDay, 1),
        (Comparison::NeitherPaidAndNeverNotified, 27),
        (Comparison::NeitherTheLogEnds, 16),
    ]);
    assert_eq!(counts, expected);
    let fines =
        [Status::Running, Status::Completed, Status::Failed].map(|s| count(&office.reader(), "fine", s));
    assert_eq!(fines, [0, 5, 52]);
    assert_eq!(office.reader().dead_letters(&TenantId::default_tenant(), None, 10).unwrap().len(), 0);
    office.runtime.stop().await.unwrap();
}
