//! Switches: a step that selects one of several cases and completes when it starts.

use orlog_model::Name;

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EvalError, Expression};
use crate::language::{
    Codec, Condition, Decoder, FieldSchema, Fields, Id, OneOrList, ValueSchema, language_map, must,
};
use crate::yaml::tree::{Content, Node};

language_map! {
    /// Case of a switch, selected if its condition holds and no earlier case matched.
    pub struct SwitchCase as "case" {
        may "when" when: Option<String> = Condition,
            "Condition of the case; a case without a condition is the default case.";
        /// The steps of other cases are bypassed.
        must "then" then: Vec<Name> = OneOrList<Id<Name>>, "Steps of the selected case.";
    }
}

/// Returns true if the condition of the case cannot hold, or if an earlier case always matches or
/// has the same condition.
pub(crate) fn never_matches(cases: &[SwitchCase], case: usize) -> bool {
    let when = cases[case].when.as_deref();
    when.is_some_and(is_never)
        || cases[..case]
            .iter()
            .any(|earlier| match earlier.when.as_deref() {
                None => true,
                Some(condition) => {
                    bare(condition) == "true"
                        || when.is_some_and(|when| bare(when) == bare(condition))
                }
            })
}

/// Returns true if the condition is always false.
pub(crate) fn is_never(condition: &str) -> bool {
    bare(condition) == "false"
}

fn bare(condition: &str) -> &str {
    condition.strip_prefix('=').unwrap_or(condition).trim()
}

struct Cases;

impl Codec for Cases {
    type Value = Vec<SwitchCase>;
    const SCHEMA: ValueSchema = ValueSchema::List(&SwitchCase::SCHEMA);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Vec<SwitchCase>> {
        let Content::List(items) = &node.content else {
            return decoder.type_error(
                path,
                "a list of cases such as { when: …, then: step }",
                node,
            );
        };
        Some(decoder.each::<SwitchCase>(items, path))
    }
}

impl ActionForm for Vec<SwitchCase> {
    const TRAITS: KindTraits = KindTraits::new("a switch", Completion::None);
    const FIELDS: &'static [FieldSchema] = &[must::<Cases>(
        "switch",
        "Cases; the first case with a true condition is selected.",
    )];
    type Compiled = Vec<CompiledCase>;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        decoder.optional::<Cases>(fields, "switch")
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> Vec<CompiledCase> {
        let path = format!("{}.switch", site.path);
        if self.is_empty() {
            compiler.report(RawDiagnostic::new(
                &path,
                "a switch requires at least one case",
            ));
        }

        let mut all = Vec::with_capacity(self.len());
        for (n, case) in self.iter().enumerate() {
            if case.when.is_none() && n + 1 < self.len() {
                let message =
                    "a case without `when` always matches, so later cases are unreachable";
                let finding = RawDiagnostic::new(format!("{path}[{n}]"), message);
                compiler.report(finding.with_suggestion("make it the last case"));
            }

            let when =
                compiler.condition(site.at(&format!("{path}[{n}].when")), case.when.as_ref());
            // Unknown steps are reported with the order of the steps.
            let then = case
                .then
                .iter()
                .filter_map(|id| compiler.steps.iter().position(|step| *step == id))
                .collect();
            all.push(CompiledCase { when, then });
        }
        all
    }
}

impl DefinedAction for Vec<SwitchCase> {}

/// Compiled case of a switch.
#[derive(Debug)]
pub(crate) struct CompiledCase {
    pub(crate) when: Option<Expression>,
    /// Indices of its steps.
    pub(crate) then: Vec<usize>,
}

/// Returns the first case whose condition holds.
pub(crate) fn select(
    cases: &[CompiledCase],
    bindings: &Bindings<'_>,
) -> Result<Option<usize>, EvalError> {
    for (number, case) in cases.iter().enumerate() {
        if case
            .when
            .as_ref()
            .map_or(Ok(true), |when| when.holds(bindings))?
        {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

impl CompiledKind for Vec<CompiledCase> {
    fn request(&self, _: &RequestContext<'_>) -> Result<Request, EvalError> {
        Ok(Request::Nothing)
    }
}
