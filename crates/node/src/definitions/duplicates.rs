//! Definitions and schedules that several files define.

use std::path::Path;

use orlog_model::DeployedSchedule;
use orlog_program::Diagnostic;

use super::files::{LoadedDefinition, problem};

/// Returns a diagnostic for each saga with several definitions. The definitions are sorted by saga.
#[must_use]
pub fn sagas(definitions: &[LoadedDefinition]) -> Vec<Diagnostic> {
    definitions
        .windows(2)
        .filter_map(|pair| twice(&pair[0], &pair[1]))
        .collect()
}

/// Returns a diagnostic for each schedule with several files. The schedules are sorted by tenant
/// and name.
pub(super) fn schedules(schedules: &[DeployedSchedule]) -> Vec<Diagnostic> {
    schedules
        .windows(2)
        .filter_map(|pair| schedule_twice(&pair[0], &pair[1]))
        .collect()
}

fn schedule_twice(first: &DeployedSchedule, second: &DeployedSchedule) -> Option<Diagnostic> {
    let is_same = (&first.tenant, &first.name) == (&second.tenant, &second.name);
    let message = format!(
        "schedule `{}` is also defined in {}",
        first.name, first.file
    );
    is_same.then(|| problem(Path::new(&second.file), message))
}

fn twice(first: &LoadedDefinition, second: &LoadedDefinition) -> Option<Diagnostic> {
    let saga = &first.program.definition_ref().saga;
    let location = |definition: &LoadedDefinition| match &definition.file {
        Some(file) => file.display().to_string(),
        None => "the built-in programs".to_owned(),
    };

    (saga == &second.program.definition_ref().saga).then(|| Diagnostic {
        suggestion: Some(
            "keep only the newest version; older versions stay in the store".to_owned(),
        ),
        ..problem(
            Path::new(&location(second)),
            format!("saga `{saga}` is also defined in {}", location(first)),
        )
    })
}
