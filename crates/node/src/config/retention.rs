//! Configuration of `[retention]`: retention of ended instances and dead letters.
//! `config/default.toml` describes the keys.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{SagaName, TenantId};
use serde::{Deserialize, Serialize};

use super::units;
use super::violations::Violations;

/// Retention period. A longer period is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Text", into = "Text")]
pub enum RetentionPeriod {
    /// Limited period.
    For(Duration),
    /// Unlimited; written as an empty text.
    Forever,
}

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Text(#[serde(with = "units::optional")] Option<Duration>);

impl From<Text> for RetentionPeriod {
    fn from(Text(window): Text) -> Self {
        window.map_or(RetentionPeriod::Forever, RetentionPeriod::For)
    }
}

impl From<RetentionPeriod> for Text {
    fn from(window: RetentionPeriod) -> Self {
        Text(window.limit())
    }
}

impl RetentionPeriod {
    /// Returns the period; `None` if it is unlimited.
    #[must_use]
    pub fn limit(self) -> Option<Duration> {
        match self {
            RetentionPeriod::For(window) => Some(window),
            RetentionPeriod::Forever => None,
        }
    }
}

/// Configuration of `[retention]`: retention periods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    /// Ended instances, with their history and tasks; the period starts at their end.
    pub instances: RetentionPeriod,
    /// Dead letters.
    pub dead_letters: RetentionPeriod,
    /// Interval between garbage collections.
    #[serde(with = "units::text")]
    pub interval: Duration,
    /// Retention periods by saga.
    #[serde(default)]
    pub sagas: BTreeMap<SagaName, SagaRetention>,
    /// Retention periods by tenant.
    #[serde(default)]
    pub tenants: BTreeMap<TenantId, TenantRetention>,
}

/// Configuration of `[retention.sagas.<name>]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SagaRetention {
    /// Retention of the instances of the saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<RetentionPeriod>,
}

/// Configuration of `[retention.tenants.<name>]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantRetention {
    /// Retention of the instances of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<RetentionPeriod>,
    /// Retention of the dead letters of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<RetentionPeriod>,
}

impl RetentionConfig {
    /// Returns the retention of an ended instance. If tenant and saga both have a period, the
    /// longer one applies.
    #[must_use]
    pub fn for_instance(&self, tenant: &TenantId, saga: &SagaName) -> RetentionPeriod {
        let by_tenant = self.tenants.get(tenant).and_then(|tenant| tenant.instances);
        let by_saga = self.sagas.get(saga).and_then(|saga| saga.instances);
        by_tenant.max(by_saga).unwrap_or(self.instances)
    }

    /// Returns the retention of a dead letter.
    #[must_use]
    pub fn for_dead_letter(&self, tenant: &TenantId) -> RetentionPeriod {
        self.tenants
            .get(tenant)
            .and_then(|tenant| tenant.dead_letters)
            .unwrap_or(self.dead_letters)
    }

    /// Validates that no retention of instances is shorter than the dedupe window.
    pub(super) fn validate(&self, remembered: Duration, found: &mut Violations) {
        let sagas = self
            .sagas
            .iter()
            .map(|(saga, of)| (format!("retention.sagas.{saga}"), of.instances));
        let tenants = self
            .tenants
            .iter()
            .map(|(tenant, of)| (format!("retention.tenants.{tenant}"), of.instances));
        let all = [("retention".to_owned(), Some(self.instances))]
            .into_iter()
            .chain(sagas)
            .chain(tenants);

        // An unlimited retention is longer than every window.
        for (table, window) in all.filter_map(|(table, window)| Some((table, window?.limit()?))) {
            let message = format_args!(
                "{window:?} is shorter than store.dedupe_window, {remembered:?}: a duplicate \
                 event would start the instance again"
            );
            found.require(
                window >= remembered,
                format_args!("{table}.instances"),
                message,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: u64) -> RetentionPeriod {
        RetentionPeriod::For(Duration::from_hours(24 * days))
    }

    fn read(text: &str) -> RetentionConfig {
        let mut table = toml::Table::try_from(RetentionConfig::default()).unwrap();
        table.extend(text.parse::<toml::Table>().unwrap());
        table.try_into().unwrap()
    }

    #[test]
    fn longest_matching_retention_applies() {
        let retention = read(
            "[sagas.beat]\ninstances = \"48h\"\n[sagas.tax]\ninstances = \
             \"\"\n[tenants.acme]\ninstances = \"72h\"\n\
             dead_letters = \"24h\"\n",
        );
        let check = |tenant: &str, saga: &str, expected| {
            let (tenant, saga) = (TenantId::new(tenant).unwrap(), SagaName::new(saga).unwrap());
            assert_eq!(
                retention.for_instance(&tenant, &saga),
                expected,
                "{tenant} {saga}"
            );
        };
        check("", "order", days(30));
        check("", "beat", days(2));
        check("acme", "order", days(3));
        check("acme", "beat", days(3));
        check("acme", "tax", RetentionPeriod::Forever);
        assert_eq!(
            retention.for_dead_letter(&TenantId::new("acme").unwrap()),
            days(1)
        );
        assert_eq!(retention.for_dead_letter(&TenantId::default()), days(90));
    }

    #[test]
    fn retention_shorter_than_redelivery_is_rejected() {
        let day = Duration::from_hours(24);
        let check = |retention: &RetentionConfig, expected: &[&str]| {
            assert_eq!(
                Violations::keys(|found| retention.validate(day, found)),
                expected
            );
        };
        check(&RetentionConfig::default(), &[]);
        let short = read("[tenants.acme]\ninstances = \"1h\"");
        check(&short, &["retention.tenants.acme.instances"]);
        let mut found = Violations::default();
        short.validate(day, &mut found);
        let [(_, message)] = &found.into_inner()[..] else {
            panic!("one key")
        };
        assert!(message.contains("store.dedupe_window"), "{message}");
        check(&read("instances = \"\""), &[]);
    }
}
