//! Rules of the stand-in: how it responds to the work of a step, from `--stand-in NAME=BEHAVIOR`.

use std::str::FromStr;
use std::time::Duration;

use orlog_model::{Failure, Work, WorkItem};
use orlog_program::{Action, did_you_mean};
use orlog_simulator::WorkTag;

use orlog_node::definitions::LoadedDefinition;

/// Failure code if the rule names none.
const DEFAULT_CODE: &str = "stand_in_failure";

/// Rule for the work of one step, effect or command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StandInRule {
    name: String,
    delay: Duration,
    failure: Option<FailureRate>,
}

/// Share of the work that fails, and its failure code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FailureRate {
    percent: u8,
    code: String,
}

impl StandInRule {
    /// Returns whether the rule applies to the work that this step requested.
    pub(super) fn applies_to(&self, work: &Work, tag: &str) -> bool {
        let name = match work {
            Work::Effect(effect) => effect.name.to_string(),
            Work::Command(command) => format!("{}.{}", command.aggregate_type, command.name),
            Work::Fact(_)
            | Work::StartChild(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_)
            | Work::PublishResult(_) => return false,
        };
        // The name of a step selects its action only: if the rule failed its compensation too, the
        // instance would become stuck.
        let tag = WorkTag::parse(tag);

        self.name == name || (self.name == tag.step && !tag.is_compensation)
    }

    /// Returns the delay of the response.
    pub(super) fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the failure of this work. The work id decides, so that a repeated attempt has the
    /// same result.
    pub(super) fn failure(&self, item: &WorkItem) -> Option<Failure> {
        let failure = self.failure.as_ref()?;
        // The id is a hash, so that its remainder is evenly distributed.
        let draw = item.id.as_u128() % 100;
        (draw < u128::from(failure.percent)).then(|| Failure {
            code: failure.code.clone(),
            message: format!(
                "failure of the stand-in: --stand-in {}=fail:{}%",
                self.name, failure.percent
            ),
        })
    }

    /// Checks that a definition has the step, the effect or the command of the rule.
    ///
    /// # Errors
    /// The message for the user.
    pub(super) fn check(&self, definitions: &[LoadedDefinition]) -> Result<(), String> {
        let known: Vec<String> = definitions.iter().flat_map(names).collect();
        if known.contains(&self.name) {
            return Ok(());
        }

        // A misspelt name would apply to nothing, and the run would look as if the rule had no
        // effect.
        let remedy = did_you_mean(&self.name, known.iter().map(String::as_str))
            .unwrap_or_else(|| "name a step, an effect or a command".to_owned());
        Err(format!(
            "--stand-in {}: no definition has a step, effect or command of this name; {remedy}",
            self.name
        ))
    }
}

/// Returns the names that rules can have.
fn names(definition: &LoadedDefinition) -> Vec<String> {
    let manifest = definition.program.manifest();
    let mut names: Vec<_> = manifest.effects.iter().map(ToString::to_string).collect();
    names.extend(manifest.commands.iter().cloned());
    let steps = definition
        .compiled
        .iter()
        .flat_map(|compiled| &compiled.definition().steps);
    let executed = steps.filter(|step| {
        matches!(
            step.action,
            Action::Effect(_) | Action::Command(_) | Action::Job(_)
        )
    });
    names.extend(executed.map(|step| step.id.to_string()));

    names
}

impl FromStr for StandInRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "expected NAME=BEHAVIOR, for example charge=fail:20%,2s";
        let (name, behaviors) = text.split_once('=').ok_or(example)?;
        if name.is_empty() || behaviors.is_empty() {
            return Err(example.to_owned());
        }

        let mut rule = Self {
            name: name.to_owned(),
            delay: Duration::ZERO,
            failure: None,
        };

        for behavior in behaviors.split(',').map(str::trim) {
            if behavior == "fail" || behavior.starts_with("fail:") {
                rule.failure = Some(failure_rate(behavior)?);
            } else {
                rule.delay = orlog_simulator::simulate::parse_duration(behavior).map_err(|_| {
                    format!(
                        "invalid behavior {behavior:?}; expected fail, fail:20%, fail:20%:CODE or \
                         a delay such as 2s"
                    )
                })?;
            }
        }

        Ok(rule)
    }
}

/// Parses `fail`, `fail:20%`, `fail:20%:card_declined` or `fail:card_declined`.
fn failure_rate(text: &str) -> Result<FailureRate, String> {
    let mut rate = FailureRate {
        percent: 100,
        code: DEFAULT_CODE.to_owned(),
    };

    // The percent sign distinguishes the rate from the code, so that each of them is optional.
    for part in text.split(':').skip(1) {
        match part.strip_suffix('%') {
            Some(percent) => {
                let valid = percent.parse().ok().filter(|percent| *percent <= 100);
                rate.percent = valid.ok_or_else(|| {
                    format!("invalid rate {part:?}; expected 0% to 100%, without decimals")
                })?;
            }
            None if !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) =>
            {
                part.clone_into(&mut rate.code);
            }
            None => {
                return Err(format!(
                    "invalid failure code {part:?}; use letters, digits, `-`, `_` and `.`"
                ));
            }
        }
    }

    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percentage and code of a failure.
    type Failure = Option<(u8, String)>;

    fn rule(text: &str) -> Result<(String, Duration, Failure), String> {
        let StandInRule {
            name,
            delay,
            failure,
        } = text.parse()?;
        Ok((
            name,
            delay,
            failure.map(|failure| (failure.percent, failure.code)),
        ))
    }

    #[test]
    fn rules_have_a_name_a_failure_rate_and_a_delay() {
        let fail = |percent, code: &str| Some((percent, code.to_owned()));
        let name = || "charge".to_owned();
        assert_eq!(
            rule("charge=2s"),
            Ok((name(), Duration::from_secs(2), None))
        );
        assert_eq!(
            rule("charge=fail"),
            Ok((name(), Duration::ZERO, fail(100, DEFAULT_CODE)))
        );
        assert_eq!(
            rule("charge=fail:20%:declined,2s"),
            Ok((name(), Duration::from_secs(2), fail(20, "declined")))
        );
        assert_eq!(
            rule("charge=fail:declined"),
            Ok((name(), Duration::ZERO, fail(100, "declined")))
        );
    }

    #[test]
    fn invalid_rules_are_explained() {
        for (text, reason) in [
            ("charge", "expected NAME=BEHAVIOR"),
            ("=2s", "expected NAME=BEHAVIOR"),
            ("charge=", "expected NAME=BEHAVIOR"),
            ("charge=slow", "invalid behavior \"slow\""),
            ("charge=fail:120%", "invalid rate \"120%\""),
            ("charge=fail:", "invalid failure code \"\""),
        ] {
            let error = rule(text).expect_err(text);
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
