//! Effects: calls to an external system, executed by a provider.

use orlog_model::{Effect, EffectName, Work};
use serde_json::Value;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext, UsedName,
};
use super::values::payload;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::expression::EvalError;
use crate::language::{Decoder, FieldSchema, Fields, Id, Template as Any, language_map};
use crate::template::Template;

language_map! {
    /// Effect: a call to an external system.
    pub struct EffectAction as "effect" {
        must "effect" name: EffectName = Id<EffectName>, "Effect to execute, for example `payments.charge`.";
        #[serde(default)]
        may_or_default "data" data: Value = Any, "The payload.";
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
        CompiledEffect { name: self.name.clone(), data: compiler.field(site, "data", &self.data) }
    }
}

impl DefinedAction for EffectAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        vec![UsedName::new("effect", self.name.as_str(), "effect")]
    }

    fn data_mut(&mut self) -> Option<&mut Value> {
        Some(&mut self.data)
    }
}

/// Compiled effect.
#[derive(Debug)]
pub(crate) struct CompiledEffect {
    name: EffectName,
    data: Template,
}

impl CompiledKind for CompiledEffect {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        let payload = payload(&self.data, context.tag, context.bindings)?;
        Ok(Request::Work(Box::new(effect_work(&self.name, payload, context)?)))
    }

    fn effect(&self) -> Option<(&EffectName, &Template)> {
        Some((&self.name, &self.data))
    }
}

/// Creates the work of an effect.
pub(super) fn effect_work(
    name: &EffectName,
    payload: Value,
    context: &RequestContext<'_>,
) -> Result<Work, EvalError> {
    Ok(Work::Effect(Effect {
        name: name.clone(),
        payload,
        timeout: context.options.timeout,
        retry: context.options.retry,
        in_doubt: context.options.in_doubt,
        tag: context.tag.clone(),
        round: context.round,
        priority: context.options.priority.evaluate(context.bindings)?,
    }))
}
