//! Run of an instance: its number, the current round of each loop, and the past rounds that can
//! still be compensated.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::events::EventState;
use super::step_entry::{StepEntry, index};
use crate::machine::step_state::StepState;

/// State of a run beyond its steps: its loops, and its number in the instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::machine) struct RunState {
    /// Loops that are not in their first round.
    pub(super) loops: Vec<LoopState>,
    /// Number of runs before this one.
    previous_runs: u32,
    /// First version of this run, if it is not the first one.
    first_version: u64,
    /// First version of an earlier run whose history entry is not deleted yet.
    forget_from: u64,
    /// State that most runs do not need. It is the last field, because values have no names.
    #[serde(default, skip_serializing_if = "EventState::is_empty")]
    pub(in crate::machine) events: EventState,
}

impl RunState {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// State of a loop after its first round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LoopState {
    /// Step that ends the loop.
    step: u16,
    /// Current round.
    round: u16,
    /// Rounds with steps that can be compensated, in ascending order.
    past: Vec<PastRound>,
}

/// Past round of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::machine) struct PastRound {
    round: u16,
    /// States by step, in ascending order.
    entries: Vec<(u16, StepEntry)>,
    /// Variables that steps of the loop save, at the end of the round.
    pub(in crate::machine) vars: Map<String, Value>,
    /// Results of the jobs of the loop, at the end of the round.
    pub(in crate::machine) results: Map<String, Value>,
    /// Variables that steps with a handled failure save, by step. It is the last field, because
    /// states are read by position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::machine) own_vars: Vec<(u16, Map<String, Value>)>,
}

impl PastRound {
    pub(in crate::machine) fn new(round: usize, entries: &[(usize, StepEntry)]) -> Self {
        let entries = entries
            .iter()
            .map(|(step, entry)| (index(*step), *entry))
            .collect();
        Self {
            round: index(round),
            entries,
            vars: Map::new(),
            results: Map::new(),
            own_vars: Vec::new(),
        }
    }

    /// Returns all values of the round.
    pub(in crate::machine) fn values(&self) -> impl Iterator<Item = &Value> {
        let own = self.own_vars.iter().flat_map(|(_, vars)| vars.values());
        self.vars.values().chain(self.results.values()).chain(own)
    }

    /// Returns the variables that a step with a handled failure saves.
    pub(in crate::machine) fn own_vars(&self, step: usize) -> Option<&Map<String, Value>> {
        let step = index(step);
        let mut own = self.own_vars.iter();
        own.find(|(of, _)| *of == step).map(|(_, vars)| vars)
    }

    /// Returns the variables that a late success of a step sets.
    pub(in crate::machine) fn vars_of_mut(&mut self, step: usize) -> &mut Map<String, Value> {
        let step = index(step);
        let own = self.own_vars.iter_mut().find(|(of, _)| *of == step);
        own.map_or(&mut self.vars, |(_, vars)| vars)
    }

    fn entry(&self, step: u16) -> Option<usize> {
        self.entries.binary_search_by_key(&step, |(of, _)| *of).ok()
    }
}

impl LoopState {
    fn past(&self, round: u16) -> Option<&PastRound> {
        let found = self
            .past
            .binary_search_by_key(&round, |past| past.round)
            .ok()?;
        Some(&self.past[found])
    }
}

impl RunState {
    /// Returns the current round of a loop, from 0.
    pub(in crate::machine) fn loop_round(&self, end: usize) -> usize {
        self.loop_state(end).map_or(0, |state| state.round.into())
    }

    fn loop_state(&self, end: usize) -> Option<&LoopState> {
        self.loops
            .iter()
            .find(|state| usize::from(state.step) == end)
    }

    /// Begins a round of a loop and stores the past one if it can be compensated.
    pub(in crate::machine) fn begin_loop_round(
        &mut self,
        end: usize,
        round: usize,
        past: Option<PastRound>,
    ) {
        let found = self
            .loops
            .iter()
            .position(|state| usize::from(state.step) == end);

        let at = found.unwrap_or_else(|| {
            self.loops.push(LoopState {
                step: index(end),
                round: 0,
                past: Vec::new(),
            });
            self.loops.len() - 1
        });

        self.loops[at].round = index(round);
        // Rounds end in ascending order, so the list stays sorted for the look-ups.
        self.loops[at].past.extend(past);
    }

    /// Returns the past rounds of a loop that can be compensated.
    pub(in crate::machine) fn past_rounds(&self, end: usize) -> &[PastRound] {
        self.loop_state(end).map_or(&[], |state| &state.past)
    }

    /// Returns a past round that contains a step.
    pub(in crate::machine) fn past_round(&self, step: usize, round: usize) -> Option<&PastRound> {
        let step = index(step);
        let round = u16::try_from(round).ok()?;
        let mut past = self.loops.iter().filter_map(|state| state.past(round));
        past.find(|past| past.entry(step).is_some())
    }

    /// Returns the numbers of the past rounds that contain a step.
    pub(in crate::machine) fn past_rounds_of(&self, end: usize, step: usize) -> Vec<usize> {
        let step = index(step);
        let past = self
            .past_rounds(end)
            .iter()
            .filter(|past| past.entry(step).is_some());
        past.map(|past| past.round.into()).collect()
    }

    /// Returns the entry of a step in a past round.
    pub(in crate::machine) fn past_entry(&self, step: usize, round: usize) -> Option<StepEntry> {
        let past = self.past_round(step, round)?;
        Some(past.entries[past.entry(index(step))?].1)
    }

    /// Returns the number of the run of the instance, from 1.
    pub(in crate::machine) fn run_number(&self) -> u32 {
        self.previous_runs.saturating_add(1)
    }

    /// Begins the first run of a start request, with this version.
    pub(in crate::machine) fn begin_first(&mut self, version: u64) {
        // Only a start request in an ended instance has a later version; its children then need
        // other ids.
        self.events.start_version = if version > 1 { version } else { 0 };
    }

    /// Returns the version with which a start request began these runs in an ended instance.
    pub(in crate::machine) fn start_version(&self) -> Option<u64> {
        Some(self.events.start_version).filter(|version| *version > 0)
    }

    /// Sets the number of a run that follows the one of another state.
    pub(in crate::machine) fn begin_run(&mut self, old: &Self, version: u64) {
        self.previous_runs = old.run_number();
        self.first_version = version;

        // The first run has no such value: its history begins with version 1.
        self.forget_from = old.forget_from.max(1);

        // The start event can be delivered again in every run, and the ids of children contain the
        // start version.
        self.events.started_by = old.events.started_by;
        self.events.start_version = old.events.start_version;
    }

    /// Returns the version of the next history entry of earlier runs to delete.
    pub(in crate::machine) fn forget_next(&mut self) -> Option<u64> {
        // One entry for each transition, so that the history is as long as the longest run
        // (ADR 0066).
        let version = self.forget_from;
        if version >= self.first_version {
            return None;
        }
        self.forget_from += 1;
        Some(version)
    }

    /// Clears times, versions and the number of the run.
    pub(super) fn clear_times(&mut self) {
        let loops = std::mem::take(&mut self.loops);
        let mut events = std::mem::take(&mut self.events);
        events.clear_keys();
        *self = RunState {
            loops,
            events,
            ..Self::default()
        };

        let past = self.loops.iter_mut().flat_map(|state| &mut state.past);
        past.flat_map(|past| &mut past.entries)
            .for_each(|(_, entry)| entry.clear_time());
    }

    /// Takes the rounds of the loops of another state and the number of its run. `target` returns
    /// the new index of a step, if it remains, and `renamed` the new id.
    pub(in crate::machine) fn migrate_run(
        &mut self,
        old: &Self,
        target: impl Fn(usize) -> Option<usize>,
        renamed: impl Fn(&str) -> Option<String>,
    ) {
        let target = |step: u16| target(step.into()).map(index);
        *self = RunState {
            loops: Vec::new(),
            ..old.clone()
        };

        // The events and the reminders of a step are copied under its new tag.
        self.events.collected.clear();
        self.events.reminders.clear();
        for state in &old.loops {
            let Some(step) = target(state.step) else {
                continue;
            };

            let past = state.past.iter().map(|past| {
                let entries = past
                    .entries
                    .iter()
                    .filter_map(|(step, entry)| Some((target(*step)?, *entry)));
                let mut entries: Vec<_> = entries.collect();

                // Look-ups search them, and the new definition can have another order.
                entries.sort_unstable_by_key(|(step, _)| *step);

                let own_vars = past.own_vars.iter();
                let own_vars =
                    own_vars.filter_map(|(step, vars)| Some((target(*step)?, vars.clone())));

                let results = past.results.iter();
                let results =
                    results.filter_map(|(step, value)| Some((renamed(step)?, value.clone())));
                PastRound {
                    entries,
                    results: results.collect(),
                    own_vars: own_vars.collect(),
                    ..past.clone()
                }
            });

            self.loops.push(LoopState {
                step,
                round: state.round,
                past: past.collect(),
            });
        }
    }

    /// Deletes the completed steps of past rounds, which are not compensated any more.
    pub(in crate::machine) fn drop_completed_rounds(&mut self) {
        for state in &mut self.loops {
            for past in &mut state.past {
                past.entries
                    .retain(|(_, entry)| entry.state != StepState::Completed);
            }
            // A round without entries has no step left that could read its variables.
            state.past.retain(|past| !past.entries.is_empty());
        }
    }

    /// Returns the entry of a step in a past round.
    pub(super) fn past_entry_mut(&mut self, step: usize, round: usize) -> Option<&mut StepEntry> {
        let past = self.past_round_mut(step, round)?;
        let entry = past.entry(index(step))?;
        Some(&mut past.entries[entry].1)
    }

    /// Returns a past round that contains a step.
    pub(super) fn past_round_mut(&mut self, step: usize, round: usize) -> Option<&mut PastRound> {
        let step = index(step);
        let round = u16::try_from(round).ok()?;
        self.loops.iter_mut().find_map(|state| {
            let found = state
                .past
                .binary_search_by_key(&round, |past| past.round)
                .ok()?;
            Some(&mut state.past[found]).filter(|past| past.entry(step).is_some())
        })
    }
}
