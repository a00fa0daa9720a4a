//! Paths with placeholders, `/orders/{order.id}?lang={lang}`, filled from a payload.
//!
//! Values are percent-encoded and can neither add nor remove a path segment.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::placeholders::{field, plain};

/// All characters except the unreserved ones of RFC 3986.
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parsed path template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field { name: String, optional: bool, in_path: bool },
}

/// Error of a template, or of a payload that does not match it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template is malformed.
    #[error("invalid path {text:?}: {reason}; example: /orders/{{order.id}}")]
    Malformed {
        /// Text of the template.
        text: String,
        /// Reason.
        reason: &'static str,
    },
    /// The payload does not have the field.
    #[error("payload field {field:?} is missing; {text:?} requires it")]
    Missing {
        /// Text of the template.
        text: String,
        /// Name of the placeholder.
        field: String,
    },
    /// The value of the field is not allowed in a path.
    #[error("field {field:?} is not allowed in {text:?}: {reason}")]
    InvalidValue {
        /// Text of the template.
        text: String,
        /// Name of the placeholder.
        field: String,
        /// Reason.
        reason: &'static str,
    },
}

impl FromStr for PathTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let malformed = |reason| TemplateError::Malformed { text: text.to_owned(), reason };
        if text.starts_with('/') { Self::suffix(text) } else { Err(malformed("it does not start with /")) }
    }
}

impl PathTemplate {
    /// Parses the part of a URL after its host: a path, a query, or both.
    pub(super) fn suffix(text: &str) -> Result<Self, TemplateError> {
        let malformed = |reason| TemplateError::Malformed { text: text.to_owned(), reason };
        if text.bytes().any(|b| b.is_ascii_control() || b == b' ' || b == b'#') {
            return Err(malformed("it contains a space, a control character or #"));
        }
        let template = Self { text: text.to_owned(), parts: parts(text).map_err(malformed)? };
        if dots(text) { Err(malformed("a segment is . or ..")) } else { Ok(template) }
    }

    /// Fills the placeholders from `payload`.
    ///
    /// # Errors
    /// If a field is missing, is not a text, number or boolean, or would change the structure of the path.
    pub fn render(&self, payload: &Value) -> Result<String, TemplateError> {
        self.fill(|name| field(payload, name).map(Cow::Borrowed))
    }

    /// Fills the placeholders with the results of `find`.
    pub(crate) fn fill<'a>(
        &self,
        find: impl Fn(&str) -> Option<Cow<'a, Value>>,
    ) -> Result<String, TemplateError> {
        let mut path = String::with_capacity(self.text.len() + 32);
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field { name, optional, in_path } => {
                    let found = find(name).filter(|value| !(*optional && value.is_null()));
                    let value = match found.as_deref() {
                        None if *optional => String::new(),
                        found => self.text_of(name, found)?,
                    };
                    if value.is_empty() && *in_path {
                        return Err(self.unfit(name, "it is empty"));
                    }
                    path.extend(utf8_percent_encode(&value, RESERVED));
                }
            }
        }
        if dots(&path) { Err(self.unfit("", "a segment becomes . or ..")) } else { Ok(path) }
    }

    fn text_of(&self, name: &str, value: Option<&Value>) -> Result<String, TemplateError> {
        match value {
            Some(value) => {
                plain(value).ok_or_else(|| self.unfit(name, "it is not a string, number or boolean"))
            }
            None => Err(TemplateError::Missing { text: self.text.clone(), field: name.to_owned() }),
        }
    }

    fn unfit(&self, field: &str, reason: &'static str) -> TemplateError {
        TemplateError::InvalidValue { text: self.text.clone(), field: field.to_owned(), reason }
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parts(text: &str) -> Result<Vec<Part>, &'static str> {
    let (mut parts, mut rest, mut in_path) = (Vec::new(), text, true);
    while !rest.is_empty() {
        let open = rest.find('{').unwrap_or(rest.len());
        let (plain, tail) = rest.split_at(open);
        if plain.contains('}') {
            return Err("a } has no {");
        }
        in_path &= !plain.contains('?');
        if !plain.is_empty() {
            parts.push(Part::Text(plain.to_owned()));
        }
        rest = match tail.strip_prefix('{').map(|inner| inner.split_once('}').ok_or("a { has no }")) {
            None => "",
            Some(field) => {
                let (name, after) = field?;
                if name.starts_with("env:") || name.starts_with("file:") {
                    return Err("a secret is not allowed in a path; send it in a header");
                }
                let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
                if name.contains('{') || name.split('.').any(str::is_empty) {
                    return Err("a placeholder is not a valid field name");
                }
                parts.push(Part::Field { name: name.to_owned(), optional, in_path });
                after
            }
        };
    }
    Ok(parts)
}

/// Returns whether a segment is `.` or `..`, also if it is encoded with `%2e`.
fn dots(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    path.split(['/', '\\'])
        .any(|segment| matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(template: &str, payload: &Value, expected: &str) {
        let rendered = template.parse::<PathTemplate>().unwrap().render(payload);
        assert_eq!(rendered.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn fields_are_filled_and_encoded() {
        let payload = json!({"order": {"id": "a/b ü"}, "n": 7, "items": [{"sku": "x?y"}], "empty": ""});
        check("/orders/{order.id}/lines/{n}", &payload, "/orders/a%2Fb%20%C3%BC/lines/7");
        check("/stock/{items.0.sku}?q={empty}", &payload, "/stock/x%3Fy?q=");
        check("/ping", &Value::Null, "/ping");
        check("/ping?a={n?}&b={none?}", &payload, "/ping?a=7&b=");
    }

    #[test]
    fn invalid_field_is_named() {
        check("/o/{id}", &json!({}), r#"payload field "id" is missing; "/o/{id}" requires it"#);
        check(
            "/o/{id}",
            &json!({"id": null}),
            r#"field "id" is not allowed in "/o/{id}": it is not a string, number or boolean"#,
        );
        check("/o/{id}", &json!({"id": ""}), r#"field "id" is not allowed in "/o/{id}": it is empty"#);
    }

    #[test]
    fn value_cannot_escape_its_segment() {
        for invalid in [json!({"a": "."}), json!({"a": ".."})] {
            assert!("/x/{a}/y".parse::<PathTemplate>().unwrap().render(&invalid).is_err(), "{invalid}");
        }
        assert!("/x/{a}{a}".parse::<PathTemplate>().unwrap().render(&json!({"a": "."})).is_err());
        check("/x/{a}", &json!({"a": "../../etc"}), "/x/..%2F..%2Fetc");
    }

    #[test]
    fn rejects_malformed_templates() {
        for invalid in
            ["", "x", "/a b", "/{", "/}", "/{}", "/{a.}", "/{a{b}}", "/a/../b", "/%2e%2E/b", "/a#b", "/a\n"]
        {
            assert!(invalid.parse::<PathTemplate>().is_err(), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn a_value_never_changes_the_number_of_segments(value in "\\PC{1,20}") {
            let template: PathTemplate = "/a/{v}/b?c={v}".parse().unwrap();
            if let Ok(path) = template.render(&json!({"v": value})) {
                let url = reqwest::Url::parse(&format!("http://host{path}")).unwrap();
                prop_assert_eq!(url.path_segments().unwrap().count(), 3);
                prop_assert_eq!(url.query_pairs().count(), 1);
                prop_assert_eq!(url.fragment(), None);
            }
        }
    }
}
