//! What answers mean where an effect says so itself, for upstreams that answer with a status and JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, Failure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placeholders::plain;
use crate::provider::{Refusal, Reply, Trouble};

/// One rule over statuses `S`. The first that fits decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule<S> {
    /// Which statuses; any where absent.
    #[serde(default = "any", skip_serializing_if = "Option::is_none")]
    pub status: Option<S>,
    /// JSON pointers into the body, and what must stand there. All must fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, Value>,
    /// What it means.
    pub result: Meaning,
    /// The event that the saga hears: its name, or a JSON pointer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The code of a failure: itself, or a JSON pointer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The message of a failure: itself, or a JSON pointer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A JSON pointer to the part of the body that is the answer; the whole where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meaning {
    /// It was done.
    Succeeded,
    /// It was refused for good.
    Failed,
    /// It was not done; the upstream is ill; another attempt may help.
    Retry,
    /// It was not done; the upstream is well and asks for patience.
    Busy,
    /// Nobody knows whether it was done.
    Lost,
}

/// What is judged, and what a failure says where the rule does not.
pub(crate) struct Judged<'a> {
    pub(crate) body: &'a Value,
    pub(crate) usual: Failure,
    pub(crate) retry_after: Option<Duration>,
}

impl<S> Rule<S> {
    /// Checks what no single key shows.
    pub(crate) fn check(&self) -> Result<(), String> {
        let pointers = self.when.keys().chain(&self.payload);
        if let Some(bad) = pointers.into_iter().find(|pointer| !pointer.is_empty() && !is_pointer(pointer)) {
            return Err(format!("{bad:?} is no JSON pointer; write for example /error/code"));
        }
        match self.event.as_deref().filter(|event| !is_pointer(event)).map(EventType::new) {
            Some(Err(error)) => Err(format!("the event: {error}")),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    pub(crate) fn fits(&self, covers: impl FnOnce(&S) -> bool, body: &Value) -> bool {
        self.status.as_ref().is_none_or(covers)
            && self.when.iter().all(|(pointer, value)| body.pointer(pointer) == Some(value))
    }

    pub(crate) fn judge(&self, judged: Judged<'_>) -> Result<Reply, Refusal> {
        let Judged { body, usual, retry_after } = judged;
        let payload = self
            .payload
            .as_ref()
            .map_or_else(|| body.clone(), |pointer| body.pointer(pointer).cloned().unwrap_or(Value::Null));
        let event = self.event(body);
        let failure = Failure {
            code: text(self.code.as_ref(), body).unwrap_or(usual.code),
            message: text(self.message.as_ref(), body).unwrap_or(usual.message),
        };
        let trouble = match self.result {
            Meaning::Succeeded => return Ok(Reply { event, payload, facts: Vec::new() }),
            Meaning::Failed => return Err(Refusal::Final { failure, event, payload, facts: Box::default() }),
            Meaning::Retry => Trouble::Down,
            Meaning::Busy => Trouble::Busy,
            Meaning::Lost => Trouble::Lost,
        };
        Err(Refusal::Transient { failure, trouble, retry_after })
    }

    /// A name in the body that is no event name names none: the definition's conditions decide then.
    fn event(&self, body: &Value) -> Option<EventType> {
        EventType::new(text(self.event.as_ref(), body)?).ok()
    }
}

/// A text that is given, or the one that a pointer leads to.
fn text(given: Option<&String>, body: &Value) -> Option<String> {
    let given = given?;
    if is_pointer(given) { body.pointer(given).and_then(plain) } else { Some(given.clone()) }
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/')
}

fn any<S>() -> Option<S> {
    None
}
