//! What the definitions of a directory state about each other: child sagas, and similar events.

use std::collections::BTreeSet;
use std::path::Path;

use orlog_model::{Deployment, TenantId};
use orlog_program::{DataSamples, DefinitionGroup, Diagnostic, GroupMember, LintWarning};

use super::files::LoadedDefinition;

fn group(definitions: &[LoadedDefinition]) -> DefinitionGroup<'_> {
    let members = definitions.iter().map(|definition| GroupMember {
        program: definition.program.as_ref(),
        file: definition
            .file
            .as_deref()
            .and_then(Path::to_str)
            .unwrap_or("the built-in programs"),
    });
    DefinitionGroup::new(members.collect())
}

/// Returns the warnings of each definition in a set that is deployed together.
pub(crate) fn warnings(definitions: &[LoadedDefinition]) -> Vec<Vec<LintWarning>> {
    warnings_with(definitions, DataSamples::default())
}

/// Returns the warnings of each definition, also about fields that no sample has.
#[must_use]
pub fn warnings_with(
    definitions: &[LoadedDefinition],
    samples: DataSamples,
) -> Vec<Vec<LintWarning>> {
    let group = group(definitions).with_samples(samples);
    definitions
        .iter()
        .map(|definition| group.warnings(&definition.program.definition_ref().saga))
        .collect()
}

/// Returns the contradictions between definitions of a set that is deployed together.
///
/// Definitions that are all active are accepted: they were deployed by a release that did not check
/// them.
pub fn contradictions(
    definitions: &[LoadedDefinition],
    is_active: impl Fn(&[u8; 16]) -> bool,
) -> Vec<Diagnostic> {
    let group = group(definitions);
    let is_new =
        |definition: &&LoadedDefinition| !is_active(&definition.program.definition_ref().hash);

    // A deployment must not be rejected because of a contradiction between definitions that it does
    // not change.
    let concerned = definitions.iter().filter(|definition| {
        let sagas = &definition.program.manifest().sagas;
        let mut children = definitions
            .iter()
            .filter(|child| sagas.contains(&child.program.definition_ref().saga));
        is_new(definition) || children.any(|child| is_new(&child))
    });

    concerned
        .flat_map(|definition| group.contradictions(&definition.program.definition_ref().saga))
        .collect()
}

/// Rejects definitions that contradict each other, unless the current deployment activated all of
/// them.
///
/// # Errors
/// All contradictions.
pub(super) fn check(
    definitions: &[LoadedDefinition],
    current: Option<&Deployment>,
) -> Result<(), Vec<Diagnostic>> {
    rejected(contradictions(definitions, |hash| is_active(current, hash)))
}

/// Rejects definitions of a context that contradict each other or the shared ones, unless the
/// current deployment activated all of them. The files of shared definitions are not named, because
/// they belong to the node.
///
/// # Errors
/// All contradictions.
pub(super) fn check_context(
    context: &TenantId,
    usable: &[LoadedDefinition],
    current: Option<&Deployment>,
) -> Result<(), Vec<Diagnostic>> {
    let mut named = Vec::with_capacity(usable.len());
    // Contradictions among shared definitions alone are not caused by this context.
    let mut shared = BTreeSet::new();
    for definition in usable {
        let mut definition = definition.clone();
        if definition.context.as_ref() != Some(context) {
            shared.insert(definition.program.definition_ref().hash);
            let name = format!("the shared definition {}", definition.saga());
            definition.file = Some(name.into());
        }
        named.push(definition);
    }

    rejected(contradictions(&named, |hash| {
        shared.contains(hash) || is_active(current, hash)
    }))
}

fn is_active(current: Option<&Deployment>, hash: &[u8; 16]) -> bool {
    current
        .into_iter()
        .flat_map(Deployment::active)
        .any(|active| active.program.hash == *hash)
}

fn rejected(found: Vec<Diagnostic>) -> Result<(), Vec<Diagnostic>> {
    if found.is_empty() { Ok(()) } else { Err(found) }
}
