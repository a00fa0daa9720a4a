//! The explorer finds nothing in sound definitions, and finds each of these mistakes in programs that make it.

use std::sync::atomic::{AtomicU64, Ordering};

use orlog_model::{
    CorrelationId, Effect, Event, Failure, ProgramRef, Status, TaskChange, TimerChange, Transition, Verdict,
};
use orlog_program::{Compiled, Context, Fault, Manifest, Reaction, Stimulus, compile_yaml};

use super::*;
use crate::test_file::{self, Book};

const TRIP: &str = "
saga: trip
version: 1
start: Requested
vars: { total: =event.total }
steps:
  - { id: hotel, do: { command: hotels.Book }, ok: Booked, fail: Full, undo: { command: hotels.Cancel, ok: Cancelled } }
  - { id: car, after: [], do: { effect: cars.rent }, undo: { effect: cars.return }, timeout: 10m }
  - { id: gift, after: [hotel, car], when: =vars.total > 100, do: { effect: gifts.send }, undo: { effect: gifts.fetch } }
  - { id: pay, do: { effect: payments.charge }, timeout: 1h }
completed: { fact: TripBooked }
failed: { fact: TripCancelled }
";

/// The trip, where a person is asked about what is in doubt.
fn careful() -> String {
    let asks = |effect: &str| format!("{{ effect: {effect} }}, in_doubt: ask");
    ["cars.rent", "gifts.send"]
        .iter()
        .fold(TRIP.to_owned(), |text, effect| text.replace(&format!("{{ effect: {effect} }}"), &asks(effect)))
}

fn compiled(text: &str) -> Compiled {
    compile_yaml(text, "trip.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn run(program: &Arc<dyn Program>, runs: usize) -> Report {
    explore(program, Options { seed: 7, runs, steps: 40 })
}

#[test]
fn a_sound_definition_has_no_counterexample_and_everything_of_it_is_reached() {
    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    let report = run(&program, 300);
    assert!(report.counterexample.is_none(), "{:#?}", report.counterexample);
    assert_eq!(report.not_covered, Vec::<String>::new());
    assert!(report.states > 50, "{}", report.states);
}

#[test]
fn a_definition_that_asks_is_sound_and_its_doubts_are_reached() {
    let program: Arc<dyn Program> = Arc::new(compiled(&careful()));
    let report = run(&program, 600);
    assert!(report.counterexample.is_none(), "{:#?}", report.counterexample);
    assert_eq!(report.not_covered, Vec::<String>::new());
    for reached in ["car in doubt", "gift in doubt"] {
        assert!(report.covered.iter().any(|item| item == reached), "{:?}", report.covered);
    }
}

#[test]
fn the_same_seed_takes_the_same_ways() {
    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    assert_eq!(run(&program, 20).to_json(), run(&program, 20).to_json());
}

/// A mistake.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    LosesAnUndo,
    UndoesTwice,
    UndoesInWrongOrder,
    GivesOtherBytes,
    NeverHearsOfAnOutcome,
    ForgetsALateSuccess,
    GoesOnAfterTurningBack,
    LeavesATimer,
    TellsTwice,
    AsksNobody,
    TriesADoubtAgain,
}

/// A program that makes a mistake.
struct Mutant {
    inner: Compiled,
    mistake: Mistake,
    count: AtomicU64,
}

impl Program for Mutant {
    fn reference(&self) -> &ProgramRef {
        self.inner.reference()
    }

    fn manifest(&self) -> &Manifest {
        self.inner.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        self.inner.correlate(event)
    }

    fn compiled(&self) -> Option<&Compiled> {
        Some(&self.inner)
    }

    fn show(&self, state: &[u8]) -> Option<Value> {
        self.inner.show(state)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        let deaf = match (self.mistake, stimulus) {
            (Mistake::NeverHearsOfAnOutcome, Stimulus::Outcome { tag, .. }) => *tag == "undo:car",
            (Mistake::ForgetsALateSuccess, Stimulus::Outcome { tag: "car", .. }) => {
                self.mark(state, "car") == "given_up"
            }
            _ => false,
        };
        if deaf {
            return Ok(Reaction::Ignored("it does not listen".into()));
        }
        let silent =
            Verdict::TimedOut { failure: Failure { code: "timeout".into(), message: String::new() } };
        let stimulus = match (self.mistake, stimulus) {
            (Mistake::AsksNobody, Stimulus::Outcome { tag, verdict: Verdict::TimedOut { .. } }) => {
                &Stimulus::Outcome { tag, verdict: &silent }
            }
            (_, stimulus) => stimulus,
        };
        let reaction = self.inner.apply(state, stimulus, context)?;
        Ok(match reaction {
            Reaction::Applied(mut transition) => {
                self.spoil(&mut transition);
                Reaction::Applied(transition)
            }
            other => other,
        })
    }
}

impl Mutant {
    fn mark(&self, state: Option<&[u8]>, step: &str) -> String {
        let shown = state.and_then(|state| self.inner.show(state)).unwrap_or_default();
        let steps = shown["steps"].as_array().cloned().unwrap_or_default();
        let found = steps.iter().find(|shown| shown["id"] == *step);
        found.map(|step| step["state"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
    }

    fn spoil(&self, transition: &mut Transition) {
        let is_undo = |work: &orlog_model::Work, step: &str| {
            work.tag().is_some_and(|tag| tag.as_str() == format!("undo:{step}"))
        };
        match self.mistake {
            Mistake::LosesAnUndo => transition.work.retain(|work| !is_undo(work, "car")),
            Mistake::UndoesTwice => {
                let again = transition.work.iter().find(|work| is_undo(work, "car")).cloned();
                transition.work.extend(again);
            }
            Mistake::UndoesInWrongOrder => {
                for work in &mut transition.work {
                    swap(work);
                }
            }
            Mistake::GivesOtherBytes => {
                let count = self.count.fetch_add(1, Ordering::Relaxed);
                transition.note.push_str(&count.to_string());
            }
            Mistake::GoesOnAfterTurningBack if transition.status == Status::Compensating => {
                let mut again = transition.work.iter().find(|work| is_undo(work, "car")).cloned();
                if let Some(orlog_model::Work::Effect(effect)) = &mut again {
                    effect.tag = orlog_model::Name::new("pay").unwrap();
                }
                transition.work.extend(again);
            }
            Mistake::LeavesATimer => {
                transition.timers.retain(|change| !matches!(change, TimerChange::Cancel { .. }));
            }
            Mistake::TellsTwice => {
                let facts: Vec<_> = transition
                    .work
                    .iter()
                    .filter(|work| matches!(work, orlog_model::Work::Fact(_)))
                    .cloned()
                    .collect();
                transition.work.extend(facts);
            }
            Mistake::TriesADoubtAgain => {
                let doubts = transition.tasks.iter().filter_map(|change| match change {
                    TaskChange::Open(form) => Some(form.tag.clone()),
                    TaskChange::Assign { .. } | TaskChange::Close { .. } => None,
                });
                let again = doubts.map(|tag| {
                    let name = orlog_model::EffectName::new("cars.rent").unwrap();
                    let (payload, timeout, retry, in_doubt) = (Value::Null, None, None, None);
                    orlog_model::Work::Effect(Effect { tag, name, payload, timeout, retry, in_doubt })
                });
                transition.work.extend(again);
            }
            Mistake::NeverHearsOfAnOutcome
            | Mistake::AsksNobody
            | Mistake::ForgetsALateSuccess
            | Mistake::GoesOnAfterTurningBack => {}
        }
    }
}

/// The undo of the one for that of the other.
fn swap(work: &mut orlog_model::Work) {
    let other = match work.tag().map(orlog_model::Name::as_str) {
        Some("undo:car") => "undo:hotel",
        Some("undo:hotel") => "undo:car",
        _ => return,
    };
    let tag = orlog_model::Name::new(other).unwrap();
    match work {
        orlog_model::Work::Effect(effect) => effect.tag = tag,
        orlog_model::Work::Command(command) => command.tag = tag,
        _ => {}
    }
}

#[track_caller]
fn check(mistake: Mistake, rules: &[Rule]) {
    check_in(TRIP, mistake, rules);
}

#[track_caller]
fn check_in(definition: &str, mistake: Mistake, rules: &[Rule]) {
    let program: Arc<dyn Program> =
        Arc::new(Mutant { inner: compiled(definition), mistake, count: AtomicU64::new(0) });
    let report = run(&program, 300);
    let found = report.counterexample.unwrap_or_else(|| panic!("{mistake:?} was not found"));
    assert!(rules.contains(&found.broken.rule), "{mistake:?}: {:?}", found.broken);
    assert!(found.moves.len() <= 8 && found.moves.len() <= found.before, "{mistake:?}: {:?}", found.moves);

    let text = found.test_case("trip.saga.yaml", 7);
    let book = Book::read(&text, "found.saga.test.yaml").unwrap_or_else(|p| panic!("{text}\n{p:?}"));
    let programs = Arc::new(Programs::new([Arc::clone(&program)]));
    let saga = program.reference().saga.clone();
    let misses = test_file::run(&book.cases[0], &saga, &programs);
    assert!(misses.iter().any(|miss| miss.message.starts_with("not sound")), "{text}\n{misses:?}");
    let sound: Arc<dyn Program> = Arc::new(compiled(definition));
    let misses = test_file::run(&book.cases[0], &saga, &Arc::new(Programs::new([sound])));
    assert!(misses.is_empty(), "the sound program fails it too: {misses:?}\n{text}");
}

#[test]
fn finds_a_lost_undo() {
    check(Mistake::LosesAnUndo, &[Rule::UndoAsked, Rule::EndReachable]);
}

#[test]
fn finds_an_undo_that_is_asked_for_twice() {
    check(Mistake::UndoesTwice, &[Rule::UndoneOnce]);
}

#[test]
fn finds_undos_in_the_wrong_order() {
    check(Mistake::UndoesInWrongOrder, &[Rule::UndoneInReverse, Rule::UndoneOnce, Rule::UndoAsked]);
}

#[test]
fn finds_what_is_not_deterministic() {
    check(Mistake::GivesOtherBytes, &[Rule::Deterministic]);
}

#[test]
fn finds_a_dead_end() {
    check(Mistake::NeverHearsOfAnOutcome, &[Rule::EndReachable]);
}

#[test]
fn finds_a_late_success_that_is_forgotten() {
    check(Mistake::ForgetsALateSuccess, &[Rule::SuccessKept]);
}

#[test]
fn finds_new_work_after_it_turned_back() {
    check(Mistake::GoesOnAfterTurningBack, &[Rule::NothingNew]);
}

#[test]
fn finds_a_timer_that_nobody_cancelled() {
    check(Mistake::LeavesATimer, &[Rule::TimersMatter]);
}

#[test]
fn finds_a_doubt_that_nobody_is_asked_about() {
    check_in(&careful(), Mistake::AsksNobody, &[Rule::DoubtAsked]);
}

#[test]
fn finds_a_doubt_that_is_tried_again() {
    check_in(&careful(), Mistake::TriesADoubtAgain, &[Rule::DoubtAsked]);
}

#[test]
fn finds_an_end_that_is_told_twice() {
    check(Mistake::TellsTwice, &[Rule::ToldOnce]);
}
