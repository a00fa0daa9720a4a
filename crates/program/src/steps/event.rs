//! Awaited events: a step that completes with an unsolicited event or a signal, or with several of
//! them.

use orlog_model::EventType;
use serde_json::{Map, Value};

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
    UsedName,
};
use crate::compile::expressions::{ExpressionCompiler, ExpressionScope, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{EVENTS, EvalError, Expression};
use crate::language::{
    Condition, Count, Decoder, FieldSchema, Fields, Id, OneOrList, language_map,
};
use crate::limits::MAX_COLLECTED_EVENTS;

language_map! {
    /// Wait for an unsolicited event or a signal.
    pub struct EventAction as "event" {
        must "event" events: Vec<EventType> = OneOrList<Id<EventType>>,
            "Event or signal to wait for; any one of a list.";
        may "when" when: Option<String> = Condition,
            "Condition over `event`, `envelope` and `vars`.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "count" count: Option<u32> = Count<1>,
            "Number of events to wait for, at most 1000. Their payloads are `events` in `save`. \
             Default: 1.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "until" until: Option<String> = Condition,
            "Condition over `events`, the payloads so far, that ends the wait; evaluated after \
             each event.";
    }
}

impl EventAction {
    /// Returns whether the step waits for several events.
    #[must_use]
    pub fn collects(&self) -> bool {
        self.count.is_some() || self.until.is_some()
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
            compiler.report(RawDiagnostic::new(
                format!("{}.event", site.path),
                "no event is awaited",
            ));
        }

        if self.count.is_some() && self.until.is_some() {
            let finding = RawDiagnostic::new(
                format!("{}.until", site.path),
                "`count` already ends the wait",
            );
            compiler.report(finding.with_suggestion("write until: =size(events) >= 3 && …"));
        }

        let count = self
            .count
            .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        if count.is_some_and(|count| !(1..=MAX_COLLECTED_EVENTS).contains(&count)) {
            let message = format!("the count must be 1 to {MAX_COLLECTED_EVENTS}");
            compiler.report(RawDiagnostic::new(format!("{}.count", site.path), message));
        }

        let path = format!("{}.until", site.path);
        let scope = Site {
            scope: ExpressionScope::Result,
            collects: true,
            ..site.at(&path)
        };
        let until = compiler.condition(scope, self.until.as_ref());

        // The templates of `save` are not compiled yet; `keep_data_for` adds what they read.
        let collection = CompiledCollection {
            count,
            until,
            keeps_data: self.until.is_some(),
        };

        CompiledEvent {
            collection: self.collects().then_some(collection),
        }
    }
}

impl DefinedAction for EventAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        let events = self.events.iter().enumerate();
        events
            .map(|(n, event)| UsedName::new("event", event.as_str(), &format!("event[{n}]")))
            .collect()
    }
}

/// Compiled awaited event; its events are the `ok` of the action.
#[derive(Debug)]
pub(crate) struct CompiledEvent {
    pub(crate) collection: Option<CompiledCollection>,
}

/// End of the wait for several events.
#[derive(Debug)]
pub(crate) struct CompiledCollection {
    pub(crate) count: Option<usize>,
    pub(crate) until: Option<Expression>,
    /// Whether an expression may read the payloads.
    pub(crate) keeps_data: bool,
}

impl CompiledEvent {
    /// Keeps the payloads if a template of `save` may read them.
    pub(crate) fn keep_data_for(&mut self, save: &Map<String, Value>) {
        if let Some(collection) = &mut self.collection {
            collection.keeps_data |= save.values().any(mentions_events);
        }
    }
}

fn mentions_events(template: &Value) -> bool {
    match template {
        // A search in the text is enough: a false match only stores payloads that no expression
        // reads.
        Value::String(text) => text.starts_with('=') && text.contains(EVENTS),
        Value::Array(items) => items.iter().any(mentions_events),
        Value::Object(fields) => fields.values().any(mentions_events),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl CompiledKind for CompiledEvent {
    fn request(&self, _: &RequestContext<'_>) -> Result<Request, EvalError> {
        Ok(Request::Nothing)
    }
}
