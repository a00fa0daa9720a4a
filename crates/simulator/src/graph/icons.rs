//! Icons of the action kinds, 16 by 16 units.

/// Icon of an action kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Icon {
    /// Command to an aggregate.
    Command,
    /// Effect.
    Effect,
    /// Wait for a time.
    Wait,
    /// Wait for an event.
    Event,
    /// Human task.
    Human,
    /// Child saga.
    Saga,
    /// Job.
    Job,
}

impl Icon {
    /// Returns the outline as the `d` attribute of a path.
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

    /// Returns the text alternative for screen readers.
    pub(super) fn alt_text(self) -> &'static str {
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
