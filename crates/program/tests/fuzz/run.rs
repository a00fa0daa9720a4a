//! Random run of a saga: events, results, timeouts and control requests in any order, duplicated or
//! late.

use std::time::Duration;

use orlog_model::WorkOutcome;
use orlog_program::{CompiledDefinition, Program as _, ProgramInput};
use orlog_testkit::definition_suite::{
    InstanceDriver, PayloadSamples, confirm_compensation, failed, pending_tags, respond_ok,
    succeeded,
};
use orlog_testkit::fuzz::Random;
use serde_json::{Value, json};

/// Applies random inputs to an instance and passes each state to `seen`.
pub(super) fn random_run(
    random: &mut Random,
    saga: &CompiledDefinition,
    mut seen: impl FnMut(&[u8]),
) {
    let samples = PayloadSamples::of(saga.definition());
    let mut run = InstanceDriver::new(saga);
    if let Some(start) = saga.definition().start.first() {
        let data = if random.once_in(4) {
            payload(random)
        } else {
            samples.start(start)
        };
        note(run.event(start.as_str(), data));
    }
    for _ in 0..random.below(24) {
        one(random, saga, &samples, &mut run);
        if !run.state().is_empty() {
            seen(run.state());
        }
    }
}

/// Checks that an input without a transition has a reason.
fn note(result: Result<String, String>) {
    if let Err(reason) = result {
        assert!(
            !reason.is_empty() && reason.len() < 10_000,
            "{} bytes of reason",
            reason.len()
        );
    }
}

fn one(
    random: &mut Random,
    saga: &CompiledDefinition,
    samples: &PayloadSamples,
    run: &mut InstanceDriver<'_>,
) {
    let waiting = pending_tags(run, saga.definition());
    let requested: Vec<String> = run.requested().to_vec();
    let tag = match (
        waiting.is_empty() || random.once_in(4),
        requested.is_empty(),
    ) {
        (false, _) => waiting[random.below(waiting.len())].clone(),
        (true, false) => requested[random.below(requested.len())].clone(),
        (true, true) => "unknown".to_owned(),
    };
    match random.below(10) {
        0..=3 if tag.starts_with("compensate:") => note(confirm_compensation(run, saga, &tag)),
        0..=3 => note(respond_ok(run, saga, &tag, samples)),
        4 => note(run.outcome(&tag, &failed("odd"))),
        5 => note(run.outcome(&tag, &random_outcome(random))),
        6 => {
            let kinds: Vec<&str> = saga
                .manifest()
                .subscriptions
                .iter()
                .map(|t| t.kind.as_str())
                .collect();
            let kind = if kinds.is_empty() {
                "Odd"
            } else {
                random.pick(&kinds)
            };
            note(run.event(kind, payload(random)));
        }
        7 => {
            if let Err(reason) = run.advance(Duration::from_secs(1 << random.below(24))) {
                assert!(!reason.is_empty());
            }
        }
        8 => {
            let operator_inputs = [
                ProgramInput::Cancel { reason: "odd" },
                ProgramInput::Retry,
                ProgramInput::Skip,
                ProgramInput::ForceComplete,
            ];
            note(run.take(&operator_inputs[random.below(operator_inputs.len())]));
        }
        _ => note(run.take(&ProgramInput::Timer { name: &tag })),
    }
}

fn random_outcome(random: &mut Random) -> WorkOutcome {
    match random.below(3) {
        0 => WorkOutcome::Accepted,
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
