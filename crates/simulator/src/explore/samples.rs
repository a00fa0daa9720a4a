//! Payloads for which conditions can be true and false: the fields that expressions read, with
//! values near the constants in comparisons.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use orlog_program::{Action, CorrelationSpec, Definition, RetrySpec, TimeLimit, TimeSpec};
use serde_json::{Map, Value, json};

use super::envelopes::EnvelopeSamples;
use super::texts::{MAX_CANDIDATES, literals, texts};

/// Correlation id of every instance.
pub(crate) const CORRELATION: &str = "o1";

/// Candidate values for each field of event data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PayloadSamples {
    /// Candidates by path; the first candidate is the usual value.
    fields: BTreeMap<String, Vec<Value>>,
    correlation: BTreeSet<String>,
    /// Attributes of the events.
    pub(crate) envelopes: EnvelopeSamples,
}

fn backoff(retry: Option<&RetrySpec>) -> Option<&TimeLimit> {
    retry.and_then(|retry| retry.initial_backoff.as_ref())
}

impl PayloadSamples {
    /// Collects the candidates from all expressions of a definition.
    pub(crate) fn of(definition: &Definition) -> Self {
        let mut this = Self {
            envelopes: EnvelopeSamples::of(definition),
            ..Self::default()
        };

        let texts = texts(definition);
        let aliases = aliases(definition);
        let items = item_fields(definition, &texts);
        let conditions = conditions(definition);

        for text in &texts {
            for (chain, rest) in chains(text) {
                // A field that is a condition by itself must be a boolean, unlike a field within a
                // comparison.
                let is_truth = conditions.contains(text) && is_operand(&chain, rest, text);
                this.read(&chain, rest, text, is_truth, &aliases);
            }
        }

        for (list, fields) in items {
            // Lists of two, no, one and four elements: conditions about the size and about each
            // element can be true and false.
            let element = |n: usize| fields.element(n);
            let lists = [
                vec![element(1), element(2)],
                Vec::new(),
                vec![element(1)],
                (0..4).map(element).collect(),
            ];

            for path in paths(&list, &aliases) {
                this.fields
                    .insert(path, lists.iter().cloned().map(Value::Array).collect());
            }
        }

        this.moments(definition, &aliases);
        this.limits(definition, &aliases);
        this.correlations(definition);
        this
    }

    fn read(
        &mut self,
        chain: &str,
        rest: &str,
        text: &str,
        is_truth: bool,
        aliases: &BTreeMap<String, Vec<String>>,
    ) {
        let (fields, method) = method(chain, rest);

        for path in paths(fields, aliases) {
            let values = self.fields.entry(path).or_insert_with(|| vec![json!(7)]);
            let (certain, possible) = match method {
                Some("size" | "map" | "filter" | "all" | "exists" | "exists_one") => (
                    vec![json!([1, 2]), json!([]), json!([7, 1000, 0])],
                    Vec::new(),
                ),
                Some("orValue" | "or" | "hasValue" | "value") => {
                    (Vec::new(), around(&literals(rest)))
                }
                Some(_) => (
                    literals(text)
                        .into_iter()
                        .filter(Value::is_string)
                        .collect(),
                    Vec::new(),
                ),
                None if is_truth => (vec![json!(true), json!(false)], Vec::new()),
                None if is_joined(chain, rest, text) => (vec![json!("text")], Vec::new()),
                None => (compared(rest), around(&literals(text))),
            };

            // Certain candidates precede possible ones.
            let old = std::mem::take(values);
            values.extend(certain.into_iter().take(MAX_CANDIDATES));
            values.extend(old);
            values.extend(possible.into_iter().take(MAX_CANDIDATES));
            values.extend([json!(1000), json!(0), json!("x"), json!(true)]);

            let mut seen = BTreeSet::new();
            values.retain(|value| seen.insert(value.to_string()));
        }
    }

    fn moments(&mut self, definition: &Definition, aliases: &BTreeMap<String, Vec<String>>) {
        for step in &definition.steps {
            let (template, values) = match &step.action {
                Action::Wait(TimeSpec::For(template)) => {
                    (template, vec![json!("30m"), json!("0s")])
                }
                Action::Wait(TimeSpec::Until(template)) => (
                    template,
                    vec![json!("2026-01-02T00:00:00Z"), json!("2025-01-01T00:00:00Z")],
                ),
                _ => continue,
            };

            for (chain, _) in chains(template.as_str().unwrap_or_default()) {
                // A value that is neither a time nor a duration would fail each run at this step.
                for path in paths(&chain, aliases) {
                    self.fields.insert(path, values.clone());
                }
            }
        }
    }

    /// Fields that are time limits by themselves, such as `=vars.limit`.
    fn limits(&mut self, definition: &Definition, aliases: &BTreeMap<String, Vec<String>>) {
        let mut limits = vec![definition.timeout.as_ref()];
        for step in &definition.steps {
            limits.push(step.timeout.as_ref());
            limits.push(backoff(step.retry.as_ref()));
            if let Some(undo) = &step.compensate {
                limits.push(undo.timeout.as_ref());
                limits.push(backoff(undo.retry.as_ref()));
            }
        }

        for limit in limits.into_iter().flatten() {
            let Some(chain) = limit
                .expression()
                .map(|text| text.trim_start_matches('=').trim())
            else {
                continue;
            };

            // Only a field alone is a limit: in a longer expression, it can have any type.
            if chains(chain)
                .iter()
                .any(|(read, rest)| read == chain && rest.is_empty())
            {
                for path in paths(chain, aliases) {
                    self.fields.insert(path, vec![json!("30m"), json!(5)]);
                }
            }
        }
    }

    fn correlations(&mut self, definition: &Definition) {
        let fields: Vec<&String> = match &definition.correlate {
            CorrelationSpec::Envelope => Vec::new(),
            CorrelationSpec::Field(field) => vec![field],
            CorrelationSpec::ByType(fields) => fields.values().collect(),
        };

        for field in fields {
            match field.strip_prefix('=') {
                None => drop(self.correlation.insert(field.clone())),
                Some(expression) => {
                    let read = chains(expression).into_iter();
                    self.correlation.extend(
                        read.filter_map(|(c, _)| Some(c.strip_prefix("event.")?.to_owned())),
                    );
                }
            }
        }
    }

    /// Returns a payload: mostly the usual values, with occasional other values.
    pub(super) fn payload(&self, rng: &mut Rng) -> Value {
        let mut data = Value::Object(Map::new());
        for (path, values) in &self.fields {
            let likely = values.len().min(if rng.bool() { 1 } else { 3 });
            let limit = if rng.u8(0..10) < 9 {
                likely
            } else {
                values.len()
            };

            // Unusual values are rare in each field, so that most payloads satisfy the first
            // conditions.
            let pick = rng.usize(0..limit);
            set(&mut data, path, values[pick].clone());
        }

        self.correlate(&mut data);
        data
    }

    /// Returns the payload with the usual value of each field.
    pub(crate) fn usual(&self) -> Value {
        let mut data = Value::Object(Map::new());
        for (path, values) in &self.fields {
            set(&mut data, path, values.first().cloned().unwrap_or_default());
        }
        data
    }

    /// Returns the candidates of a field; the first is the usual value.
    pub(crate) fn candidates(&self, path: &str) -> impl Iterator<Item = &Value> {
        self.fields.get(path).into_iter().flatten()
    }

    /// Sets the fields that contain the correlation id.
    pub(crate) fn correlate(&self, data: &mut Value) {
        for path in &self.correlation {
            set(data, path, Value::from(CORRELATION));
        }
    }
}

/// Returns the usual value of each event field that the expressions of a definition read, by its
/// path.
#[must_use]
pub fn usual_fields(definition: &Definition) -> BTreeMap<String, Value> {
    let samples = PayloadSamples::of(definition).fields.into_iter();
    samples
        .filter_map(|(path, values)| Some((path, values.into_iter().next()?)))
        .collect()
}

/// Sets a field of event data at a path such as `order.id`.
pub fn set_field(data: &mut Value, path: &str, value: Value) {
    set(data, path, value);
}

/// Fields of an element that expressions read.
#[derive(Default)]
struct ItemFields(BTreeSet<String>);

impl ItemFields {
    fn element(&self, number: usize) -> Value {
        if self.0.is_empty() {
            return json!(format!("i{number}"));
        }

        let mut element = Value::Object(Map::new());
        for path in &self.0 {
            set(&mut element, path, json!(number));
        }
        element
    }
}

/// Returns the element fields that expressions read, for each list that a step iterates.
fn item_fields(definition: &Definition, texts: &[String]) -> Vec<(String, ItemFields)> {
    let mut lists = Vec::new();
    for step in &definition.steps {
        let Some(each) = &step.foreach else { continue };
        let Some((list, _)) = chains(&each.list).into_iter().next() else {
            continue;
        };

        let prefix = format!("{}.", each.name);
        let mut fields = ItemFields::default();
        for text in texts {
            for (start, _) in text.match_indices(&prefix) {
                let is_alone =
                    !text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
                let chain = chain_at(&text[start + prefix.len()..]);
                if is_alone && !chain.is_empty() {
                    fields.0.insert(chain.to_owned());
                }
            }
        }
        lists.push((list, fields));
    }
    lists
}

/// Returns the event fields from which each variable is saved.
pub(crate) fn aliases(definition: &Definition) -> BTreeMap<String, Vec<String>> {
    let saves = definition.steps.iter().flat_map(|step| &step.save);
    let handlers = definition.on.iter().flat_map(|handler| &handler.save);
    let mut aliases: BTreeMap<String, Vec<String>> = BTreeMap::new();

    for (name, template) in definition.vars.iter().chain(saves).chain(handlers) {
        let found = template
            .as_str()
            .and_then(|text| text.strip_prefix('='))
            .map(chains)
            .unwrap_or_default();

        let paths = found
            .into_iter()
            .filter_map(|(chain, _)| Some(chain.strip_prefix("event.")?.to_owned()));
        aliases.entry(name.clone()).or_default().extend(paths);
    }
    aliases
}

/// Returns the event fields behind `event.a.b` or `vars.x.y`.
pub(crate) fn paths(chain: &str, aliases: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    if let Some(path) = chain.strip_prefix("event.") {
        return vec![path.to_owned()];
    }
    let Some(rest) = chain.strip_prefix("vars.") else {
        return Vec::new();
    };

    let (name, more) = rest
        .split_once('.')
        .map_or((rest, ""), |(name, more)| (name, more));

    aliases
        .get(name)
        .into_iter()
        .flatten()
        .map(|path| {
            if more.is_empty() {
                path.clone()
            } else {
                format!("{path}.{more}")
            }
        })
        .collect()
}

/// Returns the field chains of an expression, each with the text that follows it.
pub(crate) fn chains(text: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for root in ["event.", "vars."] {
        for (start, _) in text.match_indices(root) {
            // Not the end of a longer name, such as `myevent.`.
            let is_alone =
                !text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
            let fields = chain_at(&text[start + root.len()..]);
            if is_alone && !fields.is_empty() {
                let end = start + root.len() + fields.len();
                found.push((text[start..end].to_owned(), &text[end..]));
            }
        }
    }
    found
}

/// Returns the conditions of a definition as [`texts`] returns them.
fn conditions(definition: &Definition) -> BTreeSet<String> {
    fn collect_conditions(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| collect_conditions(item, into)),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
                Value::String(text) if name == "when" => into.push(text.replace(".?", ".")),
                _ => collect_conditions(value, into),
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    let mut found = Vec::new();
    collect_conditions(
        &serde_json::to_value(definition).unwrap_or_default(),
        &mut found,
    );
    found.into_iter().collect()
}

/// Returns whether the chain itself is an operand of a condition, so that it must be a boolean.
fn is_operand(chain: &str, rest: &str, text: &str) -> bool {
    let before = text[..text.len() - rest.len()]
        .trim_end_matches(chain)
        .trim_end_matches([' ', '(', '!']);
    let rest = rest.trim_start_matches([' ', ')']);

    let starts =
        before.is_empty() || before == "=" || before.ends_with("&&") || before.ends_with("||");
    starts
        && (rest.is_empty()
            || rest.starts_with("&&")
            || rest.starts_with("||")
            || rest.starts_with('?'))
}

/// Returns whether the chain is concatenated with a text and thus must be a text.
fn is_joined(chain: &str, rest: &str, text: &str) -> bool {
    let behind = rest
        .trim_start()
        .strip_prefix('+')
        .is_some_and(|more| more.trim_start().starts_with(['"', '\'']));

    let before = text
        .find(chain)
        .map_or("", |start| text[..start].trim_end());
    let before = before.strip_suffix('+').map_or("", str::trim_end);

    behind || before.ends_with(['"', '\''])
}

fn chain_at(text: &str) -> &str {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
        .unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// Splits a method off the chain: the last field is a method if a parenthesis follows.
pub(crate) fn method<'c>(chain: &'c str, rest: &str) -> (&'c str, Option<&'c str>) {
    match chain.rsplit_once('.') {
        Some((chain, method)) if rest.starts_with('(') => (chain, Some(method)),
        Some(_) | None => (chain, None),
    }
}

/// Returns values near the literal that a field is compared with.
fn compared(rest: &str) -> Vec<Value> {
    let rest = rest.trim_start();
    let operators = ["==", "!=", "<=", ">=", "<", ">", "in "];
    let behind = operators
        .into_iter()
        .find_map(|operator| rest.strip_prefix(operator));
    let behind = behind.map_or("", str::trim_start);

    let is_literal = behind
        .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\'' | '"' | '['))
        || behind.starts_with("true")
        || behind.starts_with("false");

    let end = behind.find(['&', '|']).unwrap_or(behind.len());
    if is_literal {
        around(&literals(&behind[..end]))
    } else {
        Vec::new()
    }
}

/// Returns each literal and its neighbors.
fn around(literals: &[Value]) -> Vec<Value> {
    let mut values = Vec::new();
    for literal in literals {
        match (literal.as_i64(), literal.as_bool()) {
            (Some(number), _) => values.extend([number, number + 1, number - 1].map(Value::from)),
            (None, Some(truth)) => values.extend([json!(!truth), json!(truth)]),
            (None, None) => values.push(literal.clone()),
        }
    }
    values
}

fn set(data: &mut Value, path: &str, value: Value) {
    let mut at = data;
    for field in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return };
        at = fields.entry(field).or_insert(Value::Null);
    }

    // A path that is a prefix of other paths stays an object.
    if !at.is_object() || value.is_array() {
        *at = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_cover_comparison_boundaries() {
        assert_eq!(
            compared(" > 100 && x == 3"),
            [json!(100), json!(101), json!(99)]
        );
        assert_eq!(compared(" == 'open'"), [json!("open")]);
        assert_eq!(compared(" == vars.x || 5"), Vec::<Value>::new());
        assert_eq!(
            literals("a1 == 1.5 || 'x' in y || true"),
            [json!(1.5), json!("x"), json!(true)]
        );
    }

    #[test]
    fn fields_that_are_conditions_are_booleans() {
        let saga = "saga: trip\nversion: 1\nstart: Requested\nvars: { visa: =event.visa, free: =event.free, price: =event.price }\nsteps:\n  - { id: visa, when: =vars.visa, do: { effect: visas.apply } }\n  - { id: pay, when: '=!(vars.free) && vars.price > 5', do: { effect: bank.pay } }\n";
        let compiled = orlog_program::compile_yaml(saga, "trip.saga.yaml").unwrap();
        let usual = usual_fields(compiled.definition());
        assert_eq!(
            (&usual["visa"], &usual["free"], &usual["price"]),
            (&json!(true), &json!(true), &json!(5))
        );
    }

    #[test]
    fn field_chains_are_bounded() {
        let found = chains("vars.items.size() > 3 && event.a.b == revents.c");
        let found: Vec<_> = found
            .iter()
            .map(|(chain, rest)| (chain.as_str(), rest.chars().next()))
            .collect();
        assert_eq!(
            found,
            [("event.a.b", Some(' ')), ("vars.items.size", Some('('))]
        );
    }
}
