//! Texts and JSON with placeholders, for headers, bodies and whole URLs.
//!
//! | placeholder | stands for |
//! |---|---|
//! | `{a.b.0}` | a field of the arguments; it must be there |
//! | `{a.b?}` | the same; empty, or `null` in JSON, where it is absent |
//! | `{@id}` `{@tenant}` `{@saga}` `{@correlation}` `{@effect}` | the idempotency key, who asked, for what |
//! | `{env:NAME}` `{file:/path}` | a secret; headers only |
//! | `{{` `}}` | braces |
//!
//! In JSON a text that is nothing but one placeholder takes the field as it is, with its type.

use std::borrow::Cow;

use orlog_model::{EffectName, WorkItem};
use serde_json::{Map, Value};

use crate::provider::Refusal;
use crate::secret::{Scrub, SecretRef};

/// What placeholders are filled from.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) item: &'a WorkItem,
    pub(crate) payload: &'a Value,
}

impl<'a> Scope<'a> {
    pub(crate) fn find(&self, name: &str) -> Option<Cow<'a, Value>> {
        let Some(word) = name.strip_prefix('@') else { return field(self.payload, name).map(Cow::Borrowed) };
        let instance = &self.item.instance;
        let text = match word {
            "id" => self.item.id.to_string(),
            "tenant" => instance.tenant.to_string(),
            "saga" => instance.saga.to_string(),
            "correlation" => instance.correlation.to_string(),
            "effect" => self.item.work.label(),
            _ => return None,
        };
        Some(Cow::Owned(Value::String(text)))
    }
}

/// The words after `@`.
pub(crate) const WORDS: [&str; 5] = ["id", "tenant", "saga", "correlation", "effect"];

/// The field at a path with dots.
pub(crate) fn field<'a>(payload: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(payload, |value, key| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })
}

/// A value as text; `None` where it has no text.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text, read once and filled often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Plain(String),
    Field { name: String, optional: bool },
    Secret(SecretRef),
}

/// A text that could not be filled.
#[derive(Debug)]
pub(crate) enum Unfilled {
    /// The arguments are to blame: trying again is pointless.
    Payload(String),
    /// A secret is not there: somebody may bring it.
    Secret(String),
}

impl Unfilled {
    /// What it means for the effect that could not be made.
    pub(crate) fn refusal(self, what: &str, effect: &EffectName) -> Refusal {
        match self {
            Self::Payload(why) => Refusal::failed("bad_payload", format!("{what} of {effect}: {why}")),
            Self::Secret(why) => Refusal::retry("secret", format!("{what} of {effect}: {why}")),
        }
    }
}

impl Text {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let tail = &rest[at..];
            if tail.starts_with("{{") || tail.starts_with("}}") {
                plain.push_str(&tail[..1]);
                rest = &tail[2..];
                continue;
            }
            let inner = tail.strip_prefix('{').ok_or("a } has no {; write }} for a brace")?;
            let (name, after) = inner.split_once('}').ok_or("a { has no }; write {{ for a brace")?;
            if !plain.is_empty() {
                parts.push(Part::Plain(std::mem::take(&mut plain)));
            }
            parts.push(placeholder(name)?);
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Plain(plain));
        }
        Ok(Self(parts))
    }

    pub(crate) fn has_secrets(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Secret(_)))
    }

    /// What stands before the first placeholder; the whole text where there is none.
    pub(crate) fn beginning(&self) -> &str {
        match self.0.first() {
            Some(Part::Plain(text)) => text,
            Some(Part::Field { .. } | Part::Secret(_)) | None => "",
        }
    }

    /// Whether it is nothing but one field.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.0.as_slice(), [Part::Field { .. }])
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Plain(_)))
    }

    /// Fills it; `encode` is applied to what is filled in, with its position among the parts.
    pub(crate) fn fill(
        &self,
        scope: Scope<'_>,
        scrub: &mut Scrub,
        encode: impl Fn(usize, String) -> String,
    ) -> Result<String, Unfilled> {
        let mut filled = String::new();
        for (index, part) in self.0.iter().enumerate() {
            match part {
                Part::Plain(text) => filled.push_str(text),
                Part::Field { name, optional } => {
                    filled.push_str(&encode(index, value(scope, name, *optional)?));
                }
                Part::Secret(reference) => {
                    let secret = reference.resolve().map_err(|error| Unfilled::Secret(error.to_string()))?;
                    scrub.add(&secret);
                    filled.push_str(secret.expose());
                }
            }
        }
        Ok(filled)
    }
}

fn value(scope: Scope<'_>, name: &str, optional: bool) -> Result<String, Unfilled> {
    match scope.find(name).as_deref() {
        None | Some(Value::Null) if optional => Ok(String::new()),
        None => Err(Unfilled::Payload(format!("the payload has no field {name:?}"))),
        Some(found) => plain(found)
            .ok_or_else(|| Unfilled::Payload(format!("the field {name:?} is no text, number or boolean"))),
    }
}

fn placeholder(name: &str) -> Result<Part, String> {
    if name.starts_with("env:") || name.starts_with("file:") {
        return name.parse().map(Part::Secret).map_err(|error| format!("a placeholder: {error}"));
    }
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
    if let Some(word) = name.strip_prefix('@').filter(|word| !WORDS.contains(word)) {
        return Err(format!(
            "{{@{word}}} is unknown; there is {}",
            WORDS.map(|w| format!("@{w}")).join(", ")
        ));
    }
    if name.contains('{') || name.split('.').any(str::is_empty) {
        return Err(format!("{{{name}}} is no field name"));
    }
    Ok(Part::Field { name: name.to_owned(), optional })
}

/// JSON with placeholders in its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    Plain(Value),
    Whole { name: String, optional: bool },
    Text(Text),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => {
                let text = Text::parse(text)?;
                if text.has_secrets() {
                    return Err("a secret cannot stand in a body; send it in a header".to_owned());
                }
                match text.0.as_slice() {
                    [Part::Field { name, optional }] => {
                        Self::Whole { name: name.clone(), optional: *optional }
                    }
                    _ => Self::Text(text),
                }
            }
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let parsed = fields.iter().map(|(key, value)| Ok((key.clone(), Self::parse(value)?)));
                Self::Map(parsed.collect::<Result<_, String>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Plain(value.clone()),
        })
    }

    pub(crate) fn fill(&self, scope: Scope<'_>) -> Result<Value, Unfilled> {
        Ok(match self {
            Self::Plain(value) => value.clone(),
            Self::Whole { name, optional } => match scope.find(name) {
                Some(value) => value.into_owned(),
                None if *optional => Value::Null,
                None => return Err(Unfilled::Payload(format!("the payload has no field {name:?}"))),
            },
            Self::Text(text) => Value::String(text.fill(scope, &mut Scrub::default(), |_, text| text)?),
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.fill(scope)).collect::<Result<_, _>>()?)
            }
            Self::Map(fields) => {
                let filled = fields.iter().map(|(key, value)| Ok((key.clone(), value.fill(scope)?)));
                Value::Object(filled.collect::<Result<Map<_, _>, Unfilled>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use orlog_testkit::provider_suite::item;
    use serde_json::json;

    use super::*;

    fn filled(text: &str) -> String {
        let item = item(&orlog_model::EffectName::new("pay.charge").unwrap(), 1);
        let payload = json!({"a": {"b": [7, "x"]}, "none": null, "flag": true});
        let scope = Scope { item: &item, payload: &payload };
        match Text::parse(text).map(|text| text.fill(scope, &mut Scrub::default(), |_, text| text)) {
            Ok(Ok(text)) => text,
            Ok(Err(Unfilled::Payload(why) | Unfilled::Secret(why))) | Err(why) => format!("! {why}"),
        }
    }

    #[test]
    fn fills_texts_and_says_what_is_wrong() {
        for (text, expected) in [
            ("{a.b.0}/{a.b.1} {flag}", "7/x true"),
            ("{{{flag}}} {zzz?}{none?}.", "{true} ."),
            ("{@tenant} {@correlation} {@effect}", "acme o-1 pay.charge"),
            ("{zzz}", "! the payload has no field \"zzz\""),
            ("{a}", "! the field \"a\" is no text, number or boolean"),
            ("{env:ORLOG_NOT_SET_7F3A}", "! the secret env:ORLOG_NOT_SET_7F3A cannot be read: it is not set"),
            ("{", "! a { has no }; write {{ for a brace"),
            ("}", "! a } has no {; write }} for a brace"),
            ("{@who}", "! {@who} is unknown; there is @id, @tenant, @saga, @correlation, @effect"),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
    }

    #[test]
    fn json_keeps_the_types_of_what_is_filled_in() {
        let item = item(&orlog_model::EffectName::new("pay.charge").unwrap(), 1);
        let payload = json!({"n": 7, "list": [1, 2], "name": "x"});
        let template =
            json!({"amount": "{n}", "all": "{list}", "text": "n={n}", "gone": "{zzz?}", "fix": [true, 1]});
        let body = Json::parse(&template).unwrap().fill(Scope { item: &item, payload: &payload }).unwrap();
        assert_eq!(body, json!({"amount": 7, "all": [1, 2], "text": "n=7", "gone": null, "fix": [true, 1]}));
        assert!(Json::parse(&json!(["{env:TOKEN}"])).is_err());
    }
}
