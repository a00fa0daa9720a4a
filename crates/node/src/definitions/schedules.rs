//! Schedules: start sagas by cron expressions, at intervals or at one date.

pub(crate) mod deployed;
pub mod file;

use orlog_model::{InstanceKey, SagaName, TenantId};
use orlog_program::{Program, document::did_you_mean};
use orlog_sagas::schedule::{self, ScheduleError, ScheduleSpec};

/// Returns the instance of a schedule.
///
/// # Errors
/// If the name is invalid.
pub fn key(tenant: TenantId, name: &str) -> Result<InstanceKey, String> {
    let saga = SagaName::new(schedule::SAGA).expect("the name is short");
    Ok(InstanceKey {
        tenant,
        saga,
        correlation: schedule::check_name(name)?,
    })
}

/// Checks that a saga of a specification exists and has the start event.
///
/// # Errors
/// The field, and the most similar name.
pub fn check_saga<'a>(
    spec: &ScheduleSpec,
    programs: impl Iterator<Item = &'a dyn Program> + Clone,
) -> Result<(), ScheduleError> {
    let failed = |field: &str, message: String, advice: Option<String>| {
        let advice = advice
            .map(|advice| format!("; {advice}"))
            .unwrap_or_default();
        Err(ScheduleError {
            field: field.to_owned(),
            message: message + &advice,
        })
    };

    let saga = &spec.saga;
    let Some(program) = programs
        .clone()
        .find(|program| program.definition_ref().saga.as_str() == saga)
    else {
        let known = programs.map(|program| program.definition_ref().saga.as_str());
        return failed(
            "saga",
            format!("saga \"{saga}\" has no definition"),
            did_you_mean(saga, known),
        );
    };

    let starts = || {
        program
            .manifest()
            .subscriptions
            .iter()
            .filter(|subscription| subscription.starts)
    };
    match &spec.event {
        Some(event) if starts().all(|start| start.kind.as_str() != event) => {
            let known = starts().map(|start| start.kind.as_str());
            let message = format!("\"{event}\" is not a start event of saga \"{saga}\"");
            failed("event", message, did_you_mean(event, known))
        }
        None if starts().next().is_none() => {
            failed("saga", format!("saga \"{saga}\" has no start event"), None)
        }
        Some(_) | None => Ok(()),
    }
}
