//! The words of the saga language: every field, what may stand there, and what it means.
//!
//! The YAML front-end accepts exactly these fields and the JSON Schema describes them; there is no second list.

/// A field of a map of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    /// For people: one line.
    pub(crate) about: &'static str,
}

/// A map of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Its name in the JSON Schema.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// What may stand in a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A name or a path.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True or false.
    Flag,
    /// A whole number, at least this.
    Count(u32),
    /// A text such as `30m`.
    Duration,
    /// A text that begins with `=`.
    Expression,
    /// An expression, with or without `=`.
    Condition,
    /// Anything; texts that begin with `=` are expressions.
    Template,
    /// Names and their templates.
    Templates,
    /// Nothing.
    Null,
    /// A map with these fields.
    Form(&'static Form),
    /// A map whose keys are names of the author's.
    ByName(&'static Shape),
    /// A list.
    List(&'static Shape),
    /// One, or a list.
    OneOrList(&'static Shape),
    /// Any of these.
    AnyOf(&'static [Shape]),
    /// One of the [`KINDS`] of action, with these fields beside its own.
    Action(&'static Form),
}

/// A kind of action: the field that names it comes first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// As people say it, with its article.
    pub(crate) called: &'static str,
    pub(crate) fields: &'static [Field],
}

impl Kind {
    pub(crate) const fn name(&self) -> &'static str {
        self.fields[0].name
    }
}

const fn may(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field { name, shape, required: false, about }
}

const fn must(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field { name, shape, required: true, about }
}

const EVENTS: Shape = Shape::OneOrList(&Shape::Text);
const STEPS: Shape = Shape::OneOrList(&Shape::Text);
const COUNTS: Shape = Shape::OneOrList(&Shape::Count(0));
const ROLES: Shape = Shape::OneOrList(&Shape::Template);
const ANSWERS: Shape = Shape::OneOrList(&Shape::AnyOf(&[Shape::Text, Shape::Form(&ANSWER)]));
const FACTS: Shape = Shape::AnyOf(&[Shape::Text, Shape::Form(&FACT)]);
const TIME: Shape = Shape::AnyOf(&[Shape::Duration, Shape::Expression, Shape::Form(&MOMENT)]);

pub(crate) const OTHERWISE: [&str; 3] = ["dead_letter", "ignore", "compensate"];
pub(crate) const IN_DOUBT: [&str; 3] = ["retry", "fail", "ask"];
pub(crate) const THEN: [&str; 4] = ["continue", "cancel", "fail", "complete"];

/// The top of a file.
pub(crate) const TOP: Form = Form {
    name: "saga",
    fields: &[
        must("saga", Shape::Text, "Its name."),
        must("version", Shape::Count(0), "The author's number for it."),
        must("start", EVENTS, "The event, or the events, that begin an instance."),
        may(
            "correlate",
            Shape::AnyOf(&[Shape::Text, Shape::ByName(&Shape::Text)]),
            "Where an event names its instance: a path (`order.id`), an `=expression` over `event`, or a map of event type to either. Where there is nothing, the envelope's correlation id counts.",
        ),
        may(
            "early",
            Shape::Duration,
            "How long events that come before the instance are kept for it; a day without this, `0s`: not at all.",
        ),
        may(
            "events",
            Shape::ByName(&Shape::Form(&EVENT_FORM)),
            "Which versions of events' payloads are taken.",
        ),
        may("env", Shape::Templates, "Environment of all jobs."),
        may("vars", Shape::Templates, "What the instance remembers of the start event."),
        may("reference", Shape::Template, "What the business calls the instance."),
        may("timeout", Shape::Duration, "The whole time an instance may go forward."),
        may(
            "on",
            Shape::OneOrList(&Shape::Form(&HANDLER)),
            "What happens on events at any time while it goes forward.",
        ),
        must("steps", Shape::List(&Shape::Form(&STEP)), "What is done, 1 to 1000 steps."),
        may("completed", FACTS, "The fact that every step is done."),
        may("failed", FACTS, "The fact that it failed and everything done was undone."),
        may(
            "migrates",
            Shape::OneOrList(&Shape::Form(&MIGRATION)),
            "How instances of older versions become instances of this one.",
        ),
    ],
};

pub(crate) const EVENT_FORM: Form = Form {
    name: "versions",
    fields: &[
        must(
            "accepts",
            COUNTS,
            "The versions taken; the highest is the one that expressions are written for.",
        ),
        may(
            "upcast",
            Shape::ByName(&Shape::Template),
            "By older version, a template over `event` that gives the newest.",
        ),
        may(
            "otherwise",
            Shape::Word(&OTHERWISE),
            "What becomes of other versions; `dead_letter` without this.",
        ),
    ],
};

pub(crate) const HANDLER: Form = Form {
    name: "handler",
    fields: &[
        must("event", EVENTS, "Which events."),
        may("when", Shape::Condition, "Only if this holds over `event` and `vars`."),
        may("save", Shape::Templates, "What the instance remembers of the event."),
        may(
            "do",
            Shape::OneOrList(&Shape::Action(&ACTION)),
            "Commands and effects; nobody waits for their answers.",
        ),
        may("then", Shape::Word(&THEN), "How the saga goes on; `continue` without this."),
    ],
};

pub(crate) const STEP: Form = Form {
    name: "step",
    fields: &[
        must("id", Shape::Text, "Unique; no `:`, `[` or spaces; not `saga`."),
        may(
            "after",
            Shape::AnyOf(&[STEPS, Shape::Form(&AFTER)]),
            "What must be over first; without it the step before, or the switch that names this step.",
        ),
        may("when", Shape::Condition, "The step is skipped when this is false."),
        may("foreach", Shape::Form(&FOREACH), "Done once for each element of a list."),
        must("do", Shape::Action(&ACTION), "What is asked for."),
        may("ok", ANSWERS, "What means success: an event, or an outcome's name."),
        may("fail", ANSWERS, "What means failure."),
        may("undo", Shape::Action(&UNDO), "What undoes the step."),
        may("pivot", Shape::Flag, "The point of no return: once it is done, nothing is undone any more."),
        may("timeout", Shape::Duration, "The time allowed for the answer; of a command, for each attempt."),
        may("save", Shape::Templates, "What the instance remembers of the answer."),
        may(
            "retry",
            Shape::Form(&RETRY),
            "How often a command is asked for; for effects and jobs a hint to the provider.",
        ),
        may(
            "in_doubt",
            Shape::Word(&IN_DOUBT),
            "Of an effect or a job: whether it is tried again, has failed, or a person is asked when nobody knows whether it was done; the upstream's word without this.",
        ),
    ],
};

pub(crate) const AFTER: Form = Form {
    name: "after",
    fields: &[
        may("all", STEPS, "All of these."),
        may("any", STEPS, "One of these; the others have lost and are undone."),
        may("count", Shape::Count(1), "So many of those in `of`."),
        may("of", STEPS, "The steps that `count` counts."),
    ],
};

pub(crate) const FOREACH: Form = Form {
    name: "foreach",
    fields: &[
        must("in", Shape::Condition, "An expression whose value is a list of at most 1000 elements."),
        must("as", Shape::Text, "What an element is called; `index` is its place, from 0."),
        may("limit", Shape::Count(1), "How many at once; 10 without this."),
    ],
};

pub(crate) const ANSWER: Form = Form {
    name: "answer",
    fields: &[
        must("event", Shape::Text, "Its type."),
        may("when", Shape::Condition, "Only if this holds over `event` and `vars`."),
    ],
};

const DATA: Field = may("data", Shape::Template, "The payload.");

/// The kinds of action.
pub(crate) const KINDS: [Kind; 8] = [
    Kind {
        called: "a command",
        fields: &[
            must("command", Shape::Text, "A command to an aggregate, as `inventory.ReserveStock`."),
            may("id", Shape::Template, "The aggregate's id; the correlation id without it."),
            DATA,
        ],
    },
    Kind {
        called: "an effect",
        fields: &[must("effect", Shape::Text, "An effect on the world, as `payments.charge`."), DATA],
    },
    Kind {
        called: "a wait",
        fields: &[must(
            "wait",
            TIME,
            "Time passes: `30m`, `{ for: =vars.delay }` or `{ until: =vars.dueAt }`.",
        )],
    },
    Kind { called: "a person's task", fields: &[must("human", Shape::Form(&HUMAN), "A person decides.")] },
    // Before `event`, which is one of its fields.
    Kind {
        called: "a saga",
        fields: &[
            must("saga", Shape::Text, "Another saga, which runs to its end."),
            may(
                "correlation",
                Shape::Template,
                "Its correlation id; this one's, `:` and the step without it.",
            ),
            may("event", Shape::Text, "The event that begins it; its first start event without this."),
            may("data", Shape::Template, "The data of that event."),
        ],
    },
    Kind {
        called: "an event",
        fields: &[
            must("event", EVENTS, "An event that comes by itself, or a signal; any of these."),
            may("when", Shape::Condition, "Only if this holds over `event` and `vars`."),
        ],
    },
    Kind { called: "a job", fields: &[must("job", Shape::Form(&JOB), "A script that a worker runs.")] },
    Kind {
        called: "a switch",
        fields: &[must("switch", Shape::List(&Shape::Form(&CASE)), "The first way whose condition holds.")],
    },
];

/// What a step's action has beside its own fields: nothing.
pub(crate) const ACTION: Form = Form { name: "action", fields: &[] };

/// What an undo has beside its action.
pub(crate) const UNDO: Form = Form {
    name: "undo",
    fields: &[
        may("ok", ANSWERS, "The events that confirm it."),
        may("fail", ANSWERS, "The events that mean it failed."),
        may("timeout", Shape::Duration, "The time allowed for the confirmation."),
        may("retry", Shape::Form(&RETRY), "How often it is asked for."),
        may(
            "in_doubt",
            Shape::Word(&IN_DOUBT),
            "Of an effect or a job: whether it is tried again when nobody knows whether it was done; `fail` and `ask` leave that to a person.",
        ),
    ],
};

pub(crate) const MOMENT: Form = Form {
    name: "moment",
    fields: &[
        may("for", Shape::Template, "So long from now: a text such as `30m`."),
        may("until", Shape::Template, "A time: RFC 3339 text, or whole milliseconds since 1970."),
    ],
};

pub(crate) const HUMAN: Form = Form {
    name: "human",
    fields: &[
        must("title", Shape::Template, "What the task is called."),
        may("roles", ROLES, "Who may take it; everybody without this."),
        may("assignee", Shape::Template, "Who is to do it."),
        may("due", TIME, "When it should be done; nothing fails when it is not."),
        may("data", Shape::Template, "What the person sees."),
        may("escalate", Shape::Form(&ESCALATE), "To whom it goes when nobody has done it."),
    ],
};

pub(crate) const ESCALATE: Form = Form {
    name: "escalate",
    fields: &[
        may("after", Shape::Duration, "How long after it was opened; when it is due without this."),
        may("roles", ROLES, "Who may take it from then on."),
        may("assignee", Shape::Template, "Who is to do it from then on."),
    ],
};

pub(crate) const JOB: Form = Form {
    name: "job",
    fields: &[
        must("type", Shape::Text, "The type of script; the job becomes the effect `job.<type>`."),
        must("script", Shape::Text, "The source, as it is: no template."),
        may("env", Shape::Templates, "Its environment, over the saga's."),
        may("args", Shape::Template, "Its arguments."),
        may("prerequisites", STEPS, "Steps that must be over first."),
        may("dependencies", STEPS, "Jobs that must be over first and whose results it is given."),
    ],
};

pub(crate) const CASE: Form = Form {
    name: "case",
    fields: &[
        may("when", Shape::Condition, "Taken if this holds and none before did; without it: otherwise."),
        must("then", STEPS, "The steps that may then begin."),
    ],
};

pub(crate) const RETRY: Form = Form {
    name: "retry",
    fields: &[
        may("attempts", Shape::Count(1), "Attempts in all."),
        may("backoff", Shape::Duration, "The pause before the second attempt; it doubles each time."),
    ],
};

pub(crate) const FACT: Form = Form { name: "fact", fields: &[must("fact", Shape::Text, "Its type."), DATA] };

pub(crate) const MIGRATION: Form = Form {
    name: "migration",
    fields: &[
        must("from", COUNTS, "The versions this is for."),
        may(
            "steps",
            Shape::ByName(&Shape::AnyOf(&[Shape::Text, Shape::Null])),
            "By old step the new one, or null where there is none any more.",
        ),
        may(
            "vars",
            Shape::Templates,
            "Templates over the old `vars`, whose values are remembered beside them.",
        ),
    ],
};
