//! Exhaustive proof of a definition: every order of every response, timer and failure, checked
//! against invariants.
//!
//! The search is breadth first over the states of one instance and its real decisions, each visited
//! once. The first violation therefore has the fewest inputs; it is reported as a test case for
//! `orlog test`. A crash before a commit is an input that arrives later, one of the orders. After a
//! commit, the input arrives again, and work that has its result returns another one: both must
//! change nothing. Memory is bounded: a visited state stores how it was reached.

mod expand;
mod graph;
mod liveness;
mod moves;
mod options;
mod payloads;
mod progress;
mod report;
mod search;
mod state;
mod timing;

use std::sync::Arc;

use orlog_program::{Program, remains_after_failure};

use crate::explore::scenario_runner;
use crate::simulator::SimulatorPrograms;
use expand::{Exploration, Prover};
use liveness::LiveVariables;
use moves::Moves;
pub use options::ProveOptions;
use payloads::Payloads;
pub use progress::{ProofObserver, ProofPhase, ProofProgress};
pub use report::{ProofOutcome, ProveReport};
use search::Search;
use state::ProofState;

/// Proves a program that was compiled from a definition. Returns `None` for other programs: they
/// have no steps.
#[must_use]
pub fn prove(program: &Arc<dyn Program>, options: ProveOptions) -> Option<ProveReport> {
    prove_observed(program, options, &mut ())
}

/// Proves a program as [`prove`] does, and reports the progress.
#[must_use]
pub fn prove_observed(
    program: &Arc<dyn Program>,
    options: ProveOptions,
    observer: &mut dyn ProofObserver,
) -> Option<ProveReport> {
    prove_with(program, options, Exploration::Reduced, observer)
}

fn prove_with(
    program: &Arc<dyn Program>,
    options: ProveOptions,
    exploration: Exploration,
    observer: &mut dyn ProofObserver,
) -> Option<ProveReport> {
    let compiled = program.as_compiled()?;
    let definition = compiled.definition();
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(program)]));

    let moves = Moves {
        program: program.as_ref(),
        definition,
        payloads: Payloads::of(definition),
    };

    // A proof needs no histories, and each of its states is a copy of the simulator.
    let mut runner = scenario_runner(program, &programs);
    runner.simulator = runner.simulator.without_records();
    // Evaluated once for each step, because each evaluation parses the source of the definition.
    let irreversible = definition
        .steps
        .iter()
        .map(|step| step.id.to_string())
        .filter(|step| remains_after_failure(compiled, step))
        .collect();
    let live = LiveVariables::of(definition);

    let prover = Prover {
        program,
        programs: &programs,
        moves,
        irreversible,
        live,
        exploration,
    };

    let mut search = Search::new(&prover, ProofState::new(runner), options);
    let stop = search.run(observer);
    let outcome = search.outcome(stop, observer);

    let never_completed = definition
        .steps
        .iter()
        .map(|step| step.id.to_string())
        .filter(|step| !search.completed.contains(step))
        .collect();
    Some(ProveReport {
        options,
        states: search.graph.len(),
        transitions: search.transitions,
        depth: search.depth,
        ends: search.ends,
        never_completed,
        remaining: search.remaining.into_iter().collect(),
        undo_without_value: search.without_value.into_iter().collect(),
        limits: prover.moves.payloads.limits(),
        outcome,
    })
}

#[cfg(test)]
mod tests;
