//! Types of the schema, and the parts that several maps share.

/// Field of a map of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSchema {
    pub(crate) name: &'static str,
    pub(crate) shape: ValueSchema,
    pub(crate) required: bool,
    /// One-line description for users.
    pub(crate) description: &'static str,
}

/// Map of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSchema {
    /// Name in the JSON Schema.
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [FieldSchema],
}

/// Type of the value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueSchema {
    /// A name or a path.
    Text,
    /// One of these values.
    Enum(&'static [&'static str]),
    /// True or false.
    Bool,
    /// Whole number with this minimum.
    Count(u32),
    /// Text such as `30m`.
    Duration,
    /// Text that starts with `=`.
    Expression,
    /// Expression with or without `=`.
    Condition,
    /// Any value; texts that start with `=` are expressions.
    Template,
    /// Map of names to templates.
    Templates,
    /// Null.
    Null,
    /// Map with these fields.
    Map(&'static MapSchema),
    /// Map with user-defined keys.
    MapOf(&'static ValueSchema),
    /// List.
    List(&'static ValueSchema),
    /// One value or a list.
    OneOrList(&'static ValueSchema),
    /// Any of these types.
    AnyOf(&'static [ValueSchema]),
    /// One of the `KINDS` of action, with these additional fields.
    Action(&'static MapSchema),
}

/// Kind of action; its first field names the kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionSchema {
    /// Label for users, with its article.
    pub(crate) label: &'static str,
    pub(crate) fields: &'static [FieldSchema],
}

impl ActionSchema {
    pub(crate) const fn name(&self) -> &'static str {
        self.fields[0].name
    }
}

pub(super) const fn may(name: &'static str, schema: ValueSchema, about: &'static str) -> FieldSchema {
    FieldSchema { name, shape: schema, required: false, description: about }
}

pub(super) const fn must(name: &'static str, schema: ValueSchema, about: &'static str) -> FieldSchema {
    FieldSchema { name, shape: schema, required: true, description: about }
}

pub(super) const EVENTS: ValueSchema = ValueSchema::OneOrList(&ValueSchema::Text);
pub(super) const STEPS: ValueSchema = ValueSchema::OneOrList(&ValueSchema::Text);
pub(super) const COUNTS: ValueSchema = ValueSchema::OneOrList(&ValueSchema::Count(0));
pub(super) const ROLES: ValueSchema = ValueSchema::OneOrList(&ValueSchema::Template);
pub(super) const RESULT_MATCHERS: ValueSchema =
    ValueSchema::OneOrList(&ValueSchema::AnyOf(&[ValueSchema::Text, ValueSchema::Map(&RESULT_MATCHER)]));

pub(super) const DATA: FieldSchema = may("data", ValueSchema::Template, "The payload.");

pub(crate) const IN_DOUBT: [&str; 3] = ["retry", "fail", "ask"];

pub(crate) const RESULT_MATCHER: MapSchema = MapSchema {
    name: "result",
    fields: &[
        must("event", ValueSchema::Text, "Event type, or name of an outcome."),
        may("when", ValueSchema::Condition, "Condition over `event` and `vars`."),
    ],
};

pub(crate) const RETRY: MapSchema = MapSchema {
    name: "retry",
    fields: &[
        may("max_attempts", ValueSchema::Count(1), "Maximum number of attempts."),
        may(
            "initial_backoff",
            ValueSchema::Duration,
            "Delay before the second attempt; it doubles for each further attempt.",
        ),
    ],
};
