//! Durations in configuration, `100ms`, `2s`, `1h30m`, and other positive numbers.

use std::num::NonZeroU32;
use std::time::Duration;

use orlog_model::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Positive duration, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct DurationText(pub(crate) Duration);

impl TryFrom<String> for DurationText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let reason = match parse_duration(&text) {
            Ok(duration) if !duration.is_zero() => return Ok(Self(duration)),
            Ok(_) => "it must be greater than zero",
            Err(_) => "it must consist of numbers with units",
        };

        Err(format!(
            "{text:?} is not a valid duration: {reason}; examples: 100ms, 2s, 1h30m"
        ))
    }
}

impl From<DurationText> for String {
    fn from(DurationText(duration): DurationText) -> Self {
        format_duration(duration)
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    DurationText::deserialize(deserializer).map(|text| text.0)
}

pub(crate) fn serialize<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    DurationText(*duration).serialize(serializer)
}

/// Reads a number that is not zero.
pub(crate) fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    NonZeroU32::deserialize(deserializer).map(NonZeroU32::get)
}

pub(crate) mod option {
    use super::{Deserialize, Deserializer, Duration, DurationText, Serialize, Serializer};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<DurationText>::deserialize(deserializer).map(|text| text.map(|text| text.0))
    }

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(DurationText).serialize(serializer)
    }
}
