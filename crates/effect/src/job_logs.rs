//! Logs that jobs write while they run: for users, in memory, bounded, and retained for some time after
//! the job.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use orlog_model::LogLine;
use orlog_model::{InstanceKey, TenantId, Timestamp, WorkItem};
use uuid::Uuid;

use crate::observer::EffectObserver;

/// Maximum number of lines per job; older ones are dropped.
pub(crate) const MAX_LINES_PER_JOB: usize = 1000;

/// Maximum length of a line, in characters.
pub(crate) const MAX_LINE_BYTES: usize = 2000;

/// Maximum size of the logs of all jobs, in bytes; the logs of the oldest jobs are dropped first.
const MAX_TOTAL_BYTES: usize = 16 << 20;
/// Size of a line without its text, and of a job without its lines, in bytes.
const LINE_BYTES: usize = 64;
const JOB_BYTES: usize = 512;

/// Log of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLog {
    /// Id of the work item.
    pub job: Uuid,
    /// Effect name.
    pub effect: String,
    /// Lines, oldest first.
    pub log: Vec<LogLine>,
}

/// Job logs of an upstream.
#[derive(Default)]
pub struct JobLogs {
    state: Mutex<State>,
    observer: OnceLock<Arc<dyn EffectObserver>>,
}

impl fmt::Debug for JobLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobLogs").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<Uuid, JobBuffer>,
    order: VecDeque<Uuid>,
    bytes: usize,
}

#[derive(Debug)]
struct JobBuffer {
    instance: InstanceKey,
    effect: String,
    lines: VecDeque<LogLine>,
}

impl JobLogs {
    /// Appends lines to the log of a job.
    pub fn append(&self, item: &WorkItem, at: Timestamp, texts: &[String]) {
        let line = |text: &String| LogLine {
            at,
            text: text.chars().take(MAX_LINE_BYTES).collect(),
        };
        let lines: Vec<_> = texts.iter().map(line).collect();
        if let Some(observer) = self.observer.get() {
            observer.job_logged(item, &lines);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let buffer = state.jobs.entry(item.id).or_insert_with(|| {
            state.order.push_back(item.id);
            state.bytes += JOB_BYTES;
            JobBuffer {
                instance: item.instance.clone(),
                effect: item.work.label().into(),
                lines: VecDeque::new(),
            }
        });
        for line in lines {
            state.bytes += size(&line);
            buffer.lines.push_back(line);
            if buffer.lines.len() > MAX_LINES_PER_JOB {
                state.bytes -= buffer.lines.pop_front().as_ref().map_or(0, size);
            }
        }
        while state.bytes > MAX_TOTAL_BYTES && state.order.len() > 1 {
            let first = state
                .order
                .pop_front()
                .and_then(|first| state.jobs.remove(&first));
            let freed = first.map_or(0, |job| {
                JOB_BYTES + job.lines.iter().map(size).sum::<usize>()
            });
            state.bytes -= freed;
        }
    }

    /// Sets the observer of the lines, once.
    pub(crate) fn observe(&self, observer: &Arc<dyn EffectObserver>) {
        drop(self.observer.set(Arc::clone(observer)));
    }

    /// Returns the log of a job of this tenant; `None` if there is none or if it was dropped.
    #[must_use]
    pub fn job(&self, tenant: &TenantId, job: Uuid) -> Option<Vec<LogLine>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let job = state
            .jobs
            .get(&job)
            .filter(|job| job.instance.tenant == *tenant)?;
        Some(job.lines.iter().cloned().collect())
    }

    /// Returns the logs of the jobs of an instance, oldest job first.
    #[must_use]
    pub fn instance_jobs(&self, instance: &InstanceKey) -> Vec<JobLog> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = state
            .order
            .iter()
            .filter_map(|id| Some((*id, state.jobs.get(id)?)));
        let jobs = jobs.filter(|(_, job)| job.instance == *instance);
        jobs.map(|(id, job)| JobLog {
            job: id,
            effect: job.effect.clone(),
            log: job.lines.iter().cloned().collect(),
        })
        .collect()
    }
}

fn size(line: &LogLine) -> usize {
    LINE_BYTES + line.text.len()
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
    fn last_log_lines_are_stored_per_tenant() {
        let lines = JobLogs::default();
        let texts: Vec<_> = (0..MAX_LINES_PER_JOB + 3)
            .map(|number| number.to_string())
            .collect();
        lines.append(&job(1), AT, &texts);
        lines.append(&job(2), AT, &texts);
        let buffer = lines.job(&job(1).instance.tenant, job(1).id).unwrap();
        assert_eq!(
            (buffer.len(), buffer[0].text.as_str()),
            (MAX_LINES_PER_JOB, "3")
        );
        assert_eq!(lines.job(&TenantId::new("beta").unwrap(), job(1).id), None);
        let written = lines.instance_jobs(&job(2).instance);
        assert_eq!(
            (written.len(), written[0].job, written[0].effect.as_str()),
            (1, job(2).id, "media.cut")
        );
    }

    #[test]
    fn logs_of_empty_lines_are_bounded_too() {
        let (lines, texts) = (JobLogs::default(), vec![String::new(); MAX_LINES_PER_JOB]);
        let jobs = 2 * MAX_TOTAL_BYTES / (MAX_LINES_PER_JOB * LINE_BYTES);
        (0..jobs).for_each(|number| lines.append(&job(number as u128), AT, &texts));
        let tenant = &job(0).instance.tenant;
        let retained = (0..jobs)
            .filter(|number| lines.job(tenant, job(*number as u128).id).is_some())
            .count();
        assert!((1..=jobs / 2).contains(&retained), "{retained} of {jobs}");
    }

    #[test]
    fn total_job_logs_are_bounded_and_oldest_are_evicted() {
        let lines = JobLogs::default();
        let long = vec!["x".repeat(MAX_LINE_BYTES); MAX_LINES_PER_JOB];
        for number in 0..20 {
            lines.append(&job(number), AT, &long);
        }
        let is_stored = |number: u128| {
            lines
                .job(&job(number).instance.tenant, job(number).id)
                .is_some()
        };
        assert_eq!(
            (0..20).filter(|number| is_stored(*number)).count(),
            MAX_TOTAL_BYTES / (MAX_LINE_BYTES * MAX_LINES_PER_JOB)
        );
        assert!(is_stored(19) && !is_stored(0));
    }
}
