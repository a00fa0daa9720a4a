//! Quotas of one caller, so that a caller cannot use a whole limit that all callers share.
//!
//! A caller is the authenticated user, or the address of a request without authentication. The
//! quotas are the rate of requests, the requests in progress, the requests that wait for jobs or
//! changes, the CPU time of queries, and a share of the bytes of bodies and of the concurrent
//! reads. The table of callers is bounded: beyond [`MAX_CALLERS`], all further callers are counted
//! as one.

mod leaky_bucket;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::Semaphore;

use super::problem::{Code, Problem};
use leaky_bucket::{LeakyBucket, RateLimit};
use orlog_node::config::HttpServerConfig;

/// Bytes of a body per permit of a budget.
pub(crate) const BYTES_PER_PERMIT: usize = 4 << 10;
/// Maximum number of callers that are counted apart.
const MAX_CALLERS: usize = 10_000;
/// Interval between two removals of callers from a full table.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Period of the quota of query time.
const QUERY_PERIOD: Duration = Duration::from_mins(1);

/// Caller of a request, as far as quotas distinguish callers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    User(Arc<str>),
    Address(IpAddr),
    /// All callers that the table has no space for.
    Others,
}

/// Quota that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quota {
    RequestRate,
    Requests,
    LongPolls,
    QueryTime,
    Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QuotaLabels {
    quota: &'static str,
}

/// Limits that all callers have in common.
#[derive(Clone, Debug)]
struct QuotaLimits {
    /// Rate of requests; `None`: unlimited.
    rate: Option<RateLimit>,
    requests: usize,
    long_polls: usize,
    /// CPU seconds per [`QUERY_PERIOD`]; `None`: unlimited.
    query_seconds: Option<f64>,
    /// Units of body bytes.
    bytes: usize,
    reads: usize,
}

/// Use of one caller.
#[derive(Debug)]
struct CallerUse {
    requests: usize,
    long_polls: usize,
    rate: LeakyBucket,
    query: LeakyBucket,
    budgets: CallerBudgets,
}

/// Shares of one caller of the budgets of all requests.
#[derive(Clone, Debug)]
pub(crate) struct CallerBudgets {
    key: CallerKey,
    pub(crate) bytes: Arc<Semaphore>,
    pub(crate) reads: Arc<Semaphore>,
}

#[derive(Debug)]
struct Table {
    callers: HashMap<CallerKey, CallerUse>,
    swept: Option<Instant>,
}

/// Quotas of all callers.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    limits: Arc<QuotaLimits>,
    table: Arc<Mutex<Table>>,
    rejected: Family<QuotaLabels, Counter>,
}

/// Request in progress of a caller; ends on drop.
pub(crate) struct RequestPermit {
    quotas: Quotas,
    pub(crate) budgets: CallerBudgets,
}

/// Request of a caller that waits; ends on drop.
pub(crate) struct LongPollPermit(Option<(Quotas, CallerKey)>);

/// Measures the CPU time of a query and charges the caller.
#[derive(Default)]
pub(crate) struct QueryTimer(Option<(Quotas, CallerKey)>);

impl Quotas {
    /// Creates the quotas of a node with this number of connections.
    pub(crate) fn new(config: &HttpServerConfig, connections: usize) -> Self {
        let quotas = &config.per_caller;
        let rate = f64::from(quotas.max_requests_per_second);
        let largest = config.max_batch_size.max(config.max_body_size);
        let units = |bytes: u64| {
            usize::try_from(bytes)
                .unwrap_or(usize::MAX)
                .div_ceil(BYTES_PER_PERMIT)
        };
        let limits = QuotaLimits {
            rate: (rate > 0.0).then(|| RateLimit {
                per_second: rate,
                burst: f64::from(quotas.request_burst),
            }),
            // One caller leaves a quarter of the connections to others, whatever the configuration
            // permits.
            requests: quotas
                .max_concurrent_requests
                .min(connections - connections / 4),
            long_polls: quotas.max_long_polls.min(connections / 2),
            query_seconds: Some(quotas.max_query_time_per_minute.as_secs_f64())
                .filter(|limit| *limit > 0.0),
            // At least one body of the maximum size, which the caller could otherwise never send.
            bytes: share(units(config.max_bytes_in_flight), quotas.max_share).max(units(largest)),
            reads: share(config.max_concurrent_reads, quotas.max_share),
        };

        let table = Table {
            callers: HashMap::new(),
            swept: None,
        };
        // Each quota has a counter from the start: a rate over a series that appears with its first
        // rejection misses that rejection.
        let rejected: Family<QuotaLabels, Counter> = Family::default();

        for quota in Quota::ALL {
            let _zero = rejected.get_or_create(&QuotaLabels {
                quota: quota.as_str(),
            });
        }

        Self {
            limits: Arc::new(limits),
            table: Arc::new(Mutex::new(table)),
            rejected,
        }
    }

    /// Returns the rejected requests by quota.
    pub(crate) fn rejected(&self) -> Family<QuotaLabels, Counter> {
        self.rejected.clone()
    }

    /// Begins a request of a caller.
    ///
    /// # Errors
    /// If the caller sends too many requests, or has too many in progress.
    pub(crate) fn begin(&self, key: CallerKey, now: Instant) -> Result<RequestPermit, Problem> {
        let limits = &self.limits;
        let mut table = self.table.lock();
        let caller = table.caller(key, limits, now);
        // Before the rate, so that a request that is rejected here does not use it up.
        if caller.requests >= limits.requests {
            let limit = limits.requests;
            let detail = format!(
                "the caller has {limit} requests in progress \
                 (http.per_caller.max_concurrent_requests)"
            );
            return Err(self.reject(Quota::Requests, detail, Duration::ZERO));
        }
        if let Some(rate) = limits.rate
            && let Err(wait) = caller.rate.add(1.0, rate, now)
        {
            let detail = format!(
                "the caller sends more than {} requests per second \
                 (http.per_caller.max_requests_per_second)",
                rate.per_second
            );
            return Err(self.reject(Quota::RequestRate, detail, wait));
        }

        caller.requests += 1;
        Ok(RequestPermit {
            quotas: self.clone(),
            budgets: caller.budgets.clone(),
        })
    }

    /// Begins a message of a stream, which counts as a request of the caller.
    ///
    /// # Errors
    /// As [`Quotas::begin`].
    pub(crate) fn begin_message(
        &self,
        caller: Option<&CallerBudgets>,
    ) -> Result<Option<RequestPermit>, Problem> {
        caller
            .map(|caller| self.begin(caller.key.clone(), Instant::now()))
            .transpose()
    }

    /// Begins to wait in a request of a caller.
    ///
    /// # Errors
    /// If too many requests of the caller wait.
    pub(crate) fn begin_long_poll(
        &self,
        caller: Option<&CallerBudgets>,
    ) -> Result<LongPollPermit, Problem> {
        let Some(key) = caller.map(|caller| caller.key.clone()) else {
            return Ok(LongPollPermit(None));
        };

        let mut table = self.table.lock();
        // The request that waits is in progress, so that its entry is in the table.
        if let Some(caller) = table.callers.get_mut(&key) {
            if caller.long_polls >= self.limits.long_polls {
                let limit = self.limits.long_polls;
                let detail =
                    format!("{limit} requests of the caller wait (http.per_caller.max_long_polls)");
                return Err(self.reject(Quota::LongPolls, detail, Duration::ZERO));
            }
            caller.long_polls += 1;
        }

        Ok(LongPollPermit(Some((self.clone(), key))))
    }

    /// Returns the timer of a query of a caller.
    ///
    /// # Errors
    /// If the queries of the caller have used their CPU time.
    pub(crate) fn begin_query(
        &self,
        caller: Option<&CallerBudgets>,
        now: Instant,
    ) -> Result<QueryTimer, Problem> {
        let key = caller.map(|caller| caller.key.clone());
        let (Some(limit), Some(key)) = (self.limits.query_seconds, key) else {
            return Ok(QueryTimer(None));
        };

        let mut table = self.table.lock();
        // The cost is measured only after the query, and is then charged even beyond the limit.
        if let Some(caller) = table.callers.get_mut(&key)
            && let Err(wait) = caller.query.check(per_period(limit), now)
        {
            let detail = format!(
                "the queries of the caller used {limit} s of CPU time in a minute \
                 (http.per_caller.max_query_time_per_minute)"
            );
            return Err(self.reject(Quota::QueryTime, detail, wait));
        }

        Ok(QueryTimer(Some((self.clone(), key))))
    }

    /// Returns the problem of a body beyond the share of the caller.
    pub(crate) fn reject_bytes(&self) -> Problem {
        self.count(Quota::Bytes);
        let detail = "the bodies of this caller use its share of http.max_bytes_in_flight \
                      (http.per_caller.max_share); retry";
        Problem::new(Code::Unavailable, detail)
    }

    fn reject(&self, quota: Quota, detail: String, wait: Duration) -> Problem {
        self.count(quota);
        Problem::new(Code::QuotaExceeded, detail).with_retry_after(wait)
    }

    fn count(&self, quota: Quota) {
        self.rejected
            .get_or_create(&QuotaLabels {
                quota: quota.as_str(),
            })
            .inc();
    }

    fn charge_query(&self, key: &CallerKey, seconds: f64, now: Instant) {
        let Some(limit) = self.limits.query_seconds else {
            return;
        };
        if let Some(caller) = self.table.lock().callers.get_mut(key) {
            caller.query.charge(seconds, per_period(limit), now);
        }
    }
}

impl Quota {
    const ALL: [Self; 5] = [
        Self::RequestRate,
        Self::Requests,
        Self::LongPolls,
        Self::QueryTime,
        Self::Bytes,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Quota::RequestRate => "request_rate",
            Quota::Requests => "concurrent_requests",
            Quota::LongPolls => "long_polls",
            Quota::QueryTime => "query_time",
            Quota::Bytes => "bytes",
        }
    }
}

impl Table {
    /// Returns the use of a caller. If the table is full, removes the callers without use at most
    /// once per [`SWEEP_INTERVAL`]; if that frees no space, returns the common use of all further
    /// callers.
    fn caller(&mut self, key: CallerKey, limits: &QuotaLimits, now: Instant) -> &mut CallerUse {
        let is_full = self.callers.len() >= MAX_CALLERS && !self.callers.contains_key(&key);
        // A sweep visits all callers under the lock. Without the interval, an attacker with many
        // addresses would cause one for each request.
        if is_full
            && self
                .swept
                .is_none_or(|swept| now.duration_since(swept) >= SWEEP_INTERVAL)
        {
            self.swept = Some(now);
            self.callers
                .retain(|_, caller| !caller.is_unused(limits, now));
        }

        let is_full = is_full && self.callers.len() >= MAX_CALLERS;
        let key = if is_full { CallerKey::Others } else { key };
        self.callers
            .entry(key.clone())
            .or_insert_with(|| CallerUse::new(key, limits))
    }

    /// Reduces the use of a caller, and removes a caller without use.
    fn end(&mut self, key: &CallerKey, limits: &QuotaLimits, reduce: impl FnOnce(&mut CallerUse)) {
        let Some(caller) = self.callers.get_mut(key) else {
            return;
        };

        let now = Instant::now();
        reduce(caller);

        if caller.is_unused(limits, now) {
            self.callers.remove(key);
        }
    }
}

impl CallerUse {
    fn new(key: CallerKey, limits: &QuotaLimits) -> Self {
        let bytes = Arc::new(Semaphore::new(limits.bytes));
        let reads = Arc::new(Semaphore::new(limits.reads));
        Self {
            requests: 0,
            long_polls: 0,
            rate: LeakyBucket::default(),
            query: LeakyBucket::default(),
            budgets: CallerBudgets { key, bytes, reads },
        }
    }

    /// Returns whether a new entry would permit the same as this one.
    fn is_unused(&self, limits: &QuotaLimits, now: Instant) -> bool {
        let CallerBudgets { bytes, reads, .. } = &self.budgets;
        self.requests == 0
            // A stream outlives its request.
            && self.long_polls == 0
            && bytes.available_permits() == limits.bytes
            && reads.available_permits() == limits.reads
            && limits.rate.is_none_or(|rate| self.rate.is_empty(rate, now))
            && limits.query_seconds.is_none_or(|limit| self.query.is_empty(per_period(limit), now))
    }
}

impl RequestPermit {
    /// Ends the request without a charge.
    pub(crate) fn refund(self, now: Instant) {
        let Some(rate) = self.quotas.limits.rate else {
            return;
        };
        if let Some(caller) = self.quotas.table.lock().callers.get_mut(&self.budgets.key) {
            caller.rate.refund(1.0, rate, now);
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let Self { quotas, budgets } = self;
        quotas
            .table
            .lock()
            .end(&budgets.key, &quotas.limits, |caller| caller.requests -= 1);
    }
}

impl Drop for LongPollPermit {
    fn drop(&mut self) {
        let Some((quotas, key)) = &self.0 else { return };
        quotas
            .table
            .lock()
            .end(key, &quotas.limits, |caller| caller.long_polls -= 1);
    }
}

impl QueryTimer {
    /// Runs a query on this thread, and charges the caller for its CPU time.
    pub(crate) fn run<T>(self, query: impl FnOnce() -> T) -> T {
        // The CPU time of this thread: waits for the disk and for other threads cost the caller
        // nothing.
        let before = cpu_seconds();
        let result = query();
        if let Some((quotas, key)) = &self.0 {
            quotas.charge_query(key, cpu_seconds() - before, Instant::now());
        }
        result
    }
}

/// Returns a share of a number, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share is between 0 and the whole; its precision does not matter"
)]
fn share(whole: usize, share: f64) -> usize {
    ((whole as f64 * share) as usize).clamp(1, whole.clamp(1, Semaphore::MAX_PERMITS))
}

fn per_period(seconds: f64) -> RateLimit {
    RateLimit {
        per_second: seconds / QUERY_PERIOD.as_secs_f64(),
        burst: seconds,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "differences are measured in microseconds"
)]
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests;
