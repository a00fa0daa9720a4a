//! Time of a signature: the window in which it is accepted.

use std::time::Duration;

/// Window in which a signature is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// Maximum age since `created`, and maximum time between `created` and `expires`.
    pub max_age: Duration,
    /// Maximum time by which the clock of the signer may be ahead.
    pub leeway: Duration,
}

/// Reason why a signature is outside its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// The time of its creation is in the future.
    #[error(
        "it was created {seconds}s after the time of the node; correct the clock of the client"
    )]
    Ahead {
        /// Difference in seconds.
        seconds: i64,
    },
    /// It is too old.
    #[error(
        "it is {seconds}s old, the limit is {limit}s; sign each request when you send it, and \
        check the clock of the client"
    )]
    TooOld {
        /// Age in seconds.
        seconds: i64,
        /// Maximum age in seconds.
        limit: i64,
    },
    /// Its expiry has passed.
    #[error("it expired {seconds}s ago; sign each request when you send it")]
    Expired {
        /// Time since the expiry in seconds.
        seconds: i64,
    },
    /// The time between creation and expiry is negative or too long.
    #[error("it is valid for {seconds}s, but a signature is valid for 1s to {limit}s")]
    Lifetime {
        /// Time between creation and expiry in seconds.
        seconds: i64,
        /// Maximum time in seconds.
        limit: i64,
    },
}

impl TimeWindow {
    /// Checks the times of a signature, in seconds since 1970.
    ///
    /// # Errors
    /// The reason why it is not valid at `now`.
    pub fn check(&self, created: i64, expires: i64, now: i64) -> Result<(), TimeError> {
        let limit = seconds(self.max_age);
        let lifetime = expires.saturating_sub(created);
        let age = now.saturating_sub(created);

        // The first reason wins. A request that is too old is reported as such, also if it has
        // expired: the clock of the client may be wrong.
        if age < -seconds(self.leeway) {
            Err(TimeError::Ahead {
                seconds: age.saturating_neg(),
            })
        } else if age > limit {
            Err(TimeError::TooOld {
                seconds: age,
                limit,
            })
        } else if !(1..=limit).contains(&lifetime) {
            Err(TimeError::Lifetime {
                seconds: lifetime,
                limit,
            })
        } else if now > expires {
            Err(TimeError::Expired {
                seconds: now.saturating_sub(expires),
            })
        } else {
            Ok(())
        }
    }

    /// Returns the longest time for which a signature that is accepted now can be accepted again.
    /// Its times are whole seconds: it is accepted until its last second has passed.
    #[must_use]
    pub fn replay_time(&self) -> Duration {
        self.max_age + self.leeway + Duration::from_secs(1)
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: TimeWindow = TimeWindow {
        max_age: Duration::from_mins(5),
        leeway: Duration::from_secs(30),
    };

    #[test]
    fn signature_is_accepted_within_its_window_only() {
        let check = |created, expires| WINDOW.check(created, expires, 1000);
        for (created, expires) in [
            (1000, 1300),
            (1030, 1330),
            (700, 1000),
            (1000, 1001),
            (999, 1000),
        ] {
            assert_eq!(check(created, expires), Ok(()), "{created} {expires}");
        }
        assert_eq!(check(1031, 1331), Err(TimeError::Ahead { seconds: 31 }));
        assert_eq!(check(1600, 1900), Err(TimeError::Ahead { seconds: 600 }));
        assert_eq!(
            check(400, 700),
            Err(TimeError::TooOld {
                seconds: 600,
                limit: 300
            })
        );
        assert_eq!(
            check(699, 999),
            Err(TimeError::TooOld {
                seconds: 301,
                limit: 300
            })
        );
        assert_eq!(check(900, 999), Err(TimeError::Expired { seconds: 1 }));
        for expires in [1000, 1301, 0, i64::MIN, i64::MAX] {
            assert!(
                matches!(check(1000, expires), Err(TimeError::Lifetime { .. })),
                "{expires}"
            );
        }
        assert!(check(i64::MIN, 1000).is_err() && check(i64::MAX, 1000).is_err());
    }

    #[test]
    fn accepted_signature_is_rejected_after_the_replay_time() {
        // Created as far ahead as possible, with the longest lifetime.
        let (now, created, expires) = (1000, 1030, 1330);
        let after = now + seconds(WINDOW.replay_time());
        assert!(
            WINDOW.check(created, expires, now).is_ok()
                && WINDOW.check(created, expires, after - 1).is_ok()
        );
        // A nonce that is forgotten after the replay time, to the millisecond, belongs to a signature that is rejected.
        assert!(WINDOW.check(created, expires, after).is_err());
    }
}
