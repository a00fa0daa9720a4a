//! Text values of the configuration: durations (`30s`), sizes (`64MiB`), optional paths (empty: none).

use serde::{Deserialize, Deserializer, Serializer};

/// Positive durations, such as `500ms`, `30s`, `1h30m`.
pub(super) mod duration {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::{Deserialize, Deserializer, Serializer};
    use serde::de::Error as _;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.parse::<SignedDuration>().ok().and_then(|signed| Duration::try_from(signed).ok());
        parsed.filter(|duration| !duration.is_zero()).ok_or_else(|| {
            D::Error::custom(format!(
                "invalid duration {text:?}; expected a positive duration such as \"500ms\", \"30s\", \"1h30m\""
            ))
        })
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let signed = SignedDuration::try_from(*duration).unwrap_or(SignedDuration::MAX);
        serializer.collect_str(&format_args!("{signed:#}"))
    }
}

/// Positive sizes in bytes, such as `512`, `64KiB`, `1GB`.
pub(super) mod size {
    use super::{Deserialize, Deserializer, Serializer, UNITS, read_size};
    use serde::de::Error as _;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        read_size(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "invalid size {text:?}; expected a positive size such as \"64MiB\", \"1GB\", \"512B\""
            ))
        })
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    pub(in crate::config) fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        let fits = |(_, unit): &&(&str, u64)| *bytes >= *unit && bytes.is_multiple_of(*unit);
        let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        serializer.collect_str(&format_args!("{}{name}", bytes / unit))
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
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let bytes = match unit {
        "" => 1,
        _ => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(bytes).filter(|size| *size > 0)
}

/// Optional path; empty text: none.
pub(super) mod optional {
    use std::path::PathBuf;

    use super::{Deserialize, Deserializer, Serializer};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Some(PathBuf::deserialize(deserializer)?).filter(|path| !path.as_os_str().is_empty()))
    }

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(in crate::config) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = path.as_ref().map(|path| path.to_str().ok_or(super::not_text::<S>(path))).transpose()?;
        serializer.serialize_str(text.unwrap_or_default())
    }
}

/// Optional secret reference; empty text: none.
pub(super) mod secret {
    use orlog_effect::secret::SecretRef;

    use super::{Deserialize, Deserializer, Serializer};
    use serde::de::Error as _;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SecretRef>, D::Error> {
        let text = String::deserialize(deserializer)?;
        (!text.is_empty()).then(|| text.parse().map_err(D::Error::custom)).transpose()
    }

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(in crate::config) fn serialize<S: Serializer>(
        secret: &Option<SecretRef>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match secret {
            Some(reference) => serializer.collect_str(reference),
            None => serializer.serialize_str(""),
        }
    }
}

/// Optional duration; empty text: none.
pub(super) mod optional_duration {
    use std::time::Duration;

    use serde::de::IntoDeserializer as _;

    use super::{Deserialize, Deserializer, Serializer, duration};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = String::deserialize(deserializer)?;
        (!text.is_empty()).then(|| duration::deserialize(text.into_deserializer())).transpose()
    }

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => duration::serialize(value, serializer),
            None => serializer.serialize_str(""),
        }
    }
}

/// Optional size; empty text: none.
pub(super) mod optional_size {
    use serde::de::IntoDeserializer as _;

    use super::{Deserialize, Deserializer, Serializer, size};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let text = String::deserialize(deserializer)?;
        (!text.is_empty()).then(|| size::deserialize(text.into_deserializer())).transpose()
    }

    #[expect(clippy::ref_option, reason = "serde requires this signature")]
    pub(in crate::config) fn serialize<S: Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => size::serialize(value, serializer),
            None => serializer.serialize_str(""),
        }
    }
}

fn not_text<S: Serializer>(path: &std::path::Path) -> S::Error {
    serde::ser::Error::custom(format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::read_size;

    #[test]
    fn parses_decimal_and_binary_sizes() {
        for (text, expected) in
            [("512", 512), ("1 kB", 1000), ("64MiB", 64 << 20), ("2gib", 2 << 30), ("1TB", 1_000_000_000_000)]
        {
            assert_eq!(read_size(text), Some(expected), "{text}");
        }
        for invalid in ["", "0", "-1", "1.5MiB", "64 apples", "MiB", "99999999999TiB"] {
            assert_eq!(read_size(invalid), None, "{invalid}");
        }
    }
}
