//! Failure handlers of a step: what the saga does if the step fails or times out.

use orlog_model::Name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::diagnostic::RawDiagnostic;
use crate::language::{Codec, Decoder, Id, MapSchema, OneOrList, Templates, ValueSchema, may};
use crate::yaml::tree::{Content, Node};

/// `on_timeout` or `on_failure` of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureHandler {
    /// Variables to save.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub save: Map<String, Value>,
    /// What follows.
    pub then: AfterFailure,
}

/// What follows a failure of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    /// The saga fails, as without a handler.
    Fail,
    /// The steps that follow the step, as if it had completed.
    Continue,
    /// These steps, instead of the others that follow the step.
    Steps(Vec<Name>),
}

type StepIds = OneOrList<Id<Name>>;

impl FailureHandler {
    const MAP: MapSchema = MapSchema {
        name: "failure_handler",
        fields: &[
            may::<Templates>("save", "Variables to save; templates can read `failure`."),
            may::<StepIds>(
                "then",
                "Steps that follow instead of the others. Default: those that follow the step, as \
                 if it had completed.",
            ),
        ],
    };

    /// Returns the steps that only follow a failure.
    #[must_use]
    pub fn steps(&self) -> &[Name] {
        match &self.then {
            AfterFailure::Steps(steps) => steps,
            AfterFailure::Fail | AfterFailure::Continue => &[],
        }
    }

    /// Returns true if the saga does not fail.
    pub(crate) fn prevents_failure(&self) -> bool {
        self.then != AfterFailure::Fail
    }
}

impl From<AfterFailure> for FailureHandler {
    fn from(then: AfterFailure) -> Self {
        Self {
            save: Map::new(),
            then,
        }
    }
}

impl Codec for FailureHandler {
    type Value = Self;
    const SCHEMA: ValueSchema = ValueSchema::AnyOf(&[
        ValueSchema::Enum(&["continue", "fail"]),
        ValueSchema::Map(&Self::MAP),
    ]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self> {
        if let Content::Scalar { text, .. } = &node.content {
            return match text.as_str() {
                "continue" => Some(AfterFailure::Continue.into()),
                "fail" => Some(AfterFailure::Fail.into()),
                _ => {
                    let finding = RawDiagnostic::new(path, "this must be `continue` or `fail`");
                    let suggestion = format!("to run a step, write {{ then: {text} }}");
                    decoder.report(finding.with_suggestion(suggestion));
                    None
                }
            };
        }

        let fields = decoder.map(node, path, &Self::MAP)?;
        let save = decoder.optional::<Templates>(&fields, "save");
        let then = decoder.optional::<StepIds>(&fields, "then");
        if fields.known.is_empty() {
            let finding = RawDiagnostic::new(path, "the handler has neither `save` nor `then`");
            decoder.report(finding.with_suggestion("write `continue` to go on without values"));
        }

        if then.as_ref().is_some_and(Vec::is_empty) {
            let finding = RawDiagnostic::new(format!("{path}.then"), "the list names no step");
            let handler = path.rsplit('.').next().unwrap_or_default();
            let suggestion = if fields.get("save").is_some() {
                "omit `then` to go on as after a completion".to_owned()
            } else {
                format!("write `{handler}: continue` to go on as after a completion")
            };
            decoder.report(finding.with_suggestion(suggestion));
        }

        Some(Self {
            save: save.unwrap_or_default(),
            then: then.map_or(AfterFailure::Continue, AfterFailure::Steps),
        })
    }
}
