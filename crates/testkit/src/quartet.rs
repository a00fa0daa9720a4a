//! The quartet: four things that every saga definition must stand.
//!
//! 1. every input twice, and the second time nothing changes;
//! 2. every step failing in turn, in every way it can fail, and what was done is undone in reverse;
//! 3. the same with every compensation confirmed twice;
//! 4. at the end nothing is left standing: no timer, no wait, no open work.
//!
//! [`check`] plays all four on any compiled definition. [`Life`] is one instance that a test leads by hand.

mod life;
mod players;

use orlog_model::{EventType, Status};
use orlog_program::{Compiled, Program as _, Step};

pub use life::{Life, failed, succeeded};
pub use players::{Samples, answer_ok, answer_undone, open};

/// A way in which a step fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// The Gateway or the provider refuses.
    Refused,
    /// An event of failure.
    Event(EventType),
    /// No answer in time.
    Silence,
}

/// What the quartet went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Instances led to their end.
    pub lives: usize,
    /// Inputs given.
    pub inputs: usize,
}

/// Plays the quartet with payloads made from what the definition's expressions read.
///
/// # Panics
/// When the definition does not stand it; the message says where.
#[track_caller]
#[expect(clippy::must_use_candidate, reason = "called for its panics; the counts are for those who ask")]
pub fn check(saga: &Compiled) -> Played {
    check_with(saga, &Samples::of(saga.definition()))
}

/// Plays the quartet with these payloads.
///
/// # Panics
/// When the definition does not stand it; the message says where.
#[track_caller]
#[expect(clippy::must_use_candidate, reason = "called for its panics; the counts are for those who ask")]
pub fn check_with(saga: &Compiled, samples: &Samples) -> Played {
    let mut played = Played::default();
    for start in &saga.definition().start {
        each_input_twice(saga, start, samples, &mut played);
        for step in &saga.definition().steps {
            for way in ways(step) {
                fail_at(saga, start, step, &way, samples, Times::Once, &mut played);
                fail_at(saga, start, step, &way, samples, Times::Twice, &mut played);
            }
        }
    }
    played
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Times {
    Once,
    Twice,
}

fn ways(step: &Step) -> Vec<Way> {
    let awaits_event = players::is_command(&step.action) && !step.ok.is_empty();
    let mut ways = vec![Way::Refused];
    ways.extend(step.fail.iter().filter(|_| awaits_event).map(|answer| Way::Event(answer.event.clone())));
    ways.extend(step.timeout.map(|_| Way::Silence));
    ways
}

/// Runs to the end, each answer given twice.
fn each_input_twice(saga: &Compiled, start: &EventType, samples: &Samples, played: &mut Played) {
    let mut life = Life::new(saga);
    let begin = |life: &mut Life<'_>| life.event(start.as_str(), samples.start(start));
    must_begin(begin(&mut life), start);
    let before = life.state().to_vec();
    begin(&mut life).expect_err("a second start event changes nothing");
    assert_eq!(life.state(), before, "a second {start} changed the state");
    while let Some(tag) = open(&life, saga.definition()).first().cloned() {
        answer_ok(&mut life, saga, &tag, samples).unwrap_or_else(|why| panic!("{tag} cannot succeed: {why}"));
        let before = life.state().to_vec();
        let second = answer_ok(&mut life, saga, &tag, samples);
        assert!(second.is_err(), "a second answer to {tag} was taken: {second:?}");
        assert_eq!(life.state(), before, "a second answer to {tag} changed the state");
    }
    assert_eq!(
        life.status(),
        Status::Completed,
        "{}: {start} does not lead to completion",
        saga.reference().saga
    );
    nothing_left(&life, "after completion");
    count(&life, played);
}

/// Runs until that step is under way, fails it, unwinds.
fn fail_at(
    saga: &Compiled,
    start: &EventType,
    step: &Step,
    way: &Way,
    samples: &Samples,
    times: Times,
    played: &mut Played,
) {
    let what = format!("{}, {} failing by {way:?}, undone {times:?}", saga.reference().saga, step.id);
    let mut life = Life::new(saga);
    must_begin(life.event(start.as_str(), samples.start(start)), start);
    let mut done = Vec::new();
    while !open(&life, saga.definition()).contains(&step.id.to_string()) {
        let Some(tag) = open(&life, saga.definition()).first().cloned() else { return };
        answer_ok(&mut life, saga, &tag, samples).unwrap_or_else(|why| panic!("{what}: {tag}: {why}"));
        done.push(tag);
    }
    fail(&mut life, step, way, samples).unwrap_or_else(|why| panic!("{what}: it cannot fail: {why}"));
    unwind(&mut life, saga, times, &what);
    assert_eq!(life.status(), Status::Failed, "{what}: the end");
    assert_eq!(life.undone(), expected_undos(saga, &done), "{what}: undos");
    nothing_left(&life, &what);
    count(&life, played);
}

fn fail(life: &mut Life<'_>, step: &Step, way: &Way, samples: &Samples) -> Result<String, String> {
    match way {
        Way::Refused => life.outcome(step.id.as_str(), &failed("refused")),
        Way::Event(kind) => life.event(kind.as_str(), samples.answer(kind.as_str())),
        Way::Silence => {
            let timeout = step.timeout.expect("only a step with a timeout fails by silence");
            life.fire(step.id.as_str(), timeout)
        }
    }
}

/// Confirms one undo after another.
fn unwind(life: &mut Life<'_>, saga: &Compiled, times: Times, what: &str) {
    let undos = |life: &Life<'_>| -> Vec<String> {
        open(life, saga.definition()).into_iter().filter(|tag| tag.starts_with("undo:")).collect()
    };
    while let [tag, others @ ..] = undos(life).as_slice() {
        assert!(others.is_empty(), "{what}: undos are strictly one after another");
        answer_undone(life, saga, tag).unwrap_or_else(|why| panic!("{what}: {tag}: {why}"));
        if times == Times::Twice {
            let before = life.state().to_vec();
            answer_undone(life, saga, tag).expect_err("a second confirmation changes nothing");
            assert_eq!(life.state(), before, "{what}: a second confirmation of {tag} changed the state");
        }
    }
}

fn expected_undos(saga: &Compiled, done: &[String]) -> Vec<String> {
    let has_undo = |id: &str| saga.definition().steps.iter().any(|s| s.id.as_str() == id && s.undo.is_some());
    done.iter().rev().filter(|id| has_undo(id)).map(|id| format!("undo:{id}")).collect()
}

fn must_begin(result: Result<String, String>, start: &EventType) {
    if let Err(why) = result {
        panic!("{start} does not begin an instance: {why}");
    }
}

fn nothing_left(life: &Life<'_>, what: &str) {
    assert!(life.timers().is_empty(), "{what}: timers are left: {:?}", life.timers());
    assert!(life.waits().is_empty(), "{what}: waits are left: {:?}", life.waits());
}

fn count(life: &Life<'_>, played: &mut Played) {
    played.lives += 1;
    played.inputs += life.inputs();
}
