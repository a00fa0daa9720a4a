//! Summaries of frequent requests: the requests of workers of one kind in one period are one
//! record.
//!
//! A worker sends several requests for each job, and a heartbeat every few seconds. The history of
//! an instance has the result of each job; the trail has how often which worker acted. The number
//! of kinds is bounded: further requests have records of their own.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use serde::Serialize;

use super::record::{AuditOutcome, AuditRecord};
use crate::auth::Roles;

/// Maximum number of kinds in one period.
const MAX_KINDS: usize = 1024;

/// Routes of workers.
const WORKER_ROUTES: [&str; 10] = [
    "POST /v1/work/claim",
    "POST /v1/work/fetch",
    "POST /v1/work/exchange",
    "GET /v1/work/exchange",
    "POST /v1/work/jobs/{job}/claim",
    "POST /v1/work/jobs/{job}/heartbeat",
    "POST /v1/work/jobs/{job}/logs",
    "POST /v1/work/jobs/{job}/result",
    "POST /v1/runners",
    "DELETE /v1/runners/{name}",
];

/// Kind of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    route: String,
    tenant: Option<String>,
    user: Option<String>,
    key: Option<String>,
    named_user: Option<String>,
    status: u16,
    code: Option<&'static str>,
    source: Option<IpAddr>,
    forwarded_for: Option<IpAddr>,
    forwarded_by: Option<String>,
}

/// Requests of one kind.
#[derive(Debug)]
struct Requests {
    count: u64,
    role: Option<Roles>,
    first: String,
    last: String,
}

/// Record of the requests of one kind in one period.
#[derive(Debug, Serialize)]
struct SummaryRecord<'a> {
    id: uuid::Uuid,
    /// Time of the last request.
    at: &'a str,
    /// Time of the first request.
    since: &'a str,
    /// Number of requests.
    count: u64,
    user: Option<&'a str>,
    key: Option<&'a str>,
    named_user: Option<&'a str>,
    role: Option<&'a Roles>,
    tenant: Option<&'a str>,
    route: &'a str,
    outcome: AuditOutcome,
    status: u16,
    code: Option<&'static str>,
    source: Option<IpAddr>,
    forwarded_for: Option<IpAddr>,
    forwarded_by: Option<&'a str>,
    node: &'a str,
}

/// Summarized requests of the current period.
#[derive(Debug)]
pub(super) struct Summaries {
    node: String,
    kinds: Mutex<BTreeMap<Kind, Requests>>,
}

impl Summaries {
    pub(super) fn new(node: String) -> Self {
        Self {
            node,
            kinds: Mutex::default(),
        }
    }

    /// Adds a request. Returns false if it needs a record of its own: its route is not summarized,
    /// it has no response, or the period has too many kinds.
    pub(super) fn add(&self, record: &AuditRecord) -> bool {
        if !WORKER_ROUTES.contains(&record.route.as_str()) || record.status == 0 {
            return false;
        }

        let kind = Kind {
            route: record.route.clone(),
            tenant: record.tenant.clone(),
            user: record.user.clone(),
            key: record.key.clone(),
            named_user: record.named_user.clone(),
            status: record.status,
            code: record.code,
            source: record.source,
            forwarded_for: record.forwarded_for,
            forwarded_by: record.forwarded_by.clone(),
        };

        let mut kinds = self.kinds.lock();

        // Memory is bounded; no request is lost, because it gets a record of its own.
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            return false;
        }

        let requests = kinds.entry(kind).or_insert_with(|| Requests {
            count: 0,
            role: record.role.clone(),
            first: record.at.clone(),
            last: String::new(),
        });

        requests.count += 1;
        requests.last.clone_from(&record.at);
        true
    }

    /// Returns the records of the period, and starts the next one.
    pub(super) fn take(&self) -> Vec<String> {
        let kinds = std::mem::take(&mut *self.kinds.lock());
        kinds
            .iter()
            .map(|(kind, requests)| self.record(kind, requests))
            .collect()
    }

    fn record(&self, kind: &Kind, requests: &Requests) -> String {
        let record = SummaryRecord {
            id: uuid::Uuid::now_v7(),
            at: &requests.last,
            since: &requests.first,
            count: requests.count,
            user: kind.user.as_deref(),
            key: kind.key.as_deref(),
            named_user: kind.named_user.as_deref(),
            role: requests.role.as_ref(),
            tenant: kind.tenant.as_deref(),
            route: &kind.route,
            outcome: AuditOutcome::of(kind.status),
            status: kind.status,
            code: kind.code,
            source: kind.source,
            forwarded_for: kind.forwarded_for,
            forwarded_by: kind.forwarded_by.as_deref(),
            node: &self.node,
        };
        serde_json::to_string(&record).expect("a record serializes to JSON")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn record(route: &str, user: &str, status: u16) -> AuditRecord {
        let mut record = AuditRecord::of_process(route, "n".to_owned());
        record.user = Some(user.to_owned());
        record.status = status;
        record
    }

    fn taken(summaries: &Summaries) -> Vec<Value> {
        let records = summaries.take();
        records
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect()
    }

    #[test]
    fn requests_of_a_worker_in_one_period_are_one_record() {
        let summaries = Summaries::new("n".to_owned());
        let heartbeat = "POST /v1/work/jobs/{job}/heartbeat";
        for _ in 0..1000 {
            assert!(summaries.add(&record(heartbeat, "w-1", 200)));
        }
        assert!(summaries.add(&record(heartbeat, "w-1", 409)));
        assert!(summaries.add(&record(heartbeat, "w-2", 200)));
        let records = taken(&summaries);
        assert_eq!(records.len(), 3);
        let first = &records[0];
        assert_eq!(
            (&first["user"], &first["count"], &first["outcome"]),
            (
                &Value::from("w-1"),
                &Value::from(1000),
                &Value::from("succeeded")
            )
        );
        assert_eq!(taken(&summaries).len(), 0);
    }

    #[test]
    fn other_requests_and_those_without_a_response_have_their_own_records() {
        let summaries = Summaries::new("n".to_owned());
        assert!(!summaries.add(&record("POST /v1/events", "ada", 202)));
        assert!(!summaries.add(&record("POST /v1/work/claim", "w-1", 0)));
    }

    #[test]
    fn number_of_kinds_is_bounded_and_further_ones_have_their_own_records() {
        let summaries = Summaries::new("n".to_owned());
        let added = (0..MAX_KINDS + 5)
            .filter(|number| {
                summaries.add(&record("POST /v1/work/claim", &format!("w-{number}"), 200))
            })
            .count();
        assert_eq!(added, MAX_KINDS);
    }
}
