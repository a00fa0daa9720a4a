//! Random sagas over the whole language under random inputs, in any order, twice, late: what holds whatever happens.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{Status, WaitKind, Work};
use orlog_program::doubt::NOT_DONE;
use orlog_program::{Compiled, compile_yaml};
use orlog_testkit::definition_suite::{
    Life, Samples, answer_doubt, answer_fail, answer_ok, failed, in_doubt, open,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a random step is like. Each number picks one of a few.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of a step that is there or not")]
struct Shape {
    /// Bit n: after step n.
    after: u8,
    join: u8,
    kind: u8,
    undo: u8,
    foreach: bool,
    timeout: bool,
    skipped: bool,
    pivot: bool,
    asks: bool,
}

/// What is thrown at the instance; the number picks a step.
#[derive(Clone, Copy, Debug)]
enum Throw {
    Ok(usize),
    Fail(usize),
    /// Nobody knows whether it was done.
    Doubt(usize),
    /// A person says that it was not done.
    NotDone(usize),
    Undone(usize),
    NotUndone(usize),
    /// An answer to something that may not be open at all.
    Wild(usize, bool),
    Again,
    Wait(u64),
    Cancel,
    Retry,
    Skip,
    Handler,
    Start,
}

fn shape() -> impl Strategy<Value = Shape> {
    let flags =
        (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.15), any::<bool>());
    (any::<u8>(), 0..6_u8, 0..9_u8, 0..5_u8, flags).prop_map(|(after, join, kind, undo, flags)| {
        let (foreach, timeout, skipped, pivot, asks) = flags;
        Shape { after, join, kind, undo, foreach, timeout, skipped, pivot, asks }
    })
}

fn throw() -> impl Strategy<Value = Throw> {
    prop_oneof![
        8 => (0..8_usize).prop_map(Throw::Ok),
        2 => (0..8_usize).prop_map(Throw::Fail),
        3 => (0..8_usize).prop_map(Throw::Doubt),
        2 => (0..8_usize).prop_map(Throw::NotDone),
        3 => (0..8_usize).prop_map(Throw::Undone),
        1 => (0..8_usize).prop_map(Throw::NotUndone),
        3 => (0..8_usize, any::<bool>()).prop_map(|(step, undo)| Throw::Wild(step, undo)),
        2 => Just(Throw::Again),
        1 => (1..90_u64).prop_map(Throw::Wait),
        1 => Just(Throw::Cancel),
        1 => Just(Throw::Retry),
        1 => Just(Throw::Skip),
        1 => Just(Throw::Handler),
        1 => Just(Throw::Start),
    ]
}

/// The steps as YAML; a pivot only where nothing may run beside it, which the compiler says.
fn build(shapes: &[Shape], pivots: bool) -> Compiled {
    let mut text = "saga: random\nversion: 1\nstart: Go\nvars: { who: =event.who, items: =event.items }\n\
        on: [ { event: Stop, when: has(event.by), then: cancel }, { event: Enough, then: complete } ]\n\
        completed: { fact: Completed }\nfailed: { fact: Failed, data: =failure.code }\nsteps:\n"
        .to_owned();
    for (i, shape) in shapes.iter().enumerate() {
        text.extend([format!("  - {{ id: s{i}, {} }}\n", step(i, shape, pivots && shape.pivot))]);
    }
    match compile_yaml(&text, "random") {
        Ok(saga) => saga,
        Err(problems) if pivots => {
            assert!(
                problems.iter().all(|p| p.path.rsplit('.').next() == Some("pivot")),
                "{problems:?}\n{text}"
            );
            build(shapes, false)
        }
        Err(problems) => panic!("{problems:?}\n{text}"),
    }
}

fn step(i: usize, shape: &Shape, pivot: bool) -> String {
    let before: Vec<_> = (0..i).filter(|n| shape.after & (1 << n) != 0).map(|n| format!("s{n}")).collect();
    let names = before.join(", ");
    let after = match (shape.join, before.len()) {
        (0, 1..) => format!("{{ any: [{names}] }}"),
        (1, 2..) => format!("{{ count: 2, of: [{names}] }}"),
        (_, _) => format!("[{names}]"),
    };
    let each = shape.foreach && shape.kind != 8;
    let when = if each { ", when: event.n == index" } else { "" };
    let action = match shape.kind {
        0 | 1 => "do: { effect: x.do, data: =vars.who }".to_owned(),
        2 => format!("do: {{ command: x.Do }}, ok: {{ event: Ok{i}{when} }}, fail: {{ event: No{i}{when} }}"),
        3 => format!(
            "do: {{ command: x.Do }}, ok: {{ event: Ok{i}{when} }}, fail: {{ event: No{i}{when} }}, retry: {{ attempts: 2, backoff: 5s }}"
        ),
        4 => format!("do: {{ event: Ok{i}{when} }}, fail: {{ event: No{i}{when} }}"),
        5 => "do: { human: { title: Do, due: 20s, escalate: { roles: [x] } } }, ok: Yes, fail: No".to_owned(),
        6 => "do: { saga: child }".to_owned(),
        7 => "do: { job: { type: python, script: s } }".to_owned(),
        _ => return format!("after: {after}, do: {{ switch: [ {{ then: {} }} ] }}", "[]"),
    };
    let undo = match shape.undo {
        0 => String::new(),
        1 => ", undo: { effect: x.undo, data: =failure }".to_owned(),
        2 => ", undo: { command: x.Undo, retry: { attempts: 2, backoff: 5s } }".to_owned(),
        3 => format!(", undo: {{ command: x.Undo, ok: {{ event: Undone{i}{when} }} }}"),
        _ => ", undo: { human: { title: Undo }, ok: Yes }".to_owned(),
    };
    let mut text = format!("after: {after}, {action}{undo}");
    if each {
        text += ", foreach: { in: =vars.items, as: item, limit: 2 }";
    }
    if shape.asks && matches!(shape.kind, 0 | 1 | 7) {
        text += ", in_doubt: ask";
    }
    if shape.timeout {
        text += ", timeout: 1m";
    }
    if shape.skipped {
        text += ", when: vars.who == 'nobody'";
    }
    if pivot {
        text += ", pivot: true";
    }
    text
}

/// An instance and what must be true of it.
struct Watched<'a> {
    saga: &'a Compiled,
    samples: Samples,
    life: Life<'a>,
    /// How often each place was done, and undone or skipped in its undo.
    done: BTreeMap<String, usize>,
    undone: BTreeMap<String, usize>,
    /// Completed and not yet being undone, in the order of completion.
    stack: Vec<String>,
    pivoted: bool,
    turned: bool,
    last: Option<(String, bool)>,
}

impl<'a> Watched<'a> {
    fn begin(saga: &'a Compiled) -> Self {
        let mut watched = Self {
            saga,
            samples: Samples::of(saga.definition()),
            life: Life::new(saga),
            done: BTreeMap::new(),
            undone: BTreeMap::new(),
            stack: Vec::new(),
            pivoted: false,
            turned: false,
            last: None,
        };
        watched.watch(|life, _, _| life.event("Go", json!({ "who": "me", "items": [1, 2, 3] })));
        watched
    }

    /// Lets something happen and checks what it led to.
    fn watch(
        &mut self,
        act: impl FnOnce(&mut Life<'a>, &Compiled, &Samples) -> Result<String, String>,
    ) -> bool {
        let (asked, undos) = (self.life.work().len(), self.life.undone().len());
        let before = self.life.state().to_vec();
        let turned = self.turned;
        let Ok(note) = act(&mut self.life, self.saga, &self.samples) else {
            assert_eq!(self.life.state(), before, "what changes nothing changed the state");
            return false;
        };
        self.read(&note);
        assert!(self.life.state().len() < 600, "{} bytes", self.life.state().len());
        let tags =
            |work: &[Work]| work.iter().filter_map(Work::tag).map(ToString::to_string).collect::<Vec<_>>();
        if turned {
            let forward: Vec<_> =
                tags(&self.life.work()[asked..]).into_iter().filter(|t| !t.starts_with("undo:")).collect();
            assert!(forward.is_empty(), "{forward:?} begins after turning back: {note}");
        }
        let undos: Vec<_> = self.life.undone()[undos..].to_vec();
        let again = note.contains("again") || note.contains("retry");
        assert!(undos.len() <= 1 || again, "undos one after another, not {undos:?}: {note}");
        // Of several timers that fired, the first may have begun to undo what was lost before another turned back.
        let one = !note.contains("; ");
        for tag in &undos {
            self.undo_begins(&tag["undo:".len()..], one);
        }
        self.check_timers();
        true
    }

    fn read(&mut self, note: &str) {
        for part in note.split("; ").flat_map(|notes| notes.split(", ")) {
            match part.split_once(": ") {
                Some((place, "ok")) => {
                    *self.done.entry(place.to_owned()).or_default() += 1;
                    self.stack.push(place.to_owned());
                }
                Some((place, "undone" | "undo skipped")) => {
                    *self.undone.entry(place.to_owned()).or_default() += 1;
                }
                None if part == "past the point of no return" => {
                    self.pivoted = true;
                    self.stack.clear();
                }
                Some(_) | None => {}
            }
        }
        let shown = self.life.shown();
        self.turned |= shown["failure"] != Value::Null;
    }

    /// Having turned back, the newest completion that has an undo comes first, late ones aside.
    fn undo_begins(&mut self, place: &str, one: bool) {
        let Some(at) = self.stack.iter().position(|other| other == place) else { return };
        if self.turned && one {
            for newer in &self.stack[at + 1..] {
                assert!(!self.has_undo(newer), "{place} is undone before {newer}, which was done later");
            }
        }
        self.stack.remove(at);
    }

    /// What is armed belongs to what is under way, and no timer of it is missing.
    fn check_timers(&self) {
        let open = open(&self.life, self.saga.definition());
        for timer in self.life.timers() {
            let tag =
                timer.strip_prefix("retry:").or_else(|| timer.strip_prefix("escalate:")).unwrap_or(timer);
            assert!(open.iter().any(|open| open == tag), "the timer {timer} belongs to nothing");
        }
        let shown = self.life.shown();
        if self.life.status() == Status::Stuck {
            return;
        }
        for step in shown["steps"].as_array().expect("a list") {
            let elements = step["elements"].as_array().cloned().unwrap_or_default();
            let limits =
                std::iter::once(step).chain(&elements).filter(|slot| !slot["until"].is_null()).count();
            let of_step = |timer: &&&str| {
                let tag = timer.rsplit(':').next().unwrap_or_default();
                !timer.starts_with("escalate:") && tag.split('[').next() == step["id"].as_str()
            };
            assert_eq!(self.life.timers().iter().filter(of_step).count(), limits, "timers of {step}");
        }
    }

    fn has_undo(&self, place: &str) -> bool {
        let id = place.split('[').next().unwrap_or_default();
        self.saga.definition().steps.iter().any(|step| step.id.as_str() == id && step.undo.is_some())
    }

    fn throw(&mut self, throw: Throw, steps: usize) {
        let open = open(&self.life, self.saga.definition());
        let pick = |undo: bool, n: usize| {
            let fitting: Vec<_> = open.iter().filter(|tag| tag.starts_with("undo:") == undo).collect();
            fitting.get(n % fitting.len().max(1)).map(|tag| (*tag).clone())
        };
        match throw {
            Throw::Ok(n) => self.answer(pick(false, n), true),
            Throw::Fail(n) => self.answer(pick(false, n), false),
            Throw::Doubt(n) => self.doubt(n, steps),
            Throw::NotDone(n) => self.not_done(n),
            Throw::Undone(n) => self.answer(pick(true, n), true),
            Throw::NotUndone(n) => self.answer(pick(true, n), false),
            Throw::Wild(n, undo) => {
                let id = format!("s{}", n % steps);
                self.answer(Some(if undo { format!("undo:{id}") } else { id }), n % 3 > 0);
            }
            Throw::Again => self.again(),
            Throw::Wait(seconds) => {
                self.watch(|life, _, _| {
                    life.advance(Duration::from_secs(seconds)).map(|notes| notes.join("; "))
                });
            }
            Throw::Cancel => drop(self.watch(|life, _, _| life.cancel("thrown"))),
            Throw::Retry => drop(self.watch(|life, _, _| life.retry())),
            Throw::Skip => drop(self.watch(|life, _, _| life.skip())),
            Throw::Handler => drop(self.watch(|life, _, _| life.event("Stop", json!({ "by": "me" })))),
            Throw::Start => {
                self.watch(|life, _, _| life.event("Go", json!({ "who": "you", "items": [] })));
            }
        }
    }

    /// Of anything, whether it is open, given up or asked about already. Something that is new to the saga is asked once.
    fn doubt(&mut self, n: usize, steps: usize) {
        let open = open(&self.life, self.saga.definition());
        let tag = open.get(n % (open.len() + 1)).cloned().unwrap_or_else(|| format!("s{}", n % steps));
        let tasks = self.life.tasks().len();
        if self.watch(|life, _, _| life.outcome(&tag, &in_doubt())) && asked(&self.life) > 0 {
            assert!(self.life.tasks().len() >= tasks, "{tag}: the question was not asked");
        }
    }

    /// What was not done is asked for again, unless it is not needed any more, or a person must decide about something else.
    fn not_done(&mut self, n: usize) {
        let waits = self.life.waits();
        let tags: Vec<_> =
            waits.iter().filter(|(kind, _)| *kind == WaitKind::Task).map(|(_, tag)| tag).collect();
        let Some(tag) = tags.get(n % tags.len().max(1)).map(|tag| (*tag).clone()) else { return };
        self.watch(|life, _, _| answer_doubt(life, &tag, NOT_DONE, Value::Null));
    }

    fn answer(&mut self, tag: Option<String>, good: bool) {
        let Some(tag) = tag else { return };
        let was_open = open(&self.life, self.saga.definition()).contains(&tag);
        let fail = |life: &mut Life<'_>, saga: &Compiled, samples: &Samples| {
            let n =
                tag.split('[').next().unwrap_or_default().trim_start_matches("undo:").trim_start_matches('s');
            let event = format!("No{n}").parse().expect("a short word");
            match answer_fail(life, saga, &tag, &event, samples) {
                Err(_) => life.outcome(&tag, &failed("thrown")),
                taken => taken,
            }
        };
        let taken =
            self.watch(
                |life, saga, samples| {
                    if good { answer_ok(life, saga, &tag, samples) } else { fail(life, saga, samples) }
                },
            );
        self.last = (taken && was_open).then_some((tag, good));
    }

    /// A duplicate of the last answer changes nothing.
    fn again(&mut self) {
        let Some((tag, true)) = self.last.take() else { return };
        let still_open = open(&self.life, self.saga.definition()).contains(&tag);
        let taken = !still_open && self.watch(|life, saga, samples| answer_ok(life, saga, &tag, samples));
        assert!(!taken, "a second answer to {tag} was taken");
    }

    /// A kind world from now on: everything open is answered, what is stuck is retried.
    fn settle(&mut self) {
        for _ in 0..200 {
            if self.life.status() == Status::Stuck {
                assert!(self.watch(|life, _, _| life.retry()), "stuck and cannot be retried");
            }
            let Some(tag) = open(&self.life, self.saga.definition()).first().cloned() else { return };
            let taken = self.watch(|life, saga, samples| answer_ok(life, saga, &tag, samples));
            assert!(taken, "{tag} is open and its answer changes nothing");
        }
        panic!("it does not come to an end");
    }

    fn check_end(&self) {
        let ends = |work: &&Work| matches!(work, Work::Fact(f) if ["Completed", "Failed"].contains(&f.kind.as_str()));
        let facts = self.life.work().iter().filter(ends).count();
        let status = self.life.status();
        assert!(status.is_final(), "it stands at {status}");
        assert_eq!(facts, usize::from(status != Status::Cancelled), "facts at {status}");
        assert!(self.life.waits().is_empty() && self.life.timers().is_empty(), "something is left standing");
        assert_eq!(asked(&self.life), 0, "a question is left open");
        assert!(self.undone.values().all(|times| *times == 1), "undone more than once: {:?}", self.undone);
        assert!(self.done.values().all(|times| *times == 1), "done more than once: {:?}", self.done);
        if status == Status::Completed || self.pivoted {
            return;
        }
        for place in self.done.keys().filter(|place| self.has_undo(place)) {
            assert!(self.undone.contains_key(place), "{place} was done and is not undone");
        }
    }
}

/// How many questions are open.
fn asked(life: &Life<'_>) -> usize {
    life.tasks().iter().filter(|task| task.outcomes.iter().any(|word| word.as_str() == NOT_DONE)).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_and_what_was_done_is_undone_once_in_reverse(
        shapes in prop::collection::vec(shape(), 1..8),
        throws in prop::collection::vec(throw(), 0..40),
    ) {
        let saga = build(&shapes, true);
        let mut watched = Watched::begin(&saga);
        for throw in throws {
            watched.throw(throw, shapes.len());
        }
        watched.settle();
        watched.check_end();
    }
}
