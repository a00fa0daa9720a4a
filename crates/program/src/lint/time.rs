//! Times that cannot pass.

use std::time::Duration;

use super::context::Sight;
use crate::definition::{Action, Moment, Step};
use crate::diagnostic::Finding;
use crate::yaml::parse_duration;

/// OL08: a step that may take longer than the whole saga.
pub(super) fn longer_than_the_saga(sight: &Sight<'_>) -> Vec<Finding> {
    let Some(whole) = sight.definition.timeout else { return Vec::new() };
    let steps = sight.definition.steps.iter().enumerate();
    let long =
        steps.filter(|(i, step)| longest(step).is_some_and(|time| time >= whole) && !sight.past_pivot(*i));
    long.map(|(i, step)| {
        let message =
            format!("step `{}` may take as long as the whole saga, whose timeout comes first", step.id);
        Finding::new(format!("steps[{i}]"), message).suggest("give the saga more time, or the step less")
    })
    .collect()
}

fn longest(step: &Step) -> Option<Duration> {
    let wait = match &step.action {
        Action::Wait(Moment::For(text)) => text.as_str().and_then(|text| parse_duration(text).ok()),
        Action::Wait(Moment::Until(_))
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
