//! Random sagas under random inputs, in any order, twice, late: what holds whatever happens.

use std::time::Duration;

use orlog_model::{Status, Work};
use orlog_program::{Compiled, Definition, Do};
use orlog_testkit::quartet::{Life, Samples, answer_ok, answer_undone, failed, open};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a random step is like.
#[derive(Clone, Debug)]
struct Shape {
    /// Bit n: after step n.
    after: u8,
    command: bool,
    named: bool,
    undo: Undo,
    timeout: bool,
}

#[derive(Clone, Copy, Debug)]
enum Undo {
    None,
    Effect,
    Accepted,
    Event,
}

/// What is thrown at the instance; the number picks a step.
#[derive(Clone, Copy, Debug)]
enum Throw {
    Ok(usize),
    Fail(usize),
    Undone(usize),
    NotUndone(usize),
    Wait(u64),
    Cancel,
    Retry,
    Start,
}

fn shape() -> impl Strategy<Value = Shape> {
    let undo = prop_oneof![Just(Undo::None), Just(Undo::Effect), Just(Undo::Accepted), Just(Undo::Event)];
    (any::<u8>(), any::<bool>(), any::<bool>(), undo, any::<bool>())
        .prop_map(|(after, command, named, undo, timeout)| Shape { after, command, named, undo, timeout })
}

fn throw() -> impl Strategy<Value = Throw> {
    prop_oneof![
        6 => (0..6_usize).prop_map(Throw::Ok),
        2 => (0..6_usize).prop_map(Throw::Fail),
        3 => (0..6_usize).prop_map(Throw::Undone),
        1 => (0..6_usize).prop_map(Throw::NotUndone),
        1 => (1..90_u64).prop_map(Throw::Wait),
        1 => Just(Throw::Cancel),
        1 => Just(Throw::Retry),
        1 => Just(Throw::Start),
    ]
}

fn build(shapes: &[Shape]) -> Compiled {
    let mut builder = Definition::builder("random").start("Go").var("who", json!("=event.who"));
    for (i, shape) in shapes.iter().enumerate() {
        let after: Vec<_> = (0..i).filter(|n| shape.after & (1 << n) != 0).map(|n| format!("s{n}")).collect();
        let after: Vec<_> = after.iter().map(String::as_str).collect();
        let action = if shape.command { Do::command("x.Do") } else { Do::effect("x.do") };
        builder = builder.step(&format!("s{i}"), action.data(json!({ "who": "=vars.who" }))).after(&after);
        if shape.named {
            builder =
                builder.ok(&format!("Ok{i}")).fail(&format!("No{i}")).save(&format!("v{i}"), json!("=event"));
        }
        if shape.timeout {
            builder = builder.timeout(Duration::from_mins(1));
        }
        builder = match shape.undo {
            Undo::None => builder,
            Undo::Effect => builder.undo(Do::effect("x.undo").data(json!("=failure"))),
            Undo::Accepted => builder.undo(Do::command("x.Undo")),
            Undo::Event => builder.undo(Do::command("x.Undo").confirmed_by(&format!("Undone{i}"))),
        };
    }
    builder
        .completed("Completed", Value::Null)
        .failed("Failed", json!("=failure.code"))
        .build()
        .expect("it is well formed")
}

/// An instance and what must be true of it.
struct Watched<'a> {
    saga: &'a Compiled,
    samples: Samples,
    life: Life<'a>,
    /// Completed and not yet being undone, in the order of completion.
    stack: Vec<String>,
    completed: Vec<String>,
    undone: Vec<String>,
}

impl<'a> Watched<'a> {
    fn begin(saga: &'a Compiled) -> Self {
        let mut watched = Self {
            saga,
            samples: Samples::of(saga.definition()),
            life: Life::new(saga),
            stack: Vec::new(),
            completed: Vec::new(),
            undone: Vec::new(),
        };
        watched.watch(|life, _, _| life.event("Go", json!({ "who": "me" })));
        watched
    }

    /// Lets something happen and checks what it led to.
    fn watch(
        &mut self,
        act: impl FnOnce(&mut Life<'a>, &Compiled, &Samples) -> Result<String, String>,
    ) -> bool {
        let open_before = open(&self.life, self.saga.definition());
        let asked_before = self.life.work().len();
        let Ok(note) = act(&mut self.life, self.saga, &self.samples) else { return false };
        for part in note.split("; ").flat_map(|notes| notes.split(", ")) {
            match part.split_once(": ") {
                Some((step, "ok")) => {
                    self.stack.push(step.to_owned());
                    self.completed.push(step.to_owned());
                }
                Some((step, "undone")) => self.undone.push(step.to_owned()),
                Some(_) | None => {}
            }
        }
        for work in &self.life.work()[asked_before..] {
            if let Some(tag) = work.tag() {
                assert!(
                    !open_before.iter().any(|open| open == tag.as_str()),
                    "{tag} is asked for while it is open"
                );
            }
        }
        let undos: Vec<_> = self.life.work()[asked_before..]
            .iter()
            .filter_map(|work| work.tag()?.as_str().strip_prefix("undo:").map(str::to_owned))
            .collect();
        assert!(undos.len() <= 1, "undos one after another, not {undos:?}");
        for step in &undos {
            self.undo_begins(step);
        }
        true
    }

    /// The newest completion that has an undo, unless it is the same undo again.
    fn undo_begins(&mut self, step: &str) {
        if !self.stack.iter().any(|s| s == step) {
            return;
        }
        while let Some(top) = self.stack.pop() {
            if top == step {
                return;
            }
            assert!(!self.has_undo(&top), "{step} is undone before {top}, which was completed later");
        }
    }

    fn has_undo(&self, id: &str) -> bool {
        self.saga.definition().steps.iter().any(|step| step.id.as_str() == id && step.undo.is_some())
    }

    fn throw(&mut self, throw: Throw, steps: usize) {
        let id = |n: usize| format!("s{}", n % steps);
        self.watch(|life, saga, samples| match throw {
            Throw::Ok(n) => answer_ok(life, saga, &id(n), samples),
            Throw::Fail(n) => life.outcome(&id(n), &failed("thrown")),
            Throw::Undone(n) => answer_undone(life, saga, &format!("undo:{}", id(n))),
            Throw::NotUndone(n) => life.outcome(&format!("undo:{}", id(n)), &failed("thrown")),
            Throw::Wait(seconds) => life.advance(Duration::from_secs(seconds)).map(|notes| notes.join("; ")),
            Throw::Cancel => life.cancel("thrown"),
            Throw::Retry => life.retry(),
            Throw::Start => life.event("Go", json!({ "who": "you" })),
        });
    }

    /// A kind world from now on: everything open is answered, what is stuck is retried.
    fn settle(&mut self) {
        for _ in 0..100 {
            if self.life.status() == Status::Stuck {
                assert!(self.watch(|life, _, _| life.retry()), "stuck and cannot be retried");
            }
            let Some(tag) = open(&self.life, self.saga.definition()).first().cloned() else { return };
            let taken = self.watch(|life, saga, samples| {
                if tag.starts_with("undo:") {
                    answer_undone(life, saga, &tag)
                } else {
                    answer_ok(life, saga, &tag, samples)
                }
            });
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
        let mut expected: Vec<_> =
            self.completed.iter().filter(|step| self.has_undo(step)).cloned().collect();
        if status == Status::Completed {
            expected.clear();
        }
        let mut undone = self.undone.clone();
        expected.sort();
        undone.sort();
        assert_eq!(undone, expected, "each completed step is undone exactly once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_and_what_was_done_is_undone_once_in_reverse(
        shapes in prop::collection::vec(shape(), 1..6),
        throws in prop::collection::vec(throw(), 0..40),
    ) {
        let saga = build(&shapes);
        let mut watched = Watched::begin(&saga);
        for throw in throws {
            watched.throw(throw, shapes.len());
        }
        watched.settle();
        watched.check_end();
    }
}
