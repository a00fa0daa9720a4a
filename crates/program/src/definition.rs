//! Intermediate form: a saga as plain data, produced by the YAML front-end.
//!
//! A template is JSON. A text in it that starts with `=` is a CEL expression (`==` stands for a
//! literal `=`). An expression (`when`, `in`) is CEL, with or without the `=`. An unreadable part
//! of a YAML text is reported and replaced by a placeholder, so that the rest is checked in the
//! same pass. A definition with a placeholder never leaves the front-end.

mod action;
mod failure_handler;
mod invariant;
mod reminder;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlog_model::{EventType, Name, SagaName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::diagnostic::RawDiagnostic;
use crate::language::{
    Bool, Choice, Choices, Codec, Condition, Count, Decoder, Id, OneOrList, Period, Template,
    Templates, Text, ValueSchema, language_map,
};
use crate::steps::{Action, TimeLimit};
use crate::versions::VersionSpec;
use crate::yaml::tree::{Content, Node};
use action::AnyAction;
use step::Steps;

pub use failure_handler::{AfterFailure, FailureHandler};
pub use invariant::InvariantSpec;
pub use reminder::ReminderSpec;
pub use step::{CompensationSpec, Join, ResultMatcher, Step, StepDependencies};

language_map! {
    /// Definition of a saga. [`crate::compile()`] compiles it.
    pub struct Definition as "saga" {
        must "saga" saga: SagaName = TopSagaName, "Name of the saga.";
        must "version" version: u32 = Version, "Version of the definition, chosen by its author.";
        must_in_compiler "start" start: Vec<EventType> = OneOrList<Id<EventType>>,
            "Event or events that start an instance.";
        #[serde(default)]
        may_or_default "correlate" correlate: CorrelationSpec = CorrelationSpec,
            "Location of the correlation id in an event: a path (`order.id`), an `=expression` \
             over `event` and `envelope`, or a map of event types to either. Default: the \
             correlation id of the envelope.";
        may "early_event_ttl" early_event_ttl: Option<Duration> = Period,
            "How long early events are stored; `0s` disables early events. Default: one day.";
        #[serde(default)]
        may_or_default "events" events: BTreeMap<EventType, VersionSpec> = EventVersions,
            "Accepted versions of event payloads.";
        #[serde(default)]
        may_or_default "env" env: Map<String, Value> = Templates, "Environment of all jobs.";
        #[serde(default)]
        may_or_default "vars" vars: Map<String, Value> = Templates,
            "Variables to save from the start event.";
        may "reference" reference: Option<Value> = Template, "Business reference of the instance.";
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        may_or_default "index" index: Vec<Name> = OneOrList<Id<Name>>,
            "Variables by which instances are found without reading all of them, at most 8.";
        may "timeout" timeout: Option<TimeLimit> = TimeLimit,
            "Maximum time of the forward execution of an instance: a duration, or an expression \
             over `vars`.";
        #[serde(default)]
        may_or_default "on" on: Vec<HandlerSpec> = OneOrList<HandlerSpec>,
            "Event handlers that are active during forward execution.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_or_default "keep_active" keep_active: bool = Bool,
            "Whether an instance stays active when its steps have finished, until an event handler \
             ends it. Default: false.";
        may_or_default "steps" steps: Vec<Step> = Steps,
            "Steps of the saga, 1 to 1000; optional with `keep_active`.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "publish" publish: Option<bool> = Bool,
            "Whether the named results of effects, jobs and human tasks are published as events. \
             Default: true.";
        may "completed" completed: Option<FactSpec> = AnyFact,
            "Fact to publish when every step has completed.";
        may "failed" failed: Option<FactSpec> = AnyFact,
            "Fact to publish when the saga has failed and all completed steps are compensated.";
        #[serde(default)]
        may_or_default "migrations" migrations: Vec<MigrationSpec> = OneOrList<MigrationSpec>,
            "Rules to migrate instances of older versions to this version.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        may_or_default "invariants" invariants: Vec<InvariantSpec> = OneOrList<InvariantSpec>,
            "Invariants of the runs, which `orlog test`, `explore`, `prove` and `simulate` check.";
    }
}

/// Default time to live of early events.
pub const DEFAULT_EARLY_EVENT_TTL: Duration = Duration::from_hours(24);

impl Definition {
    /// Decodes a definition and reports every part that cannot be decoded.
    pub(crate) fn decode_file(root: &Node, findings: &mut Vec<RawDiagnostic>) -> Self {
        let mut decoder = Decoder { findings };
        let fields = decoder.fields(root, "", &Self::MAP);
        Self::read(&mut decoder, &fields)
            .expect("every required field has a placeholder or a default")
    }

    /// Returns the names of the variables that are set anywhere.
    pub(crate) fn variables(&self) -> BTreeSet<String> {
        let saved = self.steps.iter().flat_map(Step::saved_names);
        let handled = self.on.iter().flat_map(|handler| handler.save.keys());
        // Only migrated instances have these variables, but the expressions of all may name them.
        let migrated = self.migrations.iter().flat_map(|form| form.vars.keys());

        self.vars
            .keys()
            .chain(saved)
            .chain(handled)
            .chain(migrated)
            .cloned()
            .collect()
    }

    /// Returns the names of the variables that steps save from their results.
    pub(crate) fn saved_by_steps(&self) -> BTreeSet<&str> {
        let saved = self.steps.iter().flat_map(|step| step.save.keys());
        saved.map(String::as_str).collect()
    }

    pub(crate) fn early_event_ttl(&self) -> Duration {
        self.early_event_ttl.unwrap_or(DEFAULT_EARLY_EVENT_TTL)
    }
}

/// Name of the saga of a definition.
struct TopSagaName;

impl Codec for TopSagaName {
    type Value = SagaName;
    const SCHEMA: ValueSchema = ValueSchema::Text;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<SagaName> {
        let name = SagaName::for_path(decoder.text(node, path)?.to_owned());
        decoder.parse_id(name, path)
    }

    fn placeholder(_: &str) -> Option<SagaName> {
        SagaName::new("unread").ok()
    }
}

/// Version of a definition.
struct Version;

impl Codec for Version {
    type Value = u32;
    const SCHEMA: ValueSchema = ValueSchema::Count(0);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<u32> {
        Count::<0>::decode(decoder, node, path)
    }

    fn placeholder(_: &str) -> Option<u32> {
        Some(1)
    }
}

/// Location of the correlation id in an event. If the location is empty, the correlation id of the
/// envelope applies. A location is a path (`order.id`) or, with a leading `=`, an expression over
/// `event`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CorrelationSpec {
    /// In the envelope.
    #[default]
    Envelope,
    /// At this location of the data.
    Field(String),
    /// At a location that depends on the event type; the envelope for types that are not listed.
    ByType(BTreeMap<EventType, String>),
}

impl Codec for CorrelationSpec {
    type Value = Self;
    const SCHEMA: ValueSchema =
        ValueSchema::AnyOf(&[ValueSchema::Text, ValueSchema::MapOf(&ValueSchema::Text)]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self> {
        match &node.content {
            Content::Map(_) => decoder
                .by_name::<_, Text>(node, path, "a map", EventType::new)
                .map(CorrelationSpec::ByType),
            Content::Scalar { .. } => Text::decode(decoder, node, path).map(CorrelationSpec::Field),
            Content::List(_) => {
                decoder.type_error(path, "a path or a map of event types to paths", node)
            }
        }
    }
}

struct EventVersions;

impl Codec for EventVersions {
    type Value = BTreeMap<EventType, VersionSpec>;
    const SCHEMA: ValueSchema = ValueSchema::MapOf(&VersionSpec::SCHEMA);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self::Value> {
        let expected = "a map of event types to their versions";
        decoder.by_name::<_, VersionSpec>(node, path, expected, EventType::new)
    }
}

language_map! {
    /// Event handler, active while the saga runs forward.
    pub struct HandlerSpec as "handler" {
        must_or_default "event" event: Vec<EventType> = OneOrList<Id<EventType>>,
            "Events to handle.";
        may "when" when: Option<String> = Condition,
            "Condition over `event`, `envelope` and `vars`.";
        #[serde(default)]
        may_or_default "save" save: Map<String, Value> = Templates,
            "Variables to save from the event.";
        #[serde(default)]
        may_or_default "do" actions: Vec<Action> = OneOrList<AnyAction>,
            "Commands and effects to start without waiting for their results.";
        #[serde(default)]
        may_or_default "then" then: AfterHandler = Choice<AfterHandler>,
            "How the saga continues. Default: `continue`.";
    }
}

/// How a saga continues after an event of a [`HandlerSpec`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterHandler {
    /// The saga continues unchanged.
    #[default]
    Continue,
    /// All completed steps are compensated; the saga ends `cancelled`.
    Cancel,
    /// All completed steps are compensated; the saga ends `failed` with the event type as code.
    Fail,
    /// The saga ends `completed`; pending steps are skipped, steps in progress are abandoned.
    Complete,
}

impl Choices for AfterHandler {
    const NAMES: &'static [&'static str] = &["continue", "cancel", "fail", "complete"];
    const VALUES: &'static [Self] = &[Self::Continue, Self::Cancel, Self::Fail, Self::Complete];
}

language_map! {
    /// Fact about the whole saga.
    pub struct FactSpec as "fact" {
        must "fact" fact: EventType = Id<EventType>, "Type of the fact.";
        #[serde(default)]
        may_or_default "data" data: Value = Template, "The payload.";
    }
}

/// A fact, or the name of one without data.
struct AnyFact;

impl Codec for AnyFact {
    type Value = FactSpec;
    const SCHEMA: ValueSchema = ValueSchema::AnyOf(&[ValueSchema::Text, FactSpec::SCHEMA]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<FactSpec> {
        if matches!(node.content, Content::Scalar { .. }) {
            let fact = Id::<EventType>::decode(decoder, node, path)?;
            return Some(FactSpec {
                fact,
                data: Value::Null,
            });
        }
        FactSpec::decode(decoder, node, path)
    }
}

language_map! {
    /// Migration of instances of older versions to this one, applied when an operator requests it.
    #[derive(Default)]
    pub struct MigrationSpec as "migration" {
        must_or_default "from" from: Vec<u32> = OneOrList<Count<0>>,
            "Source versions of the migration.";
        /// Steps that are not listed keep their id.
        #[serde(default)]
        may_or_default "steps" steps: BTreeMap<Name, Option<Name>> = StepMapping,
            "Map of old steps to new steps, or null for removed steps.";
        #[serde(default)]
        may_or_default "vars" vars: Map<String, Value> = Templates,
            "Templates over the old `vars`; the values are saved in addition to them.";
    }
}

struct StepMapping;

impl Codec for StepMapping {
    type Value = BTreeMap<Name, Option<Name>>;
    const SCHEMA: ValueSchema = ValueSchema::MapOf(&NewStep::SCHEMA);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self::Value> {
        decoder.by_name::<_, NewStep>(node, path, "a map of old steps to new ones", Name::new)
    }
}

/// Name of a step, or null for a removed step.
struct NewStep;

impl Codec for NewStep {
    type Value = Option<Name>;
    const SCHEMA: ValueSchema = ValueSchema::AnyOf(&[ValueSchema::Text, ValueSchema::Null]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Option<Name>> {
        if node.is_null() {
            Some(None)
        } else {
            Id::<Name>::decode(decoder, node, path).map(Some)
        }
    }
}
