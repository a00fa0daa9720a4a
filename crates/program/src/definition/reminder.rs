//! Reminders of a step: a command or an effect that is requested repeatedly while the step waits.

use std::time::Duration;

use super::action::AnyAction;
use crate::language::{Count, Period, language_map};
use crate::steps::Action;

language_map! {
    /// Reminders of a step that waits.
    pub struct ReminderSpec as "remind" {
        must "every" every: Duration = Period,
            "Time between two reminders, and before the first one.";
        must "max" max: u32 = Count<1>, "Maximum number of reminders, 1 to 1000.";
        must "do" action: Action = AnyAction,
            "Command or effect to request; its result is not awaited. It can read `reminder`, the \
             number of the reminder from 1.";
    }
}
