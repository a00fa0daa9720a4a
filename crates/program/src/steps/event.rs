//! Awaited events: a step that completes with an unsolicited event or a signal.

use orlog_model::EventType;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext, UsedName,
};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::EvalError;
use crate::language::{Condition, Decoder, FieldSchema, Fields, Id, OneOrList, language_map};

language_map! {
    /// Wait for an unsolicited event or a signal.
    pub struct EventAction as "event" {
        must "event" events: Vec<EventType> = OneOrList<Id<EventType>>,
            "Event or signal to wait for; any one of a list.";
        may "when" when: Option<String> = Condition, "Condition over `event`, `envelope` and `vars`.";
    }
}

impl ActionForm for EventAction {
    const LABEL: &'static str = "an event";
    const TRAITS: KindTraits = KindTraits::new("an awaited event", Completion::Event);
    const FIELDS: &'static [FieldSchema] = Self::MAP.fields;
    type Compiled = CompiledEvent;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        Self::read(decoder, fields)
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledEvent {
        if self.events.is_empty() {
            compiler.report(RawDiagnostic::new(format!("{}.event", site.path), "no event is awaited"));
        }
        CompiledEvent
    }
}

impl DefinedAction for EventAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        let events = self.events.iter().enumerate();
        events.map(|(n, event)| UsedName::new("event", event.as_str(), &format!("event[{n}]"))).collect()
    }
}

/// Compiled awaited event; its events are the `ok` of the action.
#[derive(Debug)]
pub(crate) struct CompiledEvent;

impl CompiledKind for CompiledEvent {
    fn request(&self, _: &RequestContext<'_>) -> Result<Request, EvalError> {
        Ok(Request::Nothing)
    }
}
