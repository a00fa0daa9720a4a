//! Provisioning: compares the streams with the plan, makes what is missing, changes what may be changed, and drops nothing.
//!
//! A change that would drop messages, stop taking subjects, or that the server cannot make is refused with words. Settings
//! that the plan says nothing about stay as they are.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, Info, RetentionPolicy};
use orlog_model::Timestamp;

use super::connection::{Connection, chain};
use super::filters::meet;
use super::message::timestamp;
use super::stream_config::{Plan, StreamPlan};

/// The streams could not be looked at or changed.
#[derive(Debug, thiserror::Error)]
#[error("the stream {stream} cannot be {what}: {reason}")]
pub struct StreamsError {
    /// Which.
    pub stream: String,
    /// `looked at`, `made` or `changed`.
    pub what: &'static str,
    /// What the server says.
    pub reason: String,
}

/// How a stream differs from the plan. Shown, it is a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which stream.
    pub stream: String,
    /// What is different: a setting, or `missing`.
    pub what: String,
    /// It does not exist.
    pub missing: bool,
    /// Why it is not changed, and what to do.
    pub refused: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stream, self.what)?;
        self.refused.iter().try_for_each(|why| write!(f, " - not changed: {why}"))
    }
}

/// What is different. Nothing is changed.
///
/// # Errors
/// When the servers do not answer, or do not let this client look.
pub async fn diff(
    connection: &Connection,
    plan: &Plan,
    now: Timestamp,
) -> Result<Vec<Difference>, StreamsError> {
    let mut all = Vec::new();
    for stream in &plan.0 {
        all.extend(compare(stream, look(connection, stream.name()).await?.as_ref(), now));
    }
    Ok(all)
}

/// Makes and changes what may be; what was different is answered, with what was refused. Harmless when repeated.
///
/// # Errors
/// When the servers do not answer, or refuse.
pub async fn apply(
    connection: &Connection,
    plan: &Plan,
    now: Timestamp,
) -> Result<Vec<Difference>, StreamsError> {
    let mut all = Vec::new();
    for stream in &plan.0 {
        let found = look(connection, stream.name()).await?;
        let differences = compare(stream, found.as_ref(), now);
        if differences.iter().any(|difference| difference.refused.is_none()) {
            put(connection, stream, found.as_ref(), &differences).await?;
        }
        all.extend(differences);
    }
    Ok(all)
}

async fn look(connection: &Connection, name: &str) -> Result<Option<Info>, StreamsError> {
    match connection.jetstream.get_stream(name).await {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.code() == 404 => Ok(None),
            _ => Err(failed(name, "looked at", &error)),
        },
    }
}

/// One refusal keeps the whole stream as it is: a half of a change is none that anybody asked for.
async fn put(
    connection: &Connection,
    plan: &StreamPlan,
    found: Option<&Info>,
    differences: &[Difference],
) -> Result<(), StreamsError> {
    if differences.iter().any(|difference| difference.refused.is_some()) {
        return Ok(());
    }
    let (name, jetstream) = (plan.name(), &connection.jetstream);
    match found {
        None => {
            jetstream.create_stream(plan.config.clone()).await.map_err(|e| failed(name, "made", &e))?;
        }
        Some(info) => {
            let config = laid_over(&plan.config, info.config.clone());
            jetstream.update_stream(config).await.map_err(|e| failed(name, "changed", &e))?;
        }
    }
    Ok(())
}

fn failed(name: &str, what: &'static str, error: &dyn std::error::Error) -> StreamsError {
    StreamsError { stream: name.to_owned(), what, reason: chain(error) }
}

/// The plan's settings, and those of the stream that the plan is silent about.
fn laid_over(plan: &Config, found: Config) -> Config {
    Config {
        description: plan.description.clone(),
        subjects: plan.subjects.clone(),
        max_age: plan.max_age,
        max_bytes: plan.max_bytes,
        num_replicas: plan.num_replicas,
        duplicate_window: plan.duplicate_window,
        allow_direct: plan.allow_direct,
        ..found
    }
}

/// What is different about one stream; `None`: it does not exist.
fn compare(plan: &StreamPlan, found: Option<&Info>, now: Timestamp) -> Vec<Difference> {
    let difference = |what: String, refused: Option<String>| Difference {
        stream: plan.name().to_owned(),
        missing: found.is_none(),
        what,
        refused,
    };
    let Some(info) = found else {
        let owner = "the Aggregate service owns it; start that first, or set nats.own_aggregate_stream = true where there is none";
        return vec![difference("missing".to_owned(), plan.foreign.then(|| owner.to_owned()))];
    };
    let differences = if plan.foreign {
        readable(&plan.config, &info.config)
    } else {
        let mut all = fixed(&plan.config, &info.config);
        all.extend(changeable(&plan.config, info, now));
        all
    };
    differences.into_iter().map(|(what, refused)| difference(what, refused)).collect()
}

type Found = (String, Option<String>);

/// What a stream of somebody else must have to be read.
fn readable(plan: &Config, found: &Config) -> Vec<Found> {
    let mut all = Vec::new();
    if found.retention != RetentionPolicy::Limits {
        let why = "events are read from checkpoints, which this retention refuses or drops; its owner must make it anew with limits";
        all.push((format!("retention is {:?}, not Limits", found.retention), Some(why.to_owned())));
    }
    let missing: Vec<_> = plan
        .subjects
        .iter()
        .filter(|wanted| !found.subjects.iter().any(|taken| meet(taken, wanted)))
        .collect();
    if missing.len() == plan.subjects.len() && !found.subjects.is_empty() {
        let why = "its owner must publish events of aggregates under these subjects".to_owned();
        all.push((format!("subjects are {:?}, none of {missing:?}", found.subjects), Some(why)));
    }
    all
}

/// What no server changes.
fn fixed(plan: &Config, found: &Config) -> Vec<Found> {
    let anew =
        "no server can change that; make the stream anew, under another name or after it was read to its end";
    let settings = [
        ("retention", format!("{:?}", found.retention), format!("{:?}", plan.retention)),
        ("storage", format!("{:?}", found.storage), format!("{:?}", plan.storage)),
    ];
    let differ = settings.into_iter().filter(|(_, found, wanted)| found != wanted);
    differ.map(|(name, found, wanted)| (change(name, &found, &wanted), Some(anew.to_owned()))).collect()
}

fn changeable(plan: &Config, info: &Info, now: Timestamp) -> Vec<Found> {
    let found = &info.config;
    let mut all = Vec::new();
    let (wanted, present): (BTreeSet<_>, BTreeSet<_>) =
        (plan.subjects.iter().collect(), found.subjects.iter().collect());
    if wanted != present {
        let more: Vec<_> = present.difference(&wanted).collect();
        let refused = (!more.is_empty()).then(|| {
            format!(
                "it also takes {more:?}, which somebody may publish to; take them from the stream by hand"
            )
        });
        all.push((change("subjects", &format!("{present:?}"), &format!("{wanted:?}")), refused));
    }
    if plan.max_age != found.max_age {
        let what = change("max_age", &age(found.max_age), &age(plan.max_age));
        all.push((what, shorter(plan.max_age, info, now)));
    }
    if plan.max_bytes.max(-1) != found.max_bytes.max(-1) {
        let what = change("max_bytes", &bytes(found.max_bytes), &bytes(plan.max_bytes));
        all.push((what, smaller(plan.max_bytes, info)));
    }
    let settings = [
        ("replicas", found.num_replicas.to_string(), plan.num_replicas.to_string()),
        ("duplicate_window", age(found.duplicate_window), age(plan.duplicate_window)),
        ("allow_direct", found.allow_direct.to_string(), plan.allow_direct.to_string()),
    ];
    let differ = settings.into_iter().filter(|(_, found, wanted)| found != wanted);
    all.extend(differ.map(|(name, found, wanted)| (change(name, &found, &wanted), None)));
    all
}

fn change(name: &str, found: &str, wanted: &str) -> String {
    format!("{name} is {found}, should be {wanted}")
}

fn age(age: Duration) -> String {
    if age.is_zero() { "unlimited".to_owned() } else { format!("{age:?}") }
}

fn bytes(bytes: i64) -> String {
    if bytes <= 0 { "unlimited".to_owned() } else { bytes.to_string() }
}

fn shorter(wanted: Duration, info: &Info, now: Timestamp) -> Option<String> {
    let oldest = now.since(timestamp(info.state.first_timestamp));
    (!wanted.is_zero() && info.state.messages > 0 && oldest > wanted).then(|| {
        format!(
            "its oldest message is {oldest:?} old and would be dropped; purge it first if nobody needs it"
        )
    })
}

fn smaller(wanted: i64, info: &Info) -> Option<String> {
    let held = info.state.bytes;
    (wanted > 0 && held > wanted.unsigned_abs()).then(|| {
        format!(
            "it holds {held} bytes, and the oldest would be dropped; purge them first if nobody needs them"
        )
    })
}
