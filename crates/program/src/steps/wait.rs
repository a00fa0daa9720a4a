//! Waits: a step that completes after a duration or at a point in time.

use std::time::Duration;

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
};
use super::time_limit::read_duration;
use super::values::eval_error;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EvalError, kind_of};
use crate::language::{
    Codec, Decoder, FieldSchema, Fields, MapSchema, Template as Any, ValueSchema, may, must,
};
use crate::template::Template;
use crate::yaml::duration;
use crate::yaml::tree::{Content, Node};

/// Point in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeSpec {
    /// Duration since the start of the step: a template of a text such as `30m`.
    For(Value),
    /// Template of a time as RFC 3339 text or in whole milliseconds since 1970.
    Until(Value),
}

impl TimeSpec {
    const MAP: MapSchema = MapSchema {
        name: "time",
        fields: &[
            may::<Any>("for", "Duration from now: a text such as `30m`."),
            may::<Any>(
                "until",
                "Point in time: RFC 3339 text, or whole milliseconds since 1970.",
            ),
        ],
    };

    pub(super) fn compile_field(
        &self,
        compiler: &mut ExpressionCompiler<'_>,
        site: Site<'_>,
        field: &str,
    ) -> CompiledTime {
        let path = format!("{}.{field}", site.path);
        let (TimeSpec::For(template) | TimeSpec::Until(template)) = self;
        let template = compiler.template(site.at(&path), template);

        let value = match (template, self) {
            (Template::Literal(value), _) => value,
            (template, TimeSpec::For(_)) => return CompiledTime::For(template),
            (template, TimeSpec::Until(_)) => return CompiledTime::Until(template),
        };

        // A constant is parsed once, when the definition is deployed.
        let read = match self {
            TimeSpec::Until(_) => parse_time(&value).map(CompiledTime::At),
            TimeSpec::For(_) => {
                let text = value
                    .as_str()
                    .ok_or_else(|| "a duration must be a text such as 30m".to_owned());
                text.and_then(duration::parse).map(CompiledTime::After)
            }
        };

        // The definition is rejected with the report; the template only lets the compiler continue.
        read.unwrap_or_else(|message| {
            compiler.report(RawDiagnostic::new(path, message));
            CompiledTime::For(Template::Literal(value))
        })
    }
}

/// `30m`, `{ for: … }` or `{ until: … }`.
impl Codec for TimeSpec {
    type Value = Self;
    const SCHEMA: ValueSchema = ValueSchema::AnyOf(&[
        ValueSchema::Duration,
        ValueSchema::Expression,
        ValueSchema::Map(&TimeSpec::MAP),
    ]);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self> {
        if !matches!(node.content, Content::Map(_)) {
            return duration_template(decoder, node, path).map(TimeSpec::For);
        }

        let fields = decoder.map(node, path, &Self::MAP)?;
        match (fields.get("for"), fields.get("until")) {
            (Some((node, path)), None) => {
                duration_template(decoder, node, &path).map(TimeSpec::For)
            }
            (None, Some((node, _))) => Some(TimeSpec::Until(node.to_json())),
            (_, _) => {
                let finding =
                    RawDiagnostic::new(path, "it must have exactly one of `for` and `until`");
                decoder.report(
                    finding.with_suggestion("for example { for: 30m } or { until: =vars.dueAt }"),
                );
                None
            }
        }
    }
}

/// Decodes a template for a duration; a value without an expression must be a valid duration.
fn duration_template(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Value> {
    match &node.content {
        Content::Scalar { text, .. } if text.starts_with('=') => Some(node.to_json()),
        Content::Scalar { text, .. } => {
            let read = duration::parse(text).map(|_| Value::from(text.as_str()));
            read.map_err(|message| decoder.report(RawDiagnostic::new(path, message)))
                .ok()
        }
        Content::List(_) | Content::Map(_) => {
            decoder.type_error(path, "a duration such as 30m", node)
        }
    }
}

impl ActionForm for TimeSpec {
    const TRAITS: KindTraits = KindTraits::new("a wait", Completion::Timer);
    const FIELDS: &'static [FieldSchema] = &[must::<Self>(
        "wait",
        "Delay: `30m`, `{ for: =vars.delay }` or `{ until: =vars.dueAt }`.",
    )];
    type Compiled = CompiledTime;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        decoder.optional::<Self>(fields, "wait")
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledTime {
        self.compile_field(compiler, site, "wait")
    }
}

impl DefinedAction for TimeSpec {
    fn duration(&self) -> Option<Duration> {
        match self {
            TimeSpec::For(text) => duration::parse(text.as_str()?).ok(),
            TimeSpec::Until(_) => None,
        }
    }
}

/// Compiled point in time.
#[derive(Debug)]
pub(crate) enum CompiledTime {
    After(Duration),
    At(Timestamp),
    For(Template),
    Until(Template),
}

impl CompiledTime {
    /// Returns the time.
    pub(super) fn due(
        &self,
        now: Timestamp,
        bindings: &Bindings<'_>,
    ) -> Result<Timestamp, EvalError> {
        let error = |reason| eval_error("wait", reason);
        match self {
            CompiledTime::After(duration) => Ok(now.saturating_add(*duration)),
            CompiledTime::At(at) => Ok(*at),
            CompiledTime::For(template) => {
                let duration = read_duration(&template.evaluate(bindings)?).map_err(error)?;
                Ok(now.saturating_add(duration))
            }
            CompiledTime::Until(template) => {
                parse_time(&template.evaluate(bindings)?).map_err(error)
            }
        }
    }
}

impl CompiledKind for CompiledTime {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        self.due(context.now, context.bindings).map(Request::Until)
    }
}

/// Parses a time as RFC 3339 text or whole milliseconds since 1970.
fn parse_time(value: &Value) -> Result<Timestamp, String> {
    match (value.as_str(), value.as_i64()) {
        (Some(text), _) => Timestamp::parse(text).map_err(|error| error.to_string()),
        (None, Some(millis)) => Ok(Timestamp::from_foreign_millis(millis)),
        (None, None) => Err(format!(
            "a time must be RFC 3339 text or whole milliseconds, but is {}",
            kind_of(value)
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_end_is_the_latest_time() {
        for value in [
            json!("9999-12-31T23:59:59Z"),
            json!(253_402_300_799_000_i64),
        ] {
            assert_eq!(parse_time(&value), Ok(Timestamp::MAX_RFC_3339), "{value}");
        }
        let error = parse_time(&json!("some day")).unwrap_err();
        assert!(error.contains("\"some day\""), "{error}");
    }
}
