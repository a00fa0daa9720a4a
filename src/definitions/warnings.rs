//! What is allowed in a deployment, but should be known: above all what older definitions still need.

use std::sync::Arc;

use orlog_effect::Catalog;
use orlog_model::{Lane, SagaName, WorkKind};
use orlog_program::Program;
use orlog_store::Pins;

use super::files::Definition;
use super::plan::{Changed, Listed, Plan, hex};

/// What the definitions to be put in force are looked at with.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) new: &'a [Definition],
    pub(super) catalog: &'a Catalog,
    /// Every program that is loaded, older ones too.
    pub(super) loaded: &'a [Arc<dyn Program>],
    pub(super) pins: &'a Pins,
}

/// All warnings, those about running instances before those about the new definitions alone.
pub(super) fn all(plan: &Plan, sight: &Sight<'_>) -> Vec<String> {
    let mut warnings: Vec<_> = plan.changed.iter().filter_map(again).collect();
    warnings.extend(old_needs(sight));
    if !sight.pins.complete {
        let why = "there are too many instances to count them all; the numbers are lower bounds";
        warnings.push(why.to_owned());
    }
    warnings.extend(sight.new.iter().flat_map(|definition| childless(definition, sight.new)));
    warnings.extend(sight.new.iter().flat_map(lints));
    warnings
}

/// The same version with another text.
fn again(changed: &Changed) -> Option<String> {
    let Changed { to: Listed { saga, version, file, .. }, from_version, .. } = changed;
    (from_version == version).then(|| {
        format!(
            "{file}: {saga} version {version} again, with another text; give it a new version, so that people can tell \
             them apart"
        )
    })
}

/// What the rules of `orlog check` object to.
fn lints(definition: &Definition) -> Vec<String> {
    let (Some(compiled), Some(file)) = (&definition.compiled, &definition.file) else { return Vec::new() };
    let found = orlog_program::lint(compiled, &file.display().to_string());
    found.iter().map(|warning| format!("{} [{}]", warning.problem, warning.code)).collect()
}

/// What live instances of definitions that are not among the new ones need and nobody offers.
pub(super) fn old_needs(sight: &Sight<'_>) -> Vec<String> {
    let is_old = |program: &Arc<dyn Program>| {
        sight.new.iter().all(|new| new.program.reference().hash != program.reference().hash)
    };
    let mut warnings = Vec::new();
    for program in sight.loaded.iter().filter(|program| is_old(program)) {
        let reference = program.reference();
        let live = sight.pins.of(&reference.hash).live;
        if live == 0 {
            continue;
        }
        let (saga, version, hash) = (&reference.saga, reference.version, &hex(&reference.hash)[..8]);
        let instances =
            if live == 1 { "1 live instance".to_owned() } else { format!("{live} live instances") };
        warnings.extend(missing(program.as_ref(), sight).map(|(what, remedy)| {
            format!(
                "{saga} version {version} ({hash}) has {instances} and may ask for {what}: {remedy}, move them with \
                 `orlog migrate {saga} --from {version}`, or let them end before they come to it"
            )
        }));
    }
    warnings
}

/// What a program may ask for and nobody offers, each with what would help.
fn missing<'a>(
    program: &'a dyn Program,
    sight: &'a Sight<'_>,
) -> impl Iterator<Item = (String, String)> + 'a {
    let manifest = program.manifest();
    let performs = |kind, name: &str| sight.catalog.performer(&Lane { kind, name: name.into() }).is_some();
    let effects = manifest.effects.iter().filter(move |effect| !performs(WorkKind::Effect, effect.as_str()));
    let effects = effects.map(|effect| {
        let what = format!("the effect {effect}, which no upstream performs any more");
        (what, format!("add [upstreams.<name>.effects.\"{effect}\"] to the configuration again"))
    });
    let aggregate = |command: &str| command.rsplit_once('.').map_or(command, |(of, _)| of).to_owned();
    let commands =
        manifest.commands.iter().filter(move |command| !performs(WorkKind::Command, &aggregate(command)));
    let commands = commands.map(|command| {
        let what = format!("the command {command}, which has nowhere to go");
        (what, "add [gateway] to the configuration again".to_owned())
    });
    let sagas = manifest.sagas.iter().filter(|saga| !has(sight.new, saga)).map(|saga| {
        (
            format!("the saga {saga}, which no definition in force has"),
            format!("deploy a definition of {saga}"),
        )
    });
    effects.chain(commands).chain(sagas)
}

/// Child sagas of a new definition that no definition has.
fn childless<'a>(definition: &'a Definition, new: &'a [Definition]) -> impl Iterator<Item = String> + 'a {
    let missing = definition.program.manifest().sagas.iter().filter(|saga| !has(new, saga));
    missing.map(|saga| {
        let parent = &definition.program.reference().saga;
        format!(
            "{parent} may begin the saga {saga}, which no definition has: deploy one before it comes to that"
        )
    })
}

fn has(definitions: &[Definition], saga: &SagaName) -> bool {
    definitions.iter().any(|definition| definition.program.reference().saga == *saga)
}
