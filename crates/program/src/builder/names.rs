//! Names as the builder is given them: checked, and kept or reported.

use orlog_model::{EventType, IdError, Name};

use crate::definition::Answer;
use crate::diagnostic::Finding;

/// `inventory.ReserveStock` as aggregate type and command.
pub(crate) fn split_command(text: &str) -> Result<(Name, Name), Finding> {
    let parts = text.rsplit_once('.').filter(|(aggregate, name)| !aggregate.is_empty() && !name.is_empty());
    let Some((aggregate, name)) = parts else {
        let message = format!("`{text}` is no command");
        return Err(Finding::new("", message)
            .suggest("write the aggregate and the command, as in inventory.ReserveStock"));
    };
    let checked = Name::new(aggregate).and_then(|aggregate| Ok((aggregate, Name::new(name)?)));
    checked.map_err(|error| Finding::new("", error.to_string()))
}

pub(super) fn keep<T>(id: Result<T, IdError>, path: &str, findings: &mut Vec<Finding>) -> Option<T> {
    id.map_err(|error| findings.push(Finding::new(path, error.to_string()))).ok()
}

pub(super) fn events(names: &[&str], path: &str, findings: &mut Vec<Finding>) -> Vec<EventType> {
    names.iter().filter_map(|name| keep(EventType::new(*name), path, findings)).collect()
}

pub(super) fn steps(ids: &[&str], path: &str, findings: &mut Vec<Finding>) -> Vec<Name> {
    ids.iter().filter_map(|id| keep(Name::new(*id), path, findings)).collect()
}

pub(super) fn answer(
    event: &str,
    when: Option<&str>,
    path: &str,
    findings: &mut Vec<Finding>,
) -> Option<Answer> {
    let event = keep(EventType::new(event), path, findings)?;
    Some(Answer { event, when: when.map(str::to_owned) })
}
