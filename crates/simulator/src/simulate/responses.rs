//! Response policy: all successful, no responses, or by the name of the work.

use std::collections::BTreeMap;

use orlog_model::{
    CURRENT_SCHEMA, Event, EventId, EventType, Failure, IN_DOUBT, Input, Timestamp, Work, WorkItem,
    WorkOutcome, WorkResult,
};
use orlog_program::Diagnostic;
use orlog_program::Program;
use orlog_program::document::{Document, Entry, Item};
use serde_json::Value;

use crate::responses::{ResponseSource, response_spec};
use crate::simulator::RequestedWork;

/// Response policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsePolicy {
    by_name: BTreeMap<String, SimulatedResponse>,
    other: SimulatedResponse,
}

/// Response to one kind of work.
#[derive(Clone, Debug, PartialEq)]
pub enum SimulatedResponse {
    /// Success with this payload.
    Ok(Value),
    /// Failure with this code.
    Fail(String),
    /// Unknown outcome.
    InDoubt,
    /// No response.
    None,
    /// This event.
    Event(EventType, Value),
}

impl ResponsePolicy {
    /// Returns the policy that responds with success to all work.
    #[must_use]
    pub fn ok() -> Self {
        Self {
            by_name: BTreeMap::new(),
            other: SimulatedResponse::Ok(Value::Null),
        }
    }

    /// Returns the policy that never responds.
    #[must_use]
    pub fn none() -> Self {
        Self {
            by_name: BTreeMap::new(),
            other: SimulatedResponse::None,
        }
    }

    /// Parses a policy. It maps work names (`payments.charge`, `inventory.ReserveStock`, `*` for
    /// all others) to `ok`, `none`, `in_doubt` (of an effect or a job), `{ ok: payload }`,
    /// `{ fail: code }` or `{ event: type, data: payload }`.
    ///
    /// # Errors
    /// All diagnostics of the policy.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<Diagnostic>> {
        let document = Document::read(text, file).map_err(|problem| vec![problem])?;
        let root = document.root();
        let entries = root
            .map()
            .ok_or_else(|| vec![root.type_error("a map of work names to responses")])?;

        let mut this = Self::ok();
        let mut problems = Vec::new();
        for Entry { name, item, .. } in &entries {
            match (reply(item), *name) {
                // `*` is the default at any place of the map, because names take precedence over
                // it.
                (Ok(reply), "*") => this.other = reply,
                (Ok(reply), name) => drop(this.by_name.insert(name.to_owned(), reply)),
                (Err(problem), _) => problems.push(problem),
            }
        }

        if problems.is_empty() {
            Ok(this)
        } else {
            Err(problems)
        }
    }

    /// Returns the input that completes a work item, or `None` without a response.
    pub(super) fn response_to(
        &self,
        requested: &RequestedWork,
        awaits_event: bool,
        now: Timestamp,
    ) -> Option<Input> {
        let item = &requested.item;
        let named = self.by_name.get(item.work.label().as_str());

        let outcome = match named.unwrap_or(&self.other) {
            SimulatedResponse::None => return None,
            SimulatedResponse::Event(kind, data) => {
                return Some(response_event(item, kind, data, now));
            }
            // The recording contains the completing event.
            SimulatedResponse::Ok(_) if awaits_event => return None,
            // A gateway only accepts a command; it returns no payload.
            SimulatedResponse::Ok(_) if matches!(item.work, Work::Command(_)) => {
                WorkOutcome::Accepted
            }
            SimulatedResponse::Ok(payload) => WorkOutcome::Succeeded {
                event: None,
                payload: payload.clone(),
                schema_version: CURRENT_SCHEMA,
            },
            SimulatedResponse::InDoubt => {
                let message = format!("the outcome of {} is unknown", item.work.label());
                WorkOutcome::TimedOut {
                    failure: Failure {
                        code: IN_DOUBT.to_owned(),
                        message,
                    },
                }
            }
            SimulatedResponse::Fail(code) => {
                let message = format!("{} fails in this simulation", item.work.label());
                let failure = Failure {
                    code: code.clone(),
                    message,
                };
                WorkOutcome::Failed {
                    event: None,
                    failure,
                    payload: Value::Null,
                }
            }
        };

        Some(Input::WorkResult(WorkResult {
            work_id: item.id,
            outbox_key: requested.outbox.clone(),
            outcome,
            requested_at: item.created_at,
            attempts: 1,
            at: now,
            facts: Vec::new(),
            publishes: false,
            trace: item.trace.clone(),
            attempt_log: None,
        }))
    }
}

fn reply(item: &Item<'_>) -> Result<SimulatedResponse, Diagnostic> {
    match item.text() {
        Some("ok") => return Ok(SimulatedResponse::Ok(Value::Null)),
        Some("none") => return Ok(SimulatedResponse::None),
        Some("in_doubt") => return Ok(SimulatedResponse::InDoubt),
        Some("fail") => return Ok(SimulatedResponse::Fail("failed".to_owned())),
        Some(_) | None => {}
    }

    let fields = item.map().ok_or_else(|| {
        item.type_error("ok, fail, in_doubt, none, or a map with ok, fail or event")
    })?;

    if let Some(unknown) = fields
        .iter()
        .find(|field| !["ok", "fail", "event", "data"].contains(&field.name))
    {
        return Err(unknown.unknown_field(&["ok", "fail", "event", "data"]));
    }

    let find = |name: &str| {
        fields
            .iter()
            .find(|field| field.name == name)
            .map(|field| &field.item)
    };
    let data = find("data").map_or(Value::Null, Item::json);

    match (find("ok"), find("fail"), find("event")) {
        (Some(payload), None, None) => Ok(SimulatedResponse::Ok(payload.json())),
        (None, Some(code), None) => code
            .text()
            .map(|code| SimulatedResponse::Fail(code.to_owned()))
            .ok_or_else(|| code.type_error("a text")),
        (None, None, Some(event)) => {
            let kind = event.text().ok_or_else(|| event.type_error("a text"))?;
            EventType::new(kind)
                .map(|kind| SimulatedResponse::Event(kind, data))
                .map_err(|e| event.diagnostic(e.to_string()))
        }
        _ => Err(item.diagnostic("requires exactly one of ok, fail and event")),
    }
}

fn response_event(item: &WorkItem, kind: &EventType, data: &Value, now: Timestamp) -> Input {
    Input::Event(Event {
        id: EventId::new(format!("response:{}", item.id)).expect("a UUID is a valid event id"),
        tenant: item.instance.tenant.clone(),
        kind: kind.clone(),
        source: "orlog:simulate".to_owned(),
        subject: None,
        time: now,
        correlation: Some(item.instance.correlation.clone()),
        causation: Some(item.id.to_string()),
        trace: None,
        schema_version: 1,
        data: data.clone(),
        user: None,
        attributes: None,
    })
}

/// Returns whether an event completes this work.
pub(super) fn awaits_event(program: &dyn Program, item: &WorkItem) -> bool {
    let definition = program
        .as_compiled()
        .map(orlog_program::CompiledDefinition::definition);
    let spec = definition
        .zip(item.work.tag())
        .and_then(|(d, tag)| response_spec(d, tag.as_str()));
    spec.is_some_and(|spec| spec.source == ResponseSource::Event)
}
