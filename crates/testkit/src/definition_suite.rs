//! The quartet: four things that every saga definition must stand.
//!
//! 1. every input twice, and the second time nothing changes;
//! 2. every step failing in turn, in every way it can fail, and what was done is undone in reverse, or a join does without
//!    it, or past the point of no return a person skips it;
//! 3. the same with every compensation confirmed twice;
//! 4. at the end nothing is left standing: no timer, no wait, no open work.
//!
//! Where a person is asked about what is in doubt, that is played too: it was done, it was not, and the same when the saga
//! has turned back meanwhile.
//!
//! [`check`] plays all four on any compiled definition. [`Life`] is one instance that a test leads by hand.

mod driver;
mod responses;
mod samples;

use orlog_model::{EventType, InDoubt, Status};
use orlog_program::doubt::{DONE, NOT_DONE};
use orlog_program::{Action, Compiled, Definition, Join, Program as _, Step};
use serde_json::Value;

pub use driver::{Life, failed, in_doubt, succeeded};
use responses::Open;
pub use responses::{answer_doubt, answer_fail, answer_ok, answer_undone, is_asked, open};
pub use samples::Samples;

/// A way in which a step fails.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// The Gateway or the provider refuses, or the child fails.
    Refused,
    /// An event or an outcome of failure.
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
        let stage = Stage { saga, start, samples };
        stage.each_input_twice(&mut played);
        for step in &saga.definition().steps {
            for way in ways(step) {
                stage.fail_at(step, &way, Times::Once, &mut played);
                stage.fail_at(step, &way, Times::Twice, &mut played);
            }
            if step.in_doubt == Some(InDoubt::Ask) {
                for word in [DONE, NOT_DONE] {
                    stage.doubt_at(step, word, &mut played);
                    stage.doubt_late_at(step, word, &mut played);
                }
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

/// In which ways a step can fail.
fn ways(step: &Step) -> Vec<Way> {
    let events = || step.fail.iter().map(|answer| Way::Event(answer.event.clone()));
    let mut ways = match &step.action {
        Action::Wait(_) | Action::Switch(_) => return Vec::new(),
        Action::Event { .. } | Action::Human(_) => events().collect(),
        Action::Command { .. } if step.ok.is_empty() => vec![Way::Refused],
        Action::Command { .. } => std::iter::once(Way::Refused).chain(events()).collect(),
        Action::Effect { .. } | Action::Saga { .. } | Action::Job(_) => vec![Way::Refused],
    };
    ways.extend(step.timeout.map(|_| Way::Silence));
    ways
}

/// What an instance is played with.
struct Stage<'a> {
    saga: &'a Compiled,
    start: &'a EventType,
    samples: &'a Samples,
}

/// More answers than the largest definition has steps and elements to answer.
const PATIENCE: usize = 100_000;

impl<'a> Stage<'a> {
    fn definition(&self) -> &'a Definition {
        self.saga.definition()
    }

    fn begin(&self) -> Life<'a> {
        let mut life = Life::new(self.saga);
        if let Err(why) = life.event(self.start.as_str(), self.samples.start(self.start)) {
            panic!("{} does not begin an instance: {why}", self.start);
        }
        life
    }

    fn answer(&self, life: &mut Life<'_>, tag: &str) -> Result<String, String> {
        answer_ok(life, self.saga, tag, self.samples)
    }

    /// Runs to the end, each answer given twice.
    fn each_input_twice(&self, played: &mut Played) {
        let mut life = self.begin();
        let before = life.state().to_vec();
        life.event(self.start.as_str(), self.samples.start(self.start))
            .expect_err("a second start event changes nothing");
        assert_eq!(life.state(), before, "a second {} changed the state", self.start);
        while let Some(tag) = open(&life, self.definition()).first().cloned() {
            self.answer(&mut life, &tag).unwrap_or_else(|why| panic!("{tag} cannot succeed: {why}"));
            if self.is_awaited_elsewhere(&life, &tag) {
                continue;
            }
            let before = life.state().to_vec();
            let second = self.answer(&mut life, &tag);
            assert!(second.is_err(), "a second answer to {tag} was taken: {second:?}");
            assert_eq!(life.state(), before, "a second answer to {tag} changed the state");
        }
        let saga = &self.saga.reference().saga;
        assert_eq!(
            life.status(),
            Status::Completed,
            "{saga}: {} does not lead to completion: {}",
            self.start,
            life.shown()
        );
        nothing_left(&life, "after completion");
        count(&life, played);
    }

    /// The event that answers a tag is one that something else waits for, so that a second one is no duplicate.
    fn is_awaited_elsewhere(&self, life: &Life<'_>, tag: &str) -> bool {
        let Some(answered) = Open::of(self.definition(), tag).filter(Open::by_event) else { return false };
        let event = answered.event();
        let others = open(life, self.definition());
        others
            .iter()
            .filter_map(|other| Open::of(self.definition(), other))
            .any(|other| other.by_event() && other.event() == event)
    }

    /// Runs until that step is under way: its tag, and what was done before. Nothing where it is not on the way.
    fn lead_to(&self, step: &Step, what: &str) -> Option<(Life<'a>, String, Vec<String>)> {
        let mut life = self.begin();
        let mut done = Vec::new();
        loop {
            let tags = open(&life, self.definition());
            let of_step = |tag: &&String| {
                Open::of(self.definition(), tag).is_some_and(|open| !open.undo && open.step.id == step.id)
            };
            if let Some(tag) = tags.iter().find(of_step) {
                return Some((life, tag.clone(), done));
            }
            let tag = tags.first()?;
            self.answer(&mut life, tag).unwrap_or_else(|why| panic!("{what}: {tag}: {why}"));
            if !tag.starts_with("undo:") {
                done.push(tag.clone());
            }
        }
    }

    /// Runs until that step is under way and leaves it in doubt; a person is asked once.
    fn leave_in_doubt(&self, step: &Step, what: &str) -> Option<(Life<'a>, String, Vec<String>)> {
        let (mut life, tag, done) = self.lead_to(step, what)?;
        life.outcome(&tag, &in_doubt()).unwrap_or_else(|why| panic!("{what}: it cannot be in doubt: {why}"));
        assert!(is_asked(&life, &tag), "{what}: nobody is asked: {}", life.shown());
        assert!(life.tasks().iter().any(|task| task.tag.as_str() == tag), "{what}: there is no task");
        life.outcome(&tag, &in_doubt()).expect_err("a second doubt changes nothing");
        Some((life, tag, done))
    }

    /// A person says whether it was done. If so the saga goes on; if not it is asked for once more.
    fn doubt_at(&self, step: &Step, word: &str, played: &mut Played) {
        let what = format!("{}, {} in doubt, {word}", self.saga.reference().saga, step.id);
        let Some((mut life, tag, mut done)) = self.leave_in_doubt(step, &what) else { return };
        let asked = life.work().len();
        if word == DONE {
            self.answer(&mut life, &tag).unwrap_or_else(|why| panic!("{what}: {why}"));
            done.push(tag.clone());
        } else {
            person_says(&mut life, &tag, word, &what);
        }
        let again = life.work()[asked..].iter().filter(|work| work.tag().is_some_and(|t| t.as_str() == tag));
        assert_eq!(again.count(), usize::from(word == NOT_DONE), "{what}: how often it was asked for again");
        self.lead_to_the_end(&mut life, &mut done, Times::Once, &what);
        assert_eq!(life.status(), Status::Completed, "{what}");
        nothing_left(&life, &what);
        count(&life, played);
    }

    /// The same when the saga was cancelled meanwhile: it does not end before the answer, and what was done is undone.
    fn doubt_late_at(&self, step: &Step, word: &str, played: &mut Played) {
        let what = format!("{}, {} in doubt when cancelled, {word}", self.saga.reference().saga, step.id);
        let Some((mut life, tag, mut done)) = self.leave_in_doubt(step, &what) else { return };
        if life.cancel("the quartet").is_err() {
            return;
        }
        for _ in 0..PATIENCE {
            let Some(undo) = open(&life, self.definition()).into_iter().find(|t| t.starts_with("undo:"))
            else {
                break;
            };
            self.answer(&mut life, &undo).unwrap_or_else(|why| panic!("{what}: {undo}: {why}"));
        }
        assert_eq!(life.status(), Status::Compensating, "{what}: it ends before the answer");
        if word == DONE {
            self.answer(&mut life, &tag).unwrap_or_else(|why| panic!("{what}: {why}"));
        } else {
            person_says(&mut life, &tag, word, &what);
        }
        let undo = format!("undo:{tag}");
        let undone = word == DONE && step.undo.is_some();
        assert_eq!(life.undone().contains(&undo), undone, "{what}: {undo}");
        self.lead_to_the_end(&mut life, &mut done, Times::Once, &what);
        assert_eq!(life.status(), Status::Cancelled, "{what}");
        nothing_left(&life, &what);
        count(&life, played);
    }

    /// Runs until that step is under way, fails it, and sees what becomes of it.
    fn fail_at(&self, step: &Step, way: &Way, times: Times, played: &mut Played) {
        let saga = &self.saga.reference().saga;
        let what = format!("{saga}, {} failing by {way:?}, undone {times:?}", step.id);
        let Some((mut life, tag, mut done)) = self.lead_to(step, &what) else { return };
        self.fail(&mut life, &tag, step, way).unwrap_or_else(|why| panic!("{what}: it cannot fail: {why}"));
        self.lead_to_the_end(&mut life, &mut done, times, &what);
        self.check_end(&life, &done, &what);
        nothing_left(&life, &what);
        count(&life, played);
    }

    /// Fails it as often as it is asked for.
    fn fail(&self, life: &mut Life<'_>, tag: &str, step: &Step, way: &Way) -> Result<String, String> {
        loop {
            let note = match way {
                Way::Refused => life.outcome(tag, &failed("refused")),
                Way::Event(kind) => answer_fail(life, self.saga, tag, kind, self.samples),
                Way::Silence => {
                    let timeout = step.timeout.expect("only a step with a timeout fails by silence");
                    life.fire(tag, timeout)
                }
            }?;
            let pause = format!("retry:{tag}");
            if !life.timers().contains(&pause.as_str()) {
                return Ok(note);
            }
            life.fire(&pause, std::time::Duration::from_hours(1))?;
        }
    }

    /// Confirms undos one after another, skips what is stuck, lets everything else succeed.
    fn lead_to_the_end(&self, life: &mut Life<'_>, done: &mut Vec<String>, times: Times, what: &str) {
        for _ in 0..PATIENCE {
            if life.status() == Status::Stuck {
                life.skip().unwrap_or_else(|why| panic!("{what}: stuck for ever: {why}"));
            }
            let tags = open(life, self.definition());
            let mut undos = tags.iter().filter(|tag| tag.starts_with("undo:"));
            let (undo, another) = (undos.next(), undos.next());
            assert_eq!(another, None, "{what}: undos are strictly one after another");
            let Some(tag) = undo.or_else(|| tags.first()) else { return };
            self.answer(life, tag).unwrap_or_else(|why| panic!("{what}: {tag}: {why}"));
            if undo.is_none() {
                done.push(tag.clone());
            } else if times == Times::Twice && !self.is_awaited_elsewhere(life, tag) {
                let before = life.state().to_vec();
                self.answer(life, tag).expect_err("a second confirmation changes nothing");
                assert_eq!(life.state(), before, "{what}: a second confirmation of {tag} changed the state");
            }
        }
        panic!("{what}: it does not come to an end");
    }

    fn check_end(&self, life: &Life<'_>, done: &[String], what: &str) {
        let steps = &self.definition().steps;
        let races = steps.iter().any(|s| s.after.as_ref().is_some_and(|after| after.join != Join::All));
        let pivots = steps.iter().any(|step| step.pivot);
        match life.status() {
            Status::Failed => {
                let (mut undone, mut expected) = (life.undone(), self.expected_undos(done));
                if races {
                    undone.sort();
                    expected.sort();
                }
                assert_eq!(undone, expected, "{what}: undos");
            }
            Status::Completed if races || pivots => {}
            other => panic!("{what}: it ended {other}"),
        }
    }

    fn expected_undos(&self, done: &[String]) -> Vec<String> {
        let has_undo =
            |tag: &&String| Open::of(self.definition(), tag).is_some_and(|open| open.step.undo.is_some());
        done.iter().rev().filter(has_undo).map(|tag| format!("undo:{tag}")).collect()
    }
}

/// Says it twice; the second time changes nothing.
fn person_says(life: &mut Life<'_>, tag: &str, word: &str, what: &str) {
    answer_doubt(life, tag, word, Value::Null).unwrap_or_else(|why| panic!("{what}: {why}"));
    let before = life.state().to_vec();
    answer_doubt(life, tag, word, Value::Null).expect_err("a second answer changes nothing");
    assert_eq!(life.state(), before, "{what}: a second answer changed the state");
}

fn nothing_left(life: &Life<'_>, what: &str) {
    assert!(life.timers().is_empty(), "{what}: timers are left: {:?}", life.timers());
    assert!(life.waits().is_empty(), "{what}: waits are left: {:?}", life.waits());
}

fn count(life: &Life<'_>, played: &mut Played) {
    played.lives += 1;
    played.inputs += life.inputs();
}
