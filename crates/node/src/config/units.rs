//! Values that the configuration writes as text: durations (`30s`), sizes in bytes (`64MiB`),
//! paths, references to secrets, names of effects, and names and addresses of nodes.
//!
//! `#[serde(with = "units::text")]` reads one value, `#[serde(with = "units::optional")]` an
//! optional one: the empty text is `None`. `#[serde(with = "units::duration_or_zero")]` reads a
//! duration that can be `0s`.

use std::path::PathBuf;
use std::time::Duration;

use orlog_effect::secret::SecretRef;
use orlog_model::{EffectName, NodeName, format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serializer};

use super::node_address::NodeAddress;

/// Value that the configuration writes as text.
pub(super) trait TextValue: Sized {
    fn read(text: &str) -> Result<Self, String>;
    fn write(&self) -> String;
}

/// Positive durations, such as `500ms`, `30s`, `1h30m`.
impl TextValue for Duration {
    fn read(text: &str) -> Result<Self, String> {
        let parsed = parse_duration(text)
            .ok()
            .filter(|duration| !duration.is_zero());
        parsed.ok_or_else(|| {
            format!(
                "invalid duration {text:?}; expected a positive duration such as \"500ms\", \
                 \"30s\", \"1h30m\""
            )
        })
    }

    fn write(&self) -> String {
        format_duration(*self)
    }
}

/// Positive sizes in bytes, such as `512`, `64KiB`, `1GB`.
impl TextValue for u64 {
    fn read(text: &str) -> Result<Self, String> {
        read_size(text).ok_or_else(|| {
            format!(
                "invalid size {text:?}; expected a positive size such as \"64MiB\", \"1GB\", \
                \"512B\""
            )
        })
    }

    fn write(&self) -> String {
        let (name, unit) = UNITS
            .iter()
            .rev()
            .find(|(_, unit): &&(&str, u64)| *self >= *unit && self.is_multiple_of(*unit))
            .unwrap_or(&UNITS[0]);
        format!("{}{name}", self / unit)
    }
}

impl TextValue for PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        Ok(PathBuf::from(text))
    }

    fn write(&self) -> String {
        self.display().to_string()
    }
}

impl TextValue for SecretRef {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for EffectName {
    fn read(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| error.to_string())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for NodeName {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for NodeAddress {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// Names and bytes of size units. A size is written in the last unit that divides it.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

fn read_size(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let bytes = match unit {
        "" => 1,
        _ => {
            UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))?
                .1
        }
    };

    number
        .parse::<u64>()
        .ok()?
        .checked_mul(bytes)
        .filter(|size| *size > 0)
}

/// Required value.
pub(super) mod text {
    use super::{Deserialize, Deserializer, Serializer, TextValue};
    use serde::de::Error as _;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>, T: TextValue>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        T::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }

    pub(in crate::config) fn serialize<S: Serializer, T: TextValue>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.write())
    }
}

/// Duration for which `0s` is valid: it disables what the duration limits.
pub(super) mod duration_or_zero {
    use super::{Deserialize, Deserializer, Duration, Serializer, TextValue, parse_duration};
    use serde::de::Error as _;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        if parse_duration(&text).is_ok_and(|duration| duration.is_zero()) {
            return Ok(Duration::ZERO);
        }
        Duration::read(&text).map_err(D::Error::custom)
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = if value.is_zero() {
            "0s".to_owned()
        } else {
            value.write()
        };
        serializer.serialize_str(&text)
    }
}

/// Optional value; empty text: none.
pub(super) mod optional {
    use super::{Deserialize, Deserializer, Serializer, TextValue};
    use serde::de::Error as _;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>, T: TextValue>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        (!text.is_empty())
            .then(|| T::read(&text).map_err(D::Error::custom))
            .transpose()
    }

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(in crate::config) fn serialize<S: Serializer, T: TextValue>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.as_ref().map(TextValue::write).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::read_size;

    #[test]
    fn parses_decimal_and_binary_sizes() {
        for (text, expected) in [
            ("512", 512),
            ("1 kB", 1000),
            ("64MiB", 64 << 20),
            ("2gib", 2 << 30),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(read_size(text), Some(expected), "{text}");
        }
        for invalid in [
            "",
            "0",
            "-1",
            "1.5MiB",
            "64 apples",
            "MiB",
            "99999999999TiB",
        ] {
            assert_eq!(read_size(invalid), None, "{invalid}");
        }
    }
}
