//! Commands: requests to an aggregate, confirmed by acceptance or by an event.

use orlog_model::{Command, Confirmation, Name, Work};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
    UsedName,
};
use super::values::{identifier, payload};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::EvalError;
use crate::language::{Decoder, FieldSchema, Fields, Template as Any, Text, may, must};
use crate::template::Template;

/// Command to an aggregate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandAction {
    /// Aggregate type, for example `inventory`.
    pub aggregate_type: Name,
    /// Command name, for example `ReserveStock`.
    pub name: Name,
    /// Template of the aggregate id. Default: the correlation id.
    #[serde(default)]
    pub id: Option<Value>,
    /// Template of the payload.
    #[serde(default)]
    pub data: Value,
}

impl CommandAction {
    /// Creates a command from its name, written as `aggregate.Command`.
    pub(crate) fn new(name: &str) -> Result<Self, RawDiagnostic> {
        let (aggregate_type, name) = split_command(name)?;
        Ok(Self {
            aggregate_type,
            name,
            id: None,
            data: Value::Null,
        })
    }
}

/// Splits `inventory.ReserveStock` into aggregate type and command.
pub(crate) fn split_command(text: &str) -> Result<(Name, Name), RawDiagnostic> {
    let parts = text
        .rsplit_once('.')
        .filter(|(aggregate, name)| !aggregate.is_empty() && !name.is_empty());
    let Some((aggregate, name)) = parts else {
        let message = format!("`{text}` is not a command");
        return Err(RawDiagnostic::new("", message)
            .with_suggestion("write the aggregate and the command, as in inventory.ReserveStock"));
    };

    let checked = Name::new(aggregate).and_then(|aggregate| Ok((aggregate, Name::new(name)?)));
    checked.map_err(|error| RawDiagnostic::new("", error.to_string()))
}

impl ActionForm for CommandAction {
    const TRAITS: KindTraits = KindTraits {
        changes: true,
        in_handlers: true,
        ..KindTraits::new("a command", Completion::Acceptance)
    };
    const FIELDS: &'static [FieldSchema] = &[
        must::<Text>(
            "command",
            "Command to an aggregate, for example `inventory.ReserveStock`.",
        ),
        may::<Any>("id", "Id of the aggregate. Default: the correlation id."),
        may::<Any>("data", "The payload."),
    ];
    type Compiled = CompiledCommand;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        let (node, path) = fields.get("command")?;
        let command = Self::new(decoder.text(node, &path)?);
        let command = command
            .map_err(|finding| decoder.report(RawDiagnostic { path, ..finding }))
            .ok()?;

        let data = fields.template("data").unwrap_or_default();
        Some(Self {
            id: fields.template("id"),
            data,
            ..command
        })
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledCommand {
        CompiledCommand {
            aggregate_type: self.aggregate_type.clone(),
            name: self.name.clone(),
            id: compiler.optional_field(site, "id", self.id.as_ref()),
            data: compiler.field(site, "data", &self.data),
        }
    }
}

impl DefinedAction for CommandAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        let aggregate = UsedName::new("aggregate", self.aggregate_type.as_str(), "command");
        vec![
            aggregate,
            UsedName::new("command", self.name.as_str(), "command"),
        ]
    }
}

/// Compiled command.
#[derive(Debug)]
pub(crate) struct CompiledCommand {
    aggregate_type: Name,
    name: Name,
    id: Option<Template>,
    data: Template,
}

impl CompiledKind for CompiledCommand {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        let aggregate_id = match &self.id {
            None => context.key.correlation.to_string(),
            Some(id) => identifier("an aggregate id", &id.evaluate(context.bindings)?)?,
        };

        // With an `ok` event, acceptance decides nothing: the event is the result.
        let confirmation = if context.options.ok.is_empty() {
            Confirmation::Acceptance
        } else {
            Confirmation::RejectionOnly
        };

        Ok(Request::Work(Box::new(Work::Command(Command {
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id,
            name: self.name.clone(),
            payload: payload(&self.data, context.tag, context.bindings)?,
            confirmation,
            timeout: context.limits.timeout,
            tag: context.tag.clone(),
            round: context.round,
            priority: context.options.priority.evaluate(context.bindings)?,
        }))))
    }
}
