//! Loops: a step that repeats the steps from a first one up to itself while a condition holds.

use orlog_model::Name;
use serde::{Deserialize, Serialize};

use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EvalError, Expression};
use crate::language::{
    Choice, Choices, Condition, Count, Decoder, FieldSchema, Fields, Id, OneOrList, language_map,
};
use crate::limits::MAX_ROUNDS;

language_map! {
    /// End of a loop: the condition is evaluated after each round.
    pub struct RepeatAction as "repeat" {
        must "repeat" from: Vec<Name> = OneOrList<Id<Name>>,
            "First step of the loop, or first steps if a round starts several; the steps from \
             there to this one are repeated.";
        #[serde(rename = "while")]
        may "while" while_holds: Option<String> = Condition,
            "Condition of another round, over `vars` and `round`. Alternative: `until`.";
        #[serde(rename = "until")]
        may "until" until_holds: Option<String> = Condition,
            "Condition that ends the loop, over `vars` and `round`. Alternative: `while`.";
        must "max" max: u32 = Count<1>, "Maximum number of rounds, 1 to 1000.";
        #[serde(default)]
        may_or_default "on_max" on_max: OnMaxRounds = Choice<OnMaxRounds>,
            "What follows if another round is due after `max` rounds. Default: `fail`.";
    }
}

/// What follows if another round of a loop is due after the maximum number of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMaxRounds {
    /// The loop fails with the code `too_many_rounds`.
    #[default]
    Fail,
    /// The saga continues after the loop.
    Continue,
}

impl Choices for OnMaxRounds {
    const NAMES: &'static [&'static str] = &["fail", "continue"];
    const VALUES: &'static [Self] = &[Self::Fail, Self::Continue];
}

impl RepeatAction {
    /// Returns the condition with its keyword.
    #[must_use]
    pub fn condition(&self) -> Option<(&'static str, &str)> {
        let holds = self
            .while_holds
            .as_deref()
            .map(|condition| ("while", condition));
        holds.or_else(|| {
            self.until_holds
                .as_deref()
                .map(|condition| ("until", condition))
        })
    }
}

impl ActionForm for RepeatAction {
    const TRAITS: KindTraits = KindTraits::new("a loop", Completion::None);
    const FIELDS: &'static [FieldSchema] = Self::MAP.fields;
    type Compiled = CompiledRepeat;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        Self::read(decoder, fields)
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledRepeat {
        if self.while_holds.is_some() == self.until_holds.is_some() {
            let finding = RawDiagnostic::new(
                site.path,
                "a loop must have exactly one of `while` and `until`",
            );
            compiler
                .report(finding.with_suggestion("for example while: vars.decision == 'changes'"));
        }

        let max = usize::try_from(self.max).unwrap_or(usize::MAX);
        if max == 0 || max > MAX_ROUNDS {
            let message = format!("a loop has 1 to {MAX_ROUNDS} rounds, not {}", self.max);
            let finding = RawDiagnostic::new(format!("{}.max", site.path), message);
            compiler
                .report(finding.with_suggestion("start a child saga in each round for more work"));
        }

        let site = Site {
            in_loop: true,
            ..site
        };

        let holds = compiler.condition(
            site.at(&format!("{}.while", site.path)),
            self.while_holds.as_ref(),
        );
        let ends = compiler.condition(
            site.at(&format!("{}.until", site.path)),
            self.until_holds.as_ref(),
        );

        CompiledRepeat {
            while_holds: holds,
            until_holds: ends,
            max,
            on_max: self.on_max,
        }
    }
}

impl DefinedAction for RepeatAction {}

/// Compiled end of a loop.
#[derive(Debug)]
pub(crate) struct CompiledRepeat {
    while_holds: Option<Expression>,
    until_holds: Option<Expression>,
    pub(crate) max: usize,
    pub(crate) on_max: OnMaxRounds,
}

impl CompiledRepeat {
    /// Returns true if another round is due.
    pub(crate) fn continues(&self, bindings: &Bindings<'_>) -> Result<bool, EvalError> {
        // The compiler rejects a loop with both conditions, so one of the two defaults applies.
        let holds = self
            .while_holds
            .as_ref()
            .map_or(Ok(true), |condition| condition.holds(bindings))?;
        let ends = self
            .until_holds
            .as_ref()
            .map_or(Ok(false), |condition| condition.holds(bindings))?;
        Ok(holds && !ends)
    }
}

impl CompiledKind for CompiledRepeat {
    fn request(&self, _: &RequestContext<'_>) -> Result<Request, EvalError> {
        Ok(Request::Nothing)
    }
}
