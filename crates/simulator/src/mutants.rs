//! Programs with injected bugs, which the explorer and the prover must find.

use std::sync::atomic::{AtomicU64, Ordering};

use orlog_model::{
    CorrelationId, DefinitionRef, Effect, Event, Failure, Status, TaskChange, TimerChange,
    Transition, WorkOutcome,
};
use orlog_program::{
    CompiledDefinition, Context, Manifest, Program, ProgramError, ProgramInput, ProgramOutput,
};
use serde_json::Value;

/// Bug that a test injects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InjectedBug {
    DropsCompensation,
    CompensatesTwice,
    CompensatesOutOfOrder,
    NonDeterministic,
    IgnoresResult,
    DropsLateSuccess,
    StartsWorkWhileCompensating,
    LeaksTimer,
    EmitsFinalFactTwice,
    SkipsInDoubtTask,
    RetriesInDoubt,
    ChangesIdempotencyKey,
    LosesEarlyEvent,
}

/// Program with an injected bug.
pub(crate) struct MutantProgram {
    inner: CompiledDefinition,
    bug: InjectedBug,
    count: AtomicU64,
}

impl Program for MutantProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        Program::definition_ref(&self.inner)
    }

    fn manifest(&self) -> &Manifest {
        self.inner.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.inner.correlate(event)
    }

    fn as_compiled(&self) -> Option<&CompiledDefinition> {
        Some(&self.inner)
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        self.inner.view_state(state)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let ignores = match (self.bug, input) {
            (InjectedBug::IgnoresResult, ProgramInput::WorkResult { tag, .. }) => {
                *tag == "compensate:car"
            }
            (InjectedBug::DropsLateSuccess, ProgramInput::WorkResult { tag: "car", .. }) => {
                self.step_state(state, "car") == "abandoned"
            }
            (InjectedBug::LosesEarlyEvent, ProgramInput::Event(event)) => {
                event.kind.as_str() == "Paid" && self.step_state(state, "paid") == "pending"
            }
            _ => false,
        };
        if ignores {
            return Ok(ProgramOutput::Ignored("ignored by the injected bug".into()));
        }
        let timed_out = WorkOutcome::TimedOut {
            failure: Failure {
                code: "timeout".into(),
                message: String::new(),
            },
        };
        let input = match (self.bug, input) {
            (
                InjectedBug::SkipsInDoubtTask,
                ProgramInput::WorkResult {
                    tag,
                    outcome: WorkOutcome::TimedOut { .. },
                },
            ) => &ProgramInput::WorkResult {
                tag,
                outcome: &timed_out,
            },
            (_, input) => input,
        };
        let output = self.inner.apply(state, input, context)?;
        Ok(match output {
            ProgramOutput::Applied(mut transition) => {
                self.inject(&mut transition);
                ProgramOutput::Applied(transition)
            }
            other => other,
        })
    }
}

impl MutantProgram {
    pub(crate) fn new(inner: CompiledDefinition, bug: InjectedBug) -> Self {
        Self {
            inner,
            bug,
            count: AtomicU64::new(0),
        }
    }

    fn step_state(&self, state: Option<&[u8]>, step: &str) -> String {
        let view = state
            .and_then(|state| self.inner.view_state(state))
            .unwrap_or_default();
        let steps = view["steps"].as_array().cloned().unwrap_or_default();
        let found = steps.iter().find(|view| view["id"] == *step);
        found
            .map(|step| step["state"].as_str().unwrap_or_default().to_owned())
            .unwrap_or_default()
    }

    fn inject(&self, transition: &mut Transition) {
        let is_compensation = |work: &orlog_model::Work, step: &str| {
            work.tag()
                .is_some_and(|tag| tag.as_str() == format!("compensate:{step}"))
        };
        match self.bug {
            InjectedBug::DropsCompensation => {
                transition.work.retain(|work| !is_compensation(work, "car"));
            }
            InjectedBug::CompensatesTwice => {
                let repeated = transition
                    .work
                    .iter()
                    .find(|work| is_compensation(work, "car"))
                    .cloned();
                transition.work.extend(repeated);
            }
            InjectedBug::CompensatesOutOfOrder => {
                for work in &mut transition.work {
                    swap(work);
                }
            }
            InjectedBug::NonDeterministic => {
                let count = self.count.fetch_add(1, Ordering::Relaxed);
                transition.note.push_str(&count.to_string());
            }
            InjectedBug::StartsWorkWhileCompensating
                if transition.status == Status::Compensating =>
            {
                let mut repeated = transition
                    .work
                    .iter()
                    .find(|work| is_compensation(work, "car"))
                    .cloned();
                if let Some(orlog_model::Work::Effect(effect)) = &mut repeated {
                    effect.tag = orlog_model::Name::new("pay").unwrap();
                }
                transition.work.extend(repeated);
            }
            InjectedBug::LeaksTimer => {
                transition
                    .timers
                    .retain(|change| !matches!(change, TimerChange::Cancel { .. }));
            }
            InjectedBug::EmitsFinalFactTwice => {
                let facts: Vec<_> = transition
                    .work
                    .iter()
                    .filter(|work| matches!(work, orlog_model::Work::Fact(_)))
                    .cloned()
                    .collect();
                transition.work.extend(facts);
            }
            InjectedBug::RetriesInDoubt => {
                let tags_in_doubt = transition.tasks.iter().filter_map(|change| match change {
                    TaskChange::Open(form) => Some(form.tag.clone()),
                    TaskChange::Assign { .. } | TaskChange::Close { .. } => None,
                });
                let repeated = tags_in_doubt.map(|tag| {
                    let name = orlog_model::EffectName::new("cars.rent").unwrap();
                    let (payload, timeout, retry, in_doubt) = (Value::Null, None, None, None);
                    orlog_model::Work::Effect(Effect {
                        schema_version: 1,
                        tag,
                        round: 0,
                        name,
                        payload,
                        timeout,
                        retry,
                        in_doubt,
                        priority: orlog_model::Priority::Normal,
                    })
                });
                transition.work.extend(repeated);
            }
            InjectedBug::ChangesIdempotencyKey => change_key(transition),
            InjectedBug::IgnoresResult
            | InjectedBug::LosesEarlyEvent
            | InjectedBug::SkipsInDoubtTask
            | InjectedBug::DropsLateSuccess
            | InjectedBug::StartsWorkWhileCompensating => {}
        }
    }
}

/// Swaps the two compensations.
fn swap(work: &mut orlog_model::Work) {
    let other = match work.tag().map(orlog_model::Name::as_str) {
        Some("compensate:car") => "compensate:hotel",
        Some("compensate:hotel") => "compensate:car",
        _ => return,
    };
    let tag = orlog_model::Name::new(other).unwrap();
    match work {
        orlog_model::Work::Effect(effect) => effect.tag = tag,
        orlog_model::Work::Command(command) => command.tag = tag,
        _ => {}
    }
}

/// Changes the idempotency key with each attempt: the length of the state differs between the
/// attempts.
fn change_key(transition: &mut Transition) {
    let length = u64::try_from(transition.state.len()).unwrap();
    for work in &mut transition.work {
        if let orlog_model::Work::Effect(effect) = work
            && effect.tag.as_str() == "compensate:car"
        {
            effect.round += length;
        }
    }
}
