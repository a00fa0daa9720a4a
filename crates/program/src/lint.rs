//! Lints: warnings about definitions that are valid but questionable. Never errors.
//!
//! Each rule has a stable code; docs/definitions.md explains them. A comment on the line before the
//! location suppresses a rule, with a reason: `# orlog: allow OL03 because the request expires by
//! itself`.

mod conditions;
mod context;
mod failure;
mod fields;
mod flow;
mod group;
mod handlers;
mod loops;
mod names;
mod rules;
mod similar;
mod suppress;
mod texts;
mod values;
mod vars;

pub use context::LintWarning;
pub use failure::remains_after_failure;
pub use fields::DataSamples;
pub use group::{DefinitionGroup, GroupMember};

#[cfg(test)]
mod tests;
