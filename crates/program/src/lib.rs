//! Saga programs: the trait [`Program`], and the front-ends that produce programs.
//!
//! A saga in YAML ([`compile_yaml`]) becomes an intermediate form, a [`Definition`], and is
//! compiled to a [`CompiledDefinition`], which runs on the step machine. A saga that is a program
//! rather than a list of steps implements [`NativeSaga`], or is a WebAssembly module
//! ([`load_wasm`]).

pub mod budget;
mod built_in;
mod compile;
mod contract;
mod correlation;
mod definition;
mod diagnostic;
mod expression;
pub mod flow;
mod invariant;
mod language;
mod limits;
mod lint;
mod machine;
mod native;
mod program;
mod schema;
mod steps;
mod template;
mod template_of_value;
mod versions;
mod wasm;
mod yaml;

/// Outcomes of the operator task for an effect in doubt.
pub mod in_doubt {
    pub use crate::machine::{EXECUTED, NOT_EXECUTED};
}

pub use built_in::is_built_in;
pub use compile::{CompiledDefinition, compile};
pub use contract::{
    Context, EventSubscription, Manifest, Migration, ProgramError, ProgramInput, ProgramOutput,
};
pub use correlation::correlation_by_field;
pub use definition::{
    AfterFailure, AfterHandler, CompensationSpec, CorrelationSpec, DEFAULT_EARLY_EVENT_TTL,
    Definition, FactSpec, FailureHandler, HandlerSpec, InvariantSpec, Join, MigrationSpec,
    ReminderSpec, ResultMatcher as AnswerForm, Step, StepDependencies,
};
pub use diagnostic::{Diagnostic, did_you_mean};
pub use expression::{
    Comparison, ComparisonOperator, Filter, FilterError, FilterEvalError, evaluate,
};
pub use invariant::{RunView, SagaInvariant, StepProperty};
pub use limits::{
    DEFAULT_FOREACH_CONCURRENCY, MAX_COMPREHENSIONS, MAX_ELEMENTS, MAX_EVALUATION_COST,
    MAX_EXPRESSION_BYTES, MAX_FUEL, MAX_INDEXES, MAX_JSON_DEPTH, MAX_LOOP_STEPS, MAX_MEMORY_PAGES,
    MAX_MODULE_BYTES, MAX_PATTERN_BYTES, MAX_PAYLOAD_BYTES, MAX_REMINDERS, MAX_ROUNDS,
    MAX_SOURCE_BYTES, MAX_STEPS, PayloadTooLarge, check_payload,
};
pub use lint::{DataSamples, DefinitionGroup, GroupMember, LintWarning, remains_after_failure};
pub use machine::{StepsView, UnitView, canonical_state, stored_variables};
pub use native::{
    NativeProgram, NativeResult, NativeSaga, NativeWorkResult, Resolution, SagaDecision, SagaState,
    TransitionBuilder, event_data,
};
pub use program::Program;
pub use schema::json_schema;
pub use steps::{
    Action, ChildSagaAction, CommandAction, EffectAction, Escalation, EventAction, Foreach,
    HumanTask, JobAction, OnMaxRounds, RepeatAction, RestartAction, RetrySpec, RunnerSelector,
    SwitchCase, TimeLimit, TimeSpec, UNDO_WITHOUT_VALUE,
};
pub use template_of_value::{MessageTemplate, TemplateError, VariableTemplate};
pub use versions::{UnsupportedVersionPolicy, VersionSpec};
pub use wasm::{WasmProgram, is_wasm, load_wasm};
pub use yaml::{compile_yaml, document, load};
