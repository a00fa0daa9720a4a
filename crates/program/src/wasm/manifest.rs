//! Manifest of a module: event subscriptions, correlation paths, allowed requests.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EffectName, EventType, SagaName};
use serde::Deserialize;

use super::module::{self, WasmModule};

use super::limits::{MAX_MANIFEST_BYTES, MAX_TRANSITION_ITEMS};
use crate::contract::{EventSubscription, Manifest};
use crate::definition::DEFAULT_EARLY_EVENT_TTL;
use crate::diagnostic::RawDiagnostic;
use crate::steps::split_command;

const SECTION: &str = "orlog.manifest";
/// Manifest in the suggestion for a module without a valid one.
const EXAMPLE: &str = concat!(
    r#"{"saga":"order","version":1,"#,
    r#""events":[{"type":"OrderPlaced","starts":true,"correlate":"orderId"}],"#,
    r#""effects":[],"commands":[]}"#,
);

/// Validated manifest.
#[derive(Debug)]
pub(super) struct ModuleManifest {
    pub(super) saga: SagaName,
    pub(super) version: u32,
    pub(super) events: BTreeMap<EventType, EventDeclaration>,
    /// Effect names, sorted.
    pub(super) effects: Vec<EffectName>,
    /// Commands as `aggregate.Name`, sorted.
    pub(super) commands: Vec<String>,
    /// Saga names, sorted.
    pub(super) sagas: Vec<SagaName>,
    pub(super) early_event_ttl: Duration,
}

/// Event that the module consumes.
#[derive(Debug)]
pub(super) struct EventDeclaration {
    pub(super) starts: bool,
    pub(super) correlate: Option<String>,
}

/// Manifest as written in the module.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawManifest {
    saga: SagaName,
    version: u32,
    events: Vec<RawEventDeclaration>,
    #[serde(default)]
    effects: Vec<EffectName>,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    sagas: Vec<SagaName>,
    early_event_ttl_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEventDeclaration {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    starts: bool,
    correlate: Option<String>,
}

impl ModuleManifest {
    pub(super) fn manifest(&self) -> Manifest {
        let subscriptions = self.events.iter().map(|(kind, event)| EventSubscription {
            kind: kind.clone(),
            starts: event.starts,
        });
        Manifest {
            subscriptions: subscriptions.collect(),
            effects: self.effects.clone(),
            commands: self.commands.clone(),
            sagas: self.sagas.clone(),
            early_event_ttl: self.early_event_ttl,
            indexed: Vec::new(),
            ..Manifest::default()
        }
    }
}

/// Reads the manifest from its section, or from the `manifest()` export if there is no section.
pub(super) fn read(guest: &WasmModule) -> Result<ModuleManifest, Vec<RawDiagnostic>> {
    let output;
    let text = match guest.sections(SECTION)[..] {
        [section] => section,
        // Some compilers cannot write custom sections.
        [] if guest.exports(module::MANIFEST) => {
            output = guest
                .call(module::MANIFEST, &[])
                .map_err(|reason| vec![manifest_error(reason)])?;
            &output
        }
        [] => {
            return Err(vec![manifest_error(
                "the module has no manifest".to_owned(),
            )]);
        }
        _ => {
            return Err(vec![manifest_error(format!(
                "the module has several sections `{SECTION}`; only one is allowed"
            ))]);
        }
    };

    // The output of `manifest` can be longer than a manifest may be.
    if text.len() > MAX_MANIFEST_BYTES {
        let message = format!(
            "the manifest is {} bytes long, the limit is {MAX_MANIFEST_BYTES}",
            text.len()
        );
        return Err(vec![manifest_error(message)]);
    }

    let raw: RawManifest =
        serde_json::from_slice(text).map_err(|error| vec![manifest_error(error.to_string())])?;
    check(raw)
}

fn manifest_error(message: String) -> RawDiagnostic {
    RawDiagnostic::new(SECTION, message).with_suggestion(format!(
        "put JSON such as {EXAMPLE} into the custom section `{SECTION}` (Rust: \
         `orlog_guest::export!`), or export `{}() -> i64` that returns it",
        module::MANIFEST
    ))
}

fn check(raw: RawManifest) -> Result<ModuleManifest, Vec<RawDiagnostic>> {
    let mut findings = Vec::new();
    let mut report = |path: String, message: &str| findings.push(RawDiagnostic::new(path, message));

    if raw.version == 0 {
        report(at("version"), "versions start at 1");
    }
    if let Err(error) = SagaName::for_path(raw.saga.as_str()) {
        report(at("saga"), &error.to_string());
    }
    for (field, count) in [
        ("events", raw.events.len()),
        ("effects", raw.effects.len()),
        ("commands", raw.commands.len()),
        ("sagas", raw.sagas.len()),
    ] {
        if count > MAX_TRANSITION_ITEMS {
            report(
                at(field),
                &format!("there are {count}, the limit is {MAX_TRANSITION_ITEMS}"),
            );
        }
    }

    if !raw.events.iter().any(|event| event.starts) {
        report(
            at("events"),
            "no event starts an instance; set `\"starts\": true` on one of them",
        );
    }

    for (index, command) in raw.commands.iter().enumerate() {
        if let Err(finding) = split_command(command) {
            report(at(&format!("commands[{index}]")), &finding.message);
        }
    }

    let events = events(raw.events, &mut report);
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(ModuleManifest {
        saga: raw.saga,
        version: raw.version,
        events,
        // Each request of the module is looked up by a binary search.
        effects: sorted(raw.effects),
        commands: sorted(raw.commands),
        sagas: sorted(raw.sagas),
        early_event_ttl: raw
            .early_event_ttl_ms
            .map_or(DEFAULT_EARLY_EVENT_TTL, Duration::from_millis),
    })
}

fn sorted<T: Ord>(mut names: Vec<T>) -> Vec<T> {
    names.sort();
    names.dedup();
    names
}

fn events(
    raw: Vec<RawEventDeclaration>,
    report: &mut impl FnMut(String, &str),
) -> BTreeMap<EventType, EventDeclaration> {
    let mut events = BTreeMap::new();
    for (
        index,
        RawEventDeclaration {
            kind,
            starts,
            correlate,
        },
    ) in raw.into_iter().enumerate()
    {
        let event_path = at(&format!("events[{index}]"));
        if correlate
            .as_ref()
            .is_some_and(|path| path.split('.').any(str::is_empty))
        {
            report(
                format!("{event_path}.correlate"),
                "a path consists of names separated by dots, such as `order.id`",
            );
        }

        if events
            .insert(kind, EventDeclaration { starts, correlate })
            .is_some()
        {
            report(format!("{event_path}.type"), "the event is listed twice");
        }
    }
    events
}

fn at(path: &str) -> String {
    format!("{SECTION}.{path}")
}
