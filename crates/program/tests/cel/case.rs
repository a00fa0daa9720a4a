//! One test of the suite: what is evaluated, under which variables, and what must come of it.

use orlog_program::evaluate;
use serde_json::{Map, Value};

/// A test as it stands in the suite.
pub(super) struct Case {
    /// The file it comes from, for example `lists`.
    pub(super) file: String,
    /// File, section and name.
    pub(super) name: String,
    original: Value,
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    Passed,
    Failed(String),
    /// Orlog refuses the feature; the text is one of [`REFUSALS`].
    Refused(&'static str),
    /// It is not about what Orlog has; the text says why.
    Skipped(&'static str),
}

/// What is refused on purpose, known by the message that the user gets, and why.
pub(super) const REFUSALS: [(&str, &str); 4] = [
    (UNKNOWN, "a name or a function that does not exist, in a test that switches checking off"),
    ("is no JSON number", "infinities and NaN, which JSON cannot say, as the value of an expression"),
    ("its value is an optional", "an optional as the value of an expression"),
    ("map, filter, all and exists stand more than 2 deep", "comprehensions more than two deep"),
];

/// Stands for both messages of the checker about names.
const UNKNOWN: &str = "unknown";

const PROTOBUF_FILES: [&str; 6] = ["dynamic", "enums", "proto2", "proto2_ext", "proto3", "wrappers"];

/// Every test of the suite.
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
        cases.push(Case { file: file.to_owned(), name, original });
    }
    for inner in list(suite, "suites") {
        collect(inner, file, &format!("{path}/{}", text(inner, "name")), cases);
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Case {
    /// It names messages or enums of protobuf, which JSON does not have.
    fn needs_protobuf(&self) -> bool {
        let whole = self.original.to_string();
        let whole = whole.replace("google.protobuf.Timestamp", "").replace("google.protobuf.Duration", "");
        PROTOBUF_FILES.contains(&self.file.as_str())
            || ["TestAllTypes", "google.protobuf.", "proto2", "proto3"]
                .iter()
                .any(|sign| whole.contains(sign))
    }

    /// It is of the core of the language and of what JSON has: no extension, and no bytes, times and durations.
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
        let whole = self.original.to_string().to_lowercase();
        let foreign = ["bytes", "timestamp", "duration", "b'", "b\\\"", "typevalue", "type("];
        FILES.contains(&self.file.as_str()) && !foreign.iter().any(|sign| whole.contains(sign))
    }

    /// Evaluates it as an expression of a definition would be.
    pub(super) fn run(&self) -> End {
        if self.needs_protobuf() {
            return End::Skipped("messages, enums and wrappers of protobuf");
        }
        if self.original["checkOnly"] == true {
            return End::Skipped("only asks for the static type");
        }
        let Some(variables) = self.variables() else {
            return End::Skipped("a variable that JSON cannot say");
        };
        let got = evaluate(text(&self.original, "expr"), &variables);
        if let Some(end) = got.as_ref().err().and_then(|why| self.refusal(why)) {
            return end;
        }
        match (&self.original["evalError"], got) {
            (Value::Null, Ok(got)) => self.compare(&got),
            (Value::Null, Err(why)) => End::Failed(why),
            (_, Ok(got)) => End::Failed(format!("{got} instead of an error")),
            (error, Err(why)) => accept_error(&error.to_string(), &why),
        }
    }

    fn refusal(&self, message: &str) -> Option<End> {
        let unknown = message.starts_with("there is no function") || message.contains("is not known here");
        let unchecked = unknown && self.original["disableCheck"] == true;
        let is_meant = |sign: &str| if sign == UNKNOWN { unchecked } else { message.contains(sign) };
        REFUSALS.iter().find(|(sign, _)| is_meant(sign)).map(|(_, why)| End::Refused(why))
    }

    fn variables(&self) -> Option<Map<String, Value>> {
        let Some(bindings) = self.original["bindings"].as_object() else { return Some(Map::new()) };
        let pairs = bindings.iter().map(|(name, binding)| {
            let value = &binding["value"];
            is_json(value).then(|| Some((name.clone(), to_json(value)?)))?
        });
        pairs.collect()
    }

    /// What is not stated must be true.
    fn compare(&self, got: &Value) -> End {
        let typed = &self.original["typedResult"]["result"];
        let stated = if typed.is_null() { &self.original["value"] } else { typed };
        let wanted = if stated.is_null() { Some(Value::Bool(true)) } else { to_json(stated) };
        match wanted {
            Some(wanted) if wanted == *got => End::Passed,
            Some(wanted) => End::Failed(format!("{got} instead of {wanted}")),
            None => End::Failed(format!("{got} instead of {stated}")),
        }
    }
}

/// An error must be one of the evaluation: that a function does not exist is only right where the suite says so.
fn accept_error(wanted: &str, why: &str) -> End {
    let not_there =
        why.starts_with("there is no function") || why.starts_with("the expression does not parse");
    let says_so = ["unbound", "undeclared", "no_matching_overload", "no such overload", "unsupported"]
        .iter()
        .any(|sign| wanted.contains(sign));
    if not_there && !says_so { End::Failed(format!("{why}, instead of {wanted}")) } else { End::Passed }
}

/// A value that an event could carry, without change of its type.
fn is_json(value: &Value) -> bool {
    let Some((kind, inner)) = value.as_object().and_then(|fields| fields.iter().next()) else { return false };
    match kind.as_str() {
        "listValue" => list(inner, "values").all(is_json),
        "mapValue" => {
            list(inner, "entries").all(|e| e["key"]["stringValue"].is_string() && is_json(&e["value"]))
        }
        "boolValue" | "int64Value" | "doubleValue" | "nullValue" | "stringValue" => true,
        _ => false,
    }
}

/// A value of the suite as the JSON that Orlog makes of it.
fn to_json(value: &Value) -> Option<Value> {
    let (kind, inner) = value.as_object()?.iter().next()?;
    match kind.as_str() {
        "nullValue" => Some(Value::Null),
        "int64Value" => inner.as_str()?.parse::<i64>().ok().map(Value::from),
        "uint64Value" => inner.as_str()?.parse::<u64>().ok().map(Value::from),
        "doubleValue" => inner.as_f64().map(Value::from),
        "boolValue" | "stringValue" | "bytesValue" | "typeValue" => Some(inner.clone()),
        "objectValue" => inner.get("value").cloned(),
        "listValue" => list(inner, "values").map(to_json).collect::<Option<Vec<_>>>().map(Value::Array),
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
