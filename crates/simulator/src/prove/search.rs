//! Breadth-first search over the states of an instance, and the examination of dead ends.

use std::collections::{BTreeMap, BTreeSet};

use super::expand::{Expansion, MoveLimits, Prover, ReachedState};
use super::graph::{START, StateGraph, StateId};
use super::options::ProveOptions;
use super::progress::{ProofObserver, ProofPhase, ProofProgress};
use super::report::ProofOutcome;
use super::state::{Move, ProofState};
use crate::explore::Counterexample;
use crate::invariants::{Invariant, Violation};

/// Number of states that are expanded before they are recorded.
const BATCH: usize = 128;
/// Maximum number of reached states that are kept until they are expanded. The others are reached
/// again from the start.
const MAX_KEPT: usize = 2_048;
/// Maximum number of dead ends that are examined.
const MAX_DEAD_ENDS: usize = 64;
/// Maximum number of states to examine one dead end.
const MAX_DEAD_END_STATES: usize = 2_000;

/// Reason why a search stopped before it had visited all states.
pub(super) enum Stop {
    Violated(Box<Counterexample>),
    Limit(String),
    /// An end was found.
    Ended,
}

/// State to expand, if it is kept.
type ToExpand = (StateId, Option<ProofState>);

/// Breadth-first search from a state.
pub(super) struct Search<'s, 'p> {
    prover: &'s Prover<'p>,
    start: ProofState,
    options: ProveOptions,
    stops_at_end: bool,
    pub(super) graph: StateGraph,
    pub(super) transitions: usize,
    pub(super) depth: usize,
    pub(super) ends: BTreeMap<String, usize>,
    pub(super) completed: BTreeSet<String>,
    pub(super) remaining: BTreeSet<String>,
    pub(super) without_value: BTreeSet<String>,
    /// First violation that needs an order of timers which no clock produces.
    unscheduled: Option<Violation>,
}

impl<'s, 'p> Search<'s, 'p> {
    pub(super) fn new(prover: &'s Prover<'p>, start: ProofState, options: ProveOptions) -> Self {
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
            without_value: BTreeSet::new(),
            unscheduled: None,
        }
    }

    /// Visits all states. Returns why it stopped early.
    pub(super) fn run(&mut self, observer: &mut dyn ProofObserver) -> Option<Stop> {
        // Level by level, so that the first violation has the fewest inputs.
        let mut level = vec![(START, Some(self.start.clone()))];
        while !level.is_empty() {
            // The states of this level are visited, but their moves are beyond the limit.
            if self.depth == self.options.max_steps {
                let limit = self.options.max_steps;
                return Some(self.limit(&format!(
                    "the limit of {limit} steps was reached; increase --max-steps"
                )));
            }

            let mut next = Vec::new();
            // Batches bound the memory: an expansion contains all reached states until it is
            // recorded.
            for (number, batch) in level.chunks(BATCH).enumerate() {
                observer.on_progress(&ProofProgress {
                    queued: level.len() - number * BATCH + next.len(),
                    ..self.progress(ProofPhase::Search)
                });
                let expansions = self.expand_all(batch);
                for ((state, _), expansion) in batch.iter().zip(expansions) {
                    if let Some(stop) = self.record(*state, expansion, &mut next) {
                        return Some(stop);
                    }
                }
            }

            level = next;
            // The last level has no new states, so it does not count as a further input.
            self.depth += usize::from(!level.is_empty());
        }
        None
    }

    fn progress(&self, phase: ProofPhase) -> ProofProgress {
        ProofProgress {
            states: self.graph.len(),
            queued: 0,
            depth: self.depth,
            phase,
        }
    }

    /// Returns the end at a limit, with the bound within which everything was checked.
    fn limit(&self, reason: &str) -> Stop {
        // A violation whose times were not found may be real, so nothing is claimed.
        if self.unscheduled.is_some() {
            return Stop::Limit(reason.to_owned());
        }
        Stop::Limit(format!(
            "{reason}. No run of at most {} inputs violates an invariant",
            self.depth
        ))
    }

    /// Expands states on all threads; the result has their order.
    fn expand_all(&self, states: &[ToExpand]) -> Vec<Expansion> {
        let threads = self.options.threads.get().min(states.len());
        if threads <= 1 {
            return self.expand_chunk(states);
        }

        // The order of the results does not depend on the number of threads.
        std::thread::scope(|scope| {
            let chunks = states.chunks(states.len().div_ceil(threads));
            let workers: Vec<_> = chunks
                .map(|chunk| scope.spawn(|| self.expand_chunk(chunk)))
                .collect();

            workers
                .into_iter()
                .flat_map(|worker| {
                    worker
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        })
    }

    fn expand_chunk(&self, states: &[ToExpand]) -> Vec<Expansion> {
        let limits = MoveLimits {
            disturbances: self.options.disturbances,
            only_progress: self.stops_at_end,
        };

        // States with the same parent follow one another.
        let mut parent = (START, self.start.clone());
        let mut expansions = Vec::with_capacity(states.len());
        for (state, kept) in states {
            let disturbances = self.graph.disturbances(*state);
            if let Some(kept) = kept {
                expansions.push(self.prover.expand(kept, disturbances, limits, &self.graph));
                continue;
            }

            let origin = self.graph.parent(*state);
            if parent.0 != origin {
                parent = (origin, self.start.after(&self.graph.path(origin)));
            }

            // The state was not kept, so its last move is made again.
            let from_parent = self.graph.move_from_parent(*state);
            let made_again = parent
                .1
                .after(from_parent.map_or(&[], std::slice::from_ref));
            expansions.push(
                self.prover
                    .expand(&made_again, disturbances, limits, &self.graph),
            );
        }
        expansions
    }

    fn record(
        &mut self,
        state: StateId,
        expansion: Expansion,
        next: &mut Vec<ToExpand>,
    ) -> Option<Stop> {
        // Also if the expansion has a violation: both lists describe the state itself.
        self.completed.extend(expansion.completed);
        self.remaining.extend(expansion.remaining);
        self.without_value.extend(expansion.without_value);

        if let Some((violation, moves)) = expansion.violation {
            // An order of timers that no clock produces is no counterexample. The search continues,
            // and the result is at most "not proved".
            let path = [self.graph.path(state), moves].concat();
            if let Some(found) = self
                .prover
                .counterexample(&self.start, &path, violation.rule)
            {
                return Some(Stop::Violated(Box::new(found)));
            }
            // The state stays unexpanded: it counts as one that may lead to an end.
            self.unscheduled.get_or_insert(violation);
            return None;
        }

        if let Some(endless) = expansion.endless {
            return Some(self.limit(&endless));
        }

        self.transitions += expansion.reached.len();
        for ReachedState {
            reached,
            status,
            after,
        } in expansion.reached
        {
            let Some(new) = self.graph.reach(state, &reached) else {
                continue;
            };
            // Only new states count, so that each end is counted once.
            if let Some(status) = status.filter(|status| status.is_final()) {
                *self.ends.entry(status.as_str().to_owned()).or_default() += 1;
                if self.stops_at_end {
                    return Some(Stop::Ended);
                }
            }

            // A state has kilobytes. Its moves are made again in microseconds.
            let is_kept = next.len() < MAX_KEPT;
            next.push((new, after.filter(|_| is_kept)));

            if self.graph.len() >= self.options.max_states {
                let limit = self.options.max_states;
                return Some(self.limit(&format!(
                    "the limit of {limit} states was reached; increase --max-states or reduce \
                    --disturbances"
                )));
            }
        }

        self.graph.set_expanded(state);
        None
    }

    pub(super) fn outcome(
        &self,
        stop: Option<Stop>,
        observer: &mut dyn ProofObserver,
    ) -> ProofOutcome {
        let limit = match stop {
            Some(Stop::Violated(found)) => return ProofOutcome::Violated(found),
            Some(Stop::Limit(reason)) => Some(reason),
            Some(Stop::Ended) | None => None,
        };

        let unscheduled = self.unscheduled.as_ref().map(|violation| {
            format!(
                "{violation}, in an order of timers for which no times were found; check it with \
                `orlog explore`"
            )
        });

        // Also after a limit: a dead end among the visited states is a violation at any size of the
        // search.
        match self.check_dead_ends(observer) {
            DeadEnds::Violated(found) => ProofOutcome::Violated(found),
            DeadEnds::Unproved(reason) => ProofOutcome::NotProved {
                // A limit comes first, because its reason names the option to increase.
                reason: limit.unwrap_or(reason),
            },
            DeadEnds::None => limit
                .or(unscheduled)
                .map_or(ProofOutcome::Proved, |reason| ProofOutcome::NotProved {
                    reason,
                }),
        }
    }

    /// Examines the states from which no visited transition leads to an end.
    fn check_dead_ends(&self, observer: &mut dyn ProofObserver) -> DeadEnds {
        let dead_ends = self.graph.dead_ends();
        let paths: Vec<_> = dead_ends
            .iter()
            .take(MAX_DEAD_ENDS)
            .map(|state| self.graph.path(*state))
            .collect();
        let counterexample = paths.iter().find_map(|path| {
            self.prover
                .counterexample(&self.start, path, Invariant::EndReachable)
        });
        if let Some(found) = counterexample {
            return DeadEnds::Violated(Box::new(found));
        }

        // A dead end may only need an event that no step waits for. The limit of disturbances can
        // have excluded it.
        let mut unproved = Vec::new();
        for (examined, path) in paths.iter().enumerate() {
            let total = paths.len();
            observer.on_progress(&self.progress(ProofPhase::DeadEnds { examined, total }));
            let stop = self.search_end_with_disturbances(path);
            if !matches!(stop, Some(Stop::Ended)) {
                let is_limited = matches!(stop, Some(Stop::Limit(_)));
                unproved.push(DeadEnd { path, is_limited });
            }
        }

        // A state that waits for something explains itself better than one that waits for nothing.
        let waiting = unproved.iter().find(|dead_end| {
            self.start
                .after(dead_end.path)
                .instance()
                .is_some_and(|instance| !instance.waits.is_empty())
        });
        if let Some(dead_end) = waiting.or(unproved.first()) {
            return DeadEnds::Unproved(self.describe_dead_end(dead_end));
        }

        if dead_ends.len() > MAX_DEAD_ENDS {
            return DeadEnds::Unproved(format!(
                "{} states reach an end only with more disturbances; increase --disturbances",
                dead_ends.len()
            ));
        }
        DeadEnds::None
    }

    /// Searches an end from a state if further events that no step waits for may arrive. Returns
    /// why the search stopped.
    fn search_end_with_disturbances(&self, path: &[Move]) -> Option<Stop> {
        let start = self.start.after(path);
        let options = ProveOptions {
            max_states: MAX_DEAD_END_STATES,
            // The search counts from zero, and without a disturbance no unexpected event could
            // arrive.
            disturbances: self.options.disturbances.max(1),
            ..self.options
        };

        let mut search = Search {
            stops_at_end: true,
            ..Search::new(self.prover, start, options)
        };
        search.run(&mut ())
    }

    fn describe_dead_end(&self, dead_end: &DeadEnd<'_>) -> String {
        let DeadEnd { path, is_limited } = dead_end;
        let state = self.start.after(path);
        let waits = state.instance().map_or(&[][..], |instance| &instance.waits);
        let waits: Vec<_> = waits.iter().map(|wait| wait.name.as_str()).collect();

        let moves: Vec<_> = path.iter().map(ToString::to_string).collect();
        let scope = if *is_limited {
            format!(" within {MAX_DEAD_END_STATES} states")
        } else {
            String::new()
        };

        format!(
            "the instance waits for {}, and no payload with the values of the definition leads to \
            an end{scope}; check the conditions. Inputs: {}",
            if waits.is_empty() {
                "nothing".to_owned()
            } else {
                waits.join(", ")
            },
            moves.join(", ")
        )
    }
}

/// State that reaches no end.
struct DeadEnd<'d> {
    path: &'d [Move],
    /// Whether the search for an end stopped at its limit of states.
    is_limited: bool,
}

/// Result of the examination of dead ends.
enum DeadEnds {
    None,
    Violated(Box<Counterexample>),
    Unproved(String),
}
