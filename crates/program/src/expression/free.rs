//! Conditions over free variables: those of invariants, which no definition binds.

use cel::common::types::CelBool;
use serde_json::{Map, Value};

use super::check::{self, CheckError, CheckedExpression, NameResolution};
use super::evaluate::FreeVariables;
use super::functions::environment;
use super::{cost, run};

/// A checked condition over named values.
#[derive(Debug)]
pub(crate) struct FreeCondition {
    parsed: CheckedExpression,
}

impl FreeCondition {
    /// Compiles and checks a condition that starts with these names only.
    pub(crate) fn compile(source: &str, names: &[&str]) -> Result<Self, Vec<CheckError>> {
        let parsed = check::parse(environment(), source, NameResolution::Free(names))?;
        Ok(Self { parsed })
    }

    /// Evaluates the condition. The error is the reason why it is neither true nor false.
    pub(crate) fn holds(&self, variables: &Map<String, Value>) -> Result<bool, String> {
        cost::evaluate(None, || {
            run(&self.parsed, &FreeVariables(variables), |value| {
                let condition = value.downcast_ref::<CelBool>().map(|b| *b.inner());
                condition.ok_or_else(|| {
                    format!(
                        "a condition must be true or false, but is {}",
                        value.get_type().name()
                    )
                })
            })
        })
    }
}
