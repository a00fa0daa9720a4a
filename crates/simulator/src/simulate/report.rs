//! Counters of a simulation and the final report.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use orlog_model::{CorrelationId, Instance, InstanceKey, Status, WaitKind, Work, WorkItem};
use orlog_program::{CompiledDefinition, Program};
use serde::Serialize;

use crate::invariants::StepStates;
use crate::invariants::defined::{DefinedInvariants, Stated};
use crate::simulator::Simulator;

/// Maximum number of distinct failures and messages in a report.
const MAX_CAUSES: usize = 50;
/// Label of all others.
const OTHER_CAUSES: &str = "others";

/// Counters of a running simulation.
pub(super) struct SimulationCounters {
    work: BTreeMap<String, usize>,
    timers: BTreeMap<String, usize>,
    dead_letters: BTreeMap<String, usize>,
    dead_letter_causes: BTreeMap<String, usize>,
    ignored: BTreeMap<String, usize>,
    durations: BTreeMap<String, Vec<u64>>,
    open: VecDeque<(InstanceKey, WorkItem)>,
    /// Requested work by instance, as indexes into the names.
    work_by_instance: Option<BTreeMap<InstanceKey, Vec<u32>>>,
    names: BTreeMap<String, u32>,
    defined: DefinedInvariants,
    violations: BTreeMap<String, BTreeMap<String, ViolationCount>>,
}

/// Instances that violate an invariant of their definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViolationCount {
    /// Number of runs that violate it.
    pub count: usize,
    /// Correlation id of the first instance.
    pub first: CorrelationId,
}

/// Result of a simulation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimulationReport {
    /// Why the simulation ended before all events and timers were simulated; `None`: it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Number of simulated events.
    pub events: usize,
    /// Number of started instances.
    pub instances: usize,
    /// Number of instances by saga and status.
    pub statuses: BTreeMap<String, BTreeMap<String, usize>>,
    /// Number of instances by saga, step and step state.
    pub steps: BTreeMap<String, BTreeMap<String, BTreeMap<String, usize>>>,
    /// Requested work by kind and name.
    pub work: BTreeMap<String, usize>,
    /// Fired timers by name.
    pub timers_fired: BTreeMap<String, usize>,
    /// Dead-lettered inputs by reason.
    pub dead_letters: BTreeMap<String, usize>,
    /// Dead-lettered inputs by their message, of the first distinct messages.
    pub dead_letter_causes: BTreeMap<String, usize>,
    /// Number of instances that did not complete, by saga and failure, of the first distinct
    /// failures.
    pub failures: BTreeMap<String, BTreeMap<String, usize>>,
    /// Number of instances that have not ended, by saga and what they wait for.
    pub waits: BTreeMap<String, BTreeMap<String, usize>>,
    /// Ignored events by reason.
    pub ignored: BTreeMap<String, usize>,
    /// Violations of the invariants that definitions state, by saga and invariant.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub violations: BTreeMap<String, BTreeMap<String, ViolationCount>>,
    /// Durations of ended instances by saga.
    pub durations: BTreeMap<String, DurationStats>,
    /// Status and requested work by instance, for a comparison.
    #[serde(skip)]
    pub runs: BTreeMap<InstanceKey, (String, Vec<String>)>,
}

/// Durations of instances from the first to the last transition, in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DurationStats {
    /// Number of instances.
    pub count: usize,
    /// 50th percentile, in milliseconds.
    pub p50_millis: u64,
    /// 90th percentile, in milliseconds.
    pub p90_millis: u64,
    /// 99th percentile, in milliseconds.
    pub p99_millis: u64,
    /// Maximum, in milliseconds.
    pub max_millis: u64,
}

impl DurationStats {
    /// Computes the statistics of at least one value.
    fn of(mut millis: Vec<u64>) -> Self {
        millis.sort_unstable();
        let at = |percent: usize| {
            let rank = (millis.len() * percent).div_ceil(100).max(1);
            millis.get(rank - 1).copied().unwrap_or_default()
        };

        Self {
            count: millis.len(),
            p50_millis: at(50),
            p90_millis: at(90),
            p99_millis: at(99),
            max_millis: at(100),
        }
    }
}

fn count(map: &mut BTreeMap<String, usize>, name: &str) {
    // Most names exist already, and `entry` would copy each of them.
    match map.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(map.insert(name.to_owned(), 1)),
    }
}

/// Counts a message of which there can be many.
fn count_cause(map: &mut BTreeMap<String, usize>, message: &str) {
    let is_counted = map.len() < MAX_CAUSES || map.contains_key(message);
    count(map, if is_counted { message } else { OTHER_CAUSES });
}

impl SimulationCounters {
    pub(super) fn new(record_work: bool) -> Self {
        Self {
            work: BTreeMap::new(),
            timers: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            dead_letter_causes: BTreeMap::new(),
            ignored: BTreeMap::new(),
            durations: BTreeMap::new(),
            open: VecDeque::new(),
            work_by_instance: record_work.then(BTreeMap::new),
            names: BTreeMap::new(),
            defined: DefinedInvariants::default(),
            violations: BTreeMap::new(),
        }
    }

    /// Checks the invariants that the definition of an instance states.
    pub(super) fn check_invariants(
        &mut self,
        key: &InstanceKey,
        program: &dyn Program,
        after: &Instance,
    ) {
        let invariants = program
            .as_compiled()
            .map_or(&[][..], CompiledDefinition::invariants);
        if invariants.is_empty() {
            return;
        }

        let stated = Stated {
            invariants,
            first: 0,
        };
        let step_states = StepStates::of(program, Some(after));
        for violation in self.defined.record(
            key,
            program,
            after,
            &step_states,
            after.status.is_final(),
            &[stated],
        ) {
            let of_saga = self.violations.entry(key.saga.to_string()).or_default();
            let found = of_saga
                .entry(violation.name)
                .or_insert_with(|| ViolationCount {
                    count: 0,
                    first: key.correlation.clone(),
                });
            found.count += 1;
        }
    }

    pub(super) fn dead_lettered(&mut self, reason: &str, message: &str) {
        count(&mut self.dead_letters, reason);
        count_cause(&mut self.dead_letter_causes, message);
    }

    pub(super) fn timer_fired(&mut self, timer: &str) {
        count(&mut self.timers, timer);
    }

    pub(super) fn ignored(&mut self, reason: &str) {
        count(&mut self.ignored, reason);
    }

    pub(super) fn work_requested(&mut self, key: &InstanceKey, work: &[WorkItem]) {
        for item in work {
            let name = name_of(&item.work);
            count(&mut self.work, &name);

            if let Some(work_by_instance) = &mut self.work_by_instance {
                let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                let number = *self.names.entry(name).or_insert(next);
                match work_by_instance.get_mut(key) {
                    Some(numbers) => numbers.push(number),
                    None => drop(work_by_instance.insert(key.clone(), vec![number])),
                }
            }
            if item.work.tag().is_some() {
                self.open.push_back((key.clone(), item.clone()));
            }
        }
    }

    pub(super) fn instance_changed(&mut self, before: Option<&Instance>, after: Option<&Instance>) {
        let Some(after) = after.filter(|after| after.status.is_final()) else {
            return;
        };
        // An instance that compensates a late success ends twice; the first end counts.
        if before.is_some_and(|before| before.status.is_final()) {
            return;
        }

        let duration: Duration = after.updated_at.duration_since(after.created_at);
        let saga = after.definition.saga.to_string();
        self.durations
            .entry(saga)
            .or_default()
            .push(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    }

    pub(super) fn next_pending(&mut self) -> Option<(InstanceKey, WorkItem)> {
        self.open.pop_front()
    }

    /// Returns the report: the counters and the current status of all instances.
    pub(super) fn finish(mut self, simulator: &Simulator, events: usize) -> SimulationReport {
        let mut report = SimulationReport {
            events,
            ..SimulationReport::default()
        };

        // Work is recorded by number, because the same names occur in all instances.
        let names: BTreeMap<u32, &String> = self
            .names
            .iter()
            .map(|(name, number)| (*number, name))
            .collect();
        let mut work_by_instance = self.work_by_instance.take().unwrap_or_default();
        // Without records of the work, no runs are collected for a comparison.
        let has_work = !self.names.is_empty();

        for (key, entry) in simulator.simulated_instances() {
            let Some(instance) = entry.instance() else {
                continue;
            };

            report.instances += 1;
            let statuses = report.statuses.entry(key.saga.to_string()).or_default();
            count(statuses, instance.status.as_str());

            if let Some(failure) = instance
                .last_error
                .as_ref()
                .filter(|_| instance.status != Status::Completed)
            {
                let failures = report.failures.entry(key.saga.to_string()).or_default();
                count_cause(failures, &format!("{}: {}", failure.code, failure.message));
            }

            if !instance.status.is_final() {
                let waits = report.waits.entry(key.saga.to_string()).or_default();
                instance.waits.iter().for_each(|wait| {
                    count(waits, &format!("{} {}", wait_label(wait.kind), wait.name));
                });
            }

            let view = simulator
                .programs()
                .of(&key.saga)
                .and_then(|program| program.view_state(&instance.state));
            let steps = report.steps.entry(key.saga.to_string()).or_default();
            for step in view
                .iter()
                .filter_map(|view| view["steps"].as_array())
                .flatten()
            {
                if let (Some(id), Some(state)) = (step["id"].as_str(), step["state"].as_str()) {
                    count(steps.entry(id.to_owned()).or_default(), state);
                }
            }

            if has_work {
                let numbers = work_by_instance.remove(key).unwrap_or_default();
                let work = numbers
                    .iter()
                    .filter_map(|number| names.get(number).map(|name| (*name).clone()));
                report
                    .runs
                    .insert(key.clone(), (instance.status.to_string(), work.collect()));
            }
        }

        report.work = self.work;
        report.timers_fired = self.timers;
        report.dead_letters = self.dead_letters;
        report.dead_letter_causes = self.dead_letter_causes;
        report.ignored = self.ignored;
        report.violations = self.violations;
        for (saga, millis) in self.durations {
            report.durations.insert(saga, DurationStats::of(millis));
        }
        report
    }
}

fn wait_label(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::Event => "event",
        WaitKind::WorkResult => "result of",
        WaitKind::Timer => "timer",
        WaitKind::Operator => "operator decision about",
        WaitKind::Task => "task",
        WaitKind::Saga => "child saga",
    }
}

fn name_of(work: &Work) -> String {
    let kind = match work {
        Work::Command(_) => "command ",
        Work::Effect(_) => "effect ",
        Work::Fact(_) => "fact ",
        Work::StartChild(_)
        | Work::CancelChild(_)
        | Work::NotifyParent(_)
        | Work::PublishResult(_) => "",
    };
    format!("{kind}{}", work.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_samples() {
        let durations = DurationStats::of((1..=200).collect());
        let expected = DurationStats {
            count: 200,
            p50_millis: 100,
            p90_millis: 180,
            p99_millis: 198,
            max_millis: 200,
        };
        assert_eq!(durations, expected);
        assert_eq!(DurationStats::of(vec![5]).p50_millis, 5);
    }
}
