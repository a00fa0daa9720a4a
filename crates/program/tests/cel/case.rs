//! One test of the suite: expression, variables and expected result.

use orlog_program::evaluate;
use serde_json::{Map, Value};

/// Test of the suite.
pub(super) struct Case {
    /// Source file, for example `lists`.
    pub(super) file: String,
    /// File, section and name.
    pub(super) name: String,
    original: Value,
}

/// Result of a test.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CaseResult {
    Passed,
    Failed(String),
    /// Orlog rejects the feature; the text is one of [`REJECTIONS`].
    Rejected(&'static str),
    /// The test does not apply to Orlog; the text is the reason.
    Skipped(&'static str),
}

/// Features that Orlog rejects by design: the error message and the reason.
pub(super) const REJECTIONS: [(&str, &str); 4] = [
    (
        UNKNOWN,
        "an unknown name or function, in a test without type checks",
    ),
    (
        "is not a JSON number",
        "infinities and NaN, which JSON does not support, as the value of an expression",
    ),
    (
        "the value is an optional",
        "an optional as the value of an expression",
    ),
    (
        "map, filter, all and exists exceed 2 nesting levels",
        "comprehensions with more than two levels",
    ),
];

/// Replaces both messages of the checker about names.
const UNKNOWN: &str = "unknown";

const PROTOBUF_FILES: [&str; 6] = [
    "dynamic",
    "enums",
    "proto2",
    "proto2_ext",
    "proto3",
    "wrappers",
];

/// Returns every test of the suite.
pub(super) fn all(suite: &Value) -> Vec<Case> {
    let mut cases = Vec::new();
    for file in list(suite, "suites") {
        collect(file, text(file, "name"), text(file, "name"), &mut cases);
    }
    cases
}

fn collect(suite: &Value, file: &str, path: &str, cases: &mut Vec<Case>) {
    for test in list(suite, "tests") {
        let original = test["original"].clone();
        let name = format!("{path}/{}", text(&original, "name"));
        cases.push(Case {
            file: file.to_owned(),
            name,
            original,
        });
    }
    for inner in list(suite, "suites") {
        collect(
            inner,
            file,
            &format!("{path}/{}", text(inner, "name")),
            cases,
        );
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Case {
    /// Returns whether the test uses protobuf messages or enums, which JSON does not have.
    fn needs_protobuf(&self) -> bool {
        let text = self.original.to_string();
        let text = text
            .replace("google.protobuf.Timestamp", "")
            .replace("google.protobuf.Duration", "");
        PROTOBUF_FILES.contains(&self.file.as_str())
            || ["TestAllTypes", "google.protobuf.", "proto2", "proto3"]
                .iter()
                .any(|sign| text.contains(sign))
    }

    /// Returns whether the test uses only the core language and JSON types: no extension, bytes, times or
    /// durations.
    pub(super) fn is_json_core(&self) -> bool {
        const FILES: [&str; 13] = [
            "basic",
            "comparisons",
            "conversions",
            "fields",
            "fp_math",
            "integer_math",
            "lists",
            "logic",
            "macros",
            "namespace",
            "parse",
            "plumbing",
            "string",
        ];
        let text = self.original.to_string().to_lowercase();
        let foreign = [
            "bytes",
            "timestamp",
            "duration",
            "b'",
            "b\\\"",
            "typevalue",
            "type(",
        ];
        FILES.contains(&self.file.as_str()) && !foreign.iter().any(|sign| text.contains(sign))
    }

    /// Evaluates the test as an expression of a definition.
    pub(super) fn run(&self) -> CaseResult {
        if self.needs_protobuf() {
            return CaseResult::Skipped("messages, enums and wrappers of protobuf");
        }
        if self.original["checkOnly"] == true {
            return CaseResult::Skipped("checks only the static type");
        }
        let Some(variables) = self.variables() else {
            return CaseResult::Skipped("a variable that JSON does not support");
        };
        let got = evaluate(text(&self.original, "expr"), &variables);
        if let Some(end) = got.as_ref().err().and_then(|reason| self.rejection(reason)) {
            return end;
        }
        match (&self.original["evalError"], got) {
            (Value::Null, Ok(got)) => self.compare(&got),
            (Value::Null, Err(reason)) => CaseResult::Failed(reason),
            (_, Ok(got)) => CaseResult::Failed(format!("{got} instead of an error")),
            (error, Err(reason)) => accept_error(&error.to_string(), &reason),
        }
    }

    fn rejection(&self, message: &str) -> Option<CaseResult> {
        let unknown = message.starts_with("unknown function") || message.contains("unknown name");
        let unchecked = unknown && self.original["disableCheck"] == true;
        let matches = |sign: &str| {
            if sign == UNKNOWN {
                unchecked
            } else {
                message.contains(sign)
            }
        };
        REJECTIONS
            .iter()
            .find(|(sign, _)| matches(sign))
            .map(|(_, reason)| CaseResult::Rejected(reason))
    }

    fn variables(&self) -> Option<Map<String, Value>> {
        let Some(bindings) = self.original["bindings"].as_object() else {
            return Some(Map::new());
        };
        let pairs = bindings.iter().map(|(name, binding)| {
            let value = &binding["value"];
            is_json(value).then(|| Some((name.clone(), to_json(value)?)))?
        });
        pairs.collect()
    }

    /// Compares the result. A test without an expected value requires `true`.
    fn compare(&self, got: &Value) -> CaseResult {
        let typed = &self.original["typedResult"]["result"];
        let stated = if typed.is_null() {
            &self.original["value"]
        } else {
            typed
        };
        let expected = if stated.is_null() {
            Some(Value::Bool(true))
        } else {
            to_json(stated)
        };
        match expected {
            Some(expected) if expected == *got => CaseResult::Passed,
            Some(expected) => CaseResult::Failed(format!("{got} instead of {expected}")),
            None => CaseResult::Failed(format!("{got} instead of {stated}")),
        }
    }
}

/// Checks that an error is an evaluation error. An unknown function passes only if the suite expects
/// it.
fn accept_error(expected: &str, reason: &str) -> CaseResult {
    let is_unknown =
        reason.starts_with("unknown function") || reason.starts_with("the expression is invalid");
    let is_expected = [
        "unbound",
        "undeclared",
        "no_matching_overload",
        "no such overload",
        "unsupported",
    ]
    .iter()
    .any(|sign| expected.contains(sign));
    if is_unknown && !is_expected {
        CaseResult::Failed(format!("{reason}, instead of {expected}"))
    } else {
        CaseResult::Passed
    }
}

/// Returns whether an event can carry the value without a change of its type.
fn is_json(value: &Value) -> bool {
    let Some((kind, inner)) = value.as_object().and_then(|fields| fields.iter().next()) else {
        return false;
    };
    match kind.as_str() {
        "listValue" => list(inner, "values").all(is_json),
        "mapValue" => list(inner, "entries")
            .all(|e| e["key"]["stringValue"].is_string() && is_json(&e["value"])),
        "boolValue" | "int64Value" | "doubleValue" | "nullValue" | "stringValue" => true,
        _ => false,
    }
}

/// Converts a value of the suite to the JSON of Orlog.
fn to_json(value: &Value) -> Option<Value> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    match kind.as_str() {
        "nullValue" => Some(Value::Null),
        "int64Value" => inner.as_str()?.parse::<i64>().ok().map(Value::from),
        "uint64Value" => inner.as_str()?.parse::<u64>().ok().map(Value::from),
        "doubleValue" => inner.as_f64().map(Value::from),
        "boolValue" | "stringValue" | "bytesValue" | "typeValue" => Some(inner.clone()),
        "objectValue" => inner.get("value").cloned(),
        "listValue" => list(inner, "values")
            .map(to_json)
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        "mapValue" => {
            let entries = list(inner, "entries").map(|entry| {
                let key = match to_json(&entry["key"])? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                Some((key, to_json(&entry["value"])?))
            });
            entries.collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        _ => None,
    }
}
