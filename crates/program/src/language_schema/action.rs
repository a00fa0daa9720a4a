//! Schema of actions: their kinds, and the maps that only actions contain.

use orlog_model::ExcludedUser;

use super::types::{
    ActionSchema, DATA, EVENTS, IN_DOUBT, MapSchema, RESULT_MATCHERS, RETRY, ROLES, STEPS, ValueSchema, may,
    must,
};

const TIME: ValueSchema =
    ValueSchema::AnyOf(&[ValueSchema::Duration, ValueSchema::Expression, ValueSchema::Map(&TIME_SPEC)]);

/// All kinds of action.
pub(crate) const KINDS: [ActionSchema; 8] = [
    ActionSchema {
        label: "a command",
        fields: &[
            must(
                "command",
                ValueSchema::Text,
                "Command to an aggregate, for example `inventory.ReserveStock`.",
            ),
            may("id", ValueSchema::Template, "Id of the aggregate. Default: the correlation id."),
            DATA,
        ],
    },
    ActionSchema {
        label: "an effect",
        fields: &[
            must("effect", ValueSchema::Text, "Effect to execute, for example `payments.charge`."),
            DATA,
        ],
    },
    ActionSchema {
        label: "a wait",
        fields: &[must("wait", TIME, "Delay: `30m`, `{ for: =vars.delay }` or `{ until: =vars.dueAt }`.")],
    },
    ActionSchema { label: "a human task", fields: &[must("human", ValueSchema::Map(&HUMAN), "Human task.")] },
    // Precedes `event`, which is one of its fields.
    ActionSchema {
        label: "a saga",
        fields: &[
            must("saga", ValueSchema::Text, "Child saga, which runs until it ends."),
            may(
                "correlation",
                ValueSchema::Template,
                "Correlation id of the child saga. Default: the correlation id of this instance, `:` and the step.",
            ),
            may(
                "event",
                ValueSchema::Text,
                "Event that starts the child saga. Default: its first start event.",
            ),
            may("data", ValueSchema::Template, "Data of the start event."),
        ],
    },
    ActionSchema {
        label: "an event",
        fields: &[
            must("event", EVENTS, "Event or signal to wait for; any one of a list."),
            may("when", ValueSchema::Condition, "Condition over `event` and `vars`."),
        ],
    },
    ActionSchema {
        label: "a job",
        fields: &[must("job", ValueSchema::Map(&JOB), "Script that a worker executes.")],
    },
    ActionSchema {
        label: "a switch",
        fields: &[must(
            "switch",
            ValueSchema::List(&ValueSchema::Map(&CASE)),
            "Cases; the first case with a true condition is selected.",
        )],
    },
];

/// Additional fields of the action of a step: none.
pub(crate) const ACTION: MapSchema = MapSchema { name: "action", fields: &[] };

/// Additional fields of a compensation.
pub(crate) const COMPENSATION: MapSchema = MapSchema {
    name: "compensation",
    fields: &[
        may("ok", RESULT_MATCHERS, "Events that confirm the compensation."),
        may("fail", RESULT_MATCHERS, "Events that report a failure."),
        may("timeout", ValueSchema::Duration, "Time limit for the confirmation."),
        may("retry", ValueSchema::Map(&RETRY), "Retry policy of the compensation."),
        may(
            "in_doubt",
            ValueSchema::Enum(&IN_DOUBT),
            "Policy for an unknown outcome of an effect or a job: `retry` retries it; `fail` and `ask` require an operator decision.",
        ),
    ],
};

pub(crate) const TIME_SPEC: MapSchema = MapSchema {
    name: "time",
    fields: &[
        may("for", ValueSchema::Template, "Duration from now: a text such as `30m`."),
        may(
            "until",
            ValueSchema::Template,
            "Point in time: RFC 3339 text, or whole milliseconds since 1970.",
        ),
    ],
};

const NOT_BY: ValueSchema = ValueSchema::OneOrList(&ValueSchema::Enum(&EXCLUDED_USERS));
/// Names of [`ExcludedUser::ALL`].
pub(crate) const EXCLUDED_USERS: [&str; 2] =
    [ExcludedUser::Starter.as_str(), ExcludedUser::Previous.as_str()];

pub(crate) const HUMAN: MapSchema = MapSchema {
    name: "human",
    fields: &[
        must("title", ValueSchema::Template, "Title of the task."),
        may("roles", ROLES, "Roles that can claim the task. Default: any user."),
        may("not_by", NOT_BY, "Users who can neither claim, be assigned, nor complete the task."),
        may("assignee", ValueSchema::Template, "Assignee of the task."),
        may("due", TIME, "Due time; informational, a late task does not fail."),
        may("data", ValueSchema::Template, "Data to display with the task."),
        may("escalate", ValueSchema::Map(&ESCALATE), "Escalation of a task that is not completed."),
    ],
};

pub(crate) const ESCALATE: MapSchema = MapSchema {
    name: "escalate",
    fields: &[
        may(
            "after",
            ValueSchema::Duration,
            "Delay of the escalation after the task opens. Default: the due time.",
        ),
        may("roles", ROLES, "Roles that can claim the task after the escalation."),
        may("assignee", ValueSchema::Template, "Assignee after the escalation."),
    ],
};

pub(crate) const JOB: MapSchema = MapSchema {
    name: "job",
    fields: &[
        must("type", ValueSchema::Text, "Type of the script; the job becomes the effect `job.<type>`."),
        must("script", ValueSchema::Text, "Source of the script; not a template."),
        may("env", ValueSchema::Templates, "Environment of the job; overrides the environment of the saga."),
        may("args", ValueSchema::Template, "Arguments of the job."),
        may("prerequisites", STEPS, "Steps that must end first."),
        may("dependencies", STEPS, "Jobs that must end first and whose results are passed to this job."),
    ],
};

pub(crate) const CASE: MapSchema = MapSchema {
    name: "case",
    fields: &[
        may(
            "when",
            ValueSchema::Condition,
            "Condition of the case; a case without a condition is the default case.",
        ),
        must("then", STEPS, "Steps of the selected case."),
    ],
};
