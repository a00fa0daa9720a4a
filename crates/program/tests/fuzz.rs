//! Fuzzing of definitions, expressions and states ([`orlog_testkit::fuzz`]). Nothing panics, every rejection has a short
//! message, and the same input produces the same result twice.

#[path = "fuzz/corpus.rs"]
mod corpus;
#[path = "fuzz/expression.rs"]
mod expression;
#[path = "fuzz/run.rs"]
mod run;
#[path = "fuzz/state.rs"]
mod state;
#[path = "fuzz/yaml.rs"]
mod yaml;

use orlog_testkit::fuzz::fuzz;

#[test]
fn definitions_never_panic() {
    let corpus = corpus::texts();
    fuzz(
        "yaml",
        |random| yaml::make(random, &corpus),
        yaml::run,
        |(text, seed)| format!("seed {seed}\n{text}"),
    );
}

#[test]
fn expressions_never_panic_and_are_deterministic() {
    fuzz(
        "expression",
        expression::make,
        |source| expression::run(source),
        Clone::clone,
    );
}

#[test]
fn corrupt_states_are_rejected() {
    let sagas = corpus::sagas();
    fuzz(
        "state",
        |random| state::make(random, &sagas),
        |input| state::run(input, &sagas),
        |input| format!("{input:?}"),
    );
}
