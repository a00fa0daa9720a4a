//! The names an expression can begin with.

/// The place of an element.
pub(crate) const INDEX: &str = "index";

/// The roots of an expression: what it may speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Root {
    Vars,
    Event,
    Failure,
    Key,
    /// What jobs gave, by step.
    Results,
    /// The element of a `foreach`, under the name its definition gives it.
    Element,
    /// The place of that element, from 0.
    Index,
}

impl Root {
    /// Those that go by a name of their own; elements are named by the definition.
    pub(crate) const ALL: [Root; 5] = [Root::Vars, Root::Event, Root::Failure, Root::Key, Root::Results];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Root::Vars => "vars",
            Root::Event => "event",
            Root::Failure => "failure",
            Root::Key => "key",
            Root::Results => "results",
            Root::Element => "the element",
            Root::Index => INDEX,
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.name() == name)
    }
}
