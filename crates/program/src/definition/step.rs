//! Steps: their order, action, results and compensation.

use orlog_model::{EventType, InDoubtPolicy, Name};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::action::{AnyAction, decode_action, unread_action};
use super::{FailureHandler, ReminderSpec};
use crate::diagnostic::RawDiagnostic;
use crate::language::{
    Bool, Choice, Codec, Condition, Count, Decoder, Id, MapSchema, OneOrList, Templates, Text,
    ValueSchema, language_map, may,
};
use crate::steps::{Action, Foreach, PriorityTemplate, RetrySpec, TimeLimit};
use crate::yaml::tree::{Content, Node};

language_map! {
    /// One step.
    pub struct Step as "step" {
        must "id" id: Name = StepId, "Unique name without `:`, `[` or spaces; `saga` is reserved.";
        /// An empty list starts the step immediately.
        may "after" after: Option<StepDependencies> = StepDependencies,
            "Steps that must end first. Default: the previous step, or the switch that names this \
             step.";
        may "when" when: Option<String> = Condition,
            "Condition of the step; if it is false, the step is skipped.";
        may "foreach" foreach: Option<Foreach> = Foreach,
            "List to iterate; the step is executed once for each element.";
        must "do" action: Action = AnyAction, "Action of the step.";
        /// Commands: result events; without one, acceptance is success. Effects and jobs: names of
        /// successful results. Human tasks: outcomes to choose from.
        #[serde(default)]
        may_or_default "ok" ok: Vec<ResultMatcher> = OneOrList<AnyResult>,
            "Success: an event, or the name of an outcome.";
        #[serde(default)]
        may_or_default "fail" fail: Vec<ResultMatcher> = OneOrList<AnyResult>,
            "Failure: an event, or the name of an outcome.";
        may "undo" compensate: Option<CompensationSpec> = CompensationSpec,
            "Compensation of the step.";
        #[serde(default)]
        may_or_default "pivot" pivot: bool = Bool,
            "Point of no return: after this step completes, no step is compensated.";
        may "timeout" timeout: Option<TimeLimit> = TimeLimit,
            "Time limit for the result; of a command, for each attempt. A duration, or an \
             expression for a duration, a number of seconds or a point in time.";
        #[serde(default)]
        may_or_default "save" save: Map<String, Value> = Templates,
            "Variables to save from the result.";
        may "retry" retry: Option<RetrySpec> = RetrySpec,
            "Retry policy of a command; for effects and jobs, a hint to the provider.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "in_doubt" in_doubt: Option<InDoubtPolicy> = Choice<InDoubtPolicy>,
            "Policy for an unknown outcome of an effect or a job: retry it, fail the step, or ask \
             an operator. Default: the policy of the upstream.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "publish" publish: Option<bool> = Bool,
            "Whether the named result of the effect, job or human task is published as an event. \
             Default: the value of the saga.";
        /// A name or an expression. Omitted from the canonical JSON if not set, so that existing
        /// definitions keep their hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "priority" priority: Option<String> = PriorityTemplate,
            "Priority of the command, the effect or the job: `high`, `normal`, `low`, or an \
             expression. Work of a tenant that waits for an upstream is executed in this order. \
             Default: `normal`.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "on_timeout" on_timeout: Option<FailureHandler> = FailureHandler,
            "What follows if the `timeout` passes: `continue`, `fail`, or variables and steps. \
             Default: `on_failure`.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "on_failure" on_failure: Option<FailureHandler> = FailureHandler,
            "What follows if the step fails: `continue`, `fail`, or variables and steps. Default: \
             the saga fails.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "remind" remind: Option<ReminderSpec> = ReminderSpec,
            "Command or effect that is requested repeatedly while the step waits for its event or \
             its user.";
    }
}

impl Step {
    /// Returns the failure handlers, each with the name of its field.
    pub fn failure_handlers(&self) -> impl Iterator<Item = (&'static str, &FailureHandler)> {
        let timeout = self
            .on_timeout
            .as_ref()
            .map(|handler| ("on_timeout", handler));
        let failure = self
            .on_failure
            .as_ref()
            .map(|handler| ("on_failure", handler));
        timeout.into_iter().chain(failure)
    }

    /// Returns the names of the variables that the step and its failure handlers save.
    pub fn saved_names(&self) -> impl Iterator<Item = &String> {
        let handled = self
            .failure_handlers()
            .flat_map(|(_, handler)| handler.save.keys());
        self.save.keys().chain(handled)
    }

    /// Returns the lists of steps that the step selects, each with its path within the step: the
    /// cases of a switch, and the steps after a failure.
    pub(crate) fn selections(&self) -> Vec<(String, &[Name])> {
        let cases = self.action.cases().iter().enumerate();
        let cases = cases.map(|(n, case)| (format!("do.switch[{n}].then"), case.then.as_slice()));
        let handlers = self
            .failure_handlers()
            .map(|(field, handler)| (format!("{field}.then"), handler.steps()));
        cases.chain(handlers).collect()
    }
}

/// Id of a step; its placeholder is unique.
pub(super) struct StepId;

impl Codec for StepId {
    type Value = Name;
    const SCHEMA: ValueSchema = ValueSchema::Text;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Name> {
        Id::<Name>::decode(decoder, node, path)
    }

    fn placeholder(path: &str) -> Option<Name> {
        let index = path.trim_start_matches("steps[").trim_end_matches(']');
        Name::new(format!("step-{index}-unread")).ok()
    }
}

/// List of steps. Every item becomes a step, so that the others keep their index.
pub(super) struct Steps;

impl Codec for Steps {
    type Value = Vec<Step>;
    const SCHEMA: ValueSchema = ValueSchema::List(&Step::SCHEMA);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Vec<Step>> {
        let Content::List(items) = &node.content else {
            return decoder.type_error(path, "a list of steps", node);
        };

        let mut steps = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let fields = decoder.fields(item, &format!("{path}[{index}]"), &Step::MAP);
            // Not `each`, which leaves out invalid items: later paths would then name other steps.
            steps.extend(Step::read(decoder, &fields));
        }
        Some(steps)
    }
}

/// Dependencies of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDependencies {
    /// Preceding steps; empty: the step starts immediately.
    pub steps: Vec<Name>,
    /// Number of preceding steps that are required.
    #[serde(default)]
    pub join: Join,
}

/// Number of preceding steps that must complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// All of them, except skipped steps.
    #[default]
    All,
    /// This number, at least 1; the other branches are discarded and compensated.
    AtLeast(u32),
}

type StepIds = OneOrList<Id<Name>>;

impl StepDependencies {
    pub(crate) const MAP: MapSchema = MapSchema {
        name: "after",
        fields: &[
            may::<StepIds>("all", "All of these steps."),
            may::<StepIds>("any", "One of these steps; the others are compensated."),
            may::<Count<1>>("count", "Required number of steps in `of`."),
            may::<StepIds>("of", "Steps that `count` refers to."),
        ],
    };
}

impl Codec for StepDependencies {
    type Value = Self;
    const SCHEMA: ValueSchema =
        ValueSchema::AnyOf(&[StepIds::SCHEMA, ValueSchema::Map(&Self::MAP)]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self> {
        if !matches!(node.content, Content::Map(_)) {
            return Some(Self {
                steps: StepIds::decode(decoder, node, path)?,
                join: Join::All,
            });
        }

        let fields = decoder.map(node, path, &Self::MAP)?;
        let listed = |name: &str| fields.get(name).is_some();
        match (
            listed("all"),
            listed("any"),
            listed("count") || listed("of"),
        ) {
            (true, false, false) => Some(Self {
                steps: decoder.required::<StepIds>(&fields, "all")?,
                join: Join::All,
            }),
            (false, true, false) => Some(Self {
                steps: decoder.required::<StepIds>(&fields, "any")?,
                join: Join::AtLeast(1),
            }),
            (false, false, true) => {
                // Both are decoded before either is required, so that one report contains the
                // errors of both.
                let count = decoder.required::<Count<1>>(&fields, "count");
                let steps = decoder.required::<StepIds>(&fields, "of");
                Some(Self {
                    steps: steps?,
                    join: Join::AtLeast(count?),
                })
            }
            (_, _, _) => {
                let message = "it must have exactly one of `all`, `any`, and `count` with `of`";
                let suggestion = "for example { any: [a, b] } or { count: 2, of: [a, b, c] }";
                decoder.report(RawDiagnostic::new(path, message).with_suggestion(suggestion));
                None
            }
        }
    }
}

language_map! {
    /// An event or a named outcome, and its condition.
    pub struct ResultMatcher as "result" {
        must "event" event: EventType = Id<EventType>, "Event type, or name of an outcome.";
        may "when" when: Option<String> = Condition,
            "Condition over `event`, `envelope` and `vars`.";
    }
}

impl From<EventType> for ResultMatcher {
    fn from(event: EventType) -> Self {
        Self { event, when: None }
    }
}

/// A result matcher, or the name of one without a condition.
struct AnyResult;

impl Codec for AnyResult {
    type Value = ResultMatcher;
    const SCHEMA: ValueSchema = ValueSchema::AnyOf(&[ValueSchema::Text, ResultMatcher::SCHEMA]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<ResultMatcher> {
        match &node.content {
            Content::Map(_) => ResultMatcher::decode(decoder, node, path),
            Content::List(_) | Content::Scalar { .. } => {
                Id::<EventType>::decode(decoder, node, path).map(ResultMatcher::from)
            }
        }
    }
}

/// Compensation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompensationSpec {
    /// Action: a command, an effect, a job, a human task or a saga.
    pub action: Action,
    /// For a command, the events that confirm it; without one, acceptance confirms it.
    #[serde(default)]
    pub ok: Vec<ResultMatcher>,
    /// Results that mean failure.
    #[serde(default)]
    pub fail: Vec<ResultMatcher>,
    /// Timeout for the confirmation; afterwards the compensation is retried, or the instance is
    /// stuck.
    #[serde(default)]
    pub timeout: Option<TimeLimit>,
    /// Retry policy of commands; for effects and jobs, hints for attempts.
    #[serde(default)]
    pub retry: Option<RetrySpec>,
    /// Policy for an unknown outcome of effects and jobs. With `ask`, the instance is stuck
    /// immediately and an operator decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubtPolicy>,
    /// Priority of commands, effects and jobs: a name or an expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Variables of steps that may be null when the compensation is requested. Omitted from the
    /// canonical JSON if empty, so that existing definitions keep their hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_null: Vec<String>,
}

impl CompensationSpec {
    /// Fields beside those of the action.
    const MAP: MapSchema = MapSchema {
        name: "compensation",
        fields: &[
            may::<OneOrList<AnyResult>>("ok", "Events that confirm the compensation."),
            may::<OneOrList<AnyResult>>("fail", "Events that report a failure."),
            may::<TimeLimit>("timeout", "Time limit for the confirmation."),
            may::<RetrySpec>("retry", "Retry policy of the compensation."),
            may::<Choice<InDoubtPolicy>>(
                "in_doubt",
                "Policy for an unknown outcome of an effect or a job: `retry` retries it; `fail` \
                 and `ask` require an operator decision.",
            ),
            may::<PriorityTemplate>(
                "priority",
                "Priority of the compensation: `high`, `normal`, `low`, or an expression. Default: \
                 `normal`.",
            ),
            may::<OneOrList<Text>>(
                "allow_null",
                "Variables that steps save and that may be null here. Default: none; without a \
                 value, the compensation requires an operator decision.",
            ),
        ],
    };
}

impl Codec for CompensationSpec {
    type Value = Self;
    const SCHEMA: ValueSchema = ValueSchema::Action(&Self::MAP);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self> {
        let (action, fields) = decode_action(decoder, node, path, &Self::MAP);
        fields.is_map.then(|| Self {
            action: action.unwrap_or_else(unread_action),
            ok: decoder
                .optional::<OneOrList<AnyResult>>(&fields, "ok")
                .unwrap_or_default(),
            fail: decoder
                .optional::<OneOrList<AnyResult>>(&fields, "fail")
                .unwrap_or_default(),
            timeout: decoder.optional::<TimeLimit>(&fields, "timeout"),
            retry: decoder.optional::<RetrySpec>(&fields, "retry"),
            in_doubt: decoder.optional::<Choice<InDoubtPolicy>>(&fields, "in_doubt"),
            priority: decoder.optional::<PriorityTemplate>(&fields, "priority"),
            allow_null: decoder
                .optional::<OneOrList<Text>>(&fields, "allow_null")
                .unwrap_or_default(),
        })
    }
}
