//! What a rule says.

use crate::diagnostic::Problem;

/// What a rule objects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The rule, for example `OL03`.
    pub code: &'static str,
    /// Where, what, and what would do.
    pub problem: Problem,
}
