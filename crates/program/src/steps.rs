//! Registry of the kinds of action: one file and one line each.
//!
//! A file contains the form of its kind in the language, its YAML and JSON Schema, its compiler and
//! its behavior in the step machine. [`kind`] describes the parts. `foreach` is not a kind of
//! action but a property of a step.

mod child_saga;
mod command;
mod effect;
mod event;
mod foreach;
mod human;
mod job;
pub(crate) mod kind;
mod priority;
mod repeat;
mod restart;
mod retry;
mod switch;
mod time_limit;
mod values;
mod wait;

use serde::{Deserialize, Serialize};

use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::language::{Decoder, FieldSchema, Fields};
pub use kind::UNDO_WITHOUT_VALUE;
use kind::{ActionForm, CompiledKind, DefinedAction, KindTraits};

pub use child_saga::ChildSagaAction;
pub use command::CommandAction;
pub use effect::EffectAction;
pub use event::EventAction;
pub use foreach::Foreach;
pub use human::{Escalation, HumanTask};
pub use job::{JobAction, RunnerSelector};
pub use repeat::{OnMaxRounds, RepeatAction};
pub use restart::RestartAction;
pub use retry::RetrySpec;
pub use switch::SwitchCase;
pub use time_limit::TimeLimit;
pub use wait::TimeSpec;

#[cfg(feature = "wasm")]
pub(crate) use command::split_command;
pub(crate) use event::CompiledCollection;
pub(crate) use foreach::{CompiledForeach, element_tag, set_element};
pub(crate) use priority::{CompiledPriority, PriorityTemplate};
pub(crate) use repeat::CompiledRepeat;
pub(crate) use restart::CompiledRestart;
pub(crate) use retry::CompiledRetry;
pub(crate) use switch::{CompiledCase, is_never, never_matches, select};
pub(crate) use time_limit::CompiledTimeLimit;
pub(crate) use values::checked;

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident($form:ty);)+) => {
        /// Action of a step.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        pub enum Action {
            $($(#[$doc])+ $kind($form),)+
        }

        /// Compiled action of any kind.
        #[derive(Debug)]
        pub(crate) enum CompiledActionKind {
            $($kind(<$form as ActionForm>::Compiled),)+
        }

        /// Kinds of action in the language.
        pub(crate) const KINDS: &[ActionSchema] = &[$(
            ActionSchema {
                label: <$form as ActionForm>::LABEL,
                fields: <$form as ActionForm>::FIELDS,
                decode: |decoder, fields| {
                    <$form as ActionForm>::decode(decoder, fields).map(Action::$kind)
                },
            },
        )+];

        impl Action {
            pub(crate) fn traits(&self) -> &'static KindTraits {
                match self {
                    $(Action::$kind(_) => &<$form as ActionForm>::TRAITS,)+
                }
            }

            pub(crate) fn kind(&self) -> &dyn DefinedAction {
                match self {
                    $(Action::$kind(form) => form,)+
                }
            }

            /// Compiles the action without its results and limits, which belong to the step.
            pub(crate) fn compile(
                &self,
                compiler: &mut ExpressionCompiler<'_>,
                site: Site<'_>,
            ) -> CompiledActionKind {
                match self {
                    $(Action::$kind(form) => {
                        CompiledActionKind::$kind(form.compile(compiler, site))
                    })+
                }
            }
        }

        impl CompiledActionKind {
            pub(crate) fn traits(&self) -> &'static KindTraits {
                match self {
                    $(CompiledActionKind::$kind(_) => &<$form as ActionForm>::TRAITS,)+
                }
            }

            pub(crate) fn kind(&self) -> &dyn CompiledKind {
                match self {
                    $(CompiledActionKind::$kind(compiled) => compiled,)+
                }
            }
        }
    };
}

kinds! {
    /// Command to an aggregate.
    Command(CommandAction);
    /// Effect: a call to an external system.
    Effect(EffectAction);
    /// Wait for a time.
    Wait(TimeSpec);
    /// Human task.
    Human(HumanTask);
    /// Child saga that runs to its end. Precedes `event`, which is one of its fields.
    Saga(ChildSagaAction);
    /// Wait for an unsolicited event or a signal.
    Event(EventAction);
    /// Script that a worker runs: the effect `job.<type>`.
    Job(JobAction);
    /// Selection of one of several cases.
    Switch(Vec<SwitchCase>);
    /// End of a loop: repeats the steps before it while a condition holds.
    Repeat(RepeatAction);
    /// End of the run and begin of a new one.
    Restart(RestartAction);
}

/// Kind of action in the language; its first field names the kind.
#[derive(Clone, Copy)]
pub(crate) struct ActionSchema {
    /// Label for users, with its article.
    pub(crate) label: &'static str,
    pub(crate) fields: &'static [FieldSchema],
    pub(crate) decode: fn(&mut Decoder<'_>, &Fields<'_>) -> Option<Action>,
}

impl ActionSchema {
    pub(crate) const fn name(&self) -> &'static str {
        self.fields[0].name
    }
}

impl Action {
    /// Returns the cases of a switch; other actions have none.
    pub(crate) fn cases(&self) -> &[SwitchCase] {
        let Action::Switch(cases) = self else {
            return &[];
        };
        cases
    }
}

impl CompiledActionKind {
    /// Returns the cases of a switch.
    pub(crate) fn cases(&self) -> Option<&[CompiledCase]> {
        let CompiledActionKind::Switch(cases) = self else {
            return None;
        };
        Some(cases)
    }

    /// Returns the loop that the step ends.
    pub(crate) fn repeat(&self) -> Option<&CompiledRepeat> {
        let CompiledActionKind::Repeat(repeat) = self else {
            return None;
        };
        Some(repeat)
    }

    /// Returns the end of the wait for several events.
    pub(crate) fn collection(&self) -> Option<&CompiledCollection> {
        let CompiledActionKind::Event(event) = self else {
            return None;
        };
        event.collection.as_ref()
    }

    /// Returns the restart.
    pub(crate) fn restart(&self) -> Option<&CompiledRestart> {
        let CompiledActionKind::Restart(restart) = self else {
            return None;
        };
        Some(restart)
    }
}
