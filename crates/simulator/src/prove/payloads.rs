//! Payloads of a proof: the few values of each field that decide conditions differently.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::EventType;
use orlog_program::Definition;
use serde::Serialize;
use serde_json::{Value, json};

use crate::explore::envelopes::EnvelopeSamples;
use crate::explore::samples::{PayloadSamples, aliases, chains, method, paths, set_field};
use crate::explore::texts::{literals, texts};

/// Maximum number of payloads of one input.
const MAX_PAYLOADS: usize = 8;

/// Payloads for the inputs of a definition.
#[derive(Clone, Debug, Default)]
pub(super) struct Payloads {
    usual: Value,
    /// Attributes of the events.
    pub(super) envelopes: EnvelopeSamples,
    /// Values by path for which a condition has different results; the first is the usual value.
    decisive: BTreeMap<String, Vec<Value>>,
    of_start: Vec<Value>,
    by_step: BTreeMap<String, Vec<Value>>,
    by_event: BTreeMap<String, Vec<Value>>,
    /// Combinations of values that are not tried, by input.
    omitted: BTreeMap<String, Omitted>,
}

/// Payloads of an input of which not all are tried.
#[derive(Clone, Copy, Debug)]
struct Omitted {
    combinations: usize,
    tried: usize,
}

impl Payloads {
    /// Collects the values from all expressions of a definition.
    pub(super) fn of(definition: &Definition) -> Self {
        let samples = PayloadSamples::of(definition);
        let aliases = aliases(definition);
        let mut decisive: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for text in texts(definition) {
            for (chain, rest) in chains(&text) {
                let (fields, method) = method(&chain, rest);
                let values = decisive_values(&chain, method, rest, &text);
                for path in paths(fields, &aliases) {
                    let all = decisive.entry(path).or_default();
                    let new: Vec<_> = values
                        .iter()
                        .filter(|value| !all.contains(value))
                        .cloned()
                        .collect();
                    all.extend(new);
                }
            }
        }

        // A loop over a list is decided by whether the list has elements.
        for each in definition
            .steps
            .iter()
            .filter_map(|step| step.foreach.as_ref())
        {
            let Some((chain, _)) = chains(&each.list).into_iter().next() else {
                continue;
            };
            // The first two candidates of a list are one with elements and an empty one.
            for path in paths(&chain, &aliases) {
                decisive.insert(
                    path.clone(),
                    samples.candidates(&path).take(2).cloned().collect(),
                );
            }
        }

        let mut usual = samples.usual();
        for (path, values) in &decisive {
            if let Some(first) = values.first() {
                set_field(&mut usual, path, first.clone());
            }
        }

        // The payload belongs to the instance, whatever the conditions read.
        samples.correlate(&mut usual);

        let mut this = Self {
            usual,
            decisive,
            envelopes: samples.envelopes,
            ..Self::default()
        };

        // Each input varies only the fields that its readers use; the others would multiply the
        // moves.
        this.of_start = this.for_reader(
            "the start event",
            &(&definition.vars, &definition.reference),
        );
        for step in &definition.steps {
            let payloads = this.for_reader(&format!("the results of {}", step.id), step);
            this.by_step.insert(step.id.to_string(), payloads);
        }
        for kind in definition.on.iter().flat_map(|on| &on.event) {
            let handlers: Vec<_> = definition
                .on
                .iter()
                .filter(|on| on.event.contains(kind))
                .collect();
            let payloads = this.for_reader(&format!("the event {kind}"), &handlers);
            this.by_event.insert(kind.to_string(), payloads);
        }

        this
    }

    /// Returns a sentence for each input of which not all combinations of values are tried.
    pub(super) fn limits(&self) -> Vec<String> {
        let payloads = self.omitted.iter().map(|(input, omitted)| {
            let Omitted {
                combinations,
                tried,
            } = omitted;
            format!("{tried} of {combinations} combinations of values are tried for {input}")
        });
        payloads.chain(self.envelopes.limit()).collect()
    }

    /// Returns the payloads of a start event.
    pub(super) fn of_start(&self) -> &[Value] {
        &self.of_start
    }

    /// Returns the payloads of a response to a step.
    pub(super) fn of_step(&self, step: &str) -> &[Value] {
        self.by_step
            .get(step)
            .map_or(std::slice::from_ref(&self.usual), Vec::as_slice)
    }

    /// Returns the payloads of an event that no step waits for.
    pub(super) fn of_event(&self, kind: &EventType) -> &[Value] {
        self.by_event
            .get(kind.as_str())
            .map_or(std::slice::from_ref(&self.usual), Vec::as_slice)
    }

    /// Returns the payload with the usual values.
    pub(super) fn usual(&self) -> Value {
        self.usual.clone()
    }

    /// Returns the payloads for an input that the given part of the definition reads: the usual
    /// one, then variants of the fields that decide a condition. `input` names it in the report.
    fn for_reader(&mut self, input: &str, reader: &impl Serialize) -> Vec<Value> {
        let mut reads = BTreeSet::new();
        for text in texts(reader) {
            for (chain, rest) in chains(&text) {
                let (fields, _) = method(&chain, rest);
                reads.extend(fields.strip_prefix("event.").map(str::to_owned));
            }
        }

        let fields: Vec<_> = self
            .decisive
            .iter()
            .filter(|(path, values)| reads.contains(*path) && values.len() > 1)
            .collect();

        let sizes = fields.iter().map(|(_, values)| values.len());
        let combinations = sizes.fold(1, usize::saturating_mul);
        let mut payloads = vec![self.usual.clone()];
        for (path, values) in fields {
            // All combinations if there are few; otherwise each value alone.
            let bases = if combinations <= MAX_PAYLOADS {
                payloads.clone()
            } else {
                vec![self.usual.clone()]
            };
            for (base, value) in bases
                .iter()
                .flat_map(|base| values[1..].iter().map(move |value| (base, value)))
            {
                let mut payload = base.clone();
                set_field(&mut payload, path, value.clone());
                payloads.push(payload);
            }
        }

        // The usual payload is the first, so it always remains.
        payloads.truncate(MAX_PAYLOADS);
        if payloads.len() < combinations {
            let omitted = Omitted {
                combinations,
                tried: payloads.len(),
            };
            self.omitted.insert(input.to_owned(), omitted);
        }
        payloads
    }
}

/// Returns the values of a field for which the expression has different results.
fn decisive_values(chain: &str, method: Option<&str>, rest: &str, text: &str) -> Vec<Value> {
    match method {
        Some("size" | "map" | "filter" | "all" | "exists" | "exists_one") => {
            vec![json!([1, 2]), json!([])]
        }
        Some("orValue" | "or" | "value" | "hasValue") => literals(rest)
            .first()
            .map(|literal| neighbors("==", literal))
            .unwrap_or_default(),
        // Methods of texts, such as `startsWith`: a text of the expression, and one that differs
        // from it.
        Some(_) => {
            let fitting = literals(text).into_iter().filter(Value::is_string);
            fitting.chain([json!("x")]).collect()
        }
        None => compared_values(chain, rest, text),
    }
}

const OPERATORS: [&str; 7] = ["==", "!=", "<=", ">=", "<", ">", "in "];

/// Returns the values on both sides of a comparison, and both values of a condition that is only
/// the field.
fn compared_values(chain: &str, rest: &str, text: &str) -> Vec<Value> {
    let behind = rest.trim_start();
    if text.trim_start_matches('!') == chain
        || ["&&", "||"].iter().any(|and| behind.starts_with(and))
    {
        return vec![json!(true), json!(false)];
    }

    let operator = OPERATORS
        .iter()
        .find(|operator| behind.starts_with(**operator));

    if let Some(operator) = operator {
        let operand = behind[operator.len()..].trim_start();

        // A field that is present, and one that is absent.
        if operand.starts_with("null") {
            return vec![json!(7), Value::Null];
        }
        // Literals of the next condition must not count as those of this comparison.
        let end = operand.find(['&', '|', '?']).unwrap_or(operand.len());
        let found = literals(&operand[..end]);
        return match found.first() {
            Some(_) if *operator == "in " => {
                found.into_iter().take(2).chain([json!("x")]).collect()
            }
            Some(literal) => neighbors(operator, literal),
            None => vec![json!(7), json!(8)],
        };
    }

    let before = text[..text.len() - rest.len() - chain.len()].trim_end();
    if !OPERATORS
        .iter()
        .any(|operator| before.ends_with(operator.trim_end()))
    {
        return Vec::new();
    }

    literals(before).last().map_or_else(Vec::new, |literal| {
        let mut values = neighbors("<", literal);
        values.extend(neighbors(">", literal).into_iter().skip(1));
        values
    })
}

/// Returns a literal and the value on the other side of a comparison with it.
fn neighbors(operator: &str, literal: &Value) -> Vec<Value> {
    let other = match (literal.as_i64(), literal.as_bool()) {
        (Some(number), _) if matches!(operator, "<" | ">=") => json!(number - 1),
        (Some(number), _) => json!(number + 1),
        (None, Some(truth)) => json!(!truth),
        (None, None) if literal.is_number() => json!(literal.as_f64().unwrap_or_default() + 1.0),
        (None, None) => json!("x"),
    };
    vec![literal.clone(), other]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_on_both_sides_of_a_comparison() {
        let values = |text: &str| {
            let (chain, rest) = chains(text).remove(0);
            let (_, method) = method(&chain, rest);
            decisive_values(&chain, method, rest, text)
        };
        assert_eq!(values("vars.score < 300"), [json!(300), json!(299)]);
        assert_eq!(values("vars.score <= 300 && x"), [json!(300), json!(301)]);
        assert_eq!(
            values("event.airline == 'north'"),
            [json!("north"), json!("x")]
        );
        assert_eq!(values("vars.car != null"), [json!(7), Value::Null]);
        assert_eq!(values("event.approved"), [json!(true), json!(false)]);
        assert_eq!(
            values("event.overridden.orValue(false)"),
            [json!(false), json!(true)]
        );
        assert_eq!(
            values("100 > event.total"),
            [json!(100), json!(99), json!(101)]
        );
        assert_eq!(values("=event.total"), Vec::<Value>::new());
        assert_eq!(values("=event.amount * 100"), Vec::<Value>::new());
    }
}
