//! Provisioning: compares the streams with their specifications, creates missing streams, applies
//! permitted changes, and drops nothing.
//!
//! A change is rejected with a reason if it would drop messages or remove subjects, or if the
//! server does not support it. Settings that the specification omits stay unchanged.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, Info, RetentionPolicy};
use orlog_model::Timestamp;

use super::connection::{Connection, chain};
use super::filters::overlaps;
use super::message::timestamp;
use super::stream_config::{StreamSet, StreamSpec};

/// Error of reading or changing a stream.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} stream {stream}: {reason}")]
pub struct ProvisionError {
    /// Name of the stream.
    pub stream: String,
    /// Failed action.
    pub action: &'static str,
    /// Error of the server.
    pub reason: String,
}

/// Difference between a stream and its specification. `Display` writes one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDiff {
    /// Name of the stream.
    pub stream: String,
    /// Setting that differs, or `missing`.
    pub field: String,
    /// Whether the stream does not exist.
    pub missing: bool,
    /// Reason why it is not changed, with a remedy.
    pub rejected: Option<String>,
}

impl fmt::Display for StreamDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stream, self.field)?;
        self.rejected
            .iter()
            .try_for_each(|reason| write!(f, " - not changed: {reason}"))
    }
}

/// Returns the differences. Changes nothing.
///
/// # Errors
/// If the servers do not respond, or if this client may not read the streams.
pub async fn diff(
    connection: &Connection,
    plan: &StreamSet,
    now: Timestamp,
) -> Result<Vec<StreamDiff>, ProvisionError> {
    let mut all = Vec::new();
    for stream in &plan.0 {
        all.extend(compare(
            stream,
            find_stream(connection, stream.name()).await?.as_ref(),
            now,
        ));
    }
    Ok(all)
}

/// Creates missing streams and applies permitted changes. Returns all differences, including
/// rejected ones: if one of a stream is rejected, all of them are. Idempotent.
///
/// # Errors
/// If the servers do not respond or reject a change.
pub async fn apply(
    connection: &Connection,
    plan: &StreamSet,
    now: Timestamp,
) -> Result<Vec<StreamDiff>, ProvisionError> {
    let mut all = Vec::new();
    for stream in &plan.0 {
        let found = find_stream(connection, stream.name()).await?;
        let mut differences = compare(stream, found.as_ref(), now);
        reject_partial_change(&mut differences);
        if differences
            .iter()
            .any(|difference| difference.rejected.is_none())
        {
            put(connection, stream, found.as_ref()).await?;
        }
        all.extend(differences);
    }
    Ok(all)
}

/// Returns the state of a stream; `None` if it does not exist.
pub(super) async fn find_stream(
    connection: &Connection,
    name: &str,
) -> Result<Option<Info>, ProvisionError> {
    match connection.jetstream.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.code() == 404 => Ok(None),
            _ => Err(failed(name, "read", &error)),
        },
    }
}

/// Rejects all differences of a stream if one is rejected: a change is never partial, so none of
/// them is applied.
fn reject_partial_change(differences: &mut [StreamDiff]) {
    if differences
        .iter()
        .all(|difference| difference.rejected.is_none())
    {
        return;
    }

    for difference in differences {
        if difference.rejected.is_none() {
            let reason = "another setting of this stream is rejected";
            difference.rejected = Some(reason.to_owned());
        }
    }
}

/// Creates or updates a stream.
async fn put(
    connection: &Connection,
    plan: &StreamSpec,
    found: Option<&Info>,
) -> Result<(), ProvisionError> {
    let name = plan.name();
    let jetstream = &connection.jetstream;
    match found {
        None => {
            jetstream
                .create_stream(plan.config.clone())
                .await
                .map_err(|e| failed(name, "create", &e))?;
        }
        Some(info) => {
            let config = laid_over(&plan.config, info.config.clone());
            jetstream
                .update_stream(config)
                .await
                .map_err(|e| failed(name, "update", &e))?;
        }
    }
    Ok(())
}

fn failed(name: &str, action: &'static str, error: &dyn std::error::Error) -> ProvisionError {
    ProvisionError {
        stream: name.to_owned(),
        action,
        reason: chain(error),
    }
}

/// Merges the specification over the settings of the stream.
fn laid_over(plan: &Config, found: Config) -> Config {
    Config {
        description: plan.description.clone(),
        subjects: plan.subjects.clone(),
        max_age: plan.max_age,
        max_bytes: plan.max_bytes,
        discard: plan.discard,
        num_replicas: plan.num_replicas,
        duplicate_window: plan.duplicate_window,
        allow_direct: plan.allow_direct,
        ..found
    }
}

/// Returns the differences of one stream; `None`: it does not exist.
fn compare(plan: &StreamSpec, found: Option<&Info>, now: Timestamp) -> Vec<StreamDiff> {
    let difference = |description: String, rejected: Option<String>| StreamDiff {
        stream: plan.name().to_owned(),
        missing: found.is_none(),
        field: description,
        rejected,
    };

    let Some(info) = found else {
        let owner = "the Aggregate service owns it; start that service first, or set \
                     nats.manage_aggregate_stream = true if there is none";
        return vec![difference(
            "missing".to_owned(),
            plan.is_external.then(|| owner.to_owned()),
        )];
    };

    let differences = if plan.is_external {
        readable(&plan.config, &info.config)
    } else {
        let mut all = fixed(&plan.config, &info.config);
        all.extend(changeable(&plan.config, info, now));
        all
    };

    differences
        .into_iter()
        .map(|(description, rejected)| difference(description, rejected))
        .collect()
}

type FieldDiff = (String, Option<String>);

/// Checks the settings that an external stream requires to be readable.
fn readable(plan: &Config, found: &Config) -> Vec<FieldDiff> {
    let mut all = Vec::new();
    if found.retention != RetentionPolicy::Limits {
        let reason = "events are read from checkpoints, which this retention rejects or drops; \
                      its owner must recreate it with limits";
        all.push((
            format!("retention is {:?}, not Limits", found.retention),
            Some(reason.to_owned()),
        ));
    }

    let missing: Vec<_> = plan
        .subjects
        .iter()
        .filter(|expected| {
            !found
                .subjects
                .iter()
                .any(|existing| overlaps(existing, expected))
        })
        .collect();

    // One common subject is sufficient. A stream without subjects is a mirror, or has sources.
    if missing.len() == plan.subjects.len() && !found.subjects.is_empty() {
        let reason = "its owner must publish aggregate events under these subjects".to_owned();
        all.push((
            format!("subjects are {:?}, none of {missing:?}", found.subjects),
            Some(reason),
        ));
    }
    all
}

/// Checks the settings that no server can change.
fn fixed(plan: &Config, found: &Config) -> Vec<FieldDiff> {
    let reason = "no server can change this setting; recreate the stream under another name or \
                  after all messages are read";

    let settings = [
        (
            "retention",
            format!("{:?}", found.retention),
            format!("{:?}", plan.retention),
        ),
        (
            "storage",
            format!("{:?}", found.storage),
            format!("{:?}", plan.storage),
        ),
    ];

    let differ = settings
        .into_iter()
        .filter(|(_, found, expected)| found != expected);
    differ
        .map(|(name, found, expected)| (change(name, &found, &expected), Some(reason.to_owned())))
        .collect()
}

fn changeable(plan: &Config, info: &Info, now: Timestamp) -> Vec<FieldDiff> {
    let found = &info.config;
    let mut all = Vec::new();
    let expected: BTreeSet<_> = plan.subjects.iter().collect();
    let present: BTreeSet<_> = found.subjects.iter().collect();

    if expected != present {
        let more: Vec<_> = present.difference(&expected).collect();
        let rejected = (!more.is_empty()).then(|| {
            format!(
                "it also has the subjects {more:?}, which may be in use; remove them from the \
                 stream manually"
            )
        });
        all.push((
            change(
                "subjects",
                &format!("{present:?}"),
                &format!("{expected:?}"),
            ),
            rejected,
        ));
    }

    if plan.max_age != found.max_age {
        let description = change("max_age", &age(found.max_age), &age(plan.max_age));
        all.push((description, shorter(plan.max_age, info, now)));
    }

    if plan.max_bytes.max(-1) != found.max_bytes.max(-1) {
        let description = change("max_bytes", &bytes(found.max_bytes), &bytes(plan.max_bytes));
        all.push((description, smaller(plan.max_bytes, info)));
    }

    let settings = [
        (
            "replicas",
            found.num_replicas.to_string(),
            plan.num_replicas.to_string(),
        ),
        (
            "discard",
            format!("{:?}", found.discard),
            format!("{:?}", plan.discard),
        ),
        (
            "duplicate_window",
            age(found.duplicate_window),
            age(plan.duplicate_window),
        ),
        (
            "allow_direct",
            found.allow_direct.to_string(),
            plan.allow_direct.to_string(),
        ),
    ];

    let differ = settings
        .into_iter()
        .filter(|(_, found, expected)| found != expected);
    all.extend(differ.map(|(name, found, expected)| (change(name, &found, &expected), None)));
    all
}

fn change(name: &str, found: &str, expected: &str) -> String {
    format!("{name} is {found}, expected {expected}")
}

fn age(age: Duration) -> String {
    if age.is_zero() {
        "unlimited".to_owned()
    } else {
        format!("{age:?}")
    }
}

fn bytes(bytes: i64) -> String {
    if bytes <= 0 {
        "unlimited".to_owned()
    } else {
        bytes.to_string()
    }
}

fn shorter(expected: Duration, info: &Info, now: Timestamp) -> Option<String> {
    let oldest = now.duration_since(timestamp(info.state.first_timestamp));
    (!expected.is_zero() && info.state.messages > 0 && oldest > expected).then(|| {
        format!(
            "its oldest message has an age of {oldest:?} and would be dropped; purge it first if \
             it is not needed"
        )
    })
}

fn smaller(expected: i64, info: &Info) -> Option<String> {
    let stored = info.state.bytes;
    (expected > 0 && stored > expected.unsigned_abs()).then(|| {
        format!(
            "it contains {stored} bytes, and the oldest would be dropped; purge them first if they \
             are not needed"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(rejected: Option<&str>) -> StreamDiff {
        StreamDiff {
            stream: "EVENTS".to_owned(),
            field: "max_age is 1h, expected 2h".to_owned(),
            missing: false,
            rejected: rejected.map(str::to_owned),
        }
    }

    #[track_caller]
    fn check(rejected: &[Option<&str>], expected: &[Option<&str>]) {
        let mut differences: Vec<_> = rejected.iter().copied().map(difference).collect();
        reject_partial_change(&mut differences);
        let expected: Vec<_> = expected.iter().copied().map(difference).collect();
        assert_eq!(differences, expected);
    }

    #[test]
    fn rejected_setting_rejects_the_others_of_its_stream() {
        let loss = Some("the oldest would be dropped");
        let other = Some("another setting of this stream is rejected");
        check(&[None, loss], &[other, loss]);
        check(&[None, None], &[None, None]);
    }
}
