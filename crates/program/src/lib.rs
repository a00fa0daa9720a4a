//! What a saga does: the one boundary [`Program`], and the front-ends that produce programs.
//!
//! A saga written as YAML ([`compile_yaml`]) or with the builder ([`Definition::builder`]) becomes the same intermediate
//! form, a [`Definition`], and from that a [`Compiled`] program, which runs on the step machine. A saga that is a program
//! rather than a list of steps implements [`Native`], or is a WebAssembly module ([`load_wasm`]).

mod builder;
mod compile;
mod contract;
mod correlation;
mod definition;
mod diagnostic;
mod expression;
mod language_schema;
mod limits;
mod lint;
mod machine;
mod native;
mod program;
mod schema;
mod template;
mod wasm;
mod yaml;

/// What a person can answer who is asked whether an effect in doubt was done.
pub mod doubt {
    pub use crate::machine::{DONE, NOT_DONE};
}

pub use builder::{Builder, Do, Migrate, On};
pub use compile::{Compiled, compile};
pub use contract::{Context, Fault, Manifest, Migration, Reaction, Stimulus, Trigger};
pub use definition::{
    Action, After, Answer as AnswerForm, Case, Correlate, DEFAULT_EARLY, Definition, Escalation, EventForm,
    FactForm, Foreach, Handler, Human, Job, Join, MigrationForm, Moment, Otherwise, Step, Then, Undo,
};
pub use diagnostic::Problem;
pub use expression::{Filter, FilterError, Unmet, evaluate};
pub use limits::{
    DEFAULT_CONCURRENT, MAX_COMPREHENSIONS, MAX_ELEMENTS, MAX_EVALUATION, MAX_EXPRESSION_BYTES, MAX_FUEL,
    MAX_JSON_DEPTH, MAX_MEMORY_PAGES, MAX_MODULE_BYTES, MAX_PATTERN_BYTES, MAX_PAYLOAD_BYTES,
    MAX_SOURCE_BYTES, MAX_STEPS, TooLarge, check_payload,
};
pub use lint::{Warning, lint};
pub use native::{Answer, Native, NativeProgram, Orders, Outcome};
pub use program::Program;
pub use schema::schema;
pub use wasm::{WasmProgram, is_wasm, load_wasm};
pub use yaml::{compile_yaml, document, load};
