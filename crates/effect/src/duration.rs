//! Durations as people write them in configuration: `100ms`, `2s`, `1h30m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Greater than zero, in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) Duration);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |reason: &dyn std::fmt::Display| {
            D::Error::custom(format!("{text:?} is no duration such as 100ms, 2s or 1h30m: {reason}"))
        };
        let signed: SignedDuration = text.parse().map_err(|error: jiff::Error| wrong(&error))?;
        match Duration::try_from(signed) {
            Ok(duration) if !duration.is_zero() => Ok(Self(duration)),
            Ok(_) | Err(_) => Err(wrong(&"it must be greater than zero")),
        }
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let signed = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        serializer.collect_str(&format_args!("{signed:#}"))
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Text::deserialize(deserializer).map(|text| text.0)
}

pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    Text(*duration).serialize(serializer)
}

/// The same where there may be none.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, Text};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<Text>::deserialize(deserializer).map(|text| text.map(|text| text.0))
    }

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(Text).serialize(serializer)
    }
}
