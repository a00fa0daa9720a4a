//! Schema of the definition language: every field with its type and description.
//!
//! The YAML front-end accepts exactly these fields, and the JSON Schema is generated from them. There
//! is no second list.

mod action;
mod types;

pub(crate) use action::{ACTION, CASE, COMPENSATION, ESCALATE, EXCLUDED_USERS, HUMAN, JOB, KINDS, TIME_SPEC};
pub(crate) use types::{ActionSchema, FieldSchema, IN_DOUBT, MapSchema, RESULT_MATCHER, RETRY, ValueSchema};
use types::{COUNTS, DATA, EVENTS, RESULT_MATCHERS, STEPS, may, must};

const FACTS: ValueSchema = ValueSchema::AnyOf(&[ValueSchema::Text, ValueSchema::Map(&FACT)]);

pub(crate) const ON_UNSUPPORTED: [&str; 3] = ["dead_letter", "ignore", "compensate"];
pub(crate) const THEN: [&str; 4] = ["continue", "cancel", "fail", "complete"];

/// Top level of a definition file.
pub(crate) const TOP: MapSchema = MapSchema {
    name: "saga",
    fields: &[
        must("saga", ValueSchema::Text, "Name of the saga."),
        must("version", ValueSchema::Count(0), "Version of the definition, chosen by its author."),
        must("start", EVENTS, "Event or events that start an instance."),
        may(
            "correlate",
            ValueSchema::AnyOf(&[ValueSchema::Text, ValueSchema::MapOf(&ValueSchema::Text)]),
            "Location of the correlation id in an event: a path (`order.id`), an `=expression` over `event`, or a map of event types to either. Default: the correlation id of the envelope.",
        ),
        may(
            "early_event_ttl",
            ValueSchema::Duration,
            "How long early events are stored; `0s` disables early events. Default: one day.",
        ),
        may(
            "events",
            ValueSchema::MapOf(&ValueSchema::Map(&EVENT_VERSIONS)),
            "Accepted versions of event payloads.",
        ),
        may("env", ValueSchema::Templates, "Environment of all jobs."),
        may("vars", ValueSchema::Templates, "Variables to save from the start event."),
        may("reference", ValueSchema::Template, "Business reference of the instance."),
        may("timeout", ValueSchema::Duration, "Maximum duration of the forward execution of an instance."),
        may(
            "on",
            ValueSchema::OneOrList(&ValueSchema::Map(&HANDLER)),
            "Event handlers that are active during forward execution.",
        ),
        must("steps", ValueSchema::List(&ValueSchema::Map(&STEP)), "Steps of the saga, 1 to 1000."),
        may("completed", FACTS, "Fact to publish when every step has completed."),
        may(
            "failed",
            FACTS,
            "Fact to publish when the saga has failed and all completed steps are compensated.",
        ),
        may(
            "migrations",
            ValueSchema::OneOrList(&ValueSchema::Map(&MIGRATION)),
            "Rules to migrate instances of older versions to this version.",
        ),
    ],
};

pub(crate) const EVENT_VERSIONS: MapSchema = MapSchema {
    name: "versions",
    fields: &[
        must("accepts", COUNTS, "Accepted versions; expressions use the highest one."),
        may(
            "upcast",
            ValueSchema::MapOf(&ValueSchema::Template),
            "For each older version, a template over `event` that returns the newest version.",
        ),
        may(
            "on_unsupported",
            ValueSchema::Enum(&ON_UNSUPPORTED),
            "Policy for other versions. Default: `dead_letter`.",
        ),
    ],
};

pub(crate) const HANDLER: MapSchema = MapSchema {
    name: "handler",
    fields: &[
        must("event", EVENTS, "Events to handle."),
        may("when", ValueSchema::Condition, "Condition over `event` and `vars`."),
        may("save", ValueSchema::Templates, "Variables to save from the event."),
        may(
            "do",
            ValueSchema::OneOrList(&ValueSchema::Action(&ACTION)),
            "Commands and effects to start without waiting for their results.",
        ),
        may("then", ValueSchema::Enum(&THEN), "How the saga continues. Default: `continue`."),
    ],
};

pub(crate) const STEP: MapSchema = MapSchema {
    name: "step",
    fields: &[
        must("id", ValueSchema::Text, "Unique name without `:`, `[` or spaces; `saga` is reserved."),
        may(
            "after",
            ValueSchema::AnyOf(&[STEPS, ValueSchema::Map(&AFTER)]),
            "Steps that must end first. Default: the previous step, or the switch that names this step.",
        ),
        may("when", ValueSchema::Condition, "Condition of the step; if it is false, the step is skipped."),
        may(
            "foreach",
            ValueSchema::Map(&FOREACH),
            "List to iterate; the step is executed once for each element.",
        ),
        must("do", ValueSchema::Action(&ACTION), "Action of the step."),
        may("ok", RESULT_MATCHERS, "Success: an event, or the name of an outcome."),
        may("fail", RESULT_MATCHERS, "Failure: an event, or the name of an outcome."),
        may("undo", ValueSchema::Action(&COMPENSATION), "Compensation of the step."),
        may(
            "pivot",
            ValueSchema::Bool,
            "Point of no return: after this step completes, no step is compensated.",
        ),
        may("timeout", ValueSchema::Duration, "Time limit for the result; of a command, for each attempt."),
        may("save", ValueSchema::Templates, "Variables to save from the result."),
        may(
            "retry",
            ValueSchema::Map(&RETRY),
            "Retry policy of a command; for effects and jobs, a hint to the provider.",
        ),
        may(
            "in_doubt",
            ValueSchema::Enum(&IN_DOUBT),
            "Policy for an unknown outcome of an effect or a job: retry it, fail the step, or ask an operator. Default: the policy of the upstream.",
        ),
    ],
};

pub(crate) const AFTER: MapSchema = MapSchema {
    name: "after",
    fields: &[
        may("all", STEPS, "All of these steps."),
        may("any", STEPS, "One of these steps; the others are compensated."),
        may("count", ValueSchema::Count(1), "Required number of steps in `of`."),
        may("of", STEPS, "Steps that `count` refers to."),
    ],
};

pub(crate) const FOREACH: MapSchema = MapSchema {
    name: "foreach",
    fields: &[
        must("in", ValueSchema::Condition, "Expression that returns a list of at most 1000 elements."),
        must("as", ValueSchema::Text, "Variable name of an element; `index` is its position, from 0."),
        may("max_concurrency", ValueSchema::Count(1), "Maximum number of concurrent elements. Default: 10."),
    ],
};

pub(crate) const FACT: MapSchema =
    MapSchema { name: "fact", fields: &[must("fact", ValueSchema::Text, "Type of the fact."), DATA] };

pub(crate) const MIGRATION: MapSchema = MapSchema {
    name: "migration",
    fields: &[
        must("from", COUNTS, "Source versions of the migration."),
        may(
            "steps",
            ValueSchema::MapOf(&ValueSchema::AnyOf(&[ValueSchema::Text, ValueSchema::Null])),
            "Map of old steps to new steps, or null for removed steps.",
        ),
        may(
            "vars",
            ValueSchema::Templates,
            "Templates over the old `vars`; the values are saved in addition to them.",
        ),
    ],
};
