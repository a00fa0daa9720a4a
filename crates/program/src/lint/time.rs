//! Lints of timeouts.

use std::time::Duration;

use super::context::LintContext;
use crate::definition::{Action, Step, TimeSpec};
use crate::diagnostic::RawDiagnostic;
use crate::yaml::parse_duration;

/// OL08: a step that may take longer than the saga timeout.
pub(super) fn outlasts_saga_timeout(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let Some(saga_timeout) = context.definition.timeout else { return Vec::new() };
    let steps = context.definition.steps.iter().enumerate();
    let long = steps.filter(|(i, step)| {
        longest(step).is_some_and(|time| time >= saga_timeout) && !context.past_pivot(*i)
    });
    long.map(|(i, step)| {
        let message = format!("step `{}` may outlast the saga timeout, which expires first", step.id);
        RawDiagnostic::new(format!("steps[{i}]"), message)
            .with_suggestion("increase the saga timeout, or shorten that of the step")
    })
    .collect()
}

fn longest(step: &Step) -> Option<Duration> {
    let wait = match &step.action {
        Action::Wait(TimeSpec::For(text)) => text.as_str().and_then(|text| parse_duration(text).ok()),
        Action::Wait(TimeSpec::Until(_))
        | Action::Command { .. }
        | Action::Effect { .. }
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Job(_)
        | Action::Switch(_) => None,
    };
    step.timeout.max(wait)
}
