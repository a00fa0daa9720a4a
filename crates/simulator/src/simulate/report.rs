//! What is counted on the way, and the report at the end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use orlog_model::{Instance, InstanceKey, Work, WorkItem};
use serde::Serialize;

use crate::simulator::Lab;

/// What is counted on the way.
pub(super) struct Tally {
    work: BTreeMap<String, usize>,
    timers: BTreeMap<String, usize>,
    dead_letters: BTreeMap<String, usize>,
    ignored: BTreeMap<String, usize>,
    durations: BTreeMap<String, Vec<u64>>,
    open: VecDeque<(InstanceKey, WorkItem)>,
    /// By instance, what it asked for, as positions in the names.
    lives: Option<BTreeMap<InstanceKey, Vec<u32>>>,
    names: BTreeMap<String, u32>,
}

/// What a simulation came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Events that were played.
    pub events: usize,
    /// Instances that began.
    pub instances: usize,
    /// By saga, how many stand where.
    pub statuses: BTreeMap<String, BTreeMap<String, usize>>,
    /// By saga and step, how many instances stand where.
    pub steps: BTreeMap<String, BTreeMap<String, BTreeMap<String, usize>>>,
    /// What was asked for, by kind and name.
    pub work: BTreeMap<String, usize>,
    /// Timers that fired, by name.
    pub timers_fired: BTreeMap<String, usize>,
    /// Inputs that were set aside, by reason.
    pub dead_letters: BTreeMap<String, usize>,
    /// Events that changed nothing, by reason.
    pub ignored: BTreeMap<String, usize>,
    /// By saga, how long the instances took that ended.
    pub durations: BTreeMap<String, Durations>,
    /// For a comparison: by instance, its status and what it asked for.
    #[serde(skip)]
    pub lives: BTreeMap<InstanceKey, (String, Vec<String>)>,
}

/// How long instances took from their first to their last transition, in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Durations {
    /// How many.
    pub count: usize,
    /// Half of them took no longer, in milliseconds.
    pub p50_millis: u64,
    /// Nine of ten.
    pub p90_millis: u64,
    /// Ninety-nine of a hundred.
    pub p99_millis: u64,
    /// The longest.
    pub max_millis: u64,
}

impl Durations {
    /// Of at least one.
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
    match map.get_mut(name) {
        Some(count) => *count += 1,
        None => drop(map.insert(name.to_owned(), 1)),
    }
}

impl Tally {
    pub(super) fn new(remembers_work: bool) -> Self {
        Self {
            work: BTreeMap::new(),
            timers: BTreeMap::new(),
            dead_letters: BTreeMap::new(),
            ignored: BTreeMap::new(),
            durations: BTreeMap::new(),
            open: VecDeque::new(),
            lives: remembers_work.then(BTreeMap::new),
            names: BTreeMap::new(),
        }
    }

    pub(super) fn set_aside(&mut self, reason: &str) {
        count(&mut self.dead_letters, reason);
    }

    pub(super) fn fired(&mut self, timer: &str) {
        count(&mut self.timers, timer);
    }

    pub(super) fn ignored(&mut self, why: &str) {
        count(&mut self.ignored, why);
    }

    pub(super) fn asked(&mut self, key: &InstanceKey, work: &[WorkItem]) {
        for item in work {
            let name = name_of(&item.work);
            count(&mut self.work, &name);
            if let Some(lives) = &mut self.lives {
                let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                let number = *self.names.entry(name).or_insert(next);
                match lives.get_mut(key) {
                    Some(life) => life.push(number),
                    None => drop(lives.insert(key.clone(), vec![number])),
                }
            }
            if item.work.tag().is_some() {
                self.open.push_back((key.clone(), item.clone()));
            }
        }
    }

    pub(super) fn moved(&mut self, before: Option<&Instance>, after: Option<&Instance>) {
        let Some(after) = after.filter(|after| after.status.is_final()) else { return };
        if before.is_some_and(|before| before.status.is_final()) {
            return;
        }
        let took: Duration = after.updated_at.since(after.created_at);
        let saga = after.program.saga.to_string();
        self.durations.entry(saga).or_default().push(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    }

    pub(super) fn next_open(&mut self) -> Option<(InstanceKey, WorkItem)> {
        self.open.pop_front()
    }

    /// The report: what was counted, and where everything stands now.
    pub(super) fn finish(mut self, lab: &Lab, events: usize) -> Report {
        let mut report = Report { events, ..Report::default() };
        let names: BTreeMap<u32, &String> = self.names.iter().map(|(name, number)| (*number, name)).collect();
        let mut lives = self.lives.take().unwrap_or_default();
        let remembers = !self.names.is_empty();
        for (key, entry) in lab.entries() {
            let Some(instance) = entry.instance() else { continue };
            report.instances += 1;
            let statuses = report.statuses.entry(key.saga.to_string()).or_default();
            count(statuses, instance.status.as_str());
            let shown = lab.programs().of(&key.saga).and_then(|program| program.show(&instance.state));
            let steps = report.steps.entry(key.saga.to_string()).or_default();
            for step in shown.iter().filter_map(|shown| shown["steps"].as_array()).flatten() {
                if let (Some(id), Some(state)) = (step["id"].as_str(), step["state"].as_str()) {
                    count(steps.entry(id.to_owned()).or_default(), state);
                }
            }
            if remembers {
                let numbers = lives.remove(key).unwrap_or_default();
                let work = numbers.iter().filter_map(|number| names.get(number).map(|name| (*name).clone()));
                report.lives.insert(key.clone(), (instance.status.to_string(), work.collect()));
            }
        }
        report.work = self.work;
        report.timers_fired = self.timers;
        report.dead_letters = self.dead_letters;
        report.ignored = self.ignored;
        let durations = self.durations.into_iter();
        report.durations = durations.map(|(saga, millis)| (saga, Durations::of(millis))).collect();
        report
    }
}

fn name_of(work: &Work) -> String {
    let kind = match work {
        Work::Command(_) => "command ",
        Work::Effect(_) => "effect ",
        Work::Fact(_) => "fact ",
        Work::Start(_) | Work::Stop(_) | Work::End(_) => "",
    };
    format!("{kind}{}", work.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let durations = Durations::of((1..=200).collect());
        let expected =
            Durations { count: 200, p50_millis: 100, p90_millis: 180, p99_millis: 198, max_millis: 200 };
        assert_eq!(durations, expected);
        assert_eq!(Durations::of(vec![5]).p50_millis, 5);
    }
}
