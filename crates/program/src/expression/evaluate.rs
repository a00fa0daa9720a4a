//! Evaluation of an expression outside a definition, for tools and for tests of the language.

use cel::common::value::CowVal;
use cel::context::VariableResolver;
use serde_json::{Map, Value};

use super::check::{self, NameResolution};
use super::functions::environment;
use super::json::wrap;
use super::{cost, output, run};

/// Free variables under their own names.
pub(super) struct FreeVariables<'a>(pub(super) &'a Map<String, Value>);

impl VariableResolver for FreeVariables<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        self.0.get(variable).map(|value| CowVal::Owned(wrap(value)))
    }
}

/// Evaluates an expression outside a definition, with `variables` as its names: for tools and for
/// tests of the language. Checks, limits and JSON conversion equal those of an expression in a
/// definition.
///
/// # Errors
/// The reason of the rejection or of the evaluation error.
pub fn evaluate(source: &str, variables: &Map<String, Value>) -> Result<Value, String> {
    let names: Vec<_> = variables.keys().map(String::as_str).collect();
    let parsed = check::parse(environment(), source, NameResolution::Free(&names));
    let parsed = parsed.map_err(|rejection| {
        rejection.into_iter().next().map_or_else(
            || "the expression is invalid".to_owned(),
            |rejection| rejection.message,
        )
    })?;

    cost::evaluate(None, || {
        run(&parsed, &FreeVariables(variables), output::to_json)
    })
}
