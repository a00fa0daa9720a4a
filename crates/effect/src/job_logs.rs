//! The lines that jobs write while they run: for people, kept in memory, bounded, and for a while longer than the job.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use orlog_model::{InstanceKey, TenantId, Timestamp, WorkItem};
use uuid::Uuid;

/// Lines that are kept of a job; older ones are dropped.
pub(crate) const LINES: usize = 1000;

/// The longest line that is kept, in characters.
pub(crate) const LINE: usize = 2000;

/// What the lines of all jobs may take together, in bytes; the jobs that began first are dropped first.
const TOTAL: usize = 16 << 20;

/// A line that a job wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it came.
    pub at: Timestamp,
    /// The line.
    pub text: String,
}

/// What a job has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The work item's id.
    pub job: Uuid,
    /// What it performs.
    pub effect: String,
    /// The lines, the oldest first.
    pub lines: Vec<Line>,
}

/// The lines of the jobs of an upstream.
#[derive(Debug, Default)]
pub struct Lines {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<Uuid, Job>,
    order: VecDeque<Uuid>,
    bytes: usize,
}

#[derive(Debug)]
struct Job {
    instance: InstanceKey,
    effect: String,
    lines: VecDeque<Line>,
}

impl Lines {
    /// Adds lines to those of a job.
    pub fn write(&self, item: &WorkItem, at: Timestamp, texts: &[String]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let kept = state.jobs.entry(item.id).or_insert_with(|| {
            state.order.push_back(item.id);
            Job { instance: item.instance.clone(), effect: item.work.label(), lines: VecDeque::new() }
        });
        for text in texts {
            let text: String = text.chars().take(LINE).collect();
            state.bytes += text.len();
            kept.lines.push_back(Line { at, text });
            if kept.lines.len() > LINES {
                state.bytes -= kept.lines.pop_front().map_or(0, |line| line.text.len());
            }
        }
        while state.bytes > TOTAL && state.order.len() > 1 {
            let first = state.order.pop_front().and_then(|first| state.jobs.remove(&first));
            let freed = first.iter().flat_map(|job| &job.lines).map(|line| line.text.len());
            state.bytes -= freed.sum::<usize>();
        }
    }

    /// The lines of a job of this tenant; `None`: nothing is known of it, or no more.
    #[must_use]
    pub fn of(&self, tenant: &TenantId, job: Uuid) -> Option<Vec<Line>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let job = state.jobs.get(&job).filter(|job| job.instance.tenant == *tenant)?;
        Some(job.lines.iter().cloned().collect())
    }

    /// What the jobs of an instance have written, the job that began first first.
    #[must_use]
    pub fn of_instance(&self, instance: &InstanceKey) -> Vec<Written> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = state.order.iter().filter_map(|id| Some((*id, state.jobs.get(id)?)));
        let jobs = jobs.filter(|(_, job)| job.instance == *instance);
        jobs.map(|(id, job)| Written {
            job: id,
            effect: job.effect.clone(),
            lines: job.lines.iter().cloned().collect(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite::item;

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_735_689_600_000);

    fn job(number: u128) -> WorkItem {
        item(&EffectName::new("media.cut").unwrap(), number)
    }

    #[test]
    fn the_last_lines_of_a_job_are_kept_for_its_tenant() {
        let lines = Lines::default();
        let texts: Vec<_> = (0..LINES + 3).map(|number| number.to_string()).collect();
        lines.write(&job(1), AT, &texts);
        lines.write(&job(2), AT, &texts);
        let kept = lines.of(&job(1).instance.tenant, job(1).id).unwrap();
        assert_eq!((kept.len(), kept[0].text.as_str()), (LINES, "3"));
        assert_eq!(lines.of(&TenantId::new("beta").unwrap(), job(1).id), None);
        let written = lines.of_instance(&job(2).instance);
        assert_eq!((written.len(), written[0].job, written[0].effect.as_str()), (1, job(2).id, "media.cut"));
    }

    #[test]
    fn the_lines_of_all_jobs_are_bounded_and_the_oldest_go_first() {
        let lines = Lines::default();
        let long = vec!["x".repeat(LINE); LINES];
        for number in 0..20 {
            lines.write(&job(number), AT, &long);
        }
        let is_kept = |number: u128| lines.of(&job(number).instance.tenant, job(number).id).is_some();
        assert_eq!((0..20).filter(|number| is_kept(*number)).count(), TOTAL / (LINE * LINES));
        assert!(is_kept(19) && !is_kept(0));
    }
}
