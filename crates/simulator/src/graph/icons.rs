//! Small drawings for the kinds of steps, sixteen units wide and high.

/// What a step asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Icon {
    /// An aggregate.
    Command,
    /// The world.
    Effect,
    /// Time.
    Wait,
    /// An event.
    Event,
    /// A person.
    Human,
    /// Another saga.
    Saga,
    /// A script.
    Job,
}

impl Icon {
    /// The outline, as the `d` of a path.
    pub(super) fn path(self) -> &'static str {
        match self {
            Icon::Command => "M2 3h12v10H2z M5 6l3 2-3 2 M9 11h3",
            Icon::Effect => "M9 1L3 9h5l-1 6 6-8H8z",
            Icon::Wait => "M8 2a6 6 0 1 0 .01 0z M8 5v3.2l2.4 1.6",
            Icon::Event => "M2 4h12v9H2z M2 4.5l6 4.5 6-4.5",
            Icon::Human => "M8 2a3 3 0 1 0 .01 0z M2.5 15c0-4 2.5-6 5.5-6s5.5 2 5.5 6",
            Icon::Saga => "M2 2h8v8H2z M6 10v4h8V6h-4",
            Icon::Job => "M5 4L1.5 8 5 12 M11 4l3.500 4L11 12 M9.500 3l-3 10",
        }
    }

    /// What it says to those who do not see it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Icon::Command => "command",
            Icon::Effect => "effect",
            Icon::Wait => "wait",
            Icon::Event => "event",
            Icon::Human => "task",
            Icon::Saga => "saga",
            Icon::Job => "job",
        }
    }
}
