//! Exhaustive proof of a definition: every order of every response, timer and failure, checked against invariants.
//!
//! The search is breadth first over the states of one instance and its real decisions, each visited once. The first
//! violation therefore has the fewest inputs; it is reported as a test case for `orlog test`. A crash before a commit
//! is an input that arrives later, one of the orders. After a commit, the input arrives again, and work that has its
//! result returns another one: both must change nothing. Memory is bounded: a visited state stores how it was reached.

mod graph;
mod moves;
mod payloads;
mod report;
mod state;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use orlog_model::Status;
use orlog_program::{Program, remains_after_failure};

use crate::explore::{Counterexample, replay, scenario_runner};
use crate::invariants::{Invariant, Violation, was_completed};
use crate::simulator::SimulatorPrograms;
use crate::step::SimulationStep;
use graph::{Reached, START, StateGraph, StateId};
use moves::{MoveClass, Moves};
use payloads::Payloads;
pub use report::{ProofOutcome, ProveReport};
use state::{Move, ProofState};
use timing::schedule;

/// Number of states that are expanded before they are recorded.
const BATCH: usize = 512;
/// Maximum number of dead ends that are examined.
const MAX_DEAD_ENDS: usize = 64;
/// Maximum number of states to examine one dead end.
const MAX_DEAD_END_STATES: usize = 2_000;

/// Options of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProveOptions {
    /// Maximum number of visited states; limits the memory.
    pub max_states: usize,
    /// Maximum number of moves from the start.
    pub max_steps: usize,
    /// Maximum number of disturbances in a run: events that no step waits for, signals, cancellations.
    pub disturbances: u8,
    /// Number of threads. The result does not depend on it.
    pub threads: NonZeroUsize,
}

/// Proves a program that was compiled from a definition. Returns `None` for other programs: they have no steps.
#[must_use]
pub fn prove(program: &Arc<dyn Program>, options: ProveOptions) -> Option<ProveReport> {
    let compiled = program.as_compiled()?;
    let definition = compiled.definition();
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(program)]));
    let moves = Moves { program: program.as_ref(), definition, payloads: Payloads::of(definition) };
    let mut runner = scenario_runner(program, &programs);
    runner.simulator = runner.simulator.without_records();
    let irreversible = definition.steps.iter().map(|step| step.id.to_string());
    let irreversible = irreversible.filter(|step| remains_after_failure(compiled, step)).collect();
    let prover = Prover { program, programs: &programs, moves, irreversible };
    let mut search = Search::new(&prover, ProofState::new(runner), options);
    let stop = search.run();
    let outcome = search.outcome(stop);
    let never_completed = definition.steps.iter().map(|step| step.id.to_string());
    let never_completed = never_completed.filter(|step| !search.completed.contains(step)).collect();
    Some(ProveReport {
        options,
        states: search.graph.len(),
        transitions: search.transitions,
        depth: search.depth,
        ends: search.ends,
        never_completed,
        remaining: search.remaining.into_iter().collect(),
        outcome,
    })
}

/// Definition under proof.
struct Prover<'p> {
    program: &'p Arc<dyn Program>,
    programs: &'p Arc<SimulatorPrograms>,
    moves: Moves<'p>,
    /// Steps whose change remains if the saga fails after it.
    irreversible: Vec<String>,
}

/// Moves that a search makes.
#[derive(Clone, Copy)]
struct MoveLimits {
    disturbances: u8,
    only_progress: bool,
}

/// Moves from one state.
#[derive(Default)]
struct Expansion {
    reached: Vec<(Reached, Option<Status>)>,
    completed: BTreeSet<String>,
    /// Steps without a compensation that completed although the saga did not.
    remaining: BTreeSet<String>,
    /// First violation, and the moves from the state to it.
    violation: Option<(Violation, Vec<Move>)>,
}

impl Prover<'_> {
    fn key(&self, state: &ProofState) -> u128 {
        state.key(|timer| self.moves.is_absolute(timer), |tag| self.moves.has_result(tag))
    }

    /// Makes every move from a state and checks the result.
    fn expand(&self, state: &ProofState, disturbances: u8, limits: MoveLimits) -> Expansion {
        let step_states = self.moves.step_states(state);
        let mut expansion = Expansion::default();
        let completed = step_states.iter().filter(|(_, state)| was_completed(state)).map(|(tag, _)| tag);
        expansion.completed = completed.map(ToOwned::to_owned).collect();
        let is_compensated =
            state.instance().is_some_and(|i| matches!(i.status, Status::Failed | Status::Cancelled));
        if is_compensated {
            let remaining = self.irreversible.iter().filter(|step| expansion.completed.contains(*step));
            expansion.remaining = remaining.cloned().collect();
        }
        for second in self.moves.second_results(state) {
            let mut copy = state.clone();
            copy.apply(&second);
            if let Some(violation) = copy.violation() {
                expansion.violation = Some((violation.clone(), vec![second]));
                return expansion;
            }
        }
        for offered in self.moves.of(state, &step_states) {
            let is_disturbance = matches!(offered.class, MoveClass::Disturbance | MoveClass::Cancellation);
            let is_permitted = match offered.class {
                MoveClass::Expected => true,
                MoveClass::Disturbance => disturbances < limits.disturbances,
                MoveClass::Cancellation => !limits.only_progress && disturbances < limits.disturbances,
                MoveClass::Rejection => !limits.only_progress,
            };
            if !is_permitted {
                continue;
            }
            let mut next = state.clone();
            if !next.apply(&offered.proof_move) {
                continue;
            }
            if let Some(violation) = next.violation() {
                expansion.violation = Some((violation.clone(), vec![offered.proof_move]));
                return expansion;
            }
            if let Some(violation) = deliver_again(&mut next, &offered.proof_move) {
                let duplicate = Move::Step(SimulationStep::Duplicate);
                expansion.violation = Some((violation, vec![offered.proof_move, duplicate]));
                return expansion;
            }
            let status = next.instance().map(|instance| instance.status);
            let reached = Reached {
                proof_move: offered.proof_move,
                key: self.key(&next),
                disturbances: disturbances + u8::from(is_disturbance),
                ended: status.is_some_and(Status::is_final),
                is_progress: matches!(offered.class, MoveClass::Expected | MoveClass::Disturbance),
            };
            expansion.reached.push((reached, status));
        }
        expansion
    }

    /// Converts moves to the steps of a test that fails. Returns `None` if no clock produces the order of its timers.
    fn counterexample(&self, start: &ProofState, moves: &[Move], rule: Invariant) -> Option<Counterexample> {
        let steps = schedule(start, moves, |timer: &str| self.moves.is_absolute(timer))?;
        let violation = replay(self.program, self.programs, &steps).filter(|found| found.rule == rule)?;
        let original_steps = steps.len();
        Some(Counterexample { violation, run: 0, steps, original_steps })
    }
}

/// Delivers the input of a move again, as after a crash. Returns the violation if this changes the instance.
fn deliver_again(state: &mut ProofState, proof_move: &Move) -> Option<Violation> {
    let Move::Step(step) = proof_move else { return None };
    let before = state.instance().map(|instance| (instance.version, instance.paused));
    state.apply(&Move::Step(SimulationStep::Duplicate));
    let changed = state.instance().map(|instance| (instance.version, instance.paused)) != before;
    let message = format!("a second delivery of {step} was not ignored");
    let violation = changed.then_some(Violation { rule: Invariant::DuplicateHarmless, message });
    violation.or_else(|| state.violation().cloned())
}

/// Reason why a search stopped before it had visited all states.
enum Stop {
    Violated(Box<Counterexample>),
    Limit(String),
    /// An end was found.
    Ended,
}

/// Breadth-first search from a state.
struct Search<'s, 'p> {
    prover: &'s Prover<'p>,
    start: ProofState,
    options: ProveOptions,
    stops_at_end: bool,
    graph: StateGraph,
    transitions: usize,
    depth: usize,
    ends: BTreeMap<String, usize>,
    completed: BTreeSet<String>,
    remaining: BTreeSet<String>,
    /// First violation that needs an order of timers which no clock produces.
    unscheduled: Option<Violation>,
}

impl<'s, 'p> Search<'s, 'p> {
    fn new(prover: &'s Prover<'p>, start: ProofState, options: ProveOptions) -> Self {
        let graph = StateGraph::new(prover.key(&start));
        Self {
            prover,
            start,
            options,
            stops_at_end: false,
            graph,
            transitions: 0,
            depth: 0,
            ends: BTreeMap::new(),
            completed: BTreeSet::new(),
            remaining: BTreeSet::new(),
            unscheduled: None,
        }
    }

    /// Visits all states. Returns why it stopped early.
    fn run(&mut self) -> Option<Stop> {
        let mut level = vec![START];
        while !level.is_empty() {
            if self.depth == self.options.max_steps {
                let limit = self.options.max_steps;
                return Some(Stop::Limit(format!(
                    "the limit of {limit} steps was reached; increase --max-steps"
                )));
            }
            let mut next = Vec::new();
            for batch in level.chunks(BATCH) {
                let expansions = self.expand_all(batch);
                for (state, expansion) in batch.iter().zip(expansions) {
                    if let Some(stop) = self.record(*state, expansion, &mut next) {
                        return Some(stop);
                    }
                }
            }
            level = next;
            self.depth += usize::from(!level.is_empty());
        }
        None
    }

    /// Expands states on all threads; the result has their order.
    fn expand_all(&self, states: &[StateId]) -> Vec<Expansion> {
        let threads = self.options.threads.get().min(states.len());
        if threads <= 1 {
            return self.expand_chunk(states);
        }
        std::thread::scope(|scope| {
            let chunks = states.chunks(states.len().div_ceil(threads));
            let workers: Vec<_> = chunks.map(|chunk| scope.spawn(|| self.expand_chunk(chunk))).collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<Expansion>>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().flat_map(join).collect()
        })
    }

    fn expand_chunk(&self, states: &[StateId]) -> Vec<Expansion> {
        let limits = MoveLimits { disturbances: self.options.disturbances, only_progress: self.stops_at_end };
        // States with the same parent follow one another.
        let mut parent = (START, self.start.clone());
        let expand = |state: &StateId| {
            let origin = self.graph.parent(*state);
            if parent.0 != origin {
                parent = (origin, self.start.after(&self.graph.path(origin)));
            }
            let from_parent = self.graph.move_from_parent(*state);
            let expanded = parent.1.after(from_parent.map_or(&[], std::slice::from_ref));
            self.prover.expand(&expanded, self.graph.disturbances(*state), limits)
        };
        states.iter().map(expand).collect()
    }

    fn record(&mut self, state: StateId, expansion: Expansion, next: &mut Vec<StateId>) -> Option<Stop> {
        self.completed.extend(expansion.completed);
        self.remaining.extend(expansion.remaining);
        if let Some((violation, moves)) = expansion.violation {
            let path = [self.graph.path(state), moves].concat();
            if let Some(found) = self.prover.counterexample(&self.start, &path, violation.rule) {
                return Some(Stop::Violated(Box::new(found)));
            }
            self.unscheduled.get_or_insert(violation);
            return None;
        }
        self.transitions += expansion.reached.len();
        for (reached, status) in expansion.reached {
            let Some(new) = self.graph.reach(state, &reached) else { continue };
            if let Some(status) = status.filter(|status| status.is_final()) {
                *self.ends.entry(status.as_str().to_owned()).or_default() += 1;
                if self.stops_at_end {
                    return Some(Stop::Ended);
                }
            }
            next.push(new);
            if self.graph.len() >= self.options.max_states {
                let limit = self.options.max_states;
                return Some(Stop::Limit(format!(
                    "the limit of {limit} states was reached; increase --max-states or reduce --disturbances"
                )));
            }
        }
        self.graph.set_expanded(state);
        None
    }

    fn outcome(&self, stop: Option<Stop>) -> ProofOutcome {
        let limit = match stop {
            Some(Stop::Violated(found)) => return ProofOutcome::Violated(found),
            Some(Stop::Limit(reason)) => Some(reason),
            Some(Stop::Ended) | None => None,
        };
        let unscheduled = self.unscheduled.as_ref().map(|violation| {
            format!("{violation}, in an order of timers for which no times were found; check it with `orlog explore`")
        });
        match self.check_dead_ends() {
            DeadEnds::Violated(found) => ProofOutcome::Violated(found),
            DeadEnds::Unproved(reason) => ProofOutcome::NotProved { reason: limit.unwrap_or(reason) },
            DeadEnds::None => limit
                .or(unscheduled)
                .map_or(ProofOutcome::Proved, |reason| ProofOutcome::NotProved { reason }),
        }
    }

    /// Examines the states from which no visited transition leads to an end.
    fn check_dead_ends(&self) -> DeadEnds {
        let dead_ends = self.graph.dead_ends();
        let paths: Vec<_> =
            dead_ends.iter().take(MAX_DEAD_ENDS).map(|state| self.graph.path(*state)).collect();
        let counterexample =
            |path: &Vec<Move>| self.prover.counterexample(&self.start, path, Invariant::EndReachable);
        if let Some(found) = paths.iter().find_map(counterexample) {
            return DeadEnds::Violated(Box::new(found));
        }
        let unproved: Vec<_> = paths.iter().filter(|path| !self.ends_with_disturbances(path)).collect();
        let waits = |path: &&&Vec<Move>| {
            self.start.after(path).instance().is_some_and(|instance| !instance.waits.is_empty())
        };
        if let Some(path) = unproved.iter().find(waits).or(unproved.first()) {
            return DeadEnds::Unproved(self.describe_dead_end(path));
        }
        if dead_ends.len() > MAX_DEAD_ENDS {
            return DeadEnds::Unproved(format!(
                "{} states reach an end only with more disturbances; increase --disturbances",
                dead_ends.len()
            ));
        }
        DeadEnds::None
    }

    /// Returns whether a state reaches an end if further events that no step waits for may arrive.
    fn ends_with_disturbances(&self, path: &[Move]) -> bool {
        let start = self.start.after(path);
        let options = ProveOptions {
            max_states: MAX_DEAD_END_STATES,
            disturbances: self.options.disturbances.max(1),
            ..self.options
        };
        let mut search = Search { stops_at_end: true, ..Search::new(self.prover, start, options) };
        matches!(search.run(), Some(Stop::Ended))
    }

    fn describe_dead_end(&self, path: &[Move]) -> String {
        let state = self.start.after(path);
        let waits = state.instance().map_or(&[][..], |instance| &instance.waits);
        let waits: Vec<_> = waits.iter().map(|wait| wait.name.as_str()).collect();
        let moves: Vec<_> = path.iter().map(ToString::to_string).collect();
        format!(
            "the instance waits for {}, and no payload with the values of the definition leads to an end; check the conditions. Inputs: {}",
            if waits.is_empty() { "nothing".to_owned() } else { waits.join(", ") },
            moves.join(", ")
        )
    }
}

/// Result of the examination of dead ends.
enum DeadEnds {
    None,
    Violated(Box<Counterexample>),
    Unproved(String),
}

#[cfg(test)]
mod tests;
