//! Durations in configuration, `100ms`, `2s`, `1h30m`, and other positive numbers.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::SignedDuration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationText(pub(crate) Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let invalid = |reason: &dyn std::fmt::Display| {
            D::Error::custom(format!(
                "{text:?} is not a valid duration: {reason}; examples: 100ms, 2s, 1h30m"
            ))
        };
        let signed: SignedDuration = text.parse().map_err(|error: jiff::Error| invalid(&error))?;
        match Duration::try_from(signed) {
            Ok(duration) if !duration.is_zero() => Ok(Self(duration)),
            Ok(_) | Err(_) => Err(invalid(&"it must be greater than zero")),
        }
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let signed = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        serializer.collect_str(&format_args!("{signed:#}"))
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    DurationText::deserialize(deserializer).map(|text| text.0)
}

pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
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
