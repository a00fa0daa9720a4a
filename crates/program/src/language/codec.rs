//! Types of the values that several maps share: the schema of each, and its decoder.

use std::marker::PhantomData;
use std::time::Duration;

use orlog_model::{
    EffectName, EventType, ExcludedUser, IdError, InDoubtPolicy, Name, ParentEndPolicy, SagaName,
};
use serde_json::{Map, Value};

use super::decoder::{Codec, Decoder};
use super::schema::ValueSchema;
use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::yaml::duration;
use crate::yaml::tree::{Content, Node};

/// A scalar as written: `on`, `1` and `true` are valid.
pub(crate) struct Text;

impl Codec for Text {
    type Value = String;
    const SCHEMA: ValueSchema = ValueSchema::Text;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<String> {
        decoder.text(node, path).map(str::to_owned)
    }
}

/// Identifier that is written as a text.
pub(crate) trait LanguageId: Sized {
    /// Parses the identifier.
    fn parse(text: String) -> Result<Self, IdError>;
}

macro_rules! language_ids {
    ($($id:ty),+) => {
        $(impl LanguageId for $id {
            fn parse(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        })+
    };
}
language_ids!(EffectName, EventType, Name, SagaName);

/// An identifier.
pub(crate) struct Id<T>(PhantomData<T>);

impl<T: LanguageId> Codec for Id<T> {
    type Value = T;
    const SCHEMA: ValueSchema = ValueSchema::Text;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<T> {
        let text = decoder.text(node, path)?.to_owned();
        decoder.parse_id(T::parse(text), path)
    }
}

/// Type with a few named values.
pub(crate) trait Choices: Copy + 'static {
    const NAMES: &'static [&'static str];
    /// Values in the order of their names.
    const VALUES: &'static [Self];
}

impl Choices for InDoubtPolicy {
    const NAMES: &'static [&'static str] = &["retry", "fail", "ask"];
    const VALUES: &'static [Self] = &[
        InDoubtPolicy::Retry,
        InDoubtPolicy::Fail,
        InDoubtPolicy::Ask,
    ];
}

impl Choices for ParentEndPolicy {
    const NAMES: &'static [&'static str] = &["stop", "abandon", "wait"];
    const VALUES: &'static [Self] = &[Self::Stop, Self::Abandon, Self::Wait];
}

impl Choices for ExcludedUser {
    const NAMES: &'static [&'static str] = &[
        ExcludedUser::Starter.as_str(),
        ExcludedUser::Previous.as_str(),
    ];
    const VALUES: &'static [Self] = &ExcludedUser::ALL;
}

/// One of a few names.
pub(crate) struct Choice<T>(PhantomData<T>);

impl<T: Choices> Codec for Choice<T> {
    type Value = T;
    const SCHEMA: ValueSchema = ValueSchema::Enum(T::NAMES);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<T> {
        let text = decoder.text(node, path)?;
        let known = T::NAMES
            .iter()
            .zip(T::VALUES)
            .find(|(name, _)| **name == text);

        if known.is_none() {
            let suggestion = did_you_mean(text, T::NAMES.iter().copied())
                .unwrap_or_else(|| format!("valid: {}", T::NAMES.join(", ")));
            let finding = RawDiagnostic::new(path, format!("invalid value `{text}`"));
            decoder.report(finding.with_suggestion(suggestion));
        }
        known.map(|(_, value)| *value)
    }
}

/// True or false.
pub(crate) struct Bool;

impl Codec for Bool {
    type Value = bool;
    const SCHEMA: ValueSchema = ValueSchema::Bool;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<bool> {
        node.to_json()
            .as_bool()
            .or_else(|| decoder.type_error(path, "true or false", node))
    }
}

/// Whole number. The schema has this minimum; the compiler checks it.
pub(crate) struct Count<const MIN: u32>;

impl<const MIN: u32> Codec for Count<MIN> {
    type Value = u32;
    const SCHEMA: ValueSchema = ValueSchema::Count(MIN);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<u32> {
        let number = node
            .to_json()
            .as_u64()
            .and_then(|number| u32::try_from(number).ok());
        number.or_else(|| decoder.type_error(path, "a whole number from 0", node))
    }
}

/// Duration such as `30m`.
pub(crate) struct Period;

impl Codec for Period {
    type Value = Duration;
    const SCHEMA: ValueSchema = ValueSchema::Duration;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Duration> {
        match &node.content {
            Content::Scalar { text, .. } => duration::parse(text)
                .map_err(|message| decoder.report(RawDiagnostic::new(path, message)))
                .ok(),
            Content::List(_) | Content::Map(_) => {
                decoder.type_error(path, "a duration such as 30m", node)
            }
        }
    }
}

/// Expression with or without `=`.
pub(crate) struct Condition;

impl Codec for Condition {
    type Value = String;
    const SCHEMA: ValueSchema = ValueSchema::Condition;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<String> {
        match node.to_json() {
            Value::String(text) => Some(text),
            // YAML reads `true` as a boolean, although it is a valid expression.
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                decoder.type_error(path, "an expression", node)
            }
        }
    }
}

/// Any value; texts that start with `=` are expressions.
pub(crate) struct Template;

impl Codec for Template {
    type Value = Value;
    const SCHEMA: ValueSchema = ValueSchema::Template;

    fn decode(_: &mut Decoder<'_>, node: &Node, _: &str) -> Option<Value> {
        Some(node.to_json())
    }
}

/// Map of names to templates.
pub(crate) struct Templates;

impl Codec for Templates {
    type Value = Map<String, Value>;
    const SCHEMA: ValueSchema = ValueSchema::Templates;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Map<String, Value>> {
        match node.to_json() {
            Value::Object(fields) => Some(fields),
            // A field name without a value is null in YAML, and means an empty map here.
            Value::Null => Some(Map::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                decoder.type_error(path, "a map of names to templates", node)
            }
        }
    }
}

/// One value or a list.
pub(crate) struct OneOrList<C>(PhantomData<C>);

impl<C: Codec> Codec for OneOrList<C> {
    type Value = Vec<C::Value>;
    const SCHEMA: ValueSchema = ValueSchema::OneOrList(&C::SCHEMA);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Vec<C::Value>> {
        match &node.content {
            Content::List(items) => Some(decoder.each::<C>(items, path)),
            Content::Map(_) | Content::Scalar { .. } => {
                C::decode(decoder, node, path).map(|one| vec![one])
            }
        }
    }
}
