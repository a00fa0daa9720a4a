//! History of an instance in API responses: transitions with their payloads, failures and attempts.

use orlog_model::{AttemptLog, EventAttributes, HistoryEntry, InputKind, RecordedPayload};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::work::{AttemptRecordView, FailureView};
use crate::server::page::{PageBuilder, PageLimits};
use orlog_node::redact::{HiddenValues, Redaction};

/// Page of the history, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryPageView {
    items: Vec<HistoryEntryView>,
    /// The `history_after` of the next page; null after the last one.
    next: Option<u64>,
}

/// History entry of a transition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryEntryView {
    /// State version after the transition.
    version: u64,
    #[schema(format = "date-time")]
    at: String,
    /// Id of the input.
    input_id: String,
    /// Label of the input.
    input_label: String,
    /// Description of the transition.
    note: String,
    /// Status after the transition.
    status: &'static str,
    /// Requested work.
    work: Vec<RequestedWorkView>,
    /// Data of the input: of the event, signal or task, or the response of the upstream; null if
    /// there is none, or if `history.payload_bytes` is 0.
    data: Option<PayloadView>,
    /// Changed variables: an object with a list of the values before and after the transition, by
    /// name.
    variables: Option<PayloadView>,
    /// Reason of the failure, if the input is a failure or the transition caused one.
    failure: Option<FailureView>,
    /// Attempts of the work whose result is the input, if the first one did not succeed.
    attempts: Option<AttemptLogView>,
    /// `event`, `work_result`, `timer`, `control` or `workflow`; null in entries of older releases,
    /// as are the next two fields.
    kind: Option<&'static str>,
    /// Node of the transition.
    node: Option<String>,
    /// Delay between the input and the transition in milliseconds; for a timer, the delay after its
    /// due time.
    delay_ms: Option<u64>,
    /// Attributes of an event that Orlog keeps without interpretation, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<AttributesView>,
}

/// Attributes of an event, redacted.
#[derive(Debug, Serialize, ToSchema)]
struct AttributesView {
    /// Content type of the data, if it is not `application/json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    datacontenttype: Option<String>,
    /// URI of the schema of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    dataschema: Option<String>,
    /// Extensions by name.
    extensions: Value,
}

/// Requested work item.
#[derive(Debug, Serialize, ToSchema)]
struct RequestedWorkView {
    label: String,
    #[schema(format = "uuid")]
    id: String,
    /// Arguments, or data of the fact.
    data: Option<PayloadView>,
}

/// Recorded payload, redacted.
#[derive(Debug, Serialize, ToSchema)]
struct PayloadView {
    /// Payload; null if it is longer than `history.payload_bytes`.
    value: Value,
    /// Beginning of a longer payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    beginning: Option<String>,
    /// Size of the whole payload in bytes.
    size: u64,
}

/// Attempts of a completed work item: the first one and the last nine.
#[derive(Debug, Serialize, ToSchema)]
struct AttemptLogView {
    items: Vec<AttemptRecordView>,
    /// Number of omitted attempts after the first one.
    omitted: u32,
}

impl HistoryPageView {
    /// Creates a page. `records` has one entry more than the limit if there is a next page.
    pub(crate) fn of(
        records: &[HistoryEntry],
        limits: PageLimits,
        hidden: &HiddenValues,
        redact: &Redaction,
    ) -> Self {
        let mut page = PageBuilder::new(limits);
        let mut last = None;
        let mut has_more = false;
        for record in records {
            let entry = HistoryEntryView::of(record, hidden, redact);
            // The cursor of a history is a version, not that of the builder.
            if !page.push(entry, String::new()) {
                has_more = true;
                break;
            }
            last = Some(record.version);
        }

        Self {
            items: page.finish(None).entries,
            next: last.filter(|_| has_more),
        }
    }
}

impl HistoryEntryView {
    /// Creates the view. `hidden` are the values that its texts must not quote.
    pub(crate) fn of(record: &HistoryEntry, hidden: &HiddenValues, redact: &Redaction) -> Self {
        // The payloads have no names: first that of the input, then the variables, then one for
        // each requested work item.
        let mut payloads = record.payloads.iter();
        let data = payloads
            .next()
            .flatten()
            .map(|payload| PayloadView::of(&payload, redact));
        let variables = payloads
            .next()
            .flatten()
            .map(|payload| PayloadView::of_variables(&payload, redact));

        let work = record.work.iter().map(|(label, id)| RequestedWorkView {
            label: label.clone().into(),
            id: id.to_string(),
            data: payloads
                .next()
                .flatten()
                .map(|payload| PayloadView::of(&payload, redact)),
        });
        let work = work.collect();

        let failure = record.failure.as_deref();
        let attempts = failure.and_then(|failure| failure.attempts.as_ref());
        Self {
            version: record.version,
            at: record.at.to_string(),
            input_id: record.input_id.to_string(),
            input_label: record.input_label.clone().into(),
            note: hidden.remove_from(&record.note),
            status: record.status.as_str(),
            work,
            data,
            variables,
            failure: failure
                .and_then(|failure| failure.failure.as_ref())
                .map(|failure| FailureView::of(failure, hidden)),
            attempts: attempts.map(|log| AttemptLogView::of(log, hidden, redact)),
            kind: record.origin.kind.map(InputKind::as_str),
            node: Some(record.origin.node.to_string()).filter(|node| !node.is_empty()),
            delay_ms: record.origin.delay_ms,
            attributes: record
                .origin
                .attributes
                .as_deref()
                .map(|found| AttributesView::of(found, redact)),
        }
    }
}

impl AttributesView {
    fn of(attributes: &EventAttributes, redact: &Redaction) -> Self {
        Self {
            datacontenttype: attributes.content_type.clone(),
            dataschema: attributes.data_schema.clone(),
            extensions: redact.redact(json!(attributes.extensions)),
        }
    }
}

impl PayloadView {
    fn of(payload: &RecordedPayload<'_>, redact: &Redaction) -> Self {
        Self::with(payload, redact, |value| redact.redact(value))
    }

    /// Redacts each variable under the path of a variable, such as `vars.card`.
    fn of_variables(payload: &RecordedPayload<'_>, redact: &Redaction) -> Self {
        Self::with(payload, redact, |value| match value {
            Value::Object(changes) => {
                let changes = changes.into_iter();
                changes
                    .map(|(name, change)| redacted_change(name, &change, redact))
                    .collect::<Map<_, _>>()
                    .into()
            }
            value => redact.redact(value),
        })
    }

    fn with(
        payload: &RecordedPayload<'_>,
        redact: &Redaction,
        shown: impl FnOnce(Value) -> Value,
    ) -> Self {
        // A cut payload can still be JSON, for example a number, but with another value.
        let value = serde_json::from_str(&payload.text)
            .ok()
            .filter(|_| !payload.is_cut());
        if let Some(value) = value {
            return Self {
                value: shown(value),
                beginning: None,
                size: payload.size,
            };
        }

        // Without its end, the text has no structure by which fields could be redacted.
        let beginning = redact.redact_beginning(&payload.text);
        Self {
            value: Value::Null,
            beginning: Some(beginning),
            size: payload.size,
        }
    }
}

/// Redacts the values of a variable before and after a transition. An element of a list has the
/// name `rooms[3]`.
fn redacted_change(name: String, change: &Value, redact: &Redaction) -> (String, Value) {
    let variable = name.split('[').next().unwrap_or_default();
    // Wrapped as in a state, so that the rules for the path of the variable apply.
    let mut redacted = redact.redact(json!({ "vars": { variable: change } }));
    let change = redacted
        .pointer_mut(&format!("/vars/{variable}"))
        .map(Value::take);
    (name, change.unwrap_or_default())
}

impl AttemptLogView {
    fn of(log: &AttemptLog, hidden: &HiddenValues, redact: &Redaction) -> Self {
        let items = log
            .records
            .iter()
            .map(|record| AttemptRecordView::of(record, hidden, redact));
        Self {
            items: items.collect(),
            omitted: log.omitted,
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::RecordedPayloads;

    use super::*;

    fn shown(value: &Value, limit: usize, rule: &str, variables: bool) -> Value {
        let redact: Redaction = serde_json::from_value(json!({ "fields": [rule] })).unwrap();
        let mut payloads = RecordedPayloads::default();
        payloads.push(Some(value), limit);
        let payload = payloads.iter().flatten().next().unwrap();
        let of = if variables {
            PayloadView::of_variables
        } else {
            PayloadView::of
        };
        serde_json::to_value(of(&payload, &redact)).unwrap()
    }

    #[test]
    fn payloads_and_variables_are_redacted() {
        let hidden = json!({ "value": { "card": "[redacted]", "total": 3 }, "size": 25 });
        assert_eq!(
            shown(&json!({ "card": "4111", "total": 3 }), 100, "card", false),
            hidden
        );
        let changes = json!({ "cards[1]": [null, "4111"], "total": [1, 2] });
        let hidden = json!({ "value": { "cards[1]": "[redacted]", "total": [1, 2] }, "size": 40 });
        assert_eq!(shown(&changes, 100, "vars.cards", true), hidden);
    }

    #[test]
    fn beginning_of_a_payload_is_hidden_if_any_rule_exists() {
        let hidden = json!({ "value": null, "beginning": "[redacted]", "size": 25 });
        assert_eq!(
            shown(&json!({ "card": "4111", "total": 3 }), 10, "card", false),
            hidden
        );
    }
}
