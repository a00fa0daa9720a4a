//! Stored states with changed bytes: a program decodes or rejects them and never panics.

use orlog_model::{CorrelationId, InstanceKey, TenantId, Timestamp};
use orlog_program::{CompiledDefinition, Context, Program as _, ProgramError, ProgramInput};
use orlog_testkit::definition_suite::{failed, succeeded};
use orlog_testkit::fuzz::Random;
use serde_json::Value;

use super::run::random_run;

/// Corrupt state of one of the sagas.
#[derive(Debug)]
pub(super) struct CorruptState {
    saga: usize,
    state: Vec<u8>,
    tag: String,
}

pub(super) fn make(random: &mut Random, sagas: &[CompiledDefinition]) -> CorruptState {
    let saga = random.below(sagas.len());
    let mut states: Vec<Vec<u8>> = Vec::new();
    random_run(random, &sagas[saga], |state| states.push(state.to_vec()));
    let mut state = if states.is_empty() {
        Vec::new()
    } else {
        states.swap_remove(random.below(states.len()))
    };
    for _ in 0..random.below(5) {
        damage(random, &mut state);
    }
    let steps = &sagas[saga].definition().steps;
    CorruptState {
        saga,
        state,
        tag: steps[random.below(steps.len())].id.to_string(),
    }
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

/// Applies every kind of input to the state. Returns whether the state could be decoded.
pub(super) fn run(input: &CorruptState, sagas: &[CompiledDefinition]) -> bool {
    let saga = &sagas[input.saga];
    let key = InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: saga.definition_ref().saga.clone(),
        correlation: CorrelationId::new("o1").expect("a valid id"),
    };
    let context = Context {
        key: &key,
        version: 9,
        now: Timestamp::from_millis(1_700_000_000_000),
        pending_work: &[],
        attempts: 0,
    };
    let (ok, no) = (succeeded(Value::Null), failed("odd"));
    let compensation_tag = format!("compensate:{}", input.tag);
    let inputs = [
        ProgramInput::WorkResult {
            tag: &input.tag,
            outcome: &ok,
        },
        ProgramInput::WorkResult {
            tag: &input.tag,
            outcome: &no,
        },
        ProgramInput::WorkResult {
            tag: &compensation_tag,
            outcome: &ok,
        },
        ProgramInput::Timer { name: &input.tag },
        ProgramInput::Cancel { reason: "odd" },
        ProgramInput::Retry,
        ProgramInput::Skip,
        ProgramInput::ForceComplete,
    ];
    let unread = inputs.iter().filter(|program_input| {
        matches!(
            saga.apply(Some(&input.state), program_input, &context),
            Err(ProgramError::InvalidState(_))
        )
    });
    let readable = unread.count() == 0;
    if readable {
        assert!(
            saga.view_state(&input.state).is_some(),
            "an applied state has a view"
        );
    }
    readable
}
