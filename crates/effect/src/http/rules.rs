//! Rules over HTTP statuses; what no rule covers means what [`super::answer`] says.

use std::fmt;
use std::str::FromStr;

use orlog_model::Failure;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::response::{self, Answered, Asked};
use crate::provider::{Refusal, Reply};
use crate::response_rules::{Judged, Rule};

/// One rule about responses.
pub type ResponseConfig = Rule<Statuses>;

/// A range of statuses: `402`, `"4xx"`, `"400-409"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

/// Judges a response by the first rule that fits, else by its status alone.
pub(crate) fn judge(
    rules: &[ResponseConfig],
    asked: Asked<'_>,
    answered: &Answered,
) -> Result<Reply, Refusal> {
    if rules.is_empty() {
        return response::judge(asked, answered);
    }
    let (body, status) = (response::payload(&answered.body), answered.status.as_u16());
    let covers = |statuses: &Statuses| (statuses.first..=statuses.last).contains(&status);
    let Some(rule) = rules.iter().find(|rule| rule.fits(covers, &body)) else {
        return response::judge(asked, answered);
    };
    let usual = Failure { code: format!("http_{status}"), message: response::message(asked, answered) };
    rule.judge(Judged { body: &body, usual, retry_after: response::retry_after(&answered.headers) })
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
