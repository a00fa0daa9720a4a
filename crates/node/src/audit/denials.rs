//! Counters of denied requests: requests that failed authentication or authorization.
//!
//! Anyone can send such requests, so they are counted, not recorded one by one. The number of rows
//! is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;

use orlog_model::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use super::record::AuditOutcome;

/// Maximum number of rows of one period. Further requests are counted in one row.
const MAX_ROWS: usize = 256;
/// Route of the row for the requests without a row of their own.
const OTHER: &str = "other";

/// Kind of denied requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Denial {
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

/// Number and time of denied requests.
#[derive(Clone, Copy, Debug)]
struct Count {
    requests: u64,
    first: Timestamp,
    last: Timestamp,
}

/// Record of the denied requests of one kind in one period.
#[derive(Debug, Serialize)]
struct DenialRecord<'a> {
    id: uuid::Uuid,
    /// Time of the last request.
    at: String,
    /// Time of the first request.
    since: String,
    /// Number of requests.
    count: u64,
    #[serde(flatten)]
    denial: &'a Denial,
    outcome: AuditOutcome,
    node: &'a str,
}

/// Denied requests of the current period.
#[derive(Debug)]
pub(super) struct Denials {
    node: String,
    rows: Mutex<BTreeMap<Denial, Count>>,
}

impl Denials {
    pub(super) fn new(node: String) -> Self {
        Self {
            node,
            rows: Mutex::default(),
        }
    }

    /// Counts a request.
    pub(super) fn add(&self, denial: Denial, now: Timestamp) {
        let mut rows = self.rows.lock();

        // Every client can cause denials, from any number of addresses; the rest is counted
        // together.
        let has_row = rows.len() < MAX_ROWS || rows.contains_key(&denial);
        let other = || Denial {
            route: OTHER.to_owned(),
            status: 0,
            code: None,
            user: None,
            source: None,
        };
        let row = rows.entry(if has_row { denial } else { other() });
        let count = row.or_insert(Count {
            requests: 0,
            first: now,
            last: now,
        });

        count.requests += 1;
        count.last = now;
    }

    /// Returns the records of the period and starts the next one.
    pub(super) fn take(&self) -> Vec<String> {
        // The lock is free while the records are encoded, because requests add denials meanwhile.
        let rows = std::mem::take(&mut *self.rows.lock());

        rows.iter()
            .map(|(denial, count)| {
                let record = DenialRecord {
                    id: uuid::Uuid::now_v7(),
                    at: count.last.to_string(),
                    since: count.first.to_string(),
                    count: count.requests,
                    denial,
                    outcome: AuditOutcome::Rejected,
                    node: &self.node,
                };
                serde_json::to_string(&record).expect("a record serializes to JSON")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn denial(source: u32) -> Denial {
        let source = Some(IpAddr::from(source.to_be_bytes()));
        Denial {
            route: "POST /v1/events".to_owned(),
            status: 401,
            code: Some("OR0041"),
            user: None,
            source,
        }
    }

    #[test]
    fn denials_of_a_period_are_counted_in_a_bounded_number_of_rows() {
        let denials = Denials::new("n".to_owned());
        for number in 0..10_000 {
            denials.add(
                denial(number % 5000),
                Timestamp::from_millis(i64::from(number)),
            );
        }
        let records: Vec<Value> = denials
            .take()
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        assert_eq!(records.len(), MAX_ROWS + 1);
        assert_eq!(
            records
                .iter()
                .map(|record| record["count"].as_u64().unwrap())
                .sum::<u64>(),
            10_000
        );
        let other = records
            .iter()
            .find(|record| record["route"] == OTHER)
            .unwrap();
        assert_eq!(
            (&other["source"], &other["status"]),
            (&Value::Null, &Value::from(0))
        );
        let first = records
            .iter()
            .find(|record| record["source"] == "0.0.0.0")
            .unwrap();
        assert_eq!(
            (&first["count"], &first["code"]),
            (&Value::from(2), &Value::from("OR0041"))
        );
        assert_eq!(first["since"], Timestamp::from_millis(0).to_string());
        assert_eq!(first["at"], Timestamp::from_millis(5000).to_string());
        assert!(denials.take().is_empty());
    }
}
