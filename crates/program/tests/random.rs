//! Random sagas over the whole language under random inputs in any order, duplicated or late:
//! invariants hold in every run.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{Status, WaitKind, Work};
use orlog_program::in_doubt::NOT_EXECUTED;
use orlog_program::{CompiledDefinition, compile_yaml};
use orlog_testkit::definition_suite::{
    InstanceDriver, PayloadSamples, failed, in_doubt, pending_tags, resolve_in_doubt, respond_fail,
    respond_ok,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Random step. Each number selects one of a few variants.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an optional field of a step"
)]
struct RandomStep {
    /// Bit n: after step n.
    after: u8,
    join: u8,
    kind: u8,
    compensation: u8,
    foreach: bool,
    timeout: bool,
    remind: bool,
    skipped: bool,
    pivot: bool,
    in_doubt_ask: bool,
}

/// Random input of the instance; the number selects a step.
#[derive(Clone, Copy, Debug)]
enum RandomInput {
    Ok(usize),
    Fail(usize),
    /// The outcome is unknown.
    InDoubt(usize),
    /// An operator reports that the effect was not executed.
    NotExecuted(usize),
    Compensated(usize),
    NotCompensated(usize),
    /// A result for work that may not be pending.
    Arbitrary(usize, bool),
    Duplicate,
    Wait(u64),
    Cancel,
    Retry,
    Skip,
    Handler,
    Start,
}

fn random_step() -> impl Strategy<Value = RandomStep> {
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.15),
        any::<bool>(),
    );
    (any::<u8>(), 0..6_u8, 0..9_u8, 0..5_u8, flags).prop_map(
        |(after, join, kind, compensation, flags)| {
            let (foreach, timeout, remind, skipped, pivot, in_doubt_ask) = flags;
            RandomStep {
                after,
                join,
                kind,
                compensation,
                foreach,
                timeout,
                remind,
                skipped,
                pivot,
                in_doubt_ask,
            }
        },
    )
}

fn random_input() -> impl Strategy<Value = RandomInput> {
    prop_oneof![
        8 => (0..8_usize).prop_map(RandomInput::Ok),
        2 => (0..8_usize).prop_map(RandomInput::Fail),
        3 => (0..8_usize).prop_map(RandomInput::InDoubt),
        2 => (0..8_usize).prop_map(RandomInput::NotExecuted),
        3 => (0..8_usize).prop_map(RandomInput::Compensated),
        1 => (0..8_usize).prop_map(RandomInput::NotCompensated),
        3 => (0..8_usize, any::<bool>()).prop_map(|(step, compensation)| RandomInput::Arbitrary(step, compensation)),
        2 => Just(RandomInput::Duplicate),
        1 => (1..90_u64).prop_map(RandomInput::Wait),
        1 => Just(RandomInput::Cancel),
        1 => Just(RandomInput::Retry),
        1 => Just(RandomInput::Skip),
        1 => Just(RandomInput::Handler),
        1 => Just(RandomInput::Start),
    ]
}

/// Returns the steps as YAML. Adds a pivot only if no step may run in parallel; the compiler requires
/// this.
fn build(shapes: &[RandomStep], pivots: bool) -> CompiledDefinition {
    let mut text =
        "saga: random\nversion: 1\nstart: Go\nvars: { customer: =event.customer, items: =event.items }\n\
        on: [ { event: Stop, when: has(event.by), then: cancel }, { event: Enough, then: complete } ]\n\
        completed: { fact: Completed }\nfailed: { fact: Failed, data: =failure.code }\nsteps:\n"
            .to_owned();
    for (i, random_step) in shapes.iter().enumerate() {
        text.extend([format!(
            "  - {{ id: s{i}, {} }}\n",
            step(i, random_step, pivots && random_step.pivot)
        )]);
    }
    match compile_yaml(&text, "random") {
        Ok(saga) => saga,
        Err(problems) if pivots => {
            assert!(
                problems
                    .iter()
                    .all(|p| p.path.rsplit('.').next() == Some("pivot")),
                "{problems:?}\n{text}"
            );
            build(shapes, false)
        }
        Err(problems) => panic!("{problems:?}\n{text}"),
    }
}

fn step(i: usize, random_step: &RandomStep, pivot: bool) -> String {
    let before: Vec<_> = (0..i)
        .filter(|n| random_step.after & (1 << n) != 0)
        .map(|n| format!("s{n}"))
        .collect();
    let names = before.join(", ");
    let after = match (random_step.join, before.len()) {
        (0, 1..) => format!("{{ any: [{names}] }}"),
        (1, 2..) => format!("{{ count: 2, of: [{names}] }}"),
        (_, _) => format!("[{names}]"),
    };
    let each = random_step.foreach && random_step.kind != 8;
    let when = if each { ", when: event.n == index" } else { "" };
    let action = match random_step.kind {
        0 | 1 => "do: { effect: x.do, data: =vars.customer }".to_owned(),
        2 => format!(
            "do: {{ command: x.Do }}, ok: {{ event: Ok{i}{when} }}, fail: {{ event: No{i}{when} }}"
        ),
        3 => format!(
            "do: {{ command: x.Do }}, ok: {{ event: Ok{i}{when} }}, fail: {{ event: No{i}{when} }}, retry: {{ max_attempts: 2, initial_backoff: 5s }}"
        ),
        4 => format!("do: {{ event: Ok{i}{when} }}, fail: {{ event: No{i}{when} }}"),
        5 => "do: { human: { title: Do, due: 20s, escalate: { roles: [x] } } }, ok: Yes, fail: No"
            .to_owned(),
        6 => "do: { saga: child }".to_owned(),
        7 => "do: { job: { type: python, script: s } }".to_owned(),
        _ => return format!("after: {after}, do: {{ switch: [ {{ then: {} }} ] }}", "[]"),
    };
    let compensation = match random_step.compensation {
        0 => String::new(),
        1 => ", undo: { effect: x.undo, data: =failure }".to_owned(),
        2 => ", undo: { command: x.Undo, retry: { max_attempts: 2, initial_backoff: 5s } }"
            .to_owned(),
        3 => format!(", undo: {{ command: x.Undo, ok: {{ event: Reverted{i}{when} }} }}"),
        _ => ", undo: { human: { title: Revert }, ok: Yes }".to_owned(),
    };
    let mut text = format!("after: {after}, {action}{compensation}");
    if each {
        text += ", foreach: { in: =vars.items, as: item, max_concurrency: 2 }";
    }
    if random_step.in_doubt_ask && matches!(random_step.kind, 0 | 1 | 7) {
        text += ", in_doubt: ask";
    }
    if random_step.timeout {
        text += ", timeout: 1m";
    }
    if random_step.remind && matches!(random_step.kind, 2..=5) {
        text += ", remind: { every: 20s, max: 2, do: { effect: x.remind, data: =reminder } }";
    }
    if random_step.skipped {
        text += ", when: vars.customer == 'none'";
    }
    if pivot {
        text += ", pivot: true";
    }
    text
}

/// Instance with its expected state.
struct CheckedInstance<'a> {
    saga: &'a CompiledDefinition,
    samples: PayloadSamples,
    run: InstanceDriver<'a>,
    /// How often each place was completed, compensated, or skipped in its compensation.
    done: BTreeMap<String, usize>,
    compensated: BTreeMap<String, usize>,
    /// Completed places without started compensation, in the order of completion.
    stack: Vec<String>,
    pivoted: bool,
    compensating: bool,
    /// Whether an event was kept for a step that had not started.
    keeps_events: bool,
    last: Option<(String, bool)>,
}

impl<'a> CheckedInstance<'a> {
    fn start(saga: &'a CompiledDefinition) -> Self {
        let mut instance = Self {
            saga,
            samples: PayloadSamples::of(saga.definition()),
            run: InstanceDriver::new(saga),
            done: BTreeMap::new(),
            compensated: BTreeMap::new(),
            stack: Vec::new(),
            pivoted: false,
            compensating: false,
            keeps_events: false,
            last: None,
        };
        instance
            .watch(|run, _, _| run.event("Go", json!({ "customer": "me", "items": [1, 2, 3] })));
        instance
    }

    /// Applies an input and checks the resulting transition.
    fn watch(
        &mut self,
        act: impl FnOnce(
            &mut InstanceDriver<'a>,
            &CompiledDefinition,
            &PayloadSamples,
        ) -> Result<String, String>,
    ) -> bool {
        let (request_count, compensations) = (self.run.work().len(), self.run.compensated().len());
        let before = self.run.state().to_vec();
        let compensating = self.compensating;
        let Ok(note) = act(&mut self.run, self.saga, &self.samples) else {
            assert_eq!(
                self.run.state(),
                before,
                "an input without effect changed the state"
            );
            return false;
        };
        self.read(&note);
        assert!(
            self.run.state().len() < 600,
            "{} bytes",
            self.run.state().len()
        );
        let tags = |work: &[Work]| {
            work.iter()
                .filter_map(Work::tag)
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        if compensating {
            let forward: Vec<_> = tags(&self.run.work()[request_count..])
                .into_iter()
                .filter(|t| !t.starts_with("compensate:"))
                .collect();
            assert!(
                forward.is_empty(),
                "{forward:?} starts after compensation has started: {note}"
            );
        }
        let compensations: Vec<_> = self.run.compensated()[compensations..].to_vec();
        let repeat = note.contains("again") || note.contains("retry");
        // An early event can confirm a compensation in the transition that requests it.
        let confirmed = note.matches(": compensated").count();
        assert!(
            compensations.len() <= 1 + confirmed || repeat,
            "compensations run one after another, not {compensations:?}: {note}"
        );
        // If several timers fired, the first can start a compensation before another one fails the saga. So can a join
        // that discards a branch, before an early event fails a step that starts in the same transition.
        self.keeps_events |= note.contains("kept until its step starts");
        let one = !note.contains("; ") && (compensating || !self.keeps_events);
        for tag in &compensations {
            self.check_compensation_start(&tag["compensate:".len()..], one);
        }
        self.check_timers();
        true
    }

    fn read(&mut self, note: &str) {
        for part in note.split("; ").flat_map(|notes| notes.split(", ")) {
            match part.split_once(": ") {
                Some((unit, "ok")) => {
                    *self.done.entry(unit.to_owned()).or_default() += 1;
                    self.stack.push(unit.to_owned());
                }
                Some((unit, "compensated" | "compensation skipped")) => {
                    *self.compensated.entry(unit.to_owned()).or_default() += 1;
                }
                None if part == "past the pivot" => {
                    self.pivoted = true;
                    self.stack.clear();
                }
                Some(_) | None => {}
            }
        }
        let view = self.run.state_view();
        self.compensating |= view["failure"] != Value::Null;
    }

    /// Checks that compensation starts with the newest completed place that has a compensation, except for
    /// late completions.
    fn check_compensation_start(&mut self, unit: &str, one: bool) {
        let Some(at) = self.stack.iter().position(|other| other == unit) else {
            return;
        };
        if self.compensating && one {
            for newer in &self.stack[at + 1..] {
                assert!(
                    !self.has_compensation(newer),
                    "{unit} is compensated before {newer}, which completed later"
                );
            }
        }
        self.stack.remove(at);
    }

    /// Checks that every armed timer belongs to pending work and that no timer is missing.
    fn check_timers(&self) {
        let open = pending_tags(&self.run, self.saga.definition());
        for timer in self.run.timers() {
            let tag = timer
                .strip_prefix("retry:")
                .or_else(|| timer.strip_prefix("escalate:"))
                .or_else(|| timer.strip_prefix("remind:"))
                .unwrap_or(timer);
            assert!(
                open.iter().any(|open| open == tag),
                "the timer {timer} belongs to no pending work"
            );
        }
        let view = self.run.state_view();
        if self.run.status() == Status::Stuck {
            return;
        }
        for step in view["steps"].as_array().expect("a list") {
            let elements = step["elements"].as_array().cloned().unwrap_or_default();
            let limits = std::iter::once(step)
                .chain(&elements)
                .filter(|slot| !slot["until"].is_null())
                .count();
            let of_step = |timer: &&&str| {
                let tag = timer.rsplit(':').next().unwrap_or_default();
                let limits_step = ["escalate:", "remind:"]
                    .iter()
                    .all(|prefix| !timer.starts_with(prefix));
                limits_step && tag.split('[').next() == step["id"].as_str()
            };
            assert_eq!(
                self.run.timers().iter().filter(of_step).count(),
                limits,
                "timers of {step}"
            );
        }
    }

    fn has_compensation(&self, unit: &str) -> bool {
        let id = unit.split('[').next().unwrap_or_default();
        self.saga
            .definition()
            .steps
            .iter()
            .any(|step| step.id.as_str() == id && step.compensate.is_some())
    }

    fn apply(&mut self, input: RandomInput, steps: usize) {
        let open = pending_tags(&self.run, self.saga.definition());
        let pick = |compensation: bool, n: usize| {
            let fitting: Vec<_> = open
                .iter()
                .filter(|tag| tag.starts_with("compensate:") == compensation)
                .collect();
            fitting
                .get(n % fitting.len().max(1))
                .map(|tag| (*tag).clone())
        };
        match input {
            RandomInput::Ok(n) => self.respond(pick(false, n), true),
            RandomInput::Fail(n) => self.respond(pick(false, n), false),
            RandomInput::InDoubt(n) => self.report_in_doubt(n, steps),
            RandomInput::NotExecuted(n) => self.report_not_executed(n),
            RandomInput::Compensated(n) => self.respond(pick(true, n), true),
            RandomInput::NotCompensated(n) => self.respond(pick(true, n), false),
            RandomInput::Arbitrary(n, compensation) => {
                let id = format!("s{}", n % steps);
                self.respond(
                    Some(if compensation {
                        format!("compensate:{id}")
                    } else {
                        id
                    }),
                    n % 3 > 0,
                );
            }
            RandomInput::Duplicate => self.repeat(),
            RandomInput::Wait(seconds) => {
                self.watch(|run, _, _| {
                    run.advance(Duration::from_secs(seconds))
                        .map(|notes| notes.join("; "))
                });
            }
            RandomInput::Cancel => drop(self.watch(|run, _, _| run.cancel("random"))),
            RandomInput::Retry => drop(self.watch(|run, _, _| run.retry())),
            RandomInput::Skip => drop(self.watch(|run, _, _| run.skip())),
            RandomInput::Handler => {
                self.watch(|run, _, _| run.event("Stop", json!({ "by": "me" })));
            }
            RandomInput::Start => {
                self.watch(|run, _, _| run.event("Go", json!({ "customer": "you", "items": [] })));
            }
        }
    }

    /// Reports an unknown outcome for any work: pending, abandoned or already in doubt. No in-doubt task is
    /// closed; other tasks are if the saga starts compensation.
    fn report_in_doubt(&mut self, n: usize, steps: usize) {
        let open = pending_tags(&self.run, self.saga.definition());
        let tag = open
            .get(n % (open.len() + 1))
            .cloned()
            .unwrap_or_else(|| format!("s{}", n % steps));
        let tasks = in_doubt_tasks(&self.run);
        self.watch(|run, _, _| run.outcome(&tag, &in_doubt()));
        assert!(
            in_doubt_tasks(&self.run) >= tasks,
            "{tag}: an in-doubt task was closed"
        );
    }

    /// Checks that an effect that was not executed is requested again, unless it is no longer required or
    /// another decision of an operator is pending.
    fn report_not_executed(&mut self, n: usize) {
        let waits = self.run.waits();
        let tags: Vec<_> = waits
            .iter()
            .filter(|(kind, _)| *kind == WaitKind::Task)
            .map(|(_, tag)| tag)
            .collect();
        let Some(tag) = tags.get(n % tags.len().max(1)).map(|tag| (*tag).clone()) else {
            return;
        };
        self.watch(|run, _, _| resolve_in_doubt(run, &tag, NOT_EXECUTED, Value::Null));
    }

    fn respond(&mut self, tag: Option<String>, success: bool) {
        let Some(tag) = tag else { return };
        let was_open = pending_tags(&self.run, self.saga.definition()).contains(&tag);
        let fail =
            |run: &mut InstanceDriver<'_>, saga: &CompiledDefinition, samples: &PayloadSamples| {
                let n = tag
                    .split('[')
                    .next()
                    .unwrap_or_default()
                    .trim_start_matches("compensate:")
                    .trim_start_matches('s');
                let event = format!("No{n}").parse().expect("a valid event type");
                match respond_fail(run, saga, &tag, &event, samples) {
                    Err(_) => run.outcome(&tag, &failed("random")),
                    accepted => accepted,
                }
            };
        let accepted = self.watch(|run, saga, samples| {
            if success {
                respond_ok(run, saga, &tag, samples)
            } else {
                fail(run, saga, samples)
            }
        });
        self.last = (accepted && was_open).then_some((tag, success));
    }

    /// Checks that a duplicate of the last result changes nothing.
    fn repeat(&mut self) {
        let Some((tag, true)) = self.last.take() else {
            return;
        };
        let is_open = pending_tags(&self.run, self.saga.definition()).contains(&tag);
        let accepted =
            !is_open && self.watch(|run, saga, samples| respond_ok(run, saga, &tag, samples));
        assert!(!accepted, "a second result of {tag} was applied");
    }

    /// Completes all pending work and retries every stuck instance, without further faults.
    fn complete(&mut self) {
        for _ in 0..200 {
            if self.run.status() == Status::Stuck {
                assert!(
                    self.watch(|run, _, _| run.retry()),
                    "stuck and cannot be retried"
                );
            }
            let Some(tag) = pending_tags(&self.run, self.saga.definition())
                .first()
                .cloned()
            else {
                // An early event may have failed the repeated compensation.
                if self.run.status() == Status::Stuck {
                    continue;
                }
                return;
            };
            let accepted = self.watch(|run, saga, samples| respond_ok(run, saga, &tag, samples));
            assert!(accepted, "{tag} is open and its result has no effect");
        }
        panic!("the instance does not end");
    }

    fn check_end(&self) {
        let is_final_fact = |work: &&Work| matches!(work, Work::Fact(f) if ["Completed", "Failed"].contains(&f.kind.as_str()));
        let facts = self.run.work().iter().filter(is_final_fact).count();
        let status = self.run.status();
        assert!(status.is_final(), "the status is {status}");
        assert_eq!(
            facts,
            usize::from(status != Status::Cancelled),
            "facts at {status}"
        );
        assert!(
            self.run.waits().is_empty() && self.run.timers().is_empty(),
            "waits or timers remain"
        );
        assert_eq!(
            in_doubt_tasks(&self.run),
            0,
            "an in-doubt task remains open"
        );
        assert!(
            self.compensated.values().all(|times| *times == 1),
            "compensated more than once: {:?}",
            self.compensated
        );
        assert!(
            self.done.values().all(|times| *times == 1),
            "done more than once: {:?}",
            self.done
        );
        if status == Status::Completed || self.pivoted {
            return;
        }
        for unit in self.done.keys().filter(|unit| self.has_compensation(unit)) {
            assert!(
                self.compensated.contains_key(unit),
                "{unit} completed and is not compensated"
            );
        }
    }
}

/// Returns the number of open in-doubt tasks.
fn in_doubt_tasks(run: &InstanceDriver<'_>) -> usize {
    run.tasks()
        .iter()
        .filter(|task| {
            task.outcomes
                .iter()
                .any(|outcome| outcome.as_str() == NOT_EXECUTED)
        })
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_runs_end_and_compensate_once_in_reverse(
        shapes in prop::collection::vec(random_step(), 1..8),
        inputs in prop::collection::vec(random_input(), 0..40),
    ) {
        let saga = build(&shapes, true);
        let mut instance = CheckedInstance::start(&saga);
        for input in inputs {
            instance.apply(input, shapes.len());
        }
        instance.complete();
        instance.check_end();
    }
}

#[test]
fn discarded_branch_is_compensated_before_an_early_event_fails_the_saga() {
    let step = |after, kind, compensation, foreach, in_doubt_ask| RandomStep {
        after,
        join: 0,
        kind,
        compensation,
        foreach,
        timeout: false,
        remind: false,
        skipped: false,
        pivot: false,
        in_doubt_ask,
    };
    let shapes = [
        step(0, 0, 1, true, true),
        step(155, 2, 0, true, false),
        step(0, 0, 0, false, false),
        step(20, 0, 1, true, false),
        step(104, 0, 0, false, false),
        step(32, 0, 0, false, false),
        step(17, 0, 0, false, false),
    ];
    let saga = build(&shapes, true);
    let mut instance = CheckedInstance::start(&saga);
    for input in [
        RandomInput::Ok(2),
        RandomInput::Ok(2),
        RandomInput::Arbitrary(1, false),
    ] {
        instance.apply(input, shapes.len());
    }
    instance.complete();
    instance.check_end();
}
