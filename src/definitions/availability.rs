//! Whether there is somebody for everything that a definition asks for.

use orlog_effect::Catalog;
use orlog_model::{Lane, WorkKind};
use orlog_program::{Action, Problem};

use super::files::Definition;

const NO_GATEWAY: &str = "no gateway is configured";

/// What a definition asks for and nobody performs; one problem a place.
pub(super) fn missing(definition: &Definition, catalog: &Catalog) -> Vec<Problem> {
    let Some(compiled) = &definition.compiled else { return missing_effects(definition, catalog) };
    let mut problems = Vec::new();
    for (index, step) in compiled.definition().steps.iter().enumerate() {
        let undo = step.undo.as_ref().map(|undo| ("undo", &undo.action));
        for (field, action) in std::iter::once(("do", &step.action)).chain(undo) {
            if let Some((message, suggestion)) = trouble(action, catalog) {
                let path = format!("steps[{index}].{field}");
                let message = format!("step `{}`: {message}", step.id);
                problems.push(problem(definition, path, message, suggestion));
            }
        }
    }
    problems
}

fn missing_effects(definition: &Definition, catalog: &Catalog) -> Vec<Problem> {
    let effects = &definition.program.manifest().effects;
    let found = effects.iter().filter_map(|effect| {
        let (message, suggestion) = nobody_performs(effect.as_str(), catalog)?;
        Some(problem(definition, String::new(), message, suggestion))
    });
    found.collect()
}

fn problem(definition: &Definition, path: String, message: String, suggestion: String) -> Problem {
    let file = match &definition.file {
        Some(file) => file.display().to_string(),
        None => format!("saga {}", definition.program.reference().saga),
    };
    Problem { file, line: 0, column: 0, path, message, suggestion: Some(suggestion) }
}

fn trouble(action: &Action, catalog: &Catalog) -> Option<(String, String)> {
    match action {
        Action::Effect { name, .. } => nobody_performs(name.as_str(), catalog),
        Action::Command { aggregate_type, name, .. } => {
            let lane = Lane { kind: WorkKind::Command, name: aggregate_type.as_str().into() };
            let message = format!("the command {aggregate_type}.{name} has nowhere to go: {NO_GATEWAY}");
            let suggestion = "add [gateway] with its base_url to the configuration".to_owned();
            catalog.performer(&lane).is_none().then_some((message, suggestion))
        }
        Action::Job(job) => nobody_performs(&format!("job.{}", job.kind), catalog),
        Action::Wait(_)
        | Action::Event { .. }
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Switch(_) => None,
    }
}

fn nobody_performs(effect: &str, catalog: &Catalog) -> Option<(String, String)> {
    let lane = Lane { kind: WorkKind::Effect, name: effect.into() };
    if catalog.performer(&lane).is_some() {
        return None;
    }
    let likeness = |name: &str| strsim::jaro_winkler(effect, name);
    let effects = catalog.effects();
    let near = effects.iter().map(|(name, _)| name.as_str()).filter(|name| likeness(name) > 0.8);
    let suggestion = match near.max_by(|a, b| likeness(a).total_cmp(&likeness(b))) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!(
            "add [upstreams.<name>.effects.{effect:?}] with its path to the configuration, or try `orlog dev --stand-in`"
        ),
    };
    Some((format!("no upstream performs the effect {effect}"), suggestion))
}
