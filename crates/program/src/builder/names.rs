//! Names that are passed to the builder: validated, then stored or reported.

use orlog_model::{EventType, IdError, Name};

use crate::definition::ResultMatcher;
use crate::diagnostic::RawDiagnostic;

pub(super) fn parse_name<T>(
    id: Result<T, IdError>,
    path: &str,
    findings: &mut Vec<RawDiagnostic>,
) -> Option<T> {
    id.map_err(|error| findings.push(RawDiagnostic::new(path, error.to_string())))
        .ok()
}

pub(super) fn events(
    names: &[&str],
    path: &str,
    findings: &mut Vec<RawDiagnostic>,
) -> Vec<EventType> {
    names
        .iter()
        .filter_map(|name| parse_name(EventType::new(*name), path, findings))
        .collect()
}

pub(super) fn steps(ids: &[&str], path: &str, findings: &mut Vec<RawDiagnostic>) -> Vec<Name> {
    ids.iter()
        .filter_map(|id| parse_name(Name::new(*id), path, findings))
        .collect()
}

pub(super) fn matcher(
    event: &str,
    when: Option<&str>,
    path: &str,
    findings: &mut Vec<RawDiagnostic>,
) -> Option<ResultMatcher> {
    let event = parse_name(EventType::new(event), path, findings)?;
    Some(ResultMatcher {
        event,
        when: when.map(str::to_owned),
    })
}
