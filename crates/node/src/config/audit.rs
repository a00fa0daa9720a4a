//! Configuration of `[audit]`: the audit trail of API calls. `config/default.toml` describes the
//! keys.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;
use super::violations::Violations;

/// Minimum of `audit.max_file_size`: a file contains several records.
const MIN_FILE_BYTES: u64 = 4096;
/// Minimum of `audit.retention`: a file contains the records of up to one day.
const MIN_RETENTION: Duration = Duration::from_hours(24);

/// Configuration of `[audit]`: the audit trail of API calls that change state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    /// Directory of the audit files; `audit` in the data directory if empty.
    #[serde(with = "units::optional")]
    pub dir: Option<PathBuf>,
    /// Size at which a file is rotated, in bytes.
    #[serde(with = "units::text")]
    pub max_file_size: u64,
    /// Minimum age of deleted records.
    #[serde(with = "units::text")]
    pub retention: Duration,
    /// Size of the trail above which the alert fires, in bytes.
    #[serde(with = "units::text")]
    pub alarm_size: u64,
    /// Size of the trail at which further records are only logged, in bytes.
    #[serde(with = "units::text")]
    pub max_size: u64,
    /// Whether requests that change state are rejected while the trail cannot be written.
    pub required: bool,
    /// Routes that are audited only if the request is rejected.
    pub exclude_routes: Vec<String>,
    /// Whether records are also logged.
    pub also_log: bool,
    /// NATS subject to which records are also published; empty: none.
    pub nats_subject: String,
}

impl AuditConfig {
    /// Validates the keys. `has_dir`: the node has a data directory.
    pub(super) fn validate(&self, has_dir: bool, on_nats: bool, found: &mut Violations) {
        // A method and a path, as in the records with which the key is compared.
        let is_route = |text: &&String| {
            text.split_once(' ')
                .is_some_and(|(_, path)| path.starts_with('/'))
        };
        if let Some(other) = self.exclude_routes.iter().find(|text| !is_route(text)) {
            let message = format_args!(
                "invalid route {other:?}; expected for example \"POST /v1/work/claim\""
            );
            found.report("audit.exclude_routes", message);
        }

        found.require(
            self.max_file_size >= MIN_FILE_BYTES,
            "audit.max_file_size",
            "must be at least 4KiB",
        );

        found.require(
            self.retention >= MIN_RETENTION,
            "audit.retention",
            "must be at least 24h",
        );

        found.require(
            self.max_size >= self.alarm_size,
            "audit.max_size",
            "must be at least audit.alarm_size",
        );

        // Published records are read from the files, so that none is lost while NATS is
        // unavailable.
        let has_files = has_dir || self.dir.is_some();
        found.require(
            has_files || !self.required,
            "audit.dir",
            "this node has no data directory; set the directory of the audit trail",
        );

        let publishes = !self.nats_subject.is_empty();
        found.require(
            !publishes || (on_nats && has_files),
            "audit.nats_subject",
            "requires bus.kind = \"nats\", and audit.dir on a node without a data directory",
        );

        if publishes && let Err(error) = orlog_bus::subject::check_subject(&self.nats_subject) {
            found.report("audit.nats_subject", error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut AuditConfig), expected: &[&str]) {
        let mut audit = AuditConfig::default();
        change(&mut audit);
        assert_eq!(
            Violations::keys(|found| audit.validate(false, false, found)),
            expected
        );
    }

    #[test]
    fn invalid_audit_settings_are_reported_with_their_key() {
        check(|_| {}, &[]);
        check(
            |audit| audit.exclude_routes.push("/v1/events".to_owned()),
            &["audit.exclude_routes"],
        );
        check(|audit| audit.max_file_size = 4095, &["audit.max_file_size"]);
        check(
            |audit| audit.retention = Duration::from_mins(1439),
            &["audit.retention"],
        );
        check(
            |audit| audit.max_size = audit.alarm_size - 1,
            &["audit.max_size"],
        );
        check(|audit| audit.required = true, &["audit.dir"]);
        check(
            |audit| audit.nats_subject = "audit".to_owned(),
            &["audit.nats_subject"],
        );
        let wildcard = AuditConfig {
            nats_subject: "audit.*".to_owned(),
            ..AuditConfig::default()
        };
        let keys = Violations::keys(|found| wildcard.validate(true, true, found));
        assert_eq!(keys, ["audit.nats_subject"]);
    }
}
