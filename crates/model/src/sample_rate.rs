//! Share of the instances of a saga that are selected by a stable hash of their keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::InstanceKey;
use crate::ids::digest;

/// Number of parts of the whole: the resolution of a rate is 0.0001 %.
const WHOLE: u32 = 1_000_000;

/// Share of the instances, more than 0 % and at most 100 %. Every process selects the same
/// instances, and a higher rate selects all instances of a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SampleRate(u32);

/// Text that is not a sample rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid sample {0:?}; expected a percentage above 0% and up to 100%, for example 10% or 0.5%"
)]
pub struct InvalidSampleRate(String);

impl SampleRate {
    /// All instances.
    pub const ALL: Self = Self(WHOLE);

    /// Returns whether the sample contains an instance.
    #[must_use]
    pub fn includes(self, key: &InstanceKey) -> bool {
        if self == Self::ALL {
            return true;
        }

        // The digest is stable across nodes and releases, so a sample contains the same instances
        // after a takeover.
        let parts = [
            "sample",
            key.tenant.as_str(),
            key.saga.as_str(),
            key.correlation.as_str(),
        ];

        let digest = digest(parts.iter().map(|part| part.as_bytes()));
        let number = u64::from_le_bytes(
            *digest
                .first_chunk()
                .expect("a digest is longer than a number"),
        );

        number % u64::from(WHOLE) < u64::from(self.0)
    }
}

impl FromStr for SampleRate {
    type Err = InvalidSampleRate;

    fn from_str(text: &str) -> Result<Self, InvalidSampleRate> {
        let invalid = || InvalidSampleRate(text.chars().take(64).collect());
        let number = text
            .trim()
            .strip_suffix('%')
            .ok_or_else(invalid)?
            .trim_end();

        let (percent, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if !is_number(percent, 3) || !is_number(fraction, 4) {
            return Err(invalid());
        }

        // Four digits of a fraction are millionths: no floating point rounds a configured share.
        let parts: u32 = format!("{percent}{fraction:0<4}")
            .parse()
            .map_err(|_| invalid())?;

        if (1..=WHOLE).contains(&parts) {
            Ok(Self(parts))
        } else {
            Err(invalid())
        }
    }
}

/// Returns whether a text has 1 to `max_digits` decimal digits, and nothing else.
fn is_number(text: &str, max_digits: usize) -> bool {
    (1..=max_digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl TryFrom<String> for SampleRate {
    type Error = InvalidSampleRate;

    fn try_from(text: String) -> Result<Self, InvalidSampleRate> {
        text.parse()
    }
}

impl From<SampleRate> for String {
    fn from(rate: SampleRate) -> Self {
        rate.to_string()
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorrelationId, SagaName, TenantId};

    fn key(number: u32) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new(format!("o-{number}")).unwrap(),
        }
    }

    #[test]
    fn percentages_are_read_and_displayed() {
        for text in ["10%", "0.5%", "100%", "0.0001%", "33.25%"] {
            assert_eq!(text.parse::<SampleRate>().unwrap().to_string(), text);
        }
        for text in [
            "10", "", "%", "0%", "100.1%", "-1%", "1e1%", "1.23456%", "1.%", ".5%", "+5%", "1000%",
        ] {
            let error = text.parse::<SampleRate>().unwrap_err().to_string();
            assert!(error.contains("for example 10%"), "{text}: {error}");
        }
    }

    #[test]
    fn sample_has_its_share_and_grows_with_the_rate() {
        let rate = |text: &str| text.parse::<SampleRate>().unwrap();
        let of = |rate: SampleRate| (0..10_000).filter(move |number| rate.includes(&key(*number)));
        let (small, large): (Vec<_>, Vec<_>) =
            (of(rate("10%")).collect(), of(rate("20%")).collect());
        assert!((900..1_100).contains(&small.len()), "{}", small.len());
        assert!(small.iter().all(|number| large.contains(number)));
        assert_eq!(of(SampleRate::ALL).count(), 10_000);
        // The selection is part of the contract between pods of different releases.
        assert_eq!(
            of(rate("0.1%")).take(3).collect::<Vec<_>>(),
            [354, 472, 1398]
        );
    }
}
