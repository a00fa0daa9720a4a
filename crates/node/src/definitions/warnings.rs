//! Warnings of a deployment, mainly missing requirements of older definitions.

use std::collections::BTreeSet;

use orlog_actors::OwnedProgram;
use orlog_model::{EffectName, InDoubtPolicy, SagaName, WorkKind};
use orlog_program::{Action, Program};
use orlog_store::PinCounts;

use super::availability::{self, Providers};
use super::files::LoadedDefinition;
use super::plan::{DefinitionChange, DefinitionSummary, DeploymentPlan};
use super::references;

/// Context of the warnings for the new definitions.
#[derive(Clone, Copy)]
pub(super) struct WarningContext<'a> {
    pub(super) new: &'a [LoadedDefinition],
    /// Definitions that new instances use: the new ones, and for a context also shared ones.
    pub(super) usable: &'a [LoadedDefinition],
    pub(super) providers: Providers<'a>,
    /// Loaded programs of all owners, including older ones.
    pub(super) loaded: &'a [OwnedProgram],
    pub(super) pins: &'a PinCounts,
}

/// Returns all warnings, first those about running instances, then those about the new definitions.
pub(super) fn all(plan: &DeploymentPlan, context: &WarningContext<'_>) -> Vec<String> {
    let mut warnings: Vec<_> = plan.changed.iter().filter_map(reused_version).collect();
    warnings.extend(unmet_needs(context));

    if !context.pins.complete {
        let message = "too many instances for an exact count; the numbers are lower bounds";
        warnings.push(message.to_owned());
    }

    // The lints cover definitions with steps.
    let others = context
        .new
        .iter()
        .filter(|definition| definition.compiled.is_none());
    warnings.extend(others.flat_map(|definition| childless(definition, context.usable)));
    warnings.extend(
        context
            .new
            .iter()
            .flat_map(|definition| misspelled_effects(definition, &context.providers)),
    );

    warnings.extend(
        context
            .new
            .iter()
            .filter_map(|definition| unknown_outcomes(definition, &context.providers)),
    );

    let lints = references::warnings(context.usable)
        .into_iter()
        .zip(context.usable);
    let lints =
        lints.filter(|(_, definition)| definition.context.as_ref() == context.providers.context);
    let lints = lints.flat_map(|(lints, _)| lints);

    warnings.extend(lints.map(|warning| format!("{} [{}]", warning.diagnostic, warning.code)));
    warnings
}

/// Returns a warning if a version was deployed before with another content.
fn reused_version(changed: &DefinitionChange) -> Option<String> {
    let DefinitionChange {
        to:
            DefinitionSummary {
                saga,
                version,
                file,
                ..
            },
        from_version,
        ..
    } = changed;
    (from_version == version).then(|| {
        format!(
            "{file}: {saga} version {version} was deployed before with another content; use a new \
             version number to distinguish them"
        )
    })
}

/// Returns the unavailable requirements of live instances whose definitions are not among the new
/// ones.
pub(super) fn unmet_needs(context: &WarningContext<'_>) -> Vec<String> {
    let is_old = |owned: &OwnedProgram| {
        let hash = owned.program.definition_ref().hash;
        owned.context.as_ref() == context.providers.context
            && context
                .new
                .iter()
                .all(|new| new.program.definition_ref().hash != hash)
    };

    let mut warnings = Vec::new();
    for OwnedProgram { program, .. } in context.loaded.iter().filter(|owned| is_old(owned)) {
        let reference = program.definition_ref();
        let live = context.pins.of(&reference.hash).live;

        // Ended instances request nothing any more.
        if live == 0 {
            continue;
        }

        let saga = &reference.saga;
        let version = reference.version;
        let hash = &hex::encode(reference.hash)[..8];
        let instances = if live == 1 {
            "1 live instance".to_owned()
        } else {
            format!("{live} live instances")
        };

        warnings.extend(
            missing(program.as_ref(), context).map(|(requirement, remedy)| {
                format!(
                    "{saga} version {version} ({hash}) has {instances} that may request \
                 {requirement}: {remedy}, migrate them with `orlog migrate {saga} --from \
                 {version}`, or wait until they end"
                )
            }),
        );
    }

    warnings
}

/// Returns the unavailable requirements of a program, each with a remedy.
fn missing<'a>(
    program: &'a dyn Program,
    context: &'a WarningContext<'_>,
) -> impl Iterator<Item = (String, String)> + 'a {
    let manifest = program.manifest();
    let performs = |kind, name: &str| context.providers.executor(kind, name).is_some();
    let effects = manifest
        .effects
        .iter()
        .filter(move |effect| !performs(WorkKind::Effect, effect.as_str()));
    let effects = effects.map(|effect| {
        let requirement = format!("the effect {effect}, which no upstream executes any more");
        (
            requirement,
            format!("add [upstreams.<name>.effects.\"{effect}\"] to the configuration again"),
        )
    });

    // The name of a command is that of its aggregate type, a dot, and its own.
    let aggregate = |command: &str| {
        command
            .rsplit_once('.')
            .map_or(command, |(of, _)| of)
            .to_owned()
    };

    let commands = manifest
        .commands
        .iter()
        .filter(move |command| !performs(WorkKind::Command, &aggregate(command)));
    let commands = commands.map(|command| {
        let requirement = format!("the command {command}, which has no gateway");
        (
            requirement,
            "add [gateway] to the configuration again".to_owned(),
        )
    });

    let sagas = manifest
        .sagas
        .iter()
        .filter(|saga| !has(context.usable, saga))
        .map(|saga| {
            (
                format!("the saga {saga}, which has no active definition"),
                format!("deploy a definition of {saga}"),
            )
        });
    effects.chain(commands).chain(sagas)
}

/// Returns a warning for each child saga of a new definition that has no definition.
fn childless<'a>(
    definition: &'a LoadedDefinition,
    usable: &'a [LoadedDefinition],
) -> impl Iterator<Item = String> + 'a {
    let missing = definition
        .program
        .manifest()
        .sagas
        .iter()
        .filter(|saga| !has(usable, saga));
    missing.map(|saga| {
        let parent = &definition.program.definition_ref().saga;
        format!(
            "{parent} may start the saga {saga}, which has no definition; deploy one before it is \
             required"
        )
    })
}

/// Returns a warning about the effects with a compensation whose upstream cannot report whether it
/// executed an attempt. Then the compensation of a step that was not executed can be requested.
fn unknown_outcomes(definition: &LoadedDefinition, providers: &Providers<'_>) -> Option<String> {
    let steps = &definition.compiled.as_ref()?.definition().steps;
    let compensated = steps
        .iter()
        .filter(|step| step.compensate.is_some() && step.in_doubt != Some(InDoubtPolicy::Ask));
    let effects = compensated.filter_map(|step| match &step.action {
        Action::Effect(effect) => Some(&effect.name),
        _ => None,
    });

    let effects: BTreeSet<_> = effects
        .filter(|effect| {
            // Only development nodes have the stand-in.
            if availability::has_stand_in(effect, providers.catalog) {
                return false;
            }
            let executor = providers.executor(WorkKind::Effect, effect.as_str());
            executor.is_some_and(|executor| !executor.upstream().provider.can_probe(effect))
        })
        .collect();

    let saga = &definition.program.definition_ref().saga;
    (!effects.is_empty()).then(|| {
        let effects = effects
            .into_iter()
            .map(EffectName::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        format!(
            "{saga}: the upstreams of {effects} cannot report whether they executed an attempt; \
             if that stays unknown, the `undo` of the step is executed, and it must succeed if \
             there is nothing to undo; or set `in_doubt: ask`"
        )
    })
}

/// Returns a warning for each effect that only the stand-in executes, while a configured upstream
/// has a similar effect.
fn misspelled_effects<'a>(
    definition: &'a LoadedDefinition,
    providers: &'a Providers<'a>,
) -> impl Iterator<Item = String> + 'a {
    let effects = &definition.program.manifest().effects;
    let replaced = effects
        .iter()
        .filter(|effect| availability::has_stand_in(effect, providers.catalog));

    replaced.filter_map(|effect| {
        let advice = providers.similar_effect(effect.as_str())?;
        let saga = &definition.program.definition_ref().saga;
        Some(format!(
            "{saga}: no configured upstream executes the effect {effect}, so the stand-in executes \
             it; {advice}"
        ))
    })
}

fn has(definitions: &[LoadedDefinition], saga: &SagaName) -> bool {
    definitions
        .iter()
        .any(|definition| definition.program.definition_ref().saga == *saga)
}
