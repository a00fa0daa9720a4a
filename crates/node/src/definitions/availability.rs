//! Validation that every effect, command and saga of a definition is available.

use std::sync::Arc;

use orlog_effect::{Catalog, EffectExecutor, UpstreamScope};
use orlog_model::{Destination, EffectName, Priority, TenantId, WorkKind};
use orlog_program::{Action, CommandAction, Diagnostic};

use super::files::LoadedDefinition;
use crate::config::similar_name;
use crate::upstreams::STAND_IN_UPSTREAM;

const NO_GATEWAY: &str = "no gateway is configured";

/// Upstreams that the definitions of an owner may use.
#[derive(Clone, Copy)]
pub struct Providers<'a> {
    /// Upstreams of the node.
    pub catalog: &'a Catalog,
    /// Context that owns the definitions; `None`: they are shared, and may use all upstreams.
    pub context: Option<&'a TenantId>,
}

impl Providers<'_> {
    /// Returns an executor for work with this name; of a context, the one that executes the work of
    /// its tenant, if the definitions of the context may use it.
    pub(super) fn executor(&self, kind: WorkKind, name: &str) -> Option<Arc<EffectExecutor>> {
        let Some(context) = self.context else {
            return self.catalog.executor_for_name(kind, name);
        };

        let tenant = context.clone();
        let to = name.into();
        let destination = Destination {
            kind,
            tenant,
            name: to,
            priority: Priority::Normal,
        };

        self.catalog
            .executor_for(&destination)
            // An upstream executes work of the definitions of a context only with its permission.
            .filter(|executor| executor.upstream().permits(context, name))
    }

    /// Returns `did you mean …?` if an upstream executes an effect with a similar name.
    #[must_use]
    pub fn similar_effect(&self, effect: &str) -> Option<String> {
        let effects = self.catalog.effects();
        let effects = effects.iter().map(|(name, _)| name.as_str());
        let usable = effects.filter(|name| self.executor(WorkKind::Effect, name).is_some());
        let nearest = similar_name(effect, usable)?;
        Some(format!("did you mean `{nearest}`?"))
    }
}

/// Returns a diagnostic for each requested effect or command that no upstream provides.
pub(super) fn missing_providers(
    definition: &LoadedDefinition,
    providers: &Providers<'_>,
) -> Vec<Diagnostic> {
    // Only YAML has steps with lines, to which a diagnostic can point.
    let Some(compiled) = &definition.compiled else {
        return missing_work(definition, providers);
    };

    let mut problems = Vec::new();
    for (index, step) in compiled.definition().steps.iter().enumerate() {
        let compensation = step
            .compensate
            .as_ref()
            .map(|compensation| ("undo", &compensation.action));
        let reminder = step
            .remind
            .as_ref()
            .map(|remind| ("remind.do", &remind.action));
        let actions = std::iter::once(("do", &step.action)).chain(compensation);
        for (field, action) in actions.chain(reminder) {
            if let Some((message, suggestion)) = missing_provider_of(action, providers) {
                let path = format!("steps[{index}].{field}");
                let message = format!("step `{}`: {message}", step.id);
                problems.push(compiled.diagnostic(
                    &file_of(definition),
                    &path,
                    message,
                    suggestion,
                ));
            }
        }
    }

    if problems.is_empty() && providers.context.is_some() {
        // Permission must not depend on where a definition requests work.
        problems = missing_work(definition, providers);
    }

    problems
}

fn missing_work(definition: &LoadedDefinition, providers: &Providers<'_>) -> Vec<Diagnostic> {
    let manifest = definition.program.manifest();
    let effects = manifest
        .effects
        .iter()
        .filter_map(|effect| missing_executor(effect.as_str(), providers));

    // A shared definition without steps may list commands that it never sends.
    let commands = manifest
        .commands
        .iter()
        .filter(|_| providers.context.is_some());
    let commands = commands.filter_map(|command| {
        let aggregate_type = command
            .rsplit_once('.')
            .map_or(command.as_str(), |(aggregate_type, _)| aggregate_type);
        missing_gateway(aggregate_type, command, providers)
    });

    effects
        .chain(commands)
        .map(|(message, suggestion)| {
            let file = file_of(definition);
            let suggestion = Some(suggestion);

            Diagnostic {
                file,
                line: 0,
                column: 0,
                path: String::new(),
                message,
                suggestion,
            }
        })
        .collect()
}

fn file_of(definition: &LoadedDefinition) -> String {
    match &definition.file {
        Some(file) => file.display().to_string(),
        None => format!("saga {}", definition.program.definition_ref().saga),
    }
}

fn missing_provider_of(action: &Action, providers: &Providers<'_>) -> Option<(String, String)> {
    match action {
        Action::Effect(effect) => missing_executor(effect.name.as_str(), providers),
        Action::Command(CommandAction {
            aggregate_type,
            name,
            ..
        }) => missing_gateway(
            aggregate_type.as_str(),
            &format!("{aggregate_type}.{name}"),
            providers,
        ),
        Action::Job(job) => missing_executor(&format!("job.{}", job.kind), providers),
        Action::Wait(_)
        | Action::Event(_)
        | Action::Human(_)
        | Action::Saga(_)
        | Action::Switch(_)
        | Action::Repeat(_)
        | Action::Restart(_) => None,
    }
}

fn missing_gateway(
    aggregate_type: &str,
    command: &str,
    providers: &Providers<'_>,
) -> Option<(String, String)> {
    if providers
        .executor(WorkKind::Command, aggregate_type)
        .is_some()
    {
        return None;
    }

    Some(match providers.context {
        None => (
            format!("the command {command} cannot be sent: {NO_GATEWAY}"),
            "add [gateway] with its base_url to the configuration".to_owned(),
        ),
        Some(context) => (
            format!(
                "the command {command} cannot be sent: no gateway sends commands for definitions \
                 of the context {context}"
            ),
            permission_needed(context, "[gateway]"),
        ),
    })
}

/// Returns the remedy of a context. It does not reveal whether the node has the upstream.
fn permission_needed(context: &TenantId, upstream: &str) -> String {
    format!("ask an administrator of the node to add \"{context}\" to `contexts` of {upstream}")
}

fn missing_executor(effect: &str, providers: &Providers<'_>) -> Option<(String, String)> {
    if providers.executor(WorkKind::Effect, effect).is_some() {
        return None;
    }

    let similar = providers.similar_effect(effect);
    Some(match providers.context {
        None => (
            format!("no upstream executes the effect {effect}"),
            similar.unwrap_or_else(|| format!(
                "add [upstreams.<name>.effects.{effect:?}] with its path to the configuration, or \
                 run `orlog dev`: its stand-in executes the effect"
            )),
        ),
        Some(context) => (
            format!("no upstream executes the effect {effect} for definitions of the context \
                {context}"),
            similar.unwrap_or_else(|| permission_needed(context, "its upstream")),
        ),
    })
}

/// Returns whether the stand-in of `orlog dev` executes an effect, because no configured upstream
/// does.
pub fn has_stand_in(effect: &EffectName, catalog: &Catalog) -> bool {
    let executor = catalog.executor_for_name(WorkKind::Effect, effect.as_str());
    executor.is_some_and(|executor| {
        let upstream = executor.upstream();
        upstream.scope == UpstreamScope::Fallback && upstream.name == STAND_IN_UPSTREAM
    })
}
