//! Lines of the jobs of flows: stores them with their flow, shortly after their receipt.
//!
//! Lines wait in memory for about [`COALESCE`], so that a job that writes many lines causes few
//! commits. While the shard of a flow is not available they wait longer; above [`MAX_UNSAVED`] or
//! [`MAX_UNSAVED_BYTES`] the oldest of the flow with the most lines are dropped, so that it takes
//! no space of the others. Lines that wait are lost if the process is killed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use orlog_actors::Runtime;
use orlog_effect::EffectObserver;
use orlog_model::{InstanceKey, JobLogAppend, JobLogChunk, LogLine, WorkItem};
use orlog_sagas::flow;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::background::BackgroundTasks;

/// Time in which lines are collected before they are stored.
const COALESCE: Duration = Duration::from_millis(100);
/// Delay before the next attempt if a shard is not available.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of lines that wait.
const MAX_UNSAVED: usize = 100_000;
/// Maximum size of the texts of the lines that wait, in bytes.
const MAX_UNSAVED_BYTES: usize = 64 << 20;
/// Maximum number of concurrent appends, each to another flow.
const MAX_APPENDS: usize = 64;

/// Lines that are not stored yet. It observes the job logs of all upstreams.
#[derive(Default)]
pub struct UnsavedLines {
    state: Mutex<Unsaved>,
    changed: Notify,
}

#[derive(Default)]
struct Unsaved {
    flows: BTreeMap<InstanceKey, UnsavedFlow>,
    /// Number of lines that wait, and size of their texts.
    lines: usize,
    bytes: usize,
    /// Number of dropped lines since the last report.
    dropped: usize,
}

/// Lines of one flow that wait.
#[derive(Default)]
struct UnsavedFlow {
    /// Oldest first.
    chunks: VecDeque<JobLogChunk>,
    lines: usize,
    bytes: usize,
}

impl UnsavedLines {
    /// Returns whether lines of a flow wait.
    pub fn has(&self, flow: &InstanceKey) -> bool {
        self.state.lock().flows.contains_key(flow)
    }
}

impl Unsaved {
    fn add(&mut self, item: &WorkItem, lines: &[LogLine]) {
        let Some(effect) = item.work.effect() else {
            return;
        };

        let flow = self.flows.entry(item.instance.clone()).or_default();
        for line in lines {
            match flow.chunks.back_mut() {
                // A chunk has lines of one job, and is stored by one append.
                Some(last)
                    if last.job == effect.tag && last.lines.len() < JobLogChunk::MAX_LINES =>
                {
                    last.lines.push(line.clone());
                }
                _ => {
                    flow.chunks.push_back(JobLogChunk {
                        job: effect.tag.clone(),
                        lines: vec![line.clone()],
                    });
                }
            }
        }

        let bytes = size(lines);
        flow.lines += lines.len();
        flow.bytes += bytes;
        self.lines += lines.len();
        self.bytes += bytes;

        // The flow with the most lines loses its oldest ones, so that one noisy flow does not
        // displace the lines of the others.
        while (self.lines > MAX_UNSAVED || self.bytes > MAX_UNSAVED_BYTES)
            && let Some((largest, _)) = self
                .flows
                .iter()
                .max_by_key(|(_, flow)| flow.lines + flow.bytes)
        {
            let largest = largest.clone();
            self.dropped += self.remove(&largest, usize::MAX);
        }
    }

    /// Removes lines from the first chunk of a flow, at most `count`. Returns their number.
    fn remove(&mut self, key: &InstanceKey, count: usize) -> usize {
        let Some(flow) = self.flows.get_mut(key) else {
            return 0;
        };
        let Some(first) = flow.chunks.front_mut() else {
            return 0;
        };

        let count = count.min(first.lines.len());
        let bytes = size(&first.lines[..count]);

        first.lines.drain(..count);
        if first.lines.is_empty() {
            flow.chunks.pop_front();
        }

        flow.lines -= count;
        flow.bytes -= bytes;
        self.lines -= count;
        self.bytes -= bytes;

        // `has` states that lines wait, so an empty flow must not stay.
        if flow.chunks.is_empty() {
            self.flows.remove(key);
        }

        count
    }

    /// Removes the first lines of a flow, which are stored, or whose shard another process owns.
    fn settle(&mut self, key: &InstanceKey, settled: &JobLogChunk) {
        // Lines can have arrived since, and the chunk can have been dropped.
        let first = self.flows.get(key).and_then(|flow| flow.chunks.front());
        if first.is_some_and(|first| {
            first.job == settled.job && first.lines.starts_with(&settled.lines)
        }) {
            self.remove(key, settled.lines.len());
        }
    }
}

fn size(lines: &[LogLine]) -> usize {
    lines.iter().map(|line| line.text.len()).sum()
}

impl EffectObserver for UnsavedLines {
    fn job_logged(&self, item: &WorkItem, lines: &[LogLine]) {
        if item.instance.saga.as_str() == flow::SAGA && !lines.is_empty() {
            self.state.lock().add(item, lines);
            self.changed.notify_one();
        }
    }
}

/// Stores the lines of the jobs of flows.
pub struct LineWriter {
    pub unsaved: Arc<UnsavedLines>,
    pub(crate) runtime: Arc<Runtime>,
    /// Number of lines that a flow keeps.
    pub(crate) max_lines: u64,
    /// Held while lines are stored: the appends to one flow follow each other.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl LineWriter {
    /// Stores lines as they arrive, until the node stops.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        background.repeat("job lines", self, Duration::ZERO, |writer| async move {
            writer.unsaved.changed.notified().await;

            // A job writes many lines at once; one append stores them together.
            tokio::time::sleep(COALESCE).await;

            // In a task of its own: the end of this one would drop an append in progress, which
            // would then be repeated.
            let saving = Arc::clone(&writer);
            match tokio::spawn(async move { saving.save().await }).await {
                Ok(true) => return Duration::ZERO,
                Ok(false) => {}
                Err(_) => tracing::error!("the pass that stores the lines of jobs panicked"),
            }

            // The lines still wait, although no new ones may arrive.
            writer.unsaved.changed.notify_one();
            RETRY
        });
    }

    /// Stores the lines that wait. Returns false if a shard is not available.
    pub(crate) async fn save(&self) -> bool {
        let _turn = self.turn.lock().await;
        // The lock is free during the appends, because jobs write lines meanwhile.
        let (flows, dropped) = {
            let mut state = self.unsaved.state.lock();
            (
                state.flows.keys().cloned().collect::<Vec<_>>(),
                std::mem::take(&mut state.dropped),
            )
        };
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "lines of jobs dropped: their shards are not available"
            );
        }

        let saved = futures::stream::iter(flows).map(|flow| self.save_flow(flow));
        saved
            .buffer_unordered(MAX_APPENDS)
            .fold(true, async |all, saved| all && saved)
            .await
    }

    /// Stores the lines of one flow; the appends follow each other.
    async fn save_flow(&self, flow: InstanceKey) -> bool {
        loop {
            let next = self
                .unsaved
                .state
                .lock()
                .flows
                .get(&flow)
                .and_then(|flow| flow.chunks.front().cloned());
            let Some(chunk) = next else { return true };
            let append = JobLogAppend {
                instance: flow.clone(),
                chunk: chunk.clone(),
                max_lines: self.max_lines,
            };

            // Before the append: if the shard moved, its new owner has the flow, and the lines
            // cannot be stored here.
            let is_local = self.runtime.reader(&flow).is_some();
            match self.runtime.append_job_log(append).await {
                Err(_) if is_local => return false,
                Ok(()) | Err(_) => self.unsaved.state.lock().settle(&flow, &chunk),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, EffectName, Timestamp};
    use orlog_testkit::provider_suite::item;

    use super::*;

    fn job(flow: &str) -> WorkItem {
        let mut item = item(&EffectName::new("job.t").unwrap(), 1);
        item.instance.correlation = CorrelationId::new(flow).unwrap();
        item
    }

    fn lines(texts: impl IntoIterator<Item = usize>) -> Vec<LogLine> {
        let at = Timestamp::from_millis(1);
        texts
            .into_iter()
            .map(|text| LogLine {
                at,
                text: text.to_string(),
            })
            .collect()
    }

    fn first(unsaved: &Unsaved, flow: &str) -> JobLogChunk {
        unsaved.flows[&job(flow).instance].chunks[0].clone()
    }

    #[test]
    fn flow_with_the_most_lines_loses_its_oldest_ones() {
        let mut unsaved = Unsaved::default();
        unsaved.add(&job("a"), &lines(0..10));
        unsaved.add(&job("z"), &lines(0..MAX_UNSAVED));
        assert_eq!(first(&unsaved, "a").lines, lines(0..10));
        assert_eq!(
            first(&unsaved, "z").lines[0],
            lines([JobLogChunk::MAX_LINES])[0]
        );
        assert_eq!(
            (unsaved.dropped, unsaved.lines),
            (
                JobLogChunk::MAX_LINES,
                MAX_UNSAVED + 10 - JobLogChunk::MAX_LINES
            )
        );
    }

    #[test]
    fn long_lines_are_limited_by_their_size() {
        let mut unsaved = Unsaved::default();
        let line = LogLine {
            at: Timestamp::from_millis(1),
            text: "x".repeat(MAX_UNSAVED_BYTES / 4),
        };
        unsaved.add(&job("a"), &lines(0..10));
        for _ in 0..6 {
            unsaved.add(&job("z"), std::slice::from_ref(&line));
        }
        assert_eq!(first(&unsaved, "a").lines, lines(0..10));
        assert!(unsaved.dropped > 0 && unsaved.bytes <= MAX_UNSAVED_BYTES);
        for flow in ["a", "z"] {
            unsaved.remove(&job(flow).instance, usize::MAX);
        }
        assert_eq!(
            (unsaved.lines, unsaved.bytes, unsaved.flows.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn stored_lines_are_removed_once_also_if_they_were_dropped_meanwhile() {
        let mut unsaved = Unsaved::default();
        unsaved.add(&job("a"), &lines(0..2));
        let stored = first(&unsaved, "a");
        unsaved.add(&job("a"), &lines([2]));
        unsaved.settle(&job("a").instance, &stored);
        assert_eq!(first(&unsaved, "a").lines, lines([2]));
        unsaved.settle(&job("a").instance, &stored);
        assert_eq!((first(&unsaved, "a").lines, unsaved.lines), (lines([2]), 1));
        let stored = first(&unsaved, "a");
        unsaved.settle(&job("a").instance, &stored);
        assert!(unsaved.flows.is_empty() && unsaved.lines == 0);
    }
}
