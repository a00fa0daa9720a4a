//! Schema versions of payloads: accepted versions, and upcasts of older payloads to the newest
//! version.
//!
//! Events and responses of effects have the same form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compile::expressions::{ExpressionCompiler, ExpressionScope, Site};
use crate::contract::ProgramError;
use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EventData};
use crate::language::{
    Choice, Choices, Codec, Count, Decoder, OneOrList, ValueSchema, join_path, language_map,
};
use crate::limits::check_payload;
use crate::template::Template;
use crate::yaml::tree::Node;

language_map! {
    /// Accepted schema versions of a payload.
    pub struct VersionSpec as "versions" {
        must_or_default "accepts" accepts: Vec<u32> = OneOrList<Count<0>>,
            "Accepted versions; expressions use the highest one.";
        #[serde(default)]
        may_or_default "upcast" upcast: BTreeMap<u32, Value> = Upcasts,
            "For each older version, a template over `event` that returns the newest version.";
        #[serde(default)]
        may_or_default "on_unsupported" on_unsupported: UnsupportedVersionPolicy =
            Choice<UnsupportedVersionPolicy>,
            "Policy for other versions. Default: `dead_letter`.";
    }
}

struct Upcasts;

impl Codec for Upcasts {
    type Value = BTreeMap<u32, Value>;
    const SCHEMA: ValueSchema = ValueSchema::MapOf(&ValueSchema::Template);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<BTreeMap<u32, Value>> {
        let mut upcasts = BTreeMap::new();
        for (key, node) in decoder.entries(node, path, "a map of versions to templates")? {
            if let Ok(version) = key.text.parse::<u32>() {
                upcasts.insert(version, node.to_json());
            } else {
                let message = format!(
                    "`{}` is not a version; a version is a whole number",
                    key.text
                );
                decoder.report(RawDiagnostic::new(join_path(path, &key.text), message).at_key());
            }
        }
        Some(upcasts)
    }
}

/// Policy for a payload whose version is not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnsupportedVersionPolicy {
    /// The event or result is dead-lettered; the state does not change.
    #[default]
    DeadLetter,
    /// The event is ignored. Not permitted for responses: their steps would wait for ever.
    Ignore,
    /// The instance starts compensation with the cause `schema_version`. The step of a response may
    /// have been executed, so it is compensated too.
    Compensate,
}

impl Choices for UnsupportedVersionPolicy {
    const NAMES: &'static [&'static str] = &["dead_letter", "ignore", "compensate"];
    const VALUES: &'static [Self] = &[Self::DeadLetter, Self::Ignore, Self::Compensate];
}

impl VersionSpec {
    /// Checks that the versions fit together.
    pub(crate) fn check(&self, path: &str) -> Vec<RawDiagnostic> {
        let mut findings = Vec::new();
        if self.accepts.is_empty() {
            let finding = RawDiagnostic::new(format!("{path}.accepts"), "no version is accepted");
            findings.push(finding.with_suggestion("list the versions, as in [1, 2]"));
        }
        for version in self
            .upcast
            .keys()
            .filter(|version| !self.accepts.contains(version))
        {
            let message = format!("version {version} is not accepted, so it cannot be upcast");
            let finding = RawDiagnostic::new(format!("{path}.upcast.{version}"), message);
            findings.push(finding.with_suggestion(format!("add {version} to `accepts`")));
        }
        findings
    }

    /// Compiles the templates.
    pub(crate) fn compile(
        &self,
        compiler: &mut ExpressionCompiler<'_>,
        path: &str,
    ) -> CompiledVersions {
        let upcast = self.upcast.iter().map(|(version, template)| {
            let path = format!("{path}.upcast.{version}");
            (
                *version,
                compiler.template(Site::new(&path, ExpressionScope::Event), template),
            )
        });
        let upcast = upcast.collect();

        let mut accepts = self.accepts.clone();
        accepts.sort_unstable();
        CompiledVersions {
            accepts,
            upcast,
            on_unsupported: self.on_unsupported,
        }
    }
}

/// Compiled versions of a payload.
#[derive(Debug)]
pub(crate) struct CompiledVersions {
    accepts: Vec<u32>,
    upcast: BTreeMap<u32, Template>,
    on_unsupported: UnsupportedVersionPolicy,
}

/// Payload of a version.
pub(crate) enum VersionedPayload {
    /// The payload stays unchanged.
    Current,
    /// The payload of the newest version.
    Upcast(Value),
    /// The version is not accepted; the policy, and the reason.
    Unsupported(UnsupportedVersionPolicy, String),
}

impl CompiledVersions {
    /// Returns the payload of the newest version. `label` names the payload in messages.
    pub(crate) fn resolve(
        &self,
        label: &str,
        version: u32,
        data: &Value,
    ) -> Result<VersionedPayload, ProgramError> {
        if self.accepts.contains(&version) {
            // An accepted version without a template has the form of the newest one.
            let newest = self.upcast(label, version, data)?;
            return Ok(newest.map_or(VersionedPayload::Current, VersionedPayload::Upcast));
        }

        let accepted: Vec<_> = self.accepts.iter().map(ToString::to_string).collect();
        let message = format!(
            "version {version} of {label} is not accepted; accepted versions: {}",
            accepted.join(", ")
        );
        Ok(VersionedPayload::Unsupported(self.on_unsupported, message))
    }

    /// Returns the upcast payload; `None` if it can stay unchanged.
    pub(crate) fn upcast(
        &self,
        label: &str,
        version: u32,
        data: &Value,
    ) -> Result<Option<Value>, ProgramError> {
        let Some(template) = self.upcast.get(&version) else {
            return Ok(None);
        };
        let upcast_error = |reason: String| {
            ProgramError::SchemaMismatch(format!(
                "cannot upcast version {version} of {label}: {reason}"
            ))
        };

        let bindings = Bindings::before_any_instance().event(EventData::of_result(data));
        let data = template
            .evaluate(&bindings)
            .map_err(|error| upcast_error(error.to_string()))?;
        // The input was checked before the upcast, which can build a larger payload from it.
        check_payload(&data).map_err(|large| upcast_error(large.to_string()))?;
        Ok(Some(data))
    }
}
