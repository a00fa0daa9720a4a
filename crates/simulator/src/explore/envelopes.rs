//! Attributes of generated events: the texts with which expressions compare them.

use std::collections::BTreeMap;

use fastrand::Rng;
use orlog_program::Definition;

use super::texts::{literals, texts};
use crate::step::EventStep;

/// Root of the attributes in expressions.
const ROOT: &str = "envelope.";
/// Maximum number of combinations of a proof.
const MAX_COMBINATIONS: usize = 8;
/// Value of an extension that no expression compares with a text.
const OTHER: &str = "x";

/// Candidate texts of each attribute that expressions read, by its path: `source`,
/// `extensions.region`.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvelopeSamples(BTreeMap<String, Vec<String>>);

impl EnvelopeSamples {
    /// Collects the candidates from all expressions of a definition.
    pub(crate) fn of(definition: &Definition) -> Self {
        let mut found = BTreeMap::<String, Vec<String>>::new();
        for text in texts(definition) {
            let mut candidates: Vec<String> = literals(&text)
                .iter()
                .filter_map(|literal| literal.as_str())
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .collect();
            // A text that no expression compares with, so that conditions can also be false.
            candidates.push(OTHER.to_owned());

            for path in paths(&text) {
                let known = found.entry(path).or_default();
                let new: Vec<_> = candidates
                    .iter()
                    .filter(|candidate| !known.contains(candidate))
                    .cloned()
                    .collect();
                known.extend(new);
            }
        }
        Self(found)
    }

    /// Sets the attributes of a random event.
    pub(super) fn set_random(&self, event: &mut EventStep, rng: &mut Rng) {
        for (path, candidates) in &self.0 {
            set(event, path, &candidates[rng.usize(0..candidates.len())]);
        }
    }

    /// Returns a sentence if a proof does not try all combinations.
    pub(crate) fn limit(&self) -> Option<String> {
        let sizes = self.0.values().map(Vec::len);
        let combinations = sizes.fold(1, usize::saturating_mul);
        (combinations > MAX_COMBINATIONS).then(|| {
            format!(
                "{MAX_COMBINATIONS} of {combinations} combinations of attributes are tried for \
                 each event"
            )
        })
    }

    /// Returns the event with each combination of attributes; not all, if there are many.
    pub(crate) fn combinations(&self, event: &EventStep) -> Vec<EventStep> {
        let mut events = vec![event.clone()];
        for (path, candidates) in &self.0 {
            let mut combined = Vec::new();
            for event in &events {
                for text in candidates {
                    let mut event = event.clone();
                    set(&mut event, path, text);
                    combined.push(event);
                }
            }

            // Attributes multiply, so not all combinations are tried.
            combined.truncate(MAX_COMBINATIONS);
            events = combined;
        }
        events
    }
}

/// Returns the paths after `envelope.` that can be set.
fn paths(text: &str) -> impl Iterator<Item = String> {
    let starts = text
        .match_indices(ROOT)
        .map(|(start, _)| &text[start + ROOT.len()..]);
    starts.filter_map(|rest| {
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
            .unwrap_or(rest.len());
        let mut fields = rest[..end].split('.');
        match fields.next()? {
            "extensions" => fields
                .next()
                .filter(|name| !name.is_empty())
                .map(|name| format!("extensions.{name}")),
            known @ ("source" | "subject" | "datacontenttype" | "dataschema") => {
                Some(known.to_owned())
            }
            // The runner sets the id, the time and the other attributes.
            _ => None,
        }
    })
}

fn set(event: &mut EventStep, path: &str, text: &str) {
    let value = Some(text.to_owned());
    match path {
        "source" => event.envelope.source = value,
        "subject" => event.envelope.subject = value,
        "datacontenttype" => event.envelope.attributes.content_type = value,
        "dataschema" => event.envelope.attributes.data_schema = value,
        other => {
            let name = other.strip_prefix("extensions.").unwrap_or(other);
            event
                .envelope
                .attributes
                .extensions
                .insert(name.to_owned(), text.to_owned());
        }
    }
}
