//! Schema of the maps of the language: their fields, and the types of the values.

/// Field of a map of the language.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSchema {
    pub(crate) name: &'static str,
    pub(crate) schema: ValueSchema,
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
    /// One of the kinds of action, with these additional fields.
    Action(&'static MapSchema),
}
