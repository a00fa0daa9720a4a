//! Restarts: a step that ends the run of the instance and begins a new one with new start data.

use orlog_model::{EventType, Name};
use serde_json::Value;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
    UsedName,
};
use super::values::payload;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::expression::{Bindings, EvalError};
use crate::language::{Decoder, FieldSchema, Fields, Id, Template as Any, language_map};
use crate::template::Template;

language_map! {
    /// End of a run and begin of a new run of the same instance.
    pub struct RestartAction as "restart" {
        must "restart_as_new" event: EventType = Id<EventType>,
            "Start event of this saga with which a new run of the instance begins. The run must \
             have no pending work.";
        #[serde(default)]
        may_or_default "data" data: Value = Any, "Data of the start event.";
    }
}

impl ActionForm for RestartAction {
    const TRAITS: KindTraits = KindTraits::new("a restart", Completion::None);
    const FIELDS: &'static [FieldSchema] = Self::MAP.fields;
    type Compiled = CompiledRestart;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        Self::read(decoder, fields)
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledRestart {
        CompiledRestart {
            data: compiler.field(site, "data", &self.data),
        }
    }
}

impl DefinedAction for RestartAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        vec![UsedName::new(
            "event",
            self.event.as_str(),
            "restart_as_new",
        )]
    }
}

/// Compiled restart.
#[derive(Debug)]
pub(crate) struct CompiledRestart {
    data: Template,
}

impl CompiledRestart {
    /// Returns the data of the start event of the new run.
    pub(crate) fn data(&self, tag: &Name, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
        payload(&self.data, tag, bindings)
    }
}

impl CompiledKind for CompiledRestart {
    fn request(&self, _: &RequestContext<'_>) -> Result<Request, EvalError> {
        Ok(Request::Nothing)
    }
}
