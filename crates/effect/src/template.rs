//! Templates with placeholders, for texts, URLs, subjects and JSON: one syntax and one scanner.
//!
//! | placeholder | value |
//! |---|---|
//! | `{a.b.0}` | a field of the arguments; required |
//! | `{a.b?}` | the same, optional; empty, or `null` in JSON, if it is absent |
//! | `{@id}` `{@effect}` | idempotency key, name of the effect |
//! | `{@tenant}` `{@saga}` `{@correlation}` | key of the instance |
//! | `{env:NAME}` `{file:/path}` `{command:/path}` | a secret; headers only |
//! | `{{` `}}` | braces |
//!
//! Each use passes its escaping: percent-encoding for URLs, tokens for subjects, HTML for emails.
//! In JSON, a text of a single placeholder is replaced by the field with its type. Statements of a
//! database have parameters instead, whose values are JSON templates.

use std::borrow::Cow;

use orlog_model::{EffectName, WorkItem};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::provider::ProviderError;
use crate::secret::{SecretRef, SecretScrubber};

/// All characters except the unreserved ones of RFC 3986.
pub(crate) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Names after `@`.
const RESERVED_NAMES: [&str; 5] = ["id", "tenant", "saga", "correlation", "effect"];

#[derive(Clone, Copy)]
pub(crate) struct PlaceholderScope<'a> {
    pub(crate) item: &'a WorkItem,
    pub(crate) payload: &'a Value,
}

impl<'a> PlaceholderScope<'a> {
    fn find(&self, name: &str) -> Option<Cow<'a, Value>> {
        let Some(keyword) = name.strip_prefix('@') else {
            return field(self.payload, name).map(Cow::Borrowed);
        };

        let instance = &self.item.instance;
        let text = match keyword {
            "id" => self.item.id.to_string(),
            "tenant" => instance.tenant.to_string(),
            "saga" => instance.saga.to_string(),
            "correlation" => instance.correlation.to_string(),
            "effect" => self.item.work.label().into(),
            _ => return None,
        };
        Some(Cow::Owned(Value::String(text)))
    }
}

/// Returns the field at a dotted path.
fn field<'a>(payload: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(payload, |value, key| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })
}

/// Returns a value as text; `None` if it has no text form.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Plain(String),
    Field { name: String, optional: bool },
    Secret(SecretRef),
}

#[derive(Debug)]
pub(crate) enum FillError {
    /// The arguments are invalid: a retry is pointless.
    Payload(String),
    /// A secret is missing: an operator may provide it.
    Secret(String),
}

impl FillError {
    /// Returns the provider error; `label` names the template.
    pub(crate) fn labeled(self, label: &str) -> ProviderError {
        match self {
            Self::Payload(reason) => {
                ProviderError::permanent("invalid_payload", format!("{label}: {reason}"))
            }
            Self::Secret(reason) => {
                ProviderError::unavailable("secret", format!("{label}: {reason}"))
            }
        }
    }

    pub(crate) fn into_provider_error(self, label: &str, effect: &EffectName) -> ProviderError {
        self.labeled(&format!("{label} of {effect}"))
    }
}

impl TextTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// The reason, with a remedy.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;

        while let Some(position) = rest.find(['{', '}']) {
            plain.push_str(&rest[..position]);
            let tail = &rest[position..];
            if tail.starts_with("{{") || tail.starts_with("}}") {
                plain.push_str(&tail[..1]);
                rest = &tail[2..];
                continue;
            }

            let inner = tail
                .strip_prefix('{')
                .ok_or("a } has no {; write }} for a literal brace")?;
            let (name, after) = inner
                .split_once('}')
                .ok_or("a { has no }; use {{ for a literal brace")?;

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

    /// Returns whether it consists of a single field.
    #[cfg(feature = "smtp")]
    pub(crate) fn is_single_field(&self) -> bool {
        matches!(self.0.as_slice(), [Part::Field { .. }])
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Plain(_)))
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Field { name, .. } => Some(name.as_str()),
            Part::Plain(_) | Part::Secret(_) => None,
        })
    }

    /// Fills the template without secrets; `encode` is applied to each value.
    ///
    /// # Errors
    /// If the values lack a required field, or it is not a string, number or boolean.
    pub(crate) fn render(
        &self,
        values: &Value,
        encode: impl Fn(String) -> String,
    ) -> Result<String, String> {
        let filled = self.fill_with(
            |name: &str| field(values, name).map(Cow::Borrowed),
            &mut SecretScrubber::default(),
            |_, text| encode(text),
        );
        filled.map_err(|(FillError::Payload(reason) | FillError::Secret(reason))| reason)
    }

    /// Fills the template; `encode` is applied to each value with its part index.
    pub(crate) fn fill(
        &self,
        scope: PlaceholderScope<'_>,
        scrub: &mut SecretScrubber,
        encode: impl Fn(usize, String) -> String,
    ) -> Result<String, FillError> {
        self.fill_with(|name| scope.find(name), scrub, encode)
    }

    fn fill_with<'a>(
        &self,
        find: impl Fn(&str) -> Option<Cow<'a, Value>>,
        scrub: &mut SecretScrubber,
        encode: impl Fn(usize, String) -> String,
    ) -> Result<String, FillError> {
        let mut filled = String::new();
        for (index, part) in self.0.iter().enumerate() {
            match part {
                Part::Plain(text) => filled.push_str(text),
                Part::Field { name, optional } => {
                    let value = value(find(name).as_deref(), name, *optional)?;
                    filled.push_str(&encode(index, value));
                }
                Part::Secret(reference) => {
                    let secret = reference
                        .resolve()
                        .map_err(|error| FillError::Secret(error.log().to_owned()))?;
                    // The upstream can repeat the secret in its response or in an error.
                    scrub.add(&secret);
                    filled.push_str(secret.expose());
                }
            }
        }
        Ok(filled)
    }
}

fn value(found: Option<&Value>, name: &str, optional: bool) -> Result<String, FillError> {
    match found {
        None | Some(Value::Null) if optional => Ok(String::new()),
        None => Err(FillError::Payload(format!(
            "the payload has no field {name:?}"
        ))),
        Some(found) => plain(found).ok_or_else(|| {
            FillError::Payload(format!(
                "the field {name:?} is not a string, number or boolean"
            ))
        }),
    }
}

fn placeholder(name: &str) -> Result<Part, String> {
    if ["env:", "file:", "command:"]
        .iter()
        .any(|source| name.starts_with(source))
    {
        return name
            .parse()
            .map(Part::Secret)
            .map_err(|error| format!("a placeholder: {error}"));
    }

    let (name, optional) = name
        .strip_suffix('?')
        .map_or((name, false), |name| (name, true));

    // A misspelled name would otherwise be a field that no payload has.
    if let Some(keyword) = name
        .strip_prefix('@')
        .filter(|keyword| !RESERVED_NAMES.contains(keyword))
    {
        return Err(format!(
            "unknown placeholder {{@{keyword}}}; available: {}",
            RESERVED_NAMES.map(|w| format!("@{w}")).join(", ")
        ));
    }

    if name.contains('{') || name.split('.').any(str::is_empty) {
        return Err(format!("{{{name}}} is not a valid field name"));
    }

    Ok(Part::Field {
        name: name.to_owned(),
        optional,
    })
}

/// Template of the part of a URL after its host: a path, a query, or both,
/// `/orders/{order.id}?lang={lang}`.
///
/// Values are percent-encoded and can neither add nor remove a path segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathTemplate {
    text: String,
    template: TextTemplate,
}

impl PathTemplate {
    /// Parses a path, which starts with `/`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            Self::suffix(text)
        } else {
            Err(malformed(text, "it does not start with /"))
        }
    }

    /// Parses the part of a URL after its host.
    pub(crate) fn suffix(text: &str) -> Result<Self, String> {
        if text
            .bytes()
            .any(|b| b.is_ascii_control() || b == b' ' || b == b'#')
        {
            return Err(malformed(
                text,
                "it contains a space, a control character or #",
            ));
        }

        let template = TextTemplate::parse(text).map_err(|reason| malformed(text, &reason))?;

        // URLs appear in logs, also in those of proxies.
        if template.has_secrets() {
            return Err(malformed(
                text,
                "a secret is not allowed in a path; send it in a header",
            ));
        }

        if has_dots(text) {
            return Err(malformed(text, "a segment is . or .."));
        }

        Ok(Self {
            text: text.to_owned(),
            template,
        })
    }

    /// Fills the placeholders from `payload`.
    ///
    /// # Errors
    /// If a field is missing, is not a text, number or boolean, or would change the structure of
    /// the path.
    pub(crate) fn render(&self, payload: &Value) -> Result<String, String> {
        self.fill_with(|name| field(payload, name).map(Cow::Borrowed))
    }

    pub(crate) fn fill(&self, scope: PlaceholderScope<'_>) -> Result<String, FillError> {
        self.fill_with(|name| scope.find(name))
            .map_err(FillError::Payload)
    }

    fn fill_with<'a>(
        &self,
        find: impl Fn(&str) -> Option<Cow<'a, Value>>,
    ) -> Result<String, String> {
        let mut path = String::with_capacity(self.text.len() + 32);
        let mut is_query = false;
        let unfit = |name: &str, reason| {
            format!("field {name:?} is not allowed in {:?}: {reason}", self.text)
        };

        for part in &self.template.0 {
            let Part::Field { name, optional } = part else {
                if let Part::Plain(text) = part {
                    path.push_str(text);
                    is_query |= text.contains('?');
                }
                continue;
            };

            let value = match find(name).as_deref() {
                None | Some(Value::Null) if *optional => String::new(),
                None => {
                    return Err(format!(
                        "payload field {name:?} is missing; {:?} requires it",
                        self.text
                    ));
                }
                Some(found) => plain(found)
                    .ok_or_else(|| unfit(name, "it is not a string, number or boolean"))?,
            };

            // An empty segment would change which resource the path names.
            if value.is_empty() && !is_query {
                return Err(unfit(name, "it is empty"));
            }
            path.extend(utf8_percent_encode(&value, RESERVED));
        }

        // A dot is not encoded, so a value alone can become a `..` that a server resolves.
        if has_dots(&path) {
            Err(unfit("", "a segment becomes . or .."))
        } else {
            Ok(path)
        }
    }
}

fn malformed(text: &str, reason: &str) -> String {
    format!("invalid path {text:?}: {reason}; example: /orders/{{order.id}}")
}

/// Returns whether a segment is `.` or `..`, also if it is encoded with `%2e`.
fn has_dots(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    path.split(['/', '\\']).any(|segment| {
        matches!(
            segment.to_ascii_lowercase().replace("%2e", ".").as_str(),
            "." | ".."
        )
    })
}

/// JSON template with placeholders in its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JsonTemplate {
    Plain(Value),
    Whole { name: String, optional: bool },
    Text(TextTemplate),
    List(Vec<JsonTemplate>),
    Map(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => {
                let text = TextTemplate::parse(text)?;
                if text.has_secrets() {
                    return Err("a secret is not allowed in a body; send it in a header".to_owned());
                }
                match text.0.as_slice() {
                    [Part::Field { name, optional }] => Self::Whole {
                        name: name.clone(),
                        optional: *optional,
                    },
                    _ => Self::Text(text),
                }
            }
            Value::Array(items) => {
                Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let mut parsed = Vec::with_capacity(fields.len());
                for (key, value) in fields {
                    parsed.push((key.clone(), Self::parse(value)?));
                }
                Self::Map(parsed)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Plain(value.clone()),
        })
    }

    pub(crate) fn fill(&self, scope: PlaceholderScope<'_>) -> Result<Value, FillError> {
        Ok(match self {
            Self::Plain(value) => value.clone(),
            Self::Whole { name, optional } => match scope.find(name) {
                Some(value) => value.into_owned(),
                None if *optional => Value::Null,
                None => {
                    return Err(FillError::Payload(format!(
                        "the payload has no field {name:?}"
                    )));
                }
            },
            Self::Text(text) => {
                Value::String(text.fill(scope, &mut SecretScrubber::default(), |_, text| text)?)
            }
            Self::List(items) => Value::Array(
                items
                    .iter()
                    .map(|item| item.fill(scope))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Map(fields) => {
                let mut filled = Map::new();
                for (key, value) in fields {
                    filled.insert(key.clone(), value.fill(scope)?);
                }
                Value::Object(filled)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use orlog_testkit::provider_suite::item;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn filled(text: &str) -> String {
        let item = item(&orlog_model::EffectName::new("pay.charge").unwrap(), 1);
        let payload = json!({"a": {"b": [7, "x"]}, "none": null, "flag": true});
        let scope = PlaceholderScope {
            item: &item,
            payload: &payload,
        };
        match TextTemplate::parse(text)
            .map(|text| text.fill(scope, &mut SecretScrubber::default(), |_, text| text))
        {
            Ok(Ok(text)) => text,
            Ok(Err(FillError::Payload(reason) | FillError::Secret(reason))) | Err(reason) => {
                format!("! {reason}")
            }
        }
    }

    #[test]
    fn templates_are_filled_or_report_the_error() {
        for (text, expected) in [
            ("{a.b.0}/{a.b.1} {flag}", "7/x true"),
            ("{{{flag}}} {zzz?}{none?}.", "{true} ."),
            ("{@tenant} {@correlation} {@effect}", "acme o-1 pay.charge"),
            ("{zzz}", "! the payload has no field \"zzz\""),
            (
                "{a}",
                "! the field \"a\" is not a string, number or boolean",
            ),
            (
                "{env:ORLOG_NOT_SET_7F3A}",
                "! a credential is unavailable; the log of the node contains the reason",
            ),
            ("{", "! a { has no }; use {{ for a literal brace"),
            ("}", "! a } has no {; write }} for a literal brace"),
            (
                "{@user}",
                "! unknown placeholder {@user}; available: @id, @tenant, @saga, @correlation, @effect",
            ),
        ] {
            assert_eq!(filled(text), expected, "{text}");
        }
    }

    #[test]
    fn json_template_keeps_value_types() {
        let item = item(&orlog_model::EffectName::new("pay.charge").unwrap(), 1);
        let payload = json!({"n": 7, "list": [1, 2], "name": "x"});
        let template = json!({"amount": "{n}", "all": "{list}", "text": "n={n}", "gone": "{zzz?}", "fix": [true, 1]});
        let body = JsonTemplate::parse(&template)
            .unwrap()
            .fill(PlaceholderScope {
                item: &item,
                payload: &payload,
            })
            .unwrap();
        assert_eq!(
            body,
            json!({"amount": 7, "all": [1, 2], "text": "n=7", "gone": null, "fix": [true, 1]})
        );
        assert!(JsonTemplate::parse(&json!(["{env:TOKEN}"])).is_err());
    }

    #[track_caller]
    fn check(template: &str, payload: &Value, expected: &str) {
        let rendered = PathTemplate::parse(template).unwrap().render(payload);
        assert_eq!(rendered.unwrap_or_else(|error| error), expected);
    }

    #[test]
    fn fields_are_filled_and_encoded() {
        let payload =
            json!({"order": {"id": "a/b ü"}, "n": 7, "items": [{"sku": "x?y"}], "empty": ""});
        check(
            "/orders/{order.id}/lines/{n}",
            &payload,
            "/orders/a%2Fb%20%C3%BC/lines/7",
        );
        check(
            "/stock/{items.0.sku}?q={empty}",
            &payload,
            "/stock/x%3Fy?q=",
        );
        check("/ping", &Value::Null, "/ping");
        check("/ping?a={n?}&b={none?}", &payload, "/ping?a=7&b=");
    }

    #[test]
    fn invalid_field_is_named() {
        check(
            "/o/{id}",
            &json!({}),
            r#"payload field "id" is missing; "/o/{id}" requires it"#,
        );
        check(
            "/o/{id}",
            &json!({"id": null}),
            r#"field "id" is not allowed in "/o/{id}": it is not a string, number or boolean"#,
        );
        check(
            "/o/{id}",
            &json!({"id": ""}),
            r#"field "id" is not allowed in "/o/{id}": it is empty"#,
        );
    }

    #[test]
    fn value_cannot_escape_its_segment() {
        for invalid in [json!({"a": "."}), json!({"a": ".."})] {
            assert!(
                PathTemplate::parse("/x/{a}/y")
                    .unwrap()
                    .render(&invalid)
                    .is_err(),
                "{invalid}"
            );
        }
        assert!(
            PathTemplate::parse("/x/{a}{a}")
                .unwrap()
                .render(&json!({"a": "."}))
                .is_err()
        );
        check("/x/{a}", &json!({"a": "../../etc"}), "/x/..%2F..%2Fetc");
    }

    #[test]
    fn rejects_malformed_templates() {
        for invalid in [
            "",
            "x",
            "/a b",
            "/{",
            "/}",
            "/{}",
            "/{a.}",
            "/{a{b}}",
            "/a/../b",
            "/%2e%2E/b",
            "/a#b",
            "/a\n",
        ] {
            assert!(PathTemplate::parse(invalid).is_err(), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn a_value_never_changes_the_number_of_segments(value in "\\PC{1,20}") {
            let template = PathTemplate::parse("/a/{v}/b?c={v}").unwrap();
            if let Ok(path) = template.render(&json!({"v": value})) {
                let url = reqwest::Url::parse(&format!("http://host{path}")).unwrap();
                prop_assert_eq!(url.path_segments().unwrap().count(), 3);
                prop_assert_eq!(url.query_pairs().count(), 1);
                prop_assert_eq!(url.fragment(), None);
            }
        }
    }
}
