//! Numbers that the pods of a cluster draw from common counters: a later number is larger, on
//! whichever pod it was drawn.
//!
//! The counters are records of the bucket of the leases. They are written with compare-and-set, so
//! no number is drawn twice.

use super::bucket::{Bucket, PutResult};
use super::connection::Connection;
use crate::Error;

/// Maximum number of attempts while other pods draw from the same counter.
const ATTEMPTS: usize = 32;

/// Counters of a cluster.
pub struct SharedNumbers {
    bucket: Bucket,
}

/// Value of a counter.
struct Counter {
    /// Sequence of its record; 0: it has none.
    revision: u64,
    last: u64,
}

impl SharedNumbers {
    /// Opens the bucket of the leases.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn open(connection: &Connection, bucket: &str) -> Result<Self, Error> {
        let bucket = Bucket::open(connection, bucket).await?;
        Ok(Self { bucket })
    }

    /// Returns the last number of a counter; 0: none was drawn.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn last(&self, counter: &str) -> Result<u64, Error> {
        Ok(self.read(counter).await?.last)
    }

    /// Draws a number that is larger than `seen` and than all numbers that were drawn from this
    /// counter.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request. A number may then be left out.
    pub async fn next(&self, counter: &str, seen: u64) -> Result<u64, Error> {
        self.write(counter, |last| last.max(seen).saturating_add(1))
            .await
    }

    /// Ensures that numbers drawn from now on are larger than `seen`.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn raise(&self, counter: &str, seen: u64) -> Result<(), Error> {
        self.write(counter, |last| last.max(seen)).await.map(drop)
    }

    /// Replaces the last number, and returns the new one.
    async fn write(
        &self,
        counter: &str,
        replace: impl Fn(u64) -> u64 + Send,
    ) -> Result<u64, Error> {
        for _ in 0..ATTEMPTS {
            let Counter { revision, last } = self.read(counter).await?;
            let next = replace(last);
            // `raise` to a number that was passed already writes nothing.
            if next == last {
                return Ok(last);
            }

            let body = next.to_string().into_bytes();
            let put = self
                .bucket
                .put(&key(counter), body, Some(revision), None)
                .await?;
            match put {
                PutResult::Done(_) => return Ok(next),
                PutResult::Conflict => {}
            }
        }
        Err(Error::Unavailable(format!(
            "the counter {counter:?} changes constantly"
        )))
    }

    async fn read(&self, counter: &str) -> Result<Counter, Error> {
        let record = self.bucket.last(&key(counter)).await?;
        let Some((revision, body)) = record else {
            return Ok(Counter {
                revision: 0,
                last: 0,
            });
        };

        // A counter that cannot be read starts again, above the numbers that its pods have seen.
        let number = std::str::from_utf8(&body).ok();
        let last = number.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Counter { revision, last })
    }
}

fn key(counter: &str) -> String {
    format!("number.{}", crate::subject::encode_token(counter))
}
