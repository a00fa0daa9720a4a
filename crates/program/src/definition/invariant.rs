//! Invariants that a definition states about its runs.

use crate::language::{Condition, Text, language_map};

language_map! {
    /// Invariant of the runs of a saga, which `orlog test`, `explore`, `prove` and `simulate` check.
    /// It does not change how an instance runs.
    pub struct InvariantSpec as "invariant" {
        must "name" name: String = Text, "Name of the invariant, for reports.";
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "never" never: Option<String> = Condition,
            "Condition over `steps`, `status` and `vars` that holds after no transition.";
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "always" always: Option<String> = Condition,
            "Condition over `steps`, `status` and `vars` that holds at the end of every run.";
    }
}
