//! Validation that every effect, command and saga of a definition is available.

use orlog_effect::{Catalog, UpstreamScope};
use orlog_model::{EffectName, WorkKind};
use orlog_program::{Action, CommandAction, Diagnostic};

use super::files::LoadedDefinition;
use crate::config::similar_name;
use crate::upstreams::STAND_IN_UPSTREAM;

const NO_GATEWAY: &str = "no gateway is configured";

/// Returns a diagnostic for each requested effect or command that no upstream provides.
pub(super) fn missing_providers(definition: &LoadedDefinition, catalog: &Catalog) -> Vec<Diagnostic> {
    let Some(compiled) = &definition.compiled else { return missing_effects(definition, catalog) };
    let mut problems = Vec::new();
    for (index, step) in compiled.definition().steps.iter().enumerate() {
        let compensation = step.compensate.as_ref().map(|compensation| ("undo", &compensation.action));
        for (field, action) in std::iter::once(("do", &step.action)).chain(compensation) {
            if let Some((message, suggestion)) = trouble(action, catalog) {
                let path = format!("steps[{index}].{field}");
                let message = format!("step `{}`: {message}", step.id);
                problems.push(compiled.diagnostic(&file_of(definition), &path, message, suggestion));
            }
        }
    }
    problems
}

fn missing_effects(definition: &LoadedDefinition, catalog: &Catalog) -> Vec<Diagnostic> {
    let effects = &definition.program.manifest().effects;
    let found = effects.iter().filter_map(|effect| {
        let (message, suggestion) = missing_executor(effect.as_str(), catalog)?;
        let (file, suggestion) = (file_of(definition), Some(suggestion));
        Some(Diagnostic { file, line: 0, column: 0, path: String::new(), message, suggestion })
    });
    found.collect()
}

fn file_of(definition: &LoadedDefinition) -> String {
    match &definition.file {
        Some(file) => file.display().to_string(),
        None => format!("saga {}", definition.program.definition_ref().saga),
    }
}

fn trouble(action: &Action, catalog: &Catalog) -> Option<(String, String)> {
    match action {
        Action::Effect(effect) => missing_executor(effect.name.as_str(), catalog),
        Action::Command(CommandAction { aggregate_type, name, .. }) => {
            let message = format!("the command {aggregate_type}.{name} cannot be sent: {NO_GATEWAY}");
            let suggestion = "add [gateway] with its base_url to the configuration".to_owned();
            catalog
                .executor_for_name(WorkKind::Command, aggregate_type.as_str())
                .is_none()
                .then_some((message, suggestion))
        }
        Action::Job(job) => missing_executor(&format!("job.{}", job.kind), catalog),
        Action::Wait(_)
        | Action::Event(_)
        | Action::Human(_)
        | Action::Saga(_)
        | Action::Switch(_)
        | Action::Repeat(_)
        | Action::Restart(_) => None,
    }
}

fn missing_executor(effect: &str, catalog: &Catalog) -> Option<(String, String)> {
    if catalog.executor_for_name(WorkKind::Effect, effect).is_some() {
        return None;
    }
    let suggestion = similar_effect(effect, catalog).unwrap_or_else(|| format!(
        "add [upstreams.<name>.effects.{effect:?}] with its path to the configuration, or run `orlog dev`: its stand-in executes the effect"
    ));
    Some((format!("no upstream executes the effect {effect}"), suggestion))
}

/// Returns `did you mean …?` if a configured upstream executes an effect with a similar name.
pub(crate) fn similar_effect(effect: &str, catalog: &Catalog) -> Option<String> {
    let effects = catalog.effects();
    let nearest = similar_name(effect, effects.iter().map(|(name, _)| name.as_str()))?;
    Some(format!("did you mean `{nearest}`?"))
}

/// Returns whether the stand-in of `orlog dev` executes an effect, because no configured upstream does.
pub(crate) fn has_stand_in(effect: &EffectName, catalog: &Catalog) -> bool {
    let executor = catalog.executor_for_name(WorkKind::Effect, effect.as_str());
    executor.is_some_and(|executor| {
        let upstream = executor.upstream();
        upstream.scope == UpstreamScope::Fallback && upstream.name == STAND_IN_UPSTREAM
    })
}
