//! Foreach: a step that is executed once for each element of a list.

use orlog_model::Name;
use serde_json::Value;

use super::kind::{Completion, KindTraits, StartError};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};
use crate::expression::{Bindings, Expression, INDEX, Root, kind_of};
use crate::language::{Condition, Count, Text, language_map};
use crate::limits::{DEFAULT_FOREACH_CONCURRENCY, MAX_ELEMENTS};

language_map! {
    /// Execution of a step for each element of a list.
    pub struct Foreach as "foreach" {
        #[serde(rename = "in")]
        must "in" list: String = Condition,
            "Expression that returns a list of at most 1000 elements.";
        #[serde(rename = "as")]
        must "as" name: String = Text,
            "Variable name of an element; `index` is its position, from 0.";
        may "max_concurrency" max_concurrency: Option<u32> = Count<1>,
            "Maximum number of concurrent elements. Default: 10.";
    }
}

impl Foreach {
    /// Checks the constants of the step at `path`, whose action has these properties.
    pub(crate) fn check(
        &self,
        path: &str,
        is_pivot: bool,
        action: &KindTraits,
        findings: &mut RawDiagnostics,
    ) {
        let limit = self.max_concurrency.map(usize::try_from);
        if !matches!(limit, None | Some(Ok(1..=MAX_ELEMENTS))) {
            let message = format!("the concurrency must be 1 to {MAX_ELEMENTS}");
            findings.push(RawDiagnostic::new(
                format!("{path}.foreach.max_concurrency"),
                message,
            ));
        }

        let name = self.name.as_str();
        let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        // An element of this name would hide the root.
        let used = Root::named(name).is_some() || name == INDEX;
        if !is_identifier || used {
            let reason = if used {
                "is taken"
            } else {
                "is not a valid element name"
            };
            let finding =
                RawDiagnostic::new(format!("{path}.foreach.as"), format!("`{name}` {reason}"));
            findings.push(finding.with_suggestion("use a name such as `item`"));
        }

        if is_pivot && action.completion == Completion::Timer {
            findings.push(RawDiagnostic::new(
                format!("{path}.pivot"),
                "a wait cannot be a pivot",
            ));
        }
    }

    /// Returns the suggestion if an event without a condition does not identify its element.
    pub(crate) fn unidentified(&self) -> Option<String> {
        // Elements that are executed one after another take the events in order.
        (self.max_concurrency != Some(1))
            .then(|| format!("add a condition such as event.id == {}.id", self.name))
    }

    pub(crate) fn compile(
        &self,
        compiler: &mut ExpressionCompiler<'_>,
        site: Site<'_>,
    ) -> Option<CompiledForeach> {
        let list = compiler.condition(
            site.at(&format!("{}.foreach.in", site.path)),
            Some(&self.list),
        )?;
        let limit = self.max_concurrency.unwrap_or(DEFAULT_FOREACH_CONCURRENCY);
        let max_concurrency = usize::try_from(limit).unwrap_or(usize::MAX);
        Some(CompiledForeach {
            list,
            name: self.name.clone(),
            max_concurrency,
        })
    }
}

/// Compiled `foreach`.
#[derive(Debug)]
pub(crate) struct CompiledForeach {
    list: Expression,
    /// Name of an element in expressions.
    pub(crate) name: String,
    /// Maximum number of elements in progress.
    pub(crate) max_concurrency: usize,
}

impl CompiledForeach {
    /// Returns the elements.
    pub(crate) fn elements(&self, bindings: &Bindings<'_>) -> Result<Vec<Value>, StartError> {
        let (code, message) = match self.list.evaluate(bindings)? {
            Value::Array(list) if list.len() <= MAX_ELEMENTS => return Ok(list),
            Value::Array(list) => (
                "too_many_elements",
                format!(
                    "the list has {} elements; the limit is {MAX_ELEMENTS}",
                    list.len()
                ),
            ),
            other => (
                "not_a_list",
                format!("`foreach` requires a list, but got {}", kind_of(&other)),
            ),
        };

        Err(StartError {
            code: code.to_owned(),
            message,
        })
    }
}

/// Returns the tag of an element of a step or of its compensation.
pub(crate) fn element_tag(tag: &Name, element: usize) -> Name {
    Name::new(format!("{tag}[{element}]")).expect("step ids reserve space for a number")
}

/// Sets the value of an element in a list of values, one for each element.
pub(crate) fn set_element(stored: &mut Value, element: usize, value: Value) {
    if !stored.is_array() {
        *stored = Value::Array(Vec::new());
    }
    if let Value::Array(values) = stored {
        if values.len() <= element {
            values.resize(element + 1, Value::Null);
        }
        values[element] = value;
    }
}
