//! Effects: calls to an external system, executed by a provider.

use orlog_model::{Effect, EffectName, Work};
use serde_json::Value;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
    UsedName,
};
use super::values::payload;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::EvalError;
use crate::language::{Count, Decoder, FieldSchema, Fields, Id, Template as Any, language_map};
use crate::template::Template;
use crate::versions::{CompiledVersions, UnsupportedVersionPolicy, VersionSpec};

language_map! {
    /// Effect: a call to an external system.
    pub struct EffectAction as "effect" {
        must "effect" name: EffectName = Id<EffectName>,
            "Effect to execute, for example `payments.charge`.";
        #[serde(default)]
        may_or_default "data" data: Value = Any, "The payload.";
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "version" version: Option<u32> = Count<1>, "Schema version of `data`. Default: 1.";
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "responses" responses: Option<VersionSpec> = VersionSpec,
            "Accepted schema versions of the response. Default: all, without conversion.";
    }
}

impl ActionForm for EffectAction {
    const TRAITS: KindTraits = KindTraits {
        is_effect: true,
        changes: true,
        in_handlers: true,
        ..KindTraits::new("an effect", Completion::Outcome)
    };
    const FIELDS: &'static [FieldSchema] = Self::MAP.fields;
    type Compiled = CompiledEffect;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        Self::read(decoder, fields)
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledEffect {
        let responses = self.responses.as_ref().map(|versions| {
            let path = format!("{}.responses", site.path);
            // No other response follows, so the step would wait for ever.
            if versions.on_unsupported == UnsupportedVersionPolicy::Ignore {
                let finding = RawDiagnostic::new(
                    format!("{path}.on_unsupported"),
                    "a response cannot be ignored",
                );
                compiler.report(finding.with_suggestion("use `compensate` or `dead_letter`"));
            }
            for finding in versions.check(&path) {
                compiler.report(finding);
            }
            versions.compile(compiler, &path)
        });

        let data = compiler.field(site, "data", &self.data);
        CompiledEffect {
            name: self.name.clone(),
            data,
            version: self.version.unwrap_or(1),
            responses,
        }
    }
}

impl EffectAction {
    /// Creates an effect without data.
    pub(crate) fn new(name: EffectName) -> Self {
        Self {
            name,
            data: Value::Null,
            version: None,
            responses: None,
        }
    }
}

impl DefinedAction for EffectAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        vec![UsedName::new("effect", self.name.as_str(), "effect")]
    }
}

/// Compiled effect.
#[derive(Debug)]
pub(crate) struct CompiledEffect {
    name: EffectName,
    data: Template,
    /// Schema version of the data.
    version: u32,
    responses: Option<CompiledVersions>,
}

impl CompiledKind for CompiledEffect {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        let payload = payload(&self.data, context.tag, context.bindings)?;
        Ok(Request::Work(Box::new(effect_work(
            &self.name,
            self.version,
            payload,
            context,
        )?)))
    }

    fn effect(&self) -> Option<(&EffectName, &Template)> {
        Some((&self.name, &self.data))
    }

    fn responses(&self) -> Option<&CompiledVersions> {
        self.responses.as_ref()
    }
}

/// Creates the work of an effect; its data has the version.
pub(super) fn effect_work(
    name: &EffectName,
    schema_version: u32,
    payload: Value,
    context: &RequestContext<'_>,
) -> Result<Work, EvalError> {
    Ok(Work::Effect(Effect {
        name: name.clone(),
        payload,
        timeout: context.limits.timeout,
        retry: context.limits.retry,
        in_doubt: context.options.in_doubt,
        tag: context.tag.clone(),
        round: context.round,
        priority: context.options.priority.evaluate(context.bindings)?,
        schema_version,
    }))
}
