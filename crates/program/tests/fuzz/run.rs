//! A random life of a saga: events, answers, silence, operators, in any order, twice, late.

use std::time::Duration;

use orlog_model::Verdict;
use orlog_program::{Compiled, Program as _, Stimulus};
use orlog_testkit::definition_suite::{Life, Samples, answer_ok, answer_undone, failed, open, succeeded};
use serde_json::{Value, json};

use super::random::Random;

/// Leads an instance through random inputs and hands over each state it was in.
pub(super) fn live(random: &mut Random, saga: &Compiled, mut seen: impl FnMut(&[u8])) {
    let samples = Samples::of(saga.definition());
    let mut life = Life::new(saga);
    if let Some(start) = saga.definition().start.first() {
        let data = if random.once_in(4) { payload(random) } else { samples.start(start) };
        note(life.event(start.as_str(), data));
    }
    for _ in 0..random.below(24) {
        one(random, saga, &samples, &mut life);
        if !life.state().is_empty() {
            seen(life.state());
        }
    }
}

/// What leads to no transition says why, in words.
fn note(result: Result<String, String>) {
    if let Err(why) = result {
        assert!(!why.is_empty() && why.len() < 10_000, "{} bytes of why not", why.len());
    }
}

fn one(random: &mut Random, saga: &Compiled, samples: &Samples, life: &mut Life<'_>) {
    let waiting = open(life, saga.definition());
    let asked: Vec<String> = life.asked().to_vec();
    let tag = match (waiting.is_empty() || random.once_in(4), asked.is_empty()) {
        (false, _) => waiting[random.below(waiting.len())].clone(),
        (true, false) => asked[random.below(asked.len())].clone(),
        (true, true) => "nobody".to_owned(),
    };
    match random.below(10) {
        0..=3 if tag.starts_with("undo:") => note(answer_undone(life, saga, &tag)),
        0..=3 => note(answer_ok(life, saga, &tag, samples)),
        4 => note(life.outcome(&tag, &failed("odd"))),
        5 => note(life.outcome(&tag, &verdict(random))),
        6 => {
            let kinds: Vec<&str> = saga.manifest().triggers.iter().map(|t| t.kind.as_str()).collect();
            let kind = if kinds.is_empty() { "Odd" } else { random.pick(&kinds) };
            note(life.event(kind, payload(random)));
        }
        7 => {
            if let Err(why) = life.advance(Duration::from_secs(1 << random.below(24))) {
                assert!(!why.is_empty());
            }
        }
        8 => {
            let people = [
                Stimulus::Cancel { reason: "odd" },
                Stimulus::Retry,
                Stimulus::Skip,
                Stimulus::ForceComplete,
            ];
            note(life.take(&people[random.below(people.len())]));
        }
        _ => note(life.take(&Stimulus::Timer { name: &tag })),
    }
}

fn verdict(random: &mut Random) -> Verdict {
    match random.below(3) {
        0 => Verdict::Accepted,
        1 => failed("odd"),
        _ => succeeded(payload(random)),
    }
}

fn payload(random: &mut Random) -> Value {
    match random.below(6) {
        0 => Value::Null,
        1 => json!([1, "two", null]),
        2 => json!("text"),
        3 => json!(u64::MAX),
        4 => json!({ "id": -1, "total": "many", "items": { "a": [] } }),
        _ => json!({}),
    }
}
