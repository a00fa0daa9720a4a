//! Comparison of the instances of a page, and the counts of their differences, redacted as they are
//! displayed.

use std::time::{Duration, Instant};

use orlog_model::{CorrelationId, Timestamp};
use orlog_program::Program;
use orlog_sagas::shadow::{KindOutcome, PageOutcome};
use orlog_simulator::shadow::{Comparison, Difference, ShadowCase, compare};
use serde_json::Value;

use super::cases::{Case, Cases};
use super::events::AdditionalEvents;
use crate::redact::Redaction;

/// Time after which a page ends; the rest follows with the next page.
const PAGE_TIME: Duration = Duration::from_millis(500);
/// Time after which the comparison of one instance ends.
const INSTANCE_TIME: Duration = Duration::from_secs(2);
/// Maximum number of examples of a kind.
const MAX_EXAMPLES: usize = 5;
/// Maximum number of kinds of a page; the differences of others are counted with the last one.
const MAX_KINDS: usize = 64;
/// Maximum length of a kind, in bytes.
const MAX_KIND_BYTES: usize = 200;
/// Maximum size of a displayed value, in bytes of JSON.
const MAX_VALUE_BYTES: usize = 1_024;
/// Kind of the differences that exceed the limit of a page.
const OTHER: &str = "other differences";

/// The two definitions, and what their report hides.
pub(crate) struct Comparator<'a> {
    /// Active definition.
    pub(crate) live: &'a dyn Program,
    /// Definition that is compared with it.
    pub(crate) candidate: &'a dyn Program,
    /// Fields whose values a report must not contain.
    pub(crate) redact: &'a Redaction,
}

impl Comparator<'_> {
    /// Compares instances that ended, until the time of a page is over.
    #[must_use]
    pub(crate) fn ended(&self, cases: Cases, events: &AdditionalEvents) -> PageOutcome {
        let started = Instant::now();
        let mut outcome = PageOutcome {
            position: cases.end,
            has_more: cases.has_more,
            ..PageOutcome::default()
        };

        let mut rest = cases.found.iter();
        while let Some(case) = rest.next() {
            self.count(case, events, &mut outcome);

            // At least one instance for each page, so that the shadow makes progress however slow
            // they are.
            if started.elapsed() > PAGE_TIME && rest.len() > 0 {
                outcome.position = Some(case.position.clone());
                outcome.has_more = true;
                break;
            }
        }

        outcome
    }

    /// Compares instances that have not ended, as far as the time allows.
    #[must_use]
    pub(crate) fn unfinished(&self, cases: &Cases, events: &AdditionalEvents) -> PageOutcome {
        let started = Instant::now();
        let mut outcome = PageOutcome::default();
        for case in &cases.found {
            if started.elapsed() > INSTANCE_TIME {
                skip(
                    &mut outcome,
                    "it had not ended, and too many others had not, either",
                );
                continue;
            }

            // `count` may skip the instance: only those that it compares are counted.
            let before = outcome.equal + outcome.different;
            self.count(case, events, &mut outcome);
            outcome.unfinished += outcome.equal + outcome.different - before;
        }

        outcome
    }

    fn count(&self, case: &Case, events: &AdditionalEvents, outcome: &mut PageOutcome) {
        let inputs = match &case.inputs {
            Ok(inputs) => inputs,
            Err(reason) => return skip(outcome, reason),
        };
        let end = inputs.last().map_or(Timestamp::default(), |(at, _)| *at);
        // Without all events until the last input, the candidate would lack some of them.
        if events.known_until.is_some_and(|until| until < end) {
            return skip(outcome, "too many events were published during its life");
        }

        let started = Instant::now();
        let additional = events
            .by_instance
            .get(&case.key)
            .map_or(&[][..], Vec::as_slice);
        let key = &case.key;
        let instance = &case.instance;
        let live = self.live;
        let candidate = self.candidate;
        let shadow_case = ShadowCase {
            key,
            instance,
            inputs,
            additional,
            live,
            candidate,
        };

        match compare(&shadow_case, &|| started.elapsed() > INSTANCE_TIME) {
            Comparison::Equal => outcome.equal += 1,
            Comparison::Skipped(reason) => skip(outcome, reason),
            Comparison::Different(differences) => {
                outcome.different += 1;
                for difference in differences {
                    self.add(case, difference, outcome);
                }
            }
        }
    }

    fn add(&self, case: &Case, difference: Difference, outcome: &mut PageOutcome) {
        let Difference {
            mut kind,
            path,
            live,
            candidate,
        } = difference;

        // Kinds contain names from the definitions, and are stored with the shadow.
        kind.truncate(kind.floor_char_boundary(MAX_KIND_BYTES));
        let known = outcome.kinds.iter().position(|known| known.kind == kind);
        let is_full = outcome.kinds.len() >= MAX_KINDS;
        let known = known.or_else(|| is_full.then(|| outcome.kinds.len() - 1));

        // The last place collects all further kinds.
        if let Some(known) = known {
            let known = &mut outcome.kinds[known];
            if known.kind != kind {
                OTHER.clone_into(&mut known.kind);
            }

            known.count += 1;
            if known.instances.len() < MAX_EXAMPLES {
                known.instances.push(case.key.correlation.clone());
            }

            return;
        }

        // A value that is hidden in the state can have another name in the difference.
        let hidden = self.live.view_state(&case.instance.state);
        let hidden = self.redact.hidden_values(hidden.iter());
        let displayed = |value: Option<Value>| {
            value.map(|value| {
                let mut value = redacted(self.redact, &path, value);
                hidden.remove_from_texts(&mut value);
                shortened(value)
            })
        };
        let live = displayed(live);
        let candidate = displayed(candidate);
        let instances: Vec<CorrelationId> = vec![case.key.correlation.clone()];

        outcome.kinds.push(KindOutcome {
            kind,
            count: 1,
            instances,
            live,
            candidate,
        });
    }
}

fn skip(outcome: &mut PageOutcome, reason: &str) {
    *outcome.skipped.entry(reason.to_owned()).or_default() += 1;
}

/// Redacts a value by the names of the fields that contain it.
fn redacted(redact: &Redaction, path: &[String], value: Value) -> Value {
    let names = || path.iter().filter(|name| *name != "[]");
    let nested = names().rev().fold(value, |value, name| {
        Value::Object(std::iter::once((name.clone(), value)).collect())
    });
    let mut value = redact.redact(nested);
    for name in names() {
        match value.get_mut(name) {
            Some(inner) => value = inner.take(),
            // An outer field is hidden.
            None => break,
        }
    }

    value
}

/// Returns the value, or the beginning of its text.
fn shortened(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_VALUE_BYTES {
        return value;
    }
    Value::from(format!(
        "{}…",
        &text[..text.floor_char_boundary(MAX_VALUE_BYTES)]
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_redacted_by_the_names_around_them() {
        let redact: Redaction =
            serde_json::from_value(json!({ "fields": ["card", "customer.name"] })).unwrap();
        let path = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let of = |names: &[&str], value: Value| redacted(&redact, &path(names), value);
        assert_eq!(of(&["card"], json!("4242")), "[redacted]");
        assert_eq!(of(&["card", "number"], json!("4242")), "[redacted]");
        assert_eq!(
            of(&["vars", "customer", "name"], json!("Ada")),
            "[redacted]"
        );
        assert_eq!(of(&["items", "[]", "price"], json!(3)), 3);
        assert_eq!(
            of(&[], json!({ "card": 1, "n": 2 })),
            json!({ "card": "[redacted]", "n": 2 })
        );
    }

    #[test]
    fn long_values_are_shortened() {
        let long = shortened(json!({ "text": "ä".repeat(2_000) }));
        assert!(
            long.as_str()
                .is_some_and(|text| text.ends_with('…') && text.len() < 1_100),
            "{long}"
        );
        assert_eq!(shortened(json!(1)), 1);
    }
}
