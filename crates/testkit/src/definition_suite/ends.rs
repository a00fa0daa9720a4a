//! Ends of the runs of the suite.

use orlog_model::Status;
use orlog_program::{AfterHandler, Definition, Join};

use super::driver::InstanceDriver;
use super::responses::PendingTag;
use super::samples::PayloadSamples;

/// Ends an instance that stays active when its steps have finished.
pub(super) fn end_active(
    run: &mut InstanceDriver<'_>,
    definition: &Definition,
    samples: &PayloadSamples,
) {
    let handlers = definition.on.iter();
    let mut ends = handlers
        .filter(|on| on.then == AfterHandler::Complete)
        .flat_map(|on| &on.event);
    if let (true, Status::Running, Some(kind)) = (definition.keep_active, run.status(), ends.next())
    {
        run.event(kind.as_str(), samples.start(kind))
            .unwrap_or_else(|reason| panic!("{kind} does not end the instance: {reason}"));
    }
}

/// Checks the status and the compensations of a run in which a step failed.
pub(super) fn check_end(
    run: &InstanceDriver<'_>,
    definition: &Definition,
    done: &[String],
    context: &str,
) {
    let steps = &definition.steps;
    let has_races = steps.iter().any(|s| {
        s.after
            .as_ref()
            .is_some_and(|after| after.join != Join::All)
    });
    let pivots = steps.iter().any(|step| step.pivot);
    let has_handlers = steps
        .iter()
        .any(|step| step.failure_handlers().next().is_some());
    match run.status() {
        Status::Failed => {
            let (mut compensated, mut expected) =
                (run.compensated(), expected_compensations(definition, done));
            // Some of them are compensated while the saga runs on.
            if has_races || has_handlers {
                compensated.sort();
                expected.sort();
            }
            assert_eq!(compensated, expected, "{context}: compensations");
        }
        Status::Completed if has_races || pivots || has_handlers => {}
        other => panic!("{context}: the saga ended with status {other}"),
    }
}

fn expected_compensations(definition: &Definition, done: &[String]) -> Vec<String> {
    let has_compensation = |tag: &&String| {
        PendingTag::of(definition, tag).is_some_and(|open| open.step.compensate.is_some())
    };
    done.iter()
        .rev()
        .filter(has_compensation)
        .map(|tag| format!("compensate:{tag}"))
        .collect()
}
