//! Tests of the schema: it equals the file in docs, has the fields of the decoder, accepts every
//! example and rejects errors.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::{Map, Value, json};

use super::json_schema;
use crate::definition::{Definition, Step, StepDependencies};
use crate::language::MapSchema;
use crate::steps::{HumanTask, JobAction};
use crate::yaml;

const HEAD: &str = "saga: t\nversion: 1\nstart: Go\n";

/// Returns the violations of the schema by a value. Supports only the keywords that the schema uses;
/// any other keyword is a bug of the test.
fn violations(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let full_schema = super::json_schema();
    let mut found = Vec::new();
    let fields = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in fields {
        match keyword.as_str() {
            "$ref" => {
                let pointer = rule
                    .as_str()
                    .and_then(|r| r.strip_prefix('#'))
                    .expect("references are internal");
                found.extend(violations(
                    full_schema
                        .pointer(pointer)
                        .expect("the reference is defined"),
                    value,
                    at,
                ));
            }
            "type" => {
                let types = rule
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![rule.clone()]);
                if !types
                    .iter()
                    .any(|name| is(name.as_str().expect("a type is a text"), value))
                {
                    found.push(format!("{at}: {value} is not {rule}"));
                }
            }
            "enum" if !rule.as_array().expect("a list").contains(value) => {
                found.push(format!("{at}: not one of {rule}"));
            }
            "minimum" if value.as_u64() < rule.as_u64() => {
                found.push(format!("{at}: less than {rule}"));
            }
            "maximum" if value.as_u64() > rule.as_u64() => {
                found.push(format!("{at}: more than {rule}"));
            }
            "enum"
            | "minimum"
            | "maximum"
            | "$schema"
            | "$defs"
            | "title"
            | "description"
            | "additionalProperties" => {}
            "pattern" => {
                let pattern =
                    Regex::new(rule.as_str().expect("a text")).expect("a regular expression");
                if value.as_str().is_some_and(|text| !pattern.is_match(text)) {
                    found.push(format!("{at}: does not match {rule}"));
                }
            }
            "required" => {
                let missing = rule
                    .as_array()
                    .expect("a list")
                    .iter()
                    .filter_map(Value::as_str);
                let missing = missing.filter(|name| value.is_object() && value.get(name).is_none());
                found.extend(missing.map(|name| format!("{at}: {name} is missing")));
            }
            "properties" => found.extend(within(fields, rule, value, at)),
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                found.extend(
                    items.flat_map(|(n, item)| violations(rule, item, &format!("{at}/{n}"))),
                );
            }
            "anyOf" | "oneOf" => {
                let fit = rule
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(|one| violations(one, value, at));
                let fitting = fit.filter(Vec::is_empty).count();
                if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
                    found.push(format!("{at}: fits {fitting} of {keyword}"));
                }
            }
            other => panic!("unsupported keyword {other}"),
        }
    }
    if let (None, Some(rule @ Value::Object(_))) =
        (fields.get("properties"), fields.get("additionalProperties"))
    {
        let items = value.as_object().into_iter().flatten();
        found
            .extend(items.flat_map(|(name, item)| violations(rule, item, &format!("{at}/{name}"))));
    }
    found
}

/// Returns the violations of an object schema that lists all allowed fields.
fn within(schema: &Map<String, Value>, properties: &Value, value: &Value, at: &str) -> Vec<String> {
    assert_eq!(
        schema.get("additionalProperties"),
        Some(&json!(false)),
        "beside properties"
    );
    let fields = value.as_object().into_iter().flatten();
    let found = fields.map(|(name, item)| match properties.get(name) {
        Some(rule) => violations(rule, item, &format!("{at}/{name}")),
        None => vec![format!("{at}/{name}: unknown")],
    });
    found.flatten().collect()
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        other => panic!("unsupported type {other}"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn definitions(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the directory is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            definitions(&path, found);
        } else if path.to_string_lossy().ends_with(".saga.yaml") {
            found.push(path);
        }
    }
}

#[test]
fn docs_schema_is_current() {
    let file = root().join("docs/saga.schema.json");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let expected = format!("{:#}\n", json_schema());
    assert!(
        text == expected,
        "outdated; run: cargo run -p orlog -- schema > docs/saga.schema.json"
    );
}

#[test]
fn every_example_matches_the_schema() {
    let mut files = Vec::new();
    definitions(&root().join("examples"), &mut files);
    definitions(&root().join("crates/program/tests"), &mut files);
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("the file is readable");
        assert_eq!(
            violations(&json_schema(), &yaml::to_json(&text), ""),
            Vec::<String>::new(),
            "{}",
            file.display()
        );
    }
}

#[test]
fn schema_fields_match_the_decoder() {
    #[track_caller]
    fn same(form: &MapSchema, schema: &Value) {
        let mut mine: Vec<_> = form.fields.iter().map(|field| field.name).collect();
        mine.sort_unstable();
        let theirs: Vec<_> = schema["properties"]
            .as_object()
            .expect("fields")
            .keys()
            .collect();
        assert_eq!(mine, theirs);
    }
    let schema = json_schema();
    same(&Definition::MAP, &schema);
    for form in [
        &Step::MAP,
        &HumanTask::MAP,
        &JobAction::MAP,
        &StepDependencies::MAP,
    ] {
        same(form, &schema["$defs"][form.name]);
    }
}

/// Asserts that the decoder and the schema agree about a step.
#[track_caller]
fn agree(step: &str, fits: bool) {
    let text = format!("{HEAD}steps: [{step}]");
    let violations = violations(&json_schema(), &yaml::to_json(&text), "");
    assert_eq!(violations.is_empty(), fits, "{step}: {violations:?}");
    assert_eq!(yaml::read(&text).is_ok(), fits, "{step}");
}

#[test]
fn schema_and_decoder_agree() {
    agree(
        "{ id: a, do: { effect: e.x, data: [1, { a: =vars.b }] } }",
        true,
    );
    agree(
        "{ id: a, do: { saga: k, event: E }, ok: { event: A, when: x }, fail: [B, { event: C }] }",
        true,
    );
    agree(
        "{ id: a, do: { wait: { until: =vars.t } }, after: { count: 2, of: [b, c] } }",
        true,
    );
    agree(
        "{ id: a, do: { wait: =vars.t }, timeout: PT30M, retry: { max_attempts: 2, initial_backoff: 1h30m } }",
        true,
    );
    agree(
        "{ id: a, do: { event: E, count: 2 }, timeout: =vars.t, retry: { initial_backoff: =vars.t } }",
        true,
    );
    agree(
        "{ id: a, do: { event: E, until: =size(events) > 2 } }",
        true,
    );
    agree("{ id: a, do: { event: E, count: many } }", false);
    agree(
        "{ id: a, do: { switch: [{ when: true, then: b }] }, undo: { effect: e.y, timeout: 1s } }",
        true,
    );
    agree(
        "{ id: a, do: { human: { title: T, roles: clerk, due: 1d } }, pivot: true }",
        true,
    );
    agree("{ id: a }", false);
    agree("{ id: a, do: { effect: e.x, command: a.B } }", false);
    agree("{ id: a, do: { effect: e.x, id: 1 } }", false);
    agree("{ id: a, do: { effect: e.x, ok: X } }", false);
    agree("{ id: a, do: { wait: soon } }", false);
    agree("{ id: a, do: { effect: e.x }, timeout: 30 }", false);
    agree("{ id: a, do: { effect: e.x }, pivot: maybe }", false);
    agree(
        "{ id: a, do: { effect: e.x }, foreach: { in: =vars.l } }",
        false,
    );
    agree("{ id: a, do: { effect: e.x }, undo: { data: 1 } }", false);
}

#[test]
fn every_field_has_a_description() {
    fn walk(schema: &Value) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let about = field["description"].as_str().unwrap_or_default();
            assert!(about.ends_with('.'), "{name}: {about}");
        }
    }
    let schema = json_schema();
    walk(&schema);
    schema["$defs"]
        .as_object()
        .expect("definitions")
        .values()
        .for_each(walk);
    assert_eq!(
        schema["$schema"],
        json!("https://json-schema.org/draft/2020-12/schema")
    );
}

/// Returns the code blocks of the page about definitions, completed to full definitions.
fn documented() -> Vec<String> {
    let page =
        std::fs::read_to_string(root().join("docs/definitions.md")).expect("the page is readable");
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("the block ends"));
    blocks.map(full_definition).collect()
}

const VARS: &str = "nights items warehouse total delay dueAt customer branch id amount cancelledBy";

fn full_definition(block: &str) -> String {
    if block.starts_with("saga:") {
        return block.to_owned();
    }
    let vars: Vec<_> = VARS
        .split(' ')
        .map(|name| format!("{name}: =event.{name}"))
        .collect();
    let head = format!(
        "saga: t\nversion: 3\nstart: Go\nvars: {{ {} }}\n",
        vars.join(", ")
    );
    let first = block
        .lines()
        .find(|line| !line.starts_with('#'))
        .unwrap_or_default();
    if first.starts_with("- ") {
        format!("{head}steps:\n{block}")
    } else if block.contains("\nsteps:") {
        format!("{head}{block}")
    } else {
        format!("{head}{block}steps: [{{ id: a, do: {{ effect: e.x }} }}]\n")
    }
}

#[test]
fn documentation_examples_compile() {
    let blocks = documented();
    assert!(blocks.len() > 10, "{}", blocks.len());
    let mut errors = Vec::new();
    for text in blocks {
        assert_eq!(
            violations(&json_schema(), &yaml::to_json(&text), ""),
            Vec::<String>::new(),
            "{text}"
        );
        for problem in crate::compile_yaml(&text, "definitions.md")
            .err()
            .unwrap_or_default()
        {
            errors.push(format!("{problem}\n{text}"));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
