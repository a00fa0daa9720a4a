//! What comes before its instance.

use orlog_engine::{Decision, Kept, MAX_EARLY, decide_undefined};
use orlog_model::{Early, Input, Status, Timer, TimerFired};
use orlog_program::{Reaction, Stimulus};

use crate::support::{Puppet, Stage, applied, at, event, id, key, name, step};

const HOUR: i64 = 3_600_000;

fn puppet() -> Puppet {
    Puppet::new(|stimulus| {
        Ok(match stimulus {
            Stimulus::Event(_) => applied(step(Status::Running)),
            _ => Reaction::Ignored("nothing".into()),
        })
    })
}

fn row(due: i64) -> Timer {
    Timer { due: at(due), name: name("early"), token: 0 }
}

fn fired(due: i64) -> Input {
    Input::Timer(TimerFired { name: name("early"), token: 0, due: at(due) })
}

fn kept(number: u64, until: i64) -> Kept {
    Kept { number, id: id(&format!("e-{number}")), until: at(until) }
}

#[test]
fn an_event_that_begins_nothing_is_kept_with_a_timer_and_no_instance() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    let commit = stage.commit(&event("Paid", "e-1"));
    let early = Early { input: Box::new(event("Paid", "e-1")), until: at(1_000 + HOUR) };
    assert_eq!(commit.hold, Some(Input::Early(early)));
    assert_eq!(commit.arm, [row(1_000 + HOUR)]);
    assert!(commit.instance.is_none() && commit.applied.is_none() && commit.history.is_none());
    stage.early.push(kept(1, 1_000 + HOUR));
    assert!(stage.commit(&event("Paid", "e-2")).arm.is_empty(), "one timer is enough");
}

#[test]
fn an_event_is_kept_once_and_not_without_end() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    stage.early = (1..=MAX_EARLY as u64).map(|number| kept(number, 9_000)).collect();
    assert_eq!(stage.ignored(&event("Paid", "e-7")), "it is kept already, until its instance begins");
    let commit = stage.commit(&event("Paid", "e-101"));
    let letter = commit.dead_letter.unwrap();
    assert_eq!(letter.reason.as_str(), "too_many_early");
    assert!(letter.message.contains("100 inputs are kept"), "{}", letter.message);
    assert!(commit.hold.is_none());
}

#[test]
fn what_the_saga_does_not_take_is_not_kept_nor_anything_where_nothing_shall_be() {
    let program = puppet();
    assert_eq!(Stage::empty(&program).ignored(&event("Unknown", "e")), "no instance waits for this event");
    let program = puppet().without_early();
    assert_eq!(Stage::empty(&program).ignored(&event("Paid", "e")), "no instance waits for this event");
}

#[test]
fn the_first_transition_disarms_the_timer_of_what_is_kept() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    assert!(stage.commit(&event("Placed", "s")).disarm.is_empty());
    let mut stage = Stage::empty(&program);
    stage.early = vec![kept(1, 5_000), kept(2, 6_000)];
    let commit = stage.commit(&event("Placed", "s"));
    assert_eq!(commit.disarm, [row(5_000)]);
    stage.early.clear();
    let commit =
        stage.commit(&Input::Early(Early { input: Box::new(event("Paid", "e-1")), until: at(5_000) }));
    assert_eq!((commit.instance.unwrap().version, commit.applied), (2, Some(id("e-1"))));
}

#[test]
fn the_timer_drops_what_was_kept_long_enough_and_waits_for_the_rest() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    stage.early = vec![kept(4, 5_000), kept(5, 5_000), kept(6, 7_000)];
    stage.now = at(5_500);
    let commit = stage.commit(&fired(5_000));
    assert_eq!(commit.release, [4, 5]);
    assert_eq!((commit.disarm, commit.arm), (vec![row(5_000)], vec![row(7_000)]));
    stage.early = vec![kept(6, 7_000)];
    assert_eq!(stage.ignored(&fired(5_000)), "the timer is stale");
    stage.now = at(7_000);
    let commit = stage.commit(&fired(7_000));
    assert_eq!((commit.release, commit.arm), (vec![6], vec![]));
}

#[test]
fn what_is_kept_is_dropped_also_where_the_definition_is_gone() {
    let early = [kept(4, 5_000)];
    let decision = decide_undefined(&key(), &early, &fired(5_000), at(5_000)).unwrap();
    let Decision::Commit(commit) = decision else { panic!("{decision:?}") };
    assert_eq!(commit.release, [4]);
    assert!(decide_undefined(&key(), &early, &event("Paid", "e"), at(1)).is_none());
}
