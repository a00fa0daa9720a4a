//! What responses mean where an effect says so itself; everything else means what [`super::answer`] says.

use orlog_model::{EventType, Failure};
use reqwest::StatusCode;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::answer::{self, Answered, Asked};
use crate::provider::{Refusal, Reply, Trouble};

/// One rule. The first that fits decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseConfig {
    /// Which statuses: `402`, `"4xx"`, `"400-409"`; any where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Statuses>,
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

/// What a response means.
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

/// A range of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl ResponseConfig {
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

    fn fits(&self, status: StatusCode, body: &Value) -> bool {
        let code = status.as_u16();
        self.status.is_none_or(|statuses| (statuses.first..=statuses.last).contains(&code))
            && self.when.iter().all(|(pointer, value)| body.pointer(pointer) == Some(value))
    }

    fn judge(&self, asked: Asked<'_>, answered: &Answered, body: &Value) -> Result<Reply, Refusal> {
        let payload = self
            .payload
            .as_ref()
            .map_or_else(|| body.clone(), |pointer| body.pointer(pointer).cloned().unwrap_or(Value::Null));
        let event = self.event(body);
        let code = text(self.code.as_ref(), body);
        let failure = Failure {
            code: code.unwrap_or_else(|| format!("http_{}", answered.status.as_u16())),
            message: text(self.message.as_ref(), body).unwrap_or_else(|| answer::message(asked, answered)),
        };
        let trouble = match self.result {
            Meaning::Succeeded => return Ok(Reply { event, payload, facts: Vec::new() }),
            Meaning::Failed => return Err(Refusal::Final { failure, event, payload, facts: Box::default() }),
            Meaning::Retry => Trouble::Down,
            Meaning::Busy => Trouble::Busy,
            Meaning::Lost => Trouble::Lost,
        };
        Err(Refusal::Transient { failure, trouble, retry_after: answer::retry_after(&answered.headers) })
    }

    /// A name in the body that is no event name names none: the definition's conditions decide then.
    fn event(&self, body: &Value) -> Option<EventType> {
        EventType::new(text(self.event.as_ref(), body)?).ok()
    }
}

/// A text that is given, or the one that a pointer leads to.
fn text(given: Option<&String>, body: &Value) -> Option<String> {
    let given = given?;
    if is_pointer(given) { body.pointer(given).and_then(super::text::plain) } else { Some(given.clone()) }
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/')
}

/// Judges a response by the first rule that fits, else by its status alone.
pub(crate) fn judge(
    rules: &[ResponseConfig],
    asked: Asked<'_>,
    answered: &Answered,
) -> Result<Reply, Refusal> {
    if rules.is_empty() {
        return answer::judge(asked, answered);
    }
    let body = answer::payload(&answered.body);
    match rules.iter().find(|rule| rule.fits(answered.status, &body)) {
        Some(rule) => rule.judge(asked, answered, &body),
        None => answer::judge(asked, answered),
    }
}

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} names no statuses; write for example 402, \"4xx\" or \"400-409\"");
        let whole = |text: &str| text.parse::<u16>().ok().filter(|code| (100..=999).contains(code));
        let range = match (text.strip_suffix("xx"), text.split_once('-')) {
            (Some(hundreds), _) => whole(&format!("{hundreds}00")).map(|first| (first, first + 99)),
            (None, Some((first, last))) => whole(first).zip(whole(last)),
            (None, None) => whole(text).map(|code| (code, code)),
        };
        let (first, last) = range.filter(|(first, last)| first <= last).ok_or_else(wrong)?;
        Ok(Self { first, last })
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u16),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Number(code) => code.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
