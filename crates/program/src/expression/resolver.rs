//! Resolver of the names of an expression for CEL: the bindings of a definition.

use cel::common::value::CowVal;
use cel::context::VariableResolver;
use serde_json::{Map, Value};

use super::json::{wrap, wrap_map};
use super::root::{EVENTS, INDEX, REMINDER, ROUND, Root};

/// Received message, outside definitions.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) body: &'a Value,
    pub(super) headers: &'a Value,
}

/// List element, its name in the definition, and its position.
pub(super) struct Element<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a Value,
    pub(super) index: Value,
}

/// Resolver of bindings for CEL. The parts are borrowed from [`Bindings`].
pub(super) struct Resolver<'a> {
    pub(super) vars: Option<&'a Map<String, Value>>,
    pub(super) event: Option<&'a Value>,
    pub(super) envelope: Option<&'a Value>,
    pub(super) failure: Option<&'a Value>,
    pub(super) key: Option<&'a Value>,
    pub(super) results: &'a Map<String, Value>,
    pub(super) element: Option<&'a Element<'a>>,
    pub(super) round: Option<&'a Value>,
    pub(super) events: Option<&'a Value>,
    pub(super) reminder: Option<&'a Value>,
    pub(super) message: Option<Message<'a>>,
}

impl VariableResolver for Resolver<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let owned = |value: &'b Value| CowVal::Owned(wrap(value));
        match (self.element, self.round) {
            (Some(element), _) if element.name == variable => return Some(owned(element.value)),
            (Some(element), _) if variable == INDEX => return Some(owned(&element.index)),
            (_, Some(round)) if variable == ROUND => return Some(owned(round)),
            (_, _) => {}
        }

        if let Some(events) = self.events.filter(|_| variable == EVENTS) {
            return Some(owned(events));
        }
        if let Some(reminder) = self.reminder.filter(|_| variable == REMINDER) {
            return Some(owned(reminder));
        }

        // A received message has no instance, so the names of definitions do not exist here.
        if let Some(message) = self.message {
            return [(Root::Body, message.body), (Root::Headers, message.headers)]
                .into_iter()
                .find(|(root, _)| root.name() == variable)
                .map(|(_, value)| owned(value));
        }

        match Root::named(variable)? {
            Root::Vars => self.vars.map(|vars| CowVal::Owned(wrap_map(vars))),
            Root::Event => self.event.map(owned),
            Root::Envelope => self.envelope.map(owned),
            Root::Failure => self.failure.map(owned),
            Root::Key => self.key.map(owned),
            Root::Results => Some(CowVal::Owned(wrap_map(self.results))),
            Root::Element
            | Root::Index
            | Root::Round
            | Root::Events
            | Root::Reminder
            | Root::Body
            | Root::Headers => None,
        }
    }
}
