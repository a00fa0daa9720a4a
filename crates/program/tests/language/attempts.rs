//! Commands that are asked for again.

use std::time::Duration;

use orlog_model::{Status, Verdict};
use orlog_testkit::definition_suite::failed;
use serde_json::json;

use super::{begun, ok, saga, stands};

pub(super) const BOOK: &str = "steps:
  - { id: one, do: { effect: e.one }, undo: { effect: u.one } }
  - id: book
    do: { command: hotels.Book }
    ok: Booked
    fail: Refused
    timeout: 10s
    retry: { attempts: 3, backoff: 2s }
    undo: { command: hotels.Cancel, ok: Cancelled, fail: NotCancelled, retry: { attempts: 2, backoff: 1s }, timeout: 1h }
  - { id: end, do: { effect: e.end } }
";

fn asked(life: &orlog_testkit::definition_suite::Life<'_>, label: &str) -> usize {
    life.labels().iter().filter(|l| *l == label).count()
}

#[test]
fn a_command_is_asked_for_again_after_a_failure_a_refusal_or_a_silence_with_doubling_pauses() {
    let saga = saga(BOOK);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "one");
    assert_eq!(life.event("Refused", json!({})).unwrap(), "book: Refused, again in 2s");
    assert_eq!((life.timers(), stands(&life, "book").as_str()), (vec!["retry:book"], "pausing"));
    life.advance(Duration::from_secs(2)).unwrap();
    assert_eq!((asked(&life, "hotels.Book"), life.timers()), (2, vec!["book"]));
    assert_eq!(life.shown()["steps"][1]["attempts"], 2);
    life.advance(Duration::from_secs(10)).unwrap();
    assert_eq!(life.timers(), ["retry:book"], "silence counts as a failure");
    life.advance(Duration::from_secs(3)).unwrap();
    assert_eq!(asked(&life, "hotels.Book"), 2, "the second pause is twice as long");
    life.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(asked(&life, "hotels.Book"), 3);
    assert_eq!(life.outcome("book", &failed("http_500")).unwrap(), "book: http_500");
    assert_eq!((life.status(), life.undone()), (Status::Compensating, vec!["undo:one".to_owned()]));
    assert!(life.timers().is_empty());
}

#[test]
fn a_success_in_the_pause_counts() {
    let saga = saga(BOOK);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "one");
    life.event("Refused", json!({})).unwrap();
    assert!(life.event("Refused", json!({})).is_err(), "a second failure in the pause changes nothing");
    assert_eq!(life.event("Booked", json!({})).unwrap(), "book: ok");
    assert!(life.timers().is_empty(), "the pause is over");
    assert_eq!(stands(&life, "end"), "running");
}

#[test]
fn turning_back_in_a_pause_gives_the_step_up_and_a_late_success_is_undone() {
    let saga = saga(BOOK);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "one");
    life.event("Refused", json!({})).unwrap();
    life.cancel("no more").unwrap();
    assert!(life.timers().is_empty());
    life.event("Booked", json!({})).unwrap();
    ok(&mut life, "undo:one");
    assert_eq!(life.undone(), ["undo:one", "undo:book"]);
    life.event("Cancelled", json!({})).unwrap();
    assert_eq!(life.status(), Status::Cancelled);
}

#[test]
fn an_undo_is_asked_for_again_too_before_a_person_must_decide() {
    let saga = saga(BOOK);
    let mut life = begun(&saga, json!({}));
    ok(&mut life, "one");
    life.event("Booked", json!({})).unwrap();
    life.outcome("end", &failed("no")).unwrap();
    assert_eq!(life.event("NotCancelled", json!({})).unwrap(), "book: NotCancelled, again in 1s");
    assert_eq!((life.status(), stands(&life, "book").as_str()), (Status::Compensating, "undo_pausing"));
    life.advance(Duration::from_secs(1)).unwrap();
    assert_eq!((asked(&life, "hotels.Cancel"), life.timers()), (2, vec!["undo:book"]));
    life.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(life.status(), Status::Stuck);
    life.event("Cancelled", json!({})).unwrap();
    assert_eq!((life.status(), life.undone().last().unwrap().as_str()), (Status::Compensating, "undo:one"));
}

#[test]
fn pauses_grow_to_an_hour_and_no_further() {
    let saga = saga(
        "steps:\n  - { id: a, do: { command: x.A }, retry: { attempts: 60, backoff: 10m }, undo: { command: x.B } }",
    );
    let mut life = begun(&saga, json!({}));
    let mut pauses = Vec::new();
    for _ in 0..40 {
        pauses.push(life.outcome("a", &failed("no")).unwrap());
        life.advance(Duration::from_hours(1)).unwrap();
    }
    assert_eq!(
        pauses[..4],
        ["10m", "20m", "40m", "60m"].map(|p| {
            format!(
                "a: no, again in {:?}",
                Duration::from_secs(60 * p.trim_end_matches('m').parse::<u64>().unwrap())
            )
        })
    );
    assert_eq!(pauses[39], pauses[3]);
    life.outcome("a", &Verdict::Accepted).unwrap();
    assert_eq!(life.status(), Status::Completed);
}

#[test]
fn the_attempts_of_an_effect_are_its_providers() {
    let saga = saga("steps:\n  - { id: a, do: { effect: e.a }, retry: { attempts: 3 } }");
    let mut life = begun(&saga, json!({}));
    life.outcome("a", &failed("no")).unwrap();
    assert_eq!(life.status(), Status::Failed);
}
