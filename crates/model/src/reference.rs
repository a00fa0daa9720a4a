//! Business reference of an instance: its name for users, or named parts of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Business reference: the name of an instance for users, for example an order number, or named
/// parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reference {
    /// Name.
    Name(String),
    /// Parts by name: `order`, `customer`.
    Parts(Box<BTreeMap<String, String>>),
}

impl Reference {
    /// Returns a part of the reference; `None` if it has no such part.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&str> {
        match self {
            Reference::Name(_) => None,
            Reference::Parts(parts) => parts.get(name).map(String::as_str),
        }
    }

    /// Returns the reference with each text changed.
    #[must_use]
    pub fn map(&self, change: impl Fn(&str) -> String) -> Self {
        match self {
            Reference::Name(name) => Reference::Name(change(name)),
            Reference::Parts(parts) => {
                let parts = parts
                    .iter()
                    .map(|(name, text)| (name.clone(), change(text)));
                Reference::Parts(Box::new(parts.collect()))
            }
        }
    }
}

impl From<String> for Reference {
    fn from(name: String) -> Self {
        Reference::Name(name)
    }
}

impl From<&str> for Reference {
    fn from(name: &str) -> Self {
        Reference::Name(name.to_owned())
    }
}

/// The name, or the parts as `customer=c-7, order=o-1`.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Name(name) => f.write_str(name),
            Reference::Parts(parts) => {
                for (index, (name, text)) in parts.iter().enumerate() {
                    let separator = if index > 0 { ", " } else { "" };
                    write!(f, "{separator}{name}={text}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_displayed_and_found_by_name() {
        let parts = [("order", "o-1"), ("customer", "c-7")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()));
        let reference = Reference::Parts(Box::new(parts.into_iter().collect()));
        assert_eq!(reference.to_string(), "customer=c-7, order=o-1");
        assert_eq!(
            (reference.part("order"), reference.part("line")),
            (Some("o-1"), None)
        );
        assert_eq!(
            reference.map(|_| "x".to_owned()).to_string(),
            "customer=x, order=x"
        );
        assert_eq!(
            (
                Reference::from("R-1").to_string(),
                Reference::from("R-1").part("order")
            ),
            ("R-1".to_owned(), None)
        );
    }
}
