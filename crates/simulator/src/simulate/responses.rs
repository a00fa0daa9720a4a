//! Who answers for the world: everything well, nothing at all, or by the name of what is asked.

use std::collections::BTreeMap;

use orlog_model::{
    Event, EventId, EventType, Failure, IN_DOUBT, Input, Outcome, Timestamp, Verdict, Work, WorkItem,
};
use orlog_program::Problem;
use orlog_program::Program;
use orlog_program::document::{Document, Entry, Item};
use serde_json::Value;

use crate::responses::{By, answering};
use crate::simulator::Asked;

/// The policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    by_name: BTreeMap<String, Reply>,
    other: Reply,
}

/// The answer to one kind of work.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done, with this payload.
    Ok(Value),
    /// It fails, with this code.
    Fail(String),
    /// Nobody knows whether it is done.
    Doubt,
    /// Silence.
    None,
    /// This event happens.
    Event(EventType, Value),
}

impl Answers {
    /// Everything is done.
    #[must_use]
    pub fn ok() -> Self {
        Self { by_name: BTreeMap::new(), other: Reply::Ok(Value::Null) }
    }

    /// Nothing is answered.
    #[must_use]
    pub fn none() -> Self {
        Self { by_name: BTreeMap::new(), other: Reply::None }
    }

    /// Reads a policy: a map from what is asked (`payments.charge`, `inventory.ReserveStock`, `*` for all others) to `ok`,
    /// `none`, `doubt` (of an effect or a job), `{ ok: payload }`, `{ fail: code }` or `{ event: type, data: payload }`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(text: &str, file: &str) -> Result<Self, Vec<Problem>> {
        let document = Document::read(text, file).map_err(|problem| vec![problem])?;
        let root = document.root();
        let entries = root.map().ok_or_else(|| vec![root.must_be("a map of what is asked to its answer")])?;
        let mut this = Self::ok();
        let mut problems = Vec::new();
        for Entry { name, item, .. } in &entries {
            match (reply(item), *name) {
                (Ok(reply), "*") => this.other = reply,
                (Ok(reply), name) => drop(this.by_name.insert(name.to_owned(), reply)),
                (Err(problem), _) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(this) } else { Err(problems) }
    }

    /// The input that answers a piece of work; none where nobody answers.
    pub(super) fn answer(&self, asked: &Asked, awaits_event: bool, now: Timestamp) -> Option<Input> {
        let item = &asked.item;
        let named = self.by_name.get(&item.work.label());
        let verdict = match named.unwrap_or(&self.other) {
            Reply::None => return None,
            Reply::Event(kind, data) => return Some(happened(item, kind, data, now)),
            // What answers it stands in the record.
            Reply::Ok(_) if awaits_event => return None,
            Reply::Ok(_) if matches!(item.work, Work::Command(_)) => Verdict::Accepted,
            Reply::Ok(payload) => Verdict::Succeeded { event: None, payload: payload.clone() },
            Reply::Doubt => {
                let message = format!("nobody knows whether {} was done", item.work.label());
                Verdict::TimedOut { failure: Failure { code: IN_DOUBT.to_owned(), message } }
            }
            Reply::Fail(code) => {
                let message = format!("{} fails in this simulation", item.work.label());
                let failure = Failure { code: code.clone(), message };
                Verdict::Failed { event: None, failure, payload: Value::Null }
            }
        };
        let outbox = asked.outbox.clone();
        Some(Input::Outcome(Outcome {
            work_id: item.id,
            outbox,
            verdict,
            attempts: 1,
            at: now,
            facts: Vec::new(),
            trace: item.trace.clone(),
        }))
    }
}

fn reply(item: &Item<'_>) -> Result<Reply, Problem> {
    match item.text() {
        Some("ok") => return Ok(Reply::Ok(Value::Null)),
        Some("none") => return Ok(Reply::None),
        Some("doubt") => return Ok(Reply::Doubt),
        Some("fail") => return Ok(Reply::Fail("failed".to_owned())),
        Some(_) | None => {}
    }
    let fields =
        item.map().ok_or_else(|| item.must_be("ok, fail, doubt, none, or a map with ok, fail or event"))?;
    if let Some(wrong) = fields.iter().find(|field| !["ok", "fail", "event", "data"].contains(&field.name)) {
        return Err(wrong.unknown(&["ok", "fail", "event", "data"]));
    }
    let find = |name: &str| fields.iter().find(|field| field.name == name).map(|field| &field.item);
    let data = find("data").map_or(Value::Null, Item::json);
    match (find("ok"), find("fail"), find("event")) {
        (Some(payload), None, None) => Ok(Reply::Ok(payload.json())),
        (None, Some(code), None) => {
            code.text().map(|code| Reply::Fail(code.to_owned())).ok_or_else(|| code.must_be("a text"))
        }
        (None, None, Some(event)) => {
            let kind = event.text().ok_or_else(|| event.must_be("a text"))?;
            EventType::new(kind)
                .map(|kind| Reply::Event(kind, data))
                .map_err(|e| event.problem(e.to_string()))
        }
        _ => Err(item.problem("name one of ok, fail and event")),
    }
}

fn happened(item: &WorkItem, kind: &EventType, data: &Value, now: Timestamp) -> Input {
    Input::Event(Event {
        id: EventId::new(format!("answer:{}", item.id)).expect("a UUID is short ASCII"),
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
    })
}

/// Whether the answer of this work is an event.
pub(super) fn awaits_event(program: &dyn Program, item: &WorkItem) -> bool {
    let definition = program.compiled().map(orlog_program::Compiled::definition);
    let how = definition.zip(item.work.tag()).and_then(|(d, tag)| answering(d, tag.as_str()));
    how.is_some_and(|how| how.by == By::Event)
}
