//! Trends: changes of counters within the last minutes, for checks that need rates.
//!
//! The node samples its counters in the background; nothing is added to the path of an event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{DefinitionTotals, Runtime};
use orlog_model::{Clock, SagaName, SteadyTime};
use orlog_store::BOUNDS_SECONDS;
use parking_lot::Mutex;

use crate::background::BackgroundTasks;

/// Window of the trends.
pub(crate) const WINDOW: Duration = Duration::from_mins(5);
/// Samples within a window.
const SAMPLES: u32 = 60;
/// Duration above which an fsync is slow: a bound of the histogram.
pub(crate) const SLOW_SYNC_SECONDS: f64 = 0.1;

/// Samples of the counters of a node.
pub struct Trends {
    runtime: Arc<Runtime>,
    clock: Arc<dyn Clock>,
    window: Duration,
    start_offset: i64,
    samples: Mutex<VecDeque<Sample>>,
}

/// Counters at one point in time.
struct Sample {
    at: SteadyTime,
    clock_offset: i64,
    tenants: BTreeMap<String, u64>,
    definitions: BTreeMap<(SagaName, u32), DefinitionTotals>,
    own_inputs: BTreeMap<SagaName, u64>,
    dead_letters: BTreeMap<&'static str, u64>,
    fsyncs: BTreeMap<u16, Fsyncs>,
}

/// Syncs of the journal of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fsyncs {
    pub(crate) all: u64,
    pub(crate) slow: u64,
}

/// Changes of the counters since the oldest sample of the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trend {
    /// Time since the oldest sample.
    pub(crate) elapsed: Duration,
    /// Time by which the wall clock was set, in milliseconds.
    pub(crate) clock_jump_ms: i64,
    /// Transitions by tenant.
    pub(crate) tenants: BTreeMap<String, u64>,
    /// Instances by saga and version.
    pub(crate) definitions: BTreeMap<(SagaName, u32), DefinitionTotals>,
    /// Inputs that each saga sent to itself.
    pub(crate) own_inputs: BTreeMap<SagaName, u64>,
    /// Dead letters by reason.
    pub(crate) dead_letters: BTreeMap<&'static str, u64>,
    /// Syncs by shard.
    pub(crate) fsyncs: BTreeMap<u16, Fsyncs>,
}

impl Trends {
    pub(crate) fn new(runtime: Arc<Runtime>, clock: Arc<dyn Clock>, window: Duration) -> Self {
        let start_offset = clock_offset(&*clock);
        let trends = Self {
            runtime,
            clock,
            window,
            start_offset,
            samples: Mutex::default(),
        };

        trends.add_sample();
        trends
    }

    /// Samples the counters periodically until the node stops.
    pub(crate) fn run_in(self: &Arc<Self>, background: &BackgroundTasks) {
        let interval = self.window / SAMPLES;
        background.repeat("trends", self, interval, move |trends| async move {
            trends.add_sample();
            interval
        });
    }

    /// Returns the time by which the wall clock was set since the start, in milliseconds.
    pub fn clock_offset_ms(&self) -> i64 {
        clock_offset(&*self.clock).saturating_sub(self.start_offset)
    }

    /// Returns the changes within the window.
    pub(crate) fn read(&self) -> Trend {
        let now = self.sample();
        let samples = self.samples.lock();
        samples
            .front()
            .map_or_else(Trend::default, |first| now.since(first))
    }

    fn add_sample(&self) {
        let sample = self.sample();
        let mut samples = self.samples.lock();

        // The oldest sample of the window stays: `read` compares with it.
        while samples
            .front()
            .is_some_and(|first| sample.at.duration_since(first.at) > self.window)
        {
            samples.pop_front();
        }

        samples.push_back(sample);
    }

    fn sample(&self) -> Sample {
        let metrics = self.runtime.metrics();
        let fsyncs = self.runtime.numbered_readers().map(|(shard, reader)| {
            let fsync = reader.stats().fsync;
            // The buckets above this bound count the slow syncs.
            let fast = BOUNDS_SECONDS.partition_point(|bound| *bound <= SLOW_SYNC_SECONDS);

            (
                shard,
                Fsyncs {
                    all: fsync.count(),
                    slow: fsync.counts[fast..].iter().sum(),
                },
            )
        });

        Sample {
            at: self.clock.steady(),
            clock_offset: self.clock_offset_ms(),
            tenants: metrics.tenant_transitions(),
            definitions: metrics.definition_totals(),
            own_inputs: metrics.own_inputs(),
            dead_letters: metrics.dead_letters_by_reason(),
            fsyncs: fsyncs.collect(),
        }
    }
}

/// Returns the difference between the wall clock and the steady clock.
fn clock_offset(clock: &dyn Clock) -> i64 {
    clock
        .now()
        .as_millis()
        .saturating_sub(clock.steady().as_millis())
}

impl Sample {
    fn since(self, first: &Self) -> Trend {
        Trend {
            elapsed: self.at.duration_since(first.at),
            clock_jump_ms: self.clock_offset.saturating_sub(first.clock_offset),
            tenants: changes(self.tenants, &first.tenants, |now, then| {
                now.saturating_sub(*then)
            }),
            definitions: changes(self.definitions, &first.definitions, |now, then| {
                DefinitionTotals {
                    started: now.started.saturating_sub(then.started),
                    completed: now.completed.saturating_sub(then.completed),
                    failed: now.failed.saturating_sub(then.failed),
                    cancelled: now.cancelled.saturating_sub(then.cancelled),
                }
            }),
            own_inputs: changes(self.own_inputs, &first.own_inputs, |now, then| {
                now.saturating_sub(*then)
            }),
            dead_letters: changes(self.dead_letters, &first.dead_letters, |now, then| {
                now.saturating_sub(*then)
            }),
            // A shard that was opened again starts at 0.
            fsyncs: changes(self.fsyncs, &first.fsyncs, |now, then| Fsyncs {
                all: now.all.saturating_sub(then.all),
                slow: now.slow.saturating_sub(then.slow),
            }),
        }
    }
}

/// Returns the change of each value; a new value counts from its default.
fn changes<K: Ord, V: Default>(
    now: BTreeMap<K, V>,
    then: &BTreeMap<K, V>,
    subtract: impl Fn(&V, &V) -> V,
) -> BTreeMap<K, V> {
    now.into_iter()
        .map(|(key, value)| {
            let change = subtract(&value, then.get(&key).unwrap_or(&V::default()));
            (key, change)
        })
        .collect()
}
