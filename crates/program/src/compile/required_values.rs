//! Values that a compensation must not replace by null: what its step, or a step before it, was to
//! save.

use std::collections::BTreeMap;

use crate::expression::ValueSource;

/// Steps that save a value from their results, by its name, such as `vars.chargeId`.
#[derive(Debug, Default)]
pub(crate) struct SavingSteps {
    by_name: BTreeMap<String, Vec<usize>>,
}

/// Values that one compensation requires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequiredValues<'a> {
    pub(crate) saving: &'a SavingSteps,
    /// For each step, whether it is the step of the compensation, or before it.
    pub(crate) earlier: &'a [bool],
    /// Variables that may be null.
    pub(crate) allowed: &'a [String],
}

impl SavingSteps {
    /// Adds a step that saves the value of this name.
    pub(super) fn add(&mut self, name: String, step: usize) {
        self.by_name.entry(name).or_default().push(step);
    }
}

impl RequiredValues<'_> {
    pub(super) fn contains(&self, source: &ValueSource) -> bool {
        let name = source.name();
        let is_allowed = name
            .strip_prefix("vars.")
            .is_some_and(|variable| self.allowed.iter().any(|allowed| allowed == variable));
        let saving = self
            .saving
            .by_name
            .get(&name)
            .map_or(&[][..], Vec::as_slice);
        // Without an order, the compiled saga is dropped.
        let mut earlier = saving.iter().filter_map(|step| self.earlier.get(*step));
        !is_allowed && earlier.any(|is_earlier| *is_earlier)
    }
}
