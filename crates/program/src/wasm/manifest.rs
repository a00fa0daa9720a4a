//! What a module says about itself: the events it takes, where they name their instance, what it may ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, SagaName};
use serde::Deserialize;

use super::module::{self, Guest};
use crate::builder::split_command;
use crate::contract::{Manifest, Trigger};
use crate::definition::DEFAULT_EARLY;
use crate::diagnostic::Finding;
use crate::limits::{MAX_MANIFEST_BYTES, MAX_ORDERS};

const SECTION: &str = "orlog.manifest";

/// A manifest that was checked.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) saga: SagaName,
    pub(super) version: u32,
    pub(super) events: BTreeMap<EventType, Taken>,
    /// Sorted.
    pub(super) effects: Vec<EffectName>,
    /// As `aggregate.Name`, sorted.
    pub(super) commands: Vec<String>,
    /// Sorted.
    pub(super) sagas: Vec<SagaName>,
    pub(super) early: Duration,
}

/// An event that the module takes.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) starts: bool,
    pub(super) correlate: Option<String>,
}

/// The manifest as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    saga: SagaName,
    version: u32,
    events: Vec<WrittenEvent>,
    #[serde(default)]
    effects: Vec<EffectName>,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    sagas: Vec<SagaName>,
    early_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEvent {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    starts: bool,
    correlate: Option<String>,
}

impl Declared {
    pub(super) fn manifest(&self) -> Manifest {
        let trigger =
            |(kind, taken): (&EventType, &Taken)| Trigger { kind: kind.clone(), starts: taken.starts };
        Manifest {
            triggers: self.events.iter().map(trigger).collect(),
            effects: self.effects.clone(),
            commands: self.commands.clone(),
            sagas: self.sagas.clone(),
            early: self.early,
        }
    }
}

/// Reads the manifest from its section or, where there is none, from the module's own `manifest()`.
pub(super) fn read(guest: &Guest) -> Result<Declared, Vec<Finding>> {
    let answered;
    let text = match guest.sections(SECTION)[..] {
        [section] => section,
        [] if guest.exports(module::MANIFEST) => {
            answered = guest.call(module::MANIFEST, &[]).map_err(|why| vec![wrong(why)])?;
            &answered
        }
        [] => return Err(vec![wrong("the module has no manifest".to_owned())]),
        _ => {
            return Err(vec![wrong(format!("the module has several sections `{SECTION}`; it may have one"))]);
        }
    };
    if text.len() > MAX_MANIFEST_BYTES {
        let message = format!("the manifest is {} bytes long, the limit is {MAX_MANIFEST_BYTES}", text.len());
        return Err(vec![wrong(message)]);
    }
    let written: Written = serde_json::from_slice(text).map_err(|error| vec![wrong(error.to_string())])?;
    check(written)
}

fn wrong(message: String) -> Finding {
    Finding::new(SECTION, message).suggest(format!(
        r#"put JSON such as {{"saga":"order","version":1,"events":[{{"type":"OrderPlaced","starts":true,"correlate":"orderId"}}],"effects":[],"commands":[]}} into the custom section `{SECTION}` (Rust: `orlog_guest::export!`), or export `{}() -> i64` that gives it"#,
        module::MANIFEST
    ))
}

fn check(written: Written) -> Result<Declared, Vec<Finding>> {
    let mut findings = Vec::new();
    let mut complain = |path: String, message: &str| findings.push(Finding::new(path, message));
    if written.version == 0 {
        complain(at("version"), "versions are counted from 1");
    }
    for (field, count) in [
        ("events", written.events.len()),
        ("effects", written.effects.len()),
        ("commands", written.commands.len()),
        ("sagas", written.sagas.len()),
    ] {
        if count > MAX_ORDERS {
            complain(at(field), &format!("there are {count}, the limit is {MAX_ORDERS}"));
        }
    }
    if !written.events.iter().any(|event| event.starts) {
        complain(at("events"), "no event begins an instance; give one of them `\"starts\": true`");
    }
    for (index, command) in written.commands.iter().enumerate() {
        if let Err(finding) = split_command(command) {
            complain(at(&format!("commands[{index}]")), &finding.message);
        }
    }
    let events = events(written.events, &mut complain);
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(Declared {
        saga: written.saga,
        version: written.version,
        events,
        effects: sorted(written.effects),
        commands: sorted(written.commands),
        sagas: sorted(written.sagas),
        early: written.early_ms.map_or(DEFAULT_EARLY, Duration::from_millis),
    })
}

fn sorted<T: Ord>(mut names: Vec<T>) -> Vec<T> {
    names.sort();
    names.dedup();
    names
}

fn events(written: Vec<WrittenEvent>, complain: &mut impl FnMut(String, &str)) -> BTreeMap<EventType, Taken> {
    let mut events = BTreeMap::new();
    for (index, WrittenEvent { kind, starts, correlate }) in written.into_iter().enumerate() {
        let place = at(&format!("events[{index}]"));
        if correlate.as_ref().is_some_and(|path| path.split('.').any(str::is_empty)) {
            complain(
                format!("{place}.correlate"),
                "a path is names with dots between them, such as `order.id`",
            );
        }
        if events.insert(kind, Taken { starts, correlate }).is_some() {
            complain(format!("{place}.type"), "the event is listed twice");
        }
    }
    events
}

fn at(path: &str) -> String {
    format!("{SECTION}.{path}")
}
