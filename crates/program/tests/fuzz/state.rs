//! Stored states with bytes changed: a program reads what it can and refuses the rest, it never panics.

use orlog_model::{CorrelationId, InstanceKey, TenantId, Timestamp};
use orlog_program::{Compiled, Context, Fault, Program as _, Stimulus};
use orlog_testkit::definition_suite::{failed, succeeded};
use serde_json::Value;

use super::random::Random;
use super::run::live;

/// A damaged state of one of the sagas.
#[derive(Debug)]
pub(super) struct Damaged {
    saga: usize,
    state: Vec<u8>,
    tag: String,
}

pub(super) fn make(random: &mut Random, sagas: &[Compiled]) -> Damaged {
    let saga = random.below(sagas.len());
    let mut states: Vec<Vec<u8>> = Vec::new();
    live(random, &sagas[saga], |state| states.push(state.to_vec()));
    let mut state =
        if states.is_empty() { Vec::new() } else { states.swap_remove(random.below(states.len())) };
    for _ in 0..random.below(5) {
        damage(random, &mut state);
    }
    let steps = &sagas[saga].definition().steps;
    Damaged { saga, state, tag: steps[random.below(steps.len())].id.to_string() }
}

fn damage(random: &mut Random, state: &mut Vec<u8>) {
    let at = random.below(state.len() + 1);
    match random.below(4) {
        0 => state.truncate(at),
        1 => state.insert(at, random.byte()),
        2 if at < state.len() => {
            state.remove(at);
        }
        _ if at < state.len() => state[at] = random.byte(),
        _ => state.push(random.byte()),
    }
}

/// Shows it every kind of input. Whether it could be read.
pub(super) fn run(input: &Damaged, sagas: &[Compiled]) -> bool {
    let saga = &sagas[input.saga];
    let key = InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: saga.reference().saga.clone(),
        correlation: CorrelationId::new("o1").expect("a short word"),
    };
    let context = Context { key: &key, version: 9, now: Timestamp::from_millis(1_700_000_000_000) };
    let (ok, no) = (succeeded(Value::Null), failed("odd"));
    let undo = format!("undo:{}", input.tag);
    let stimuli = [
        Stimulus::Outcome { tag: &input.tag, verdict: &ok },
        Stimulus::Outcome { tag: &input.tag, verdict: &no },
        Stimulus::Outcome { tag: &undo, verdict: &ok },
        Stimulus::Timer { name: &input.tag },
        Stimulus::Cancel { reason: "odd" },
        Stimulus::Retry,
        Stimulus::Skip,
        Stimulus::ForceComplete,
    ];
    let unread = stimuli.iter().filter(|stimulus| {
        matches!(saga.apply(Some(&input.state), stimulus, &context), Err(Fault::State(_)))
    });
    let readable = unread.count() == 0;
    if readable {
        assert!(saga.show(&input.state).is_some(), "a state that is applied is shown");
    }
    readable
}
