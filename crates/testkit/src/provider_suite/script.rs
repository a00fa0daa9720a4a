//! Script of an upstream: planned responses, and what it has received.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

/// Response of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamResponse {
    /// Executes the effect and returns this result.
    Done(Value),
    /// Rejects permanently.
    Rejected,
    /// Throttles the call.
    Throttled(Option<Duration>),
    /// Is unavailable.
    Unavailable,
    /// Sends no response: the upstream awaits [`UpstreamScript::silence`].
    NoResponse,
    /// Executes the effect with this result, and sends no response, as [`UpstreamResponse::NoResponse`].
    DoneWithoutResponse(Value),
}

/// Response of an upstream to a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeResponse {
    /// The effect was executed with this result.
    Executed(Value),
    /// The effect was not executed.
    NotExecuted,
    /// The upstream cannot respond now.
    Unavailable,
}

/// Script of an upstream: planned responses and received calls.
#[derive(Default)]
pub struct UpstreamScript {
    responses: Mutex<VecDeque<UpstreamResponse>>,
    requested_keys: Mutex<Vec<String>>,
    /// Results of executed effects whose response was lost, by key.
    executed: Mutex<BTreeMap<String, Value>>,
    /// Number of probes that the upstream does not answer.
    pub(super) unavailable_probes: AtomicUsize,
    probes: AtomicUsize,
    pub(super) silences: AtomicUsize,
    pub(super) abandoned: AtomicUsize,
    changed: Notify,
}

impl UpstreamScript {
    /// Records the idempotency key and returns the planned response; called by the upstream. After the end
    /// of the script: success.
    pub fn next_response(&self, key: impl Into<String>) -> UpstreamResponse {
        let key = key.into();
        self.requested_keys.lock().push(key.clone());
        self.changed.notify_waiters();
        let next = self.responses.lock().pop_front();
        match next.unwrap_or(UpstreamResponse::Done(Value::Null)) {
            UpstreamResponse::DoneWithoutResponse(result) => {
                self.executed.lock().insert(key, result);
                UpstreamResponse::NoResponse
            }
            response => response,
        }
    }

    /// Returns the response to a probe; called by the upstream.
    pub fn probe(&self, key: &str) -> ProbeResponse {
        self.probes.fetch_add(1, Ordering::SeqCst);
        let left = |count: usize| count.checked_sub(1);
        if self
            .unavailable_probes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
            .is_ok()
        {
            return ProbeResponse::Unavailable;
        }
        let executed = self.executed.lock().get(key).cloned();
        executed.map_or(ProbeResponse::NotExecuted, ProbeResponse::Executed)
    }

    /// Never completes and records when it is dropped; called by the upstream.
    pub async fn silence(&self) {
        let _guard = AbandonGuard(self);
        self.silences.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        std::future::pending::<()>().await;
    }

    /// Returns the keys of all calls so far.
    pub fn requested_keys(&self) -> Vec<String> {
        self.requested_keys.lock().clone()
    }

    /// Returns the number of probes so far.
    pub fn probes(&self) -> usize {
        self.probes.load(Ordering::SeqCst)
    }

    pub(super) fn set(&self, responses: impl IntoIterator<Item = UpstreamResponse>) {
        self.responses.lock().extend(responses);
    }

    pub(super) async fn until(&self, fact: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if fact(self) {
                return;
            }
            changed.await;
        }
    }
}

struct AbandonGuard<'a>(&'a UpstreamScript);

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        self.0.abandoned.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}
