//! Paths with placeholders, `/orders/{order.id}?lang={lang}`, filled from a payload.
//!
//! What is filled in is percent-encoded and can neither add nor remove a path segment.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::placeholders::{field, plain};

/// All but the unreserved characters of RFC 3986.
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path, read once and filled often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field { name: String, in_path: bool },
}

/// A template that cannot be read, or a payload that does not fill it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template's own fault.
    #[error("path {text:?}: {reason}; write for example /orders/{{order.id}}")]
    Malformed {
        /// The template.
        text: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The payload has no such field.
    #[error("the payload has no field {field:?}, which {text:?} needs")]
    Missing {
        /// The template.
        text: String,
        /// The placeholder.
        field: String,
    },
    /// The field cannot stand in a path.
    #[error("the field {field:?} cannot stand in {text:?}: {reason}")]
    Unfit {
        /// The template.
        text: String,
        /// The placeholder.
        field: String,
        /// Why not.
        reason: &'static str,
    },
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let malformed = |reason| TemplateError::Malformed { text: text.to_owned(), reason };
        if !text.starts_with('/') {
            return Err(malformed("it does not begin with /"));
        }
        if text.bytes().any(|b| b.is_ascii_control() || b == b' ' || b == b'#') {
            return Err(malformed("it holds a space, a control character or #"));
        }
        let template = Self { text: text.to_owned(), parts: parts(text).map_err(malformed)? };
        if dots(text) { Err(malformed("a segment is . or ..")) } else { Ok(template) }
    }
}

impl Template {
    /// Fills the placeholders from `payload`.
    ///
    /// # Errors
    /// When a field is missing, is no text, number or boolean, or would change the path's shape.
    pub fn render(&self, payload: &Value) -> Result<String, TemplateError> {
        self.fill(|name| field(payload, name).map(Cow::Borrowed))
    }

    /// Fills the placeholders with what `find` finds.
    pub(crate) fn fill<'a>(
        &self,
        find: impl Fn(&str) -> Option<Cow<'a, Value>>,
    ) -> Result<String, TemplateError> {
        let mut path = String::with_capacity(self.text.len() + 32);
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field { name, in_path } => {
                    let value = self.text_of(name, find(name).as_deref())?;
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
            Some(value) => plain(value).ok_or_else(|| self.unfit(name, "it is no text, number or boolean")),
            None => Err(TemplateError::Missing { text: self.text.clone(), field: name.to_owned() }),
        }
    }

    fn unfit(&self, field: &str, reason: &'static str) -> TemplateError {
        TemplateError::Unfit { text: self.text.clone(), field: field.to_owned(), reason }
    }
}

impl fmt::Display for Template {
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
                    return Err("a secret cannot stand in a path; send it in a header");
                }
                if name.contains('{') || name.split('.').any(str::is_empty) {
                    return Err("a placeholder is no field name");
                }
                parts.push(Part::Field { name: name.to_owned(), in_path });
                after
            }
        };
    }
    Ok(parts)
}

/// Whether a segment is one that URLs resolve away, also when it is written with `%2e`.
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
        let rendered = template.parse::<Template>().unwrap().render(payload);
        assert_eq!(rendered.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn fills_fields_and_encodes_them() {
        let payload = json!({"order": {"id": "a/b ü"}, "n": 7, "items": [{"sku": "x?y"}], "empty": ""});
        check("/orders/{order.id}/lines/{n}", &payload, "/orders/a%2Fb%20%C3%BC/lines/7");
        check("/stock/{items.0.sku}?q={empty}", &payload, "/stock/x%3Fy?q=");
        check("/ping", &Value::Null, "/ping");
    }

    #[test]
    fn says_which_field_is_wrong() {
        check("/o/{id}", &json!({}), r#"the payload has no field "id", which "/o/{id}" needs"#);
        check(
            "/o/{id}",
            &json!({"id": null}),
            r#"the field "id" cannot stand in "/o/{id}": it is no text, number or boolean"#,
        );
        check("/o/{id}", &json!({"id": ""}), r#"the field "id" cannot stand in "/o/{id}": it is empty"#);
    }

    #[test]
    fn nothing_filled_in_climbs_out_of_its_segment() {
        for bad in [json!({"a": "."}), json!({"a": ".."})] {
            assert!("/x/{a}/y".parse::<Template>().unwrap().render(&bad).is_err(), "{bad}");
        }
        assert!("/x/{a}{a}".parse::<Template>().unwrap().render(&json!({"a": "."})).is_err());
        check("/x/{a}", &json!({"a": "../../etc"}), "/x/..%2F..%2Fetc");
    }

    #[test]
    fn refuses_malformed_templates() {
        for bad in
            ["", "x", "/a b", "/{", "/}", "/{}", "/{a.}", "/{a{b}}", "/a/../b", "/%2e%2E/b", "/a#b", "/a\n"]
        {
            assert!(bad.parse::<Template>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_value_never_changes_the_number_of_segments(value in "\\PC{1,20}") {
            let template: Template = "/a/{v}/b?c={v}".parse().unwrap();
            if let Ok(path) = template.render(&json!({"v": value})) {
                let url = reqwest::Url::parse(&format!("http://host{path}")).unwrap();
                prop_assert_eq!(url.path_segments().unwrap().count(), 3);
                prop_assert_eq!(url.query_pairs().count(), 1);
                prop_assert_eq!(url.fragment(), None);
            }
        }
    }
}
