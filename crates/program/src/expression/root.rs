//! Root names of expressions.

/// Name of the position of an element.
pub(crate) const INDEX: &str = "index";
/// Name of the number of a round.
pub(crate) const ROUND: &str = "round";

/// Name of the collected events.
pub(crate) const EVENTS: &str = "events";

/// Name of the number of a reminder.
pub(crate) const REMINDER: &str = "reminder";

/// Fields of `failure`.
pub(crate) const FAILURE_FIELDS: [&str; 3] = ["code", "message", "step"];

/// Roots of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Root {
    Vars,
    Event,
    /// Attributes of the event.
    Envelope,
    Failure,
    Key,
    /// Results of jobs, by step.
    Results,
    /// Element of a `foreach`, under the name in its definition.
    Element,
    /// Position of that element, from 0.
    Index,
    /// Number of the round of a loop, from 0.
    Round,
    /// Payloads of the events that a step has collected.
    Events,
    /// Number of a reminder, from 1.
    Reminder,
    /// Body of a received message, outside definitions.
    Body,
    /// Headers of that message.
    Headers,
}

impl Root {
    /// Roots of definitions with a fixed name; the definition names elements.
    pub(crate) const ALL: [Root; 6] = [
        Root::Vars,
        Root::Event,
        Root::Envelope,
        Root::Failure,
        Root::Key,
        Root::Results,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Root::Vars => "vars",
            Root::Event => "event",
            Root::Envelope => "envelope",
            Root::Failure => "failure",
            Root::Key => "key",
            Root::Results => "results",
            Root::Element => "the element",
            Root::Index => INDEX,
            Root::Round => ROUND,
            Root::Events => EVENTS,
            Root::Reminder => REMINDER,
            Root::Body => "body",
            Root::Headers => "headers",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.name() == name)
    }
}
