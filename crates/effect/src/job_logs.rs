//! Logs that jobs write while they run: for users, in memory, bounded, and retained for some time
//! after the job.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use orlog_model::LogLine;
use orlog_model::{InstanceKey, TenantId, Timestamp, WorkItem};
use parking_lot::Mutex;
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

/// Job that wrote lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedJob {
    /// Id of the work item.
    pub job: Uuid,
    /// Effect name.
    pub effect: String,
}

/// Last lines of the log of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Number of earlier lines that are in memory.
    pub omitted: usize,
}

impl LogTail {
    fn of(lines: &VecDeque<LogLine>, bytes: usize) -> Self {
        let mut total = 0;
        let mut count = 0;
        for line in lines.iter().rev() {
            total += line.text.len();
            if total > bytes {
                break;
            }
            count += 1;
        }

        let omitted = lines.len() - count;
        Self {
            lines: lines.range(omitted..).cloned().collect(),
            omitted,
        }
    }
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
        let mut lines = Vec::with_capacity(texts.len());
        for text in texts {
            lines.push(LogLine {
                at,
                text: text.chars().take(MAX_LINE_BYTES).collect(),
            });
        }

        // Without the lock of the logs: an observer must not delay the readers and writers of other
        // jobs.
        if let Some(observer) = self.observer.get() {
            observer.job_logged(item, &lines);
        }

        let mut state = self.state.lock();
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

        // The oldest jobs are forgotten first, but never the one that writes.
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

    /// Returns the last lines of the log of a job of this tenant, at most `bytes` of text.
    #[must_use]
    pub fn tail(&self, tenant: &TenantId, job: Uuid, bytes: usize) -> LogTail {
        let state = self.state.lock();
        state
            .jobs
            .get(&job)
            .filter(|job| job.instance.tenant == *tenant)
            .map(|job| LogTail::of(&job.lines, bytes))
            .unwrap_or_default()
    }

    /// Returns the jobs of an instance with lines, oldest job first.
    #[must_use]
    pub fn jobs_of(&self, instance: &InstanceKey) -> Vec<LoggedJob> {
        let state = self.state.lock();
        let mut jobs = Vec::new();
        for id in &state.order {
            let Some(job) = state.jobs.get(id) else {
                continue;
            };
            if job.instance == *instance {
                jobs.push(LoggedJob {
                    job: *id,
                    effect: job.effect.clone(),
                });
            }
        }
        jobs
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
        let tenant = &job(1).instance.tenant;
        let whole = lines.tail(tenant, job(1).id, usize::MAX);
        assert_eq!(whole.lines.len(), MAX_LINES_PER_JOB);
        assert_eq!((whole.lines[0].text.as_str(), whole.omitted), ("3", 0));
        let last = lines.tail(tenant, job(1).id, 9);
        assert_eq!((last.lines.len(), last.omitted), (2, MAX_LINES_PER_JOB - 2));
        assert_eq!(last.lines[1], whole.lines[MAX_LINES_PER_JOB - 1]);
        let beta = TenantId::new("beta").unwrap();
        assert_eq!(lines.tail(&beta, job(1).id, usize::MAX), LogTail::default());
        let written = lines.jobs_of(&job(2).instance);
        assert_eq!(
            (written.len(), written[0].job, written[0].effect.as_str()),
            (1, job(2).id, "media.cut")
        );
    }

    fn is_stored(lines: &JobLogs, tenant: &TenantId, job: Uuid) -> bool {
        !lines.tail(tenant, job, usize::MAX).lines.is_empty()
    }

    #[test]
    fn logs_of_empty_lines_are_bounded_too() {
        let (lines, texts) = (JobLogs::default(), vec![String::new(); MAX_LINES_PER_JOB]);
        let jobs = 2 * MAX_TOTAL_BYTES / (MAX_LINES_PER_JOB * LINE_BYTES);
        (0..jobs).for_each(|number| lines.append(&job(number as u128), AT, &texts));
        let tenant = &job(0).instance.tenant;
        let retained = (0..jobs)
            .filter(|number| is_stored(&lines, tenant, job(*number as u128).id))
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
        let tenant = &job(0).instance.tenant;
        let stored: Vec<_> = (0..20)
            .filter(|number| is_stored(&lines, tenant, job(*number).id))
            .collect();
        assert_eq!(
            stored.len(),
            MAX_TOTAL_BYTES / (MAX_LINE_BYTES * MAX_LINES_PER_JOB)
        );
        assert!(stored.contains(&19) && !stored.contains(&0));
    }
}
