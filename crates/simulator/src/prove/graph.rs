//! Visited states of a proof: how each was reached first, and which lead to an end.

use std::collections::BTreeMap;

use super::state::Move;
use crate::state_key::StateKey;

/// Number of a visited state.
pub(super) type StateId = u32;

/// Start state.
pub(super) const START: StateId = 0;

/// Graph of the visited states. A state takes about 100 bytes and 8 for each of its transitions.
#[derive(Default)]
pub(super) struct StateGraph {
    nodes: Vec<Node>,
    moves: Vec<Move>,
    move_ids: BTreeMap<String, u32>,
    /// States by core and number of disturbances.
    visited: BTreeMap<(u128, u8), Vec<StateId>>,
    /// Transitions that are progress.
    edges: Vec<(StateId, StateId)>,
}

/// Visited state.
struct Node {
    parent: StateId,
    /// Move from the parent.
    from_parent: u32,
    /// Records that can only vanish.
    optional: Box<[u64]>,
    /// Number of disturbances.
    disturbances: u8,
    ended: bool,
    expanded: bool,
}

impl StateGraph {
    /// Creates a graph with a start state.
    pub(super) fn new(key: StateKey) -> Self {
        let mut this = Self::default();
        this.nodes.push(Node {
            parent: START,
            from_parent: 0,
            optional: key.optional,
            disturbances: 0,
            ended: false,
            expanded: false,
        });
        this.visited.insert((key.core, 0), vec![START]);
        this
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn disturbances(&self, state: StateId) -> u8 {
        self.node(state).disturbances
    }

    /// Records a transition. Returns the state if it is new: no visited state covers its key with
    /// at most as many disturbances.
    pub(super) fn reach(&mut self, from: StateId, to: &Reached) -> Option<StateId> {
        let covering = self.covering(&to.key, to.disturbances);
        let state = covering.unwrap_or_else(|| self.add(from, to));

        // A result that nothing waits for is no progress towards an end.
        if to.is_progress && state != from {
            self.edges.push((from, state));
        }
        covering.is_none().then_some(state)
    }

    /// Returns a visited state that covers a key with at most as many disturbances.
    pub(super) fn covering(&self, key: &StateKey, disturbances: u8) -> Option<StateId> {
        let StateKey { core, optional } = key;
        self.visited
            // A state that was reached with fewer disturbances permits more moves, so it covers
            // this one.
            .range((*core, 0)..=(*core, disturbances))
            .flat_map(|(_, states)| states)
            .copied()
            .find(|state| is_subset(optional, &self.node(*state).optional))
    }

    /// Adds a state that is reached for the first time.
    fn add(&mut self, from: StateId, to: &Reached) -> StateId {
        let state = StateId::try_from(self.nodes.len()).expect("the number of states is limited");
        let from_parent = self.move_id(&to.proof_move);
        self.nodes.push(Node {
            parent: from,
            from_parent,
            optional: to.key.optional.clone(),
            disturbances: to.disturbances,
            ended: to.ended,
            expanded: false,
        });
        self.visited
            .entry((to.key.core, to.disturbances))
            .or_default()
            .push(state);
        state
    }

    fn move_id(&mut self, proof_move: &Move) -> u32 {
        *self
            .move_ids
            .entry(proof_move.to_string())
            // The same moves lead from many states, so each is stored once.
            .or_insert_with(|| {
                self.moves.push(proof_move.clone());
                u32::try_from(self.moves.len() - 1).expect("there are fewer moves than states")
            })
    }

    /// Records that all moves of a state are recorded.
    pub(super) fn set_expanded(&mut self, state: StateId) {
        self.nodes[state as usize].expanded = true;
    }

    /// Returns the state from which a state was reached first; the start state for itself.
    pub(super) fn parent(&self, state: StateId) -> StateId {
        self.node(state).parent
    }

    /// Returns the move from the parent; `None` for the start state.
    pub(super) fn move_from_parent(&self, state: StateId) -> Option<&Move> {
        (state != START).then(|| &self.moves[self.node(state).from_parent as usize])
    }

    /// Returns the moves from the start to a state.
    pub(super) fn path(&self, state: StateId) -> Vec<Move> {
        let mut path = Vec::new();
        let mut at = state;
        while let Some(proof_move) = self.move_from_parent(at) {
            path.push(proof_move.clone());
            at = self.parent(at);
        }

        path.reverse();
        path
    }

    /// Returns the states from which no recorded transitions lead to an end, nor to a state that is
    /// not expanded; first those that were reached first.
    pub(super) fn dead_ends(&self) -> Vec<StateId> {
        // Backward from the ends: each state is visited once, however many paths lead from it.
        let mut predecessors: Vec<_> = self.edges.iter().map(|(from, to)| (*to, *from)).collect();
        predecessors.sort_unstable();

        let mut leads: Vec<bool> = self
            .nodes
            .iter()
            // A state that is not expanded may lead to an end, so it is no proof of a dead end.
            .map(|node| node.ended || !node.expanded)
            .collect();

        let mut queue: Vec<_> = (0..self.nodes.len()).filter(|at| leads[*at]).collect();
        while let Some(at) = queue.pop() {
            let to = StateId::try_from(at).expect("the number of states is limited");
            let first = predecessors.partition_point(|(of, _)| *of < to);
            for (_, from) in predecessors[first..].iter().take_while(|(of, _)| *of == to) {
                if !std::mem::replace(&mut leads[*from as usize], true) {
                    queue.push(*from as usize);
                }
            }
        }

        (START..)
            .zip(leads)
            .filter(|(_, leads)| !leads)
            .map(|(state, _)| state)
            .collect()
    }

    fn node(&self, state: StateId) -> &Node {
        &self.nodes[state as usize]
    }
}

/// Returns whether an ordered list contains all values of another one.
fn is_subset(values: &[u64], of: &[u64]) -> bool {
    // Both lists are sorted, so one pass over the longer one suffices.
    let mut of = of.iter();
    values.iter().all(|value| of.any(|other| other == value))
}

/// State that a move reaches.
pub(super) struct Reached {
    pub(super) proof_move: Move,
    pub(super) key: StateKey,
    pub(super) disturbances: u8,
    pub(super) ended: bool,
    /// Whether the move is progress: not a cancellation.
    pub(super) is_progress: bool,
}
