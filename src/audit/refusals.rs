//! Counters of refused requests: requests that failed authentication or authorization.
//!
//! Anyone can send such requests, so they are counted, not recorded one by one. The number of rows is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use orlog_model::Timestamp;
use serde::Serialize;

use super::record::AuditOutcome;

/// Maximum number of rows of one period. Further requests are counted in one row.
const MAX_ROWS: usize = 256;
/// Route of the row for the requests without a row of their own.
const OTHER: &str = "other";

/// Kind of refused requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Refusal {
    /// Route, for example `POST /v1/events`; `other` for requests without a row of their own.
    pub route: String,
    /// HTTP status; 0 for `other`.
    pub status: u16,
    /// Code of the problem.
    pub code: Option<&'static str>,
    /// User name; `None` if the user is not authenticated.
    pub user: Option<String>,
    /// Source address of the connection.
    pub source: Option<IpAddr>,
}

/// Number and time of refused requests.
#[derive(Clone, Copy, Debug)]
struct Count {
    count: u64,
    first: Timestamp,
    last: Timestamp,
}

/// Record of the refused requests of one kind in one period.
#[derive(Debug, Serialize)]
struct RefusalRecord<'a> {
    id: uuid::Uuid,
    /// Time of the last request.
    at: String,
    /// Time of the first request.
    since: String,
    /// Number of requests.
    count: u64,
    #[serde(flatten)]
    refusal: &'a Refusal,
    outcome: AuditOutcome,
    node: &'a str,
}

/// Refused requests of the current period.
#[derive(Debug)]
pub(super) struct Refusals {
    node: String,
    rows: Mutex<BTreeMap<Refusal, Count>>,
}

impl Refusals {
    pub(super) fn new(node: String) -> Self {
        Self { node, rows: Mutex::default() }
    }

    /// Counts a request.
    pub(super) fn add(&self, refusal: Refusal, now: Timestamp) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let has_row = rows.len() < MAX_ROWS || rows.contains_key(&refusal);
        let other = || Refusal { route: OTHER.to_owned(), status: 0, code: None, user: None, source: None };
        let row = rows.entry(if has_row { refusal } else { other() });
        let count = row.or_insert(Count { count: 0, first: now, last: now });
        (count.count, count.last) = (count.count + 1, now);
    }

    /// Returns the records of the period and starts the next one.
    pub(super) fn take(&self) -> Vec<String> {
        let rows = std::mem::take(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner));
        let record = |(refusal, Count { count, first, last }): (&Refusal, &Count)| {
            let record = RefusalRecord {
                id: uuid::Uuid::now_v7(),
                at: last.to_string(),
                since: first.to_string(),
                count: *count,
                refusal,
                outcome: AuditOutcome::Rejected,
                node: &self.node,
            };
            serde_json::to_string(&record).expect("a record serializes to JSON")
        };
        rows.iter().map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn refusal(source: u32) -> Refusal {
        let source = Some(IpAddr::from(source.to_be_bytes()));
        Refusal { route: "POST /v1/events".to_owned(), status: 401, code: Some("OR0041"), user: None, source }
    }

    #[test]
    fn refusals_of_a_period_are_counted_in_a_bounded_number_of_rows() {
        let refusals = Refusals::new("n".to_owned());
        for number in 0..10_000 {
            refusals.add(refusal(number % 5000), Timestamp::from_millis(i64::from(number)));
        }
        let records: Vec<Value> =
            refusals.take().iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        assert_eq!(records.len(), MAX_ROWS + 1);
        assert_eq!(records.iter().map(|record| record["count"].as_u64().unwrap()).sum::<u64>(), 10_000);
        let other = records.iter().find(|record| record["route"] == OTHER).unwrap();
        assert_eq!((&other["source"], &other["status"]), (&Value::Null, &Value::from(0)));
        let first = records.iter().find(|record| record["source"] == "0.0.0.0").unwrap();
        assert_eq!((&first["count"], &first["code"]), (&Value::from(2), &Value::from("OR0041")));
        assert_eq!(first["since"], Timestamp::from_millis(0).to_string());
        assert_eq!(first["at"], Timestamp::from_millis(5000).to_string());
        assert!(refusals.take().is_empty());
    }
}
