//! Findings about a run that violate no invariant: an operator must decide.

use orlog_model::{Instance, Status};
use orlog_program::UNDO_WITHOUT_VALUE;

/// Returns the step whose compensation cannot be requested, because no result has set a value that it
/// reads.
pub(crate) fn step_without_value(instance: Option<&Instance>) -> Option<String> {
    let instance = instance.filter(|instance| instance.status == Status::Stuck)?;
    let error = instance.last_error.as_ref()?;
    let step = error.step.as_ref()?;
    (error.code == UNDO_WITHOUT_VALUE).then(|| step.to_string())
}
