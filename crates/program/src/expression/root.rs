//! The names an expression can begin with.

/// The roots of an expression: what it may speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Root {
    Vars,
    Event,
    Failure,
    Key,
}

impl Root {
    pub(crate) const ALL: [Root; 4] = [Root::Vars, Root::Event, Root::Failure, Root::Key];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Root::Vars => "vars",
            Root::Event => "event",
            Root::Failure => "failure",
            Root::Key => "key",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|root| root.name() == name)
    }
}
