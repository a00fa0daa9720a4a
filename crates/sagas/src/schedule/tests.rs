//! Transitions of schedules: policies, catch-up, control, and a random run of clock jumps, crashes and ends of runs.

use std::collections::BTreeSet;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SagaName, Status, TenantId,
    TimerChange, Timestamp, Transition, Work, WorkOutcome,
};
use orlog_program::{Context, NativeProgram, Program, ProgramInput, ProgramOutput};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const MINUTE: i64 = 60_000;

/// A schedule with its timer, its running instances, and all that it requested.
struct Harness {
    program: NativeProgram<ScheduleSaga>,
    key: InstanceKey,
    now: Timestamp,
    version: u64,
    state: Option<Vec<u8>>,
    status: Status,
    timer: Option<Timestamp>,
    running: BTreeSet<CorrelationId>,
    /// Runs with the rounds of their commands. A repeated command has no effect.
    commands: BTreeSet<(CorrelationId, u64)>,
    started: Vec<(CorrelationId, Value)>,
    cancelled: Vec<CorrelationId>,
}

impl Harness {
    fn new(now: &str, spec: &Value) -> Self {
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new(SAGA).unwrap(),
            correlation: CorrelationId::new("s").unwrap(),
        };
        let mut this = Self {
            program: program(),
            key,
            now: Timestamp::parse(now).unwrap(),
            version: 0,
            state: None,
            status: Status::Running,
            timer: None,
            running: BTreeSet::new(),
            commands: BTreeSet::new(),
            started: Vec::new(),
            cancelled: Vec::new(),
        };
        this.put(spec);
        this
    }

    fn put(&mut self, spec: &Value) -> bool {
        self.signal(PUT, json!({ "spec": spec }))
    }

    /// Applies a signal; returns whether it changed the schedule.
    fn signal(&mut self, kind: &str, data: Value) -> bool {
        let event = Event {
            id: EventId::new("e").unwrap(),
            tenant: TenantId::default(),
            kind: EventType::new(kind).unwrap(),
            source: "orlog:signal".to_owned(),
            subject: None,
            time: self.now,
            correlation: None,
            causation: None,
            trace: None,
            schema_version: 1,
            data,
            user: None,
            attributes: None,
        };
        self.apply(&ProgramInput::Event(&event))
    }

    fn apply(&mut self, input: &ProgramInput<'_>) -> bool {
        let Some(transition) = self.decide(input) else {
            return false;
        };
        self.commit(transition);
        true
    }

    fn decide(&self, input: &ProgramInput<'_>) -> Option<Box<Transition>> {
        let context = Context {
            key: &self.key,
            version: self.version + 1,
            now: self.now,
            pending_work: &[],
            attempts: 0,
        };
        match self
            .program
            .apply(self.state.as_deref(), input, &context)
            .unwrap()
        {
            ProgramOutput::Applied(transition) => Some(transition),
            ProgramOutput::Ignored(_) | ProgramOutput::Rejected(_) => None,
        }
    }

    fn commit(&mut self, transition: Box<Transition>) {
        self.version += 1;
        for work in transition.work {
            match work {
                Work::StartChild(start) => {
                    assert!(
                        self.running.insert(start.correlation.clone()),
                        "{} runs",
                        start.correlation
                    );
                    let command = (start.correlation.clone(), start.round);
                    assert!(
                        self.commands.insert(command),
                        "{}: repeated command",
                        start.correlation
                    );
                    self.started.push((start.correlation, start.data));
                }
                Work::CancelChild(cancel) => self.cancelled.push(cancel.correlation),
                other => panic!("{other:?}"),
            }
        }
        for change in transition.timers {
            self.timer = match change {
                TimerChange::Arm { due, .. } => Some(due),
                TimerChange::Cancel { .. } => None,
            };
        }
        (self.state, self.status) = (Some(transition.state), transition.status);
    }

    /// Fires the timer until it is in the future.
    fn fire(&mut self) {
        while self.timer.is_some_and(|due| due <= self.now) {
            self.timer = None;
            assert!(self.apply(&ProgramInput::Timer { name: "next" }));
        }
    }

    /// Sets the clock to each due time of the timer, up to a time of today.
    fn run_until(&mut self, until: &str) {
        let until = Timestamp::parse(until).unwrap();
        while let Some(due) = self.timer.filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.fire();
        }
        self.now = until;
    }

    /// Ends a running instance.
    fn end(&mut self, run: &CorrelationId, failure: Option<Failure>) {
        assert!(self.running.remove(run));
        let outcome = match failure {
            None => WorkOutcome::succeeded(None, Value::Null),
            Some(failure) => WorkOutcome::Failed {
                event: None,
                failure,
                payload: Value::Null,
            },
        };
        assert!(self.apply(&ProgramInput::WorkResult {
            tag: run.as_str(),
            outcome: &outcome
        }));
    }

    fn end_all(&mut self) {
        for run in self.running.clone() {
            self.end(&run, None);
        }
    }

    fn state(&self) -> ScheduleState {
        rmp_serde::from_slice(self.state.as_ref().unwrap()).unwrap()
    }

    /// Returns the times in the correlation ids of the started runs.
    fn started(&self) -> Vec<&str> {
        self.started
            .iter()
            .map(|(run, _)| run.as_str().strip_prefix("s-2027-01-01T").unwrap())
            .collect()
    }
}

fn every_hour(overlap: &str) -> Value {
    json!({ "saga": "bill", "every": "1h", "overlap": overlap })
}

#[test]
fn run_receives_the_due_time_and_its_correlation_id() {
    let data = json!({ "day": "=schedule.time.substring(0, 10)", "id": "=schedule.correlation", "fixed": 1 });
    let mut s = Harness::new(
        "2027-01-01T00:30:00Z",
        &json!({ "saga": "bill", "every": "1h", "data": data }),
    );
    s.run_until("2027-01-01T01:00:00Z");
    let expected = json!({ "day": "2027-01-01", "id": "s-2027-01-01T01:00:00Z", "fixed": 1 });
    assert_eq!(s.started[0].1, expected);
}

#[test]
fn skip_starts_no_run_while_one_is_in_progress() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("skip"));
    s.run_until("2027-01-01T03:30:00Z");
    assert_eq!(s.started(), ["01:00:00Z"]);
    s.end_all();
    s.run_until("2027-01-01T04:30:00Z");
    assert_eq!(s.started(), ["01:00:00Z", "04:00:00Z"]);
    let counts = s.state().counts;
    assert_eq!(
        (counts.started, counts.completed, counts.skipped),
        (2, 1, 2)
    );
}

#[test]
fn queue_starts_one_waiting_run_at_the_end() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("queue"));
    s.run_until("2027-01-01T03:30:00Z");
    s.end_all();
    assert_eq!(s.started(), ["01:00:00Z", "02:00:00Z"]);
    assert_eq!((s.state().queued, s.state().counts.skipped), (None, 1));
}

#[test]
fn allow_overlaps_runs_up_to_the_limit_and_loses_none() {
    let mut s = Harness::new(
        "2027-01-01T00:00:00Z",
        &json!({ "saga": "bill", "every": "1m", "overlap": "allow" }),
    );
    s.now = Timestamp::parse("2027-01-01T03:00:00Z").unwrap();
    s.fire();
    assert_eq!(
        (s.running.len(), s.timer),
        (MAX_RUNNING, None),
        "due times wait for the end of a run"
    );
    s.end_all();
    s.fire();
    assert_eq!(s.started.len(), 180);
}

#[test]
fn cancel_cancels_the_run_and_starts_the_next_after_its_end() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("cancel"));
    s.run_until("2027-01-01T03:30:00Z");
    assert_eq!(s.started(), ["01:00:00Z"]);
    assert_eq!(s.cancelled.len(), 1, "it is cancelled once");
    let run = s.cancelled[0].clone();
    let failure = Failure {
        code: "child_cancelled".to_owned(),
        message: "x".to_owned(),
    };
    s.end(&run, Some(failure));
    assert_eq!(s.started(), ["01:00:00Z", "03:00:00Z"]);
    assert_eq!((s.state().counts.failed, s.state().counts.skipped), (1, 1));
}

#[test]
fn due_times_older_than_the_window_are_missed() {
    let spec = json!({ "saga": "bill", "every": "20m", "overlap": "allow", "catch_up": "1h" });
    let mut s = Harness::new("2026-12-29T00:10:00Z", &spec);
    // Down for three days.
    s.now = Timestamp::parse("2027-01-01T00:10:00Z").unwrap();
    s.fire();
    let started: Vec<_> = s.started.iter().map(|(run, _)| run.as_str()).collect();
    assert_eq!(
        started,
        [
            "s-2026-12-31T23:20:00Z",
            "s-2026-12-31T23:40:00Z",
            "s-2027-01-01T00:00:00Z"
        ]
    );
    assert_eq!(s.state().counts.missed, 3 * 72 - 3);
    assert_eq!(
        s.timer,
        Some(Timestamp::parse("2027-01-01T00:20:00Z").unwrap())
    );
}

#[test]
fn long_outage_of_a_frequent_schedule_counts_a_bounded_number() {
    let spec = json!({ "saga": "bill", "every": "1s", "catch_up": "10s" });
    let mut s = Harness::new("2026-12-01T00:00:00Z", &spec);
    s.now = Timestamp::parse("2027-01-01T00:00:00Z").unwrap();
    s.fire();
    assert_eq!(s.state().counts.missed, 10_000);
    assert_eq!(s.started.len(), 1);
}

#[test]
fn clock_that_is_set_back_repeats_no_due_time() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("allow"));
    s.run_until("2027-01-01T02:30:00Z");
    s.now = Timestamp::parse("2027-01-01T00:10:00Z").unwrap();
    s.end_all();
    s.run_until("2027-01-01T03:30:00Z");
    assert_eq!(s.started(), ["01:00:00Z", "02:00:00Z", "03:00:00Z"]);
}

#[test]
fn paused_schedule_starts_nothing_and_resumes_after_now() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("allow"));
    assert!(s.signal(PAUSE, Value::Null) && !s.signal(PAUSE, Value::Null));
    assert_eq!((s.timer, s.status), (None, Status::Running));
    s.run_until("2027-01-01T05:30:00Z");
    assert!(s.signal(RESUME, Value::Null) && !s.signal(RESUME, Value::Null));
    s.run_until("2027-01-01T06:00:00Z");
    assert_eq!(s.started(), ["06:00:00Z"]);
    assert_eq!(s.state().counts.missed, 0);
}

#[test]
fn trigger_starts_a_run_now_under_the_overlap_policy() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("skip"));
    assert!(s.signal(TRIGGER, Value::Null) && s.signal(TRIGGER, Value::Null));
    assert_eq!(s.started(), ["00:30:00Z"]);
    s.end_all();
    assert!(s.signal(TRIGGER, Value::Null));
    assert_eq!(
        s.started(),
        ["00:30:00Z", "00:30:00.002Z"],
        "two runs never have the same id"
    );
    assert!(s.state().recent[0].run.due.triggered);
}

#[test]
fn equal_specification_changes_nothing_and_another_one_continues_after_now() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("allow"));
    assert!(!s.put(&every_hour("allow")));
    s.run_until("2027-01-01T01:30:00Z");
    assert!(s.put(&json!({ "saga": "bill", "every": "10m", "overlap": "allow" })));
    s.run_until("2027-01-01T01:50:00Z");
    assert_eq!(s.started(), ["01:00:00Z", "01:40:00Z", "01:50:00Z"]);
}

#[test]
fn specification_that_arrives_before_a_late_timer_loses_no_due_time() {
    let spec =
        |data| json!({ "saga": "bill", "every": "1h", "overlap": "allow", "data": { "v": data } });
    let mut s = Harness::new("2027-01-01T00:30:00Z", &spec(1));
    // Down from 00:55 to 02:05.
    s.now = Timestamp::parse("2027-01-01T02:05:00Z").unwrap();
    assert!(s.put(&spec(2)));
    assert_eq!(s.started(), ["01:00:00Z", "02:00:00Z"]);
    s.run_until("2027-01-01T03:00:00Z");
    let data: Vec<_> = s
        .started
        .iter()
        .map(|(_, data)| data["v"].clone())
        .collect();
    assert_eq!(
        (s.started().len(), data),
        (3, vec![json!(1), json!(1), json!(2)])
    );
    assert!(s.signal(PAUSE, Value::Null));
    assert!(s.put(&spec(3)));
    s.run_until("2027-01-01T04:30:00Z");
    assert!(s.signal(RESUME, Value::Null));
    assert_eq!(
        (s.started().len(), s.state().counts.missed),
        (3, 0),
        "the time of the pause is not caught up"
    );
}

#[test]
fn start_that_jitter_delays_survives_a_change_and_a_pause() {
    let spec = |every: &str, data| json!({ "saga": "bill", "every": every, "jitter": "50m", "data": { "v": data } });
    let mut s = Harness::new("2027-01-01T00:00:00Z", &spec("1h", 1));
    let (due, fires) = (
        Timestamp::parse("2027-01-01T01:00:00Z").unwrap(),
        s.timer.unwrap(),
    );
    s.now = due.saturating_add(std::time::Duration::from_secs(1));
    assert!(s.now < fires);
    assert!(s.put(&spec("1h", 2)));
    assert_eq!(
        (s.started().len(), s.timer),
        (0, Some(fires)),
        "the delay is the same"
    );
    assert!(s.signal(PAUSE, Value::Null) && s.signal(RESUME, Value::Null));
    assert_eq!(
        (s.started().len(), s.timer),
        (0, Some(fires)),
        "it starts after the pause"
    );
    // The next specification does not contain this due time.
    assert!(s.put(&json!({ "saga": "bill", "at": "2027-01-01T09:00:00Z" })));
    assert_eq!(s.started(), ["01:00:00Z"]);
    assert_eq!(s.started[0].1, json!({ "v": 2 }));
}

#[test]
fn start_time_within_a_pause_is_ignored() {
    let mut s = Harness::new(
        "2027-01-01T00:00:00Z",
        &json!({ "saga": "bill", "every": "1h", "jitter": "50m" }),
    );
    let fires = s.timer.unwrap();
    assert!(s.signal(PAUSE, Value::Null));
    s.now = fires;
    assert!(s.signal(RESUME, Value::Null));
    assert!(s.started().is_empty() && s.timer.unwrap() > fires);
}

#[test]
fn deleted_schedule_ends_and_can_be_created_again() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("skip"));
    s.run_until("2027-01-01T01:30:00Z");
    assert!(s.signal(DELETE, Value::Null) && !s.signal(DELETE, Value::Null));
    assert_eq!((s.timer, s.status), (None, Status::Completed));
    assert!(!s.signal(TRIGGER, Value::Null) && !s.signal(PAUSE, Value::Null));
    s.end_all();
    assert_eq!(
        (s.status, s.state().counts.completed),
        (Status::Completed, 1)
    );
    s.now = Timestamp::parse("2027-01-01T02:30:00Z").unwrap();
    assert!(s.put(&every_hour("skip")));
    assert_eq!((s.status, s.state().counts.started), (Status::Running, 0));
    s.run_until("2027-01-01T03:00:00Z");
    assert_eq!(s.started(), ["01:00:00Z", "03:00:00Z"]);
}

#[test]
fn schedule_that_is_created_again_continues_after_a_clock_jump() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("skip"));
    s.now = Timestamp::parse("2037-01-01T00:30:00Z").unwrap();
    s.fire();
    s.end_all();
    s.started.clear();
    s.now = Timestamp::parse("2027-01-01T01:30:00Z").unwrap();
    assert!(s.signal(DELETE, Value::Null) && s.put(&every_hour("skip")));
    s.run_until("2027-01-01T02:00:00Z");
    assert_eq!(s.started(), ["02:00:00Z"]);
}

/// The run of the first command may still exist: it must answer the second one.
#[test]
fn due_time_that_is_started_again_after_a_clock_correction_has_another_command() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("skip"));
    s.run_until("2027-01-01T01:00:00Z");
    s.end_all();
    s.now = Timestamp::parse("2027-01-01T00:30:00Z").unwrap();
    assert!(s.signal(DELETE, Value::Null) && s.put(&every_hour("skip")));
    s.run_until("2027-01-01T01:00:00Z");
    assert_eq!(s.started(), ["01:00:00Z", "01:00:00Z"]);
    // A run that is in progress is not entered twice.
    s.now = Timestamp::parse("2027-01-01T00:30:00Z").unwrap();
    assert!(s.signal(DELETE, Value::Null) && s.put(&every_hour("allow")));
    s.run_until("2027-01-01T01:00:00Z");
    assert_eq!(
        (
            s.started().len(),
            s.state().counts.failed,
            s.state().running.len()
        ),
        (2, 1, 1)
    );
}

#[test]
fn queued_run_starts_when_runs_may_overlap() {
    let mut s = Harness::new("2027-01-01T00:30:00Z", &every_hour("queue"));
    s.run_until("2027-01-01T02:00:00Z");
    assert_eq!(s.started(), ["01:00:00Z"]);
    assert!(s.put(&every_hour("allow")));
    assert_eq!(s.started(), ["01:00:00Z", "02:00:00Z"]);
}

#[test]
fn changed_times_start_nothing_that_was_due_before_the_change() {
    let spec = json!({ "saga": "bill", "every": "1h", "jitter": "50m", "overlap": "allow" });
    let mut s = Harness::new("2027-01-01T00:00:00Z", &spec);
    // The start of 01:00 is delayed.
    let fires = s.timer.unwrap();
    s.now = fires.saturating_sub(std::time::Duration::from_secs(1));
    assert!(s.now > Timestamp::parse("2027-01-01T01:02:00Z").unwrap());
    assert!(s.put(&json!({ "saga": "bill", "every": "1m", "overlap": "allow" })));
    assert_eq!(s.started(), ["01:00:00Z"]);
}

#[test]
fn one_date_ends_the_schedule_after_its_run() {
    let mut s = Harness::new(
        "2027-01-01T00:30:00Z",
        &json!({ "saga": "bill", "at": "2027-01-01T04:00:00Z" }),
    );
    s.run_until("2027-01-01T05:00:00Z");
    assert_eq!(
        (s.started(), s.status),
        (vec!["04:00:00Z"], Status::Running)
    );
    s.end_all();
    assert_eq!(s.status, Status::Completed);
    assert!(
        !s.put(&json!({ "saga": "bill", "at": "2027-01-01T04:00:00Z" })),
        "it is not due again"
    );
}

#[test]
fn data_without_a_value_fails_the_run() {
    let data = json!({ "x": "=1 / (size(schedule.name) - 1)" });
    let mut s = Harness::new(
        "2027-01-01T00:30:00Z",
        &json!({ "saga": "bill", "every": "1h", "data": data }),
    );
    s.run_until("2027-01-01T01:00:00Z");
    assert_eq!((s.started.len(), s.state().counts.failed), (0, 1));
    assert_eq!(s.state().recent[0].failure.as_ref().unwrap().code, "data");
}

#[test]
fn invalid_specification_lists_all_errors() {
    let spec: ScheduleSpec = serde_json::from_value(json!({
        "saga": "orlog.schedule", "cron": "61 * * * *", "jitter": "soon", "catch_up": "1s", "data": { "a": "=event.x" },
    }))
    .unwrap();
    let errors: Vec<_> = spec
        .check()
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors[0], "saga: orlog.schedule is reserved");
    assert_eq!(
        errors[1],
        "cron \"61 * * * *\": minute 61 is out of range (0-59)"
    );
    assert_eq!(
        errors[2],
        "jitter: `soon` is not a duration; write 90s, 30m, 1h30m or 7d"
    );
    assert_eq!(
        errors[3],
        "catch_up: the window is too short; the minimum is 10s"
    );
    assert!(errors[4].starts_with("data.a: "), "{errors:?}");
}

#[test]
fn state_of_a_newer_release_is_rejected() {
    let s = Harness::new("2027-01-01T00:30:00Z", &every_hour("skip"));
    let newer = rmp_serde::to_vec_named(&ScheduleState {
        format: 2,
        ..s.state()
    })
    .unwrap();
    let context = Context {
        key: &s.key,
        version: 2,
        now: s.now,
        pending_work: &[],
        attempts: 0,
    };
    let error = s
        .program
        .apply(
            Some(&newer),
            &ProgramInput::Timer { name: "next" },
            &context,
        )
        .unwrap_err();
    assert!(error.to_string().contains("format 2 is newer"), "{error}");
}

proptest! {
    /// A start is delayed by less than the jitter and less than the interval, always by the same delay.
    #[test]
    fn jitter_is_in_range_and_repeatable(jitter in 1..7200_i64) {
        let spec = json!({ "saga": "bill", "every": "1h", "jitter": format!("{jitter}s") });
        let s = Harness::new("2027-01-01T00:00:00Z", &spec);
        let upcoming = s.state().upcoming("s", s.now, 50).unwrap();
        prop_assert_eq!(&upcoming, &s.state().upcoming("s", s.now, 50).unwrap());
        for (index, start) in upcoming.iter().enumerate() {
            let due = s.now.as_millis() + (i64::try_from(index).unwrap() + 1) * 60 * MINUTE;
            let delay = start.as_millis() - due;
            prop_assert!((0..(jitter * 1000).min(60 * MINUTE)).contains(&delay), "{delay}");
        }
    }

    /// Under clock jumps, outages, lost decisions and ends of runs in any order: each due time is decided exactly once, none in
    /// the window is missed, and the policy holds.
    #[test]
    fn each_due_time_is_decided_once(
        policy in prop::sample::select(vec!["skip", "queue", "allow", "cancel"]),
        jitter in prop::sample::select(vec!["", "3m", "90m"]),
        steps in prop::collection::vec((0..6_u8, -90..400_i64), 1..60),
    ) {
        let mut spec = json!({ "saga": "bill", "cron": "*/30 * * * *", "zone": "Europe/Berlin", "overlap": policy, "catch_up": "2h" });
        if !jitter.is_empty() {
            spec["jitter"] = json!(jitter);
        }
        // The clock is set forward and back in this time.
        let mut s = Harness::new("2027-03-27T22:10:00Z", &spec);
        let begin = s.now;
        let mut latest = s.now;
        let (mut outages, mut blocked) = (0, false);
        for (kind, minutes) in steps {
            match kind {
                // The clock jumps, also backwards; the timer fires late.
                0 | 1 => {
                    outages += u64::from(minutes > 120);
                    s.now = Timestamp::from_millis(s.now.as_millis() + minutes * MINUTE);
                }
                // A decision that is lost in a crash is repeated later, on the same state.
                2 => {
                    drop(s.decide(&ProgramInput::Timer { name: "next" }));
                }
                3 => if let Some(run) = s.running.first().cloned() { s.end(&run, None) },
                4 => s.end_all(),
                _ => if let Some(due) = s.timer { s.now = s.now.max(due) },
            }
            s.fire();
            latest = latest.max(s.now);
            blocked |= s.running.len() >= MAX_RUNNING;
            if policy != "allow" {
                prop_assert!(s.running.len() <= 1, "runs overlap");
            }
            prop_assert_eq!(s.running.len(), s.state().running.len());
        }
        let state = s.state();
        let times: Vec<_> = spec_times(&spec).after(begin).take_while(|due| *due <= state.cursor).collect();
        let started: BTreeSet<_> = s.started.iter().map(|(run, _)| run).collect();
        prop_assert_eq!(started.len(), s.started.len(), "a due time started twice");
        for (run, _) in &s.started {
            prop_assert!(times.iter().any(|due| run.as_str() == format!("s-{due}").replace(".000Z", "Z")), "{} was not due", run);
        }
        let decided = s.started.len() as u64 + u64::from(state.queued.is_some()) + state.counts.skipped + state.counts.missed;
        prop_assert_eq!(decided, times.len() as u64, "each due time is started, queued, skipped or missed");
        let is_blocked = blocked || state.running.len() >= MAX_RUNNING;
        if outages == 0 && !is_blocked {
            prop_assert_eq!(state.counts.missed, 0);
        }
        if policy == "allow" && state.counts.missed == 0 {
            prop_assert_eq!(s.started.len(), times.len());
        }
        let undecided = spec_times(&spec).next_after(state.cursor).unwrap();
        prop_assert!(is_blocked || undecided.saturating_add(std::time::Duration::from_mins(30)) > latest, "{undecided} is not decided at {latest}");
    }
}

fn spec_times(spec: &Value) -> Times {
    serde_json::from_value::<ScheduleSpec>(spec.clone())
        .unwrap()
        .times()
        .unwrap()
}
