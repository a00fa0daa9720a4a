//! Sessions of users who logged in to the web UI. They are in memory: a restart ends them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::session::SessionToken;
use super::token::VerifiedToken;

/// Maximum number of sessions. A further one ends the oldest.
const MAX_SESSIONS: usize = 10_000;

/// Sessions by the hash of their id.
#[derive(Default)]
pub(super) struct WebSessions(Mutex<BTreeMap<[u8; 32], WebSession>>);

struct WebSession {
    token: VerifiedToken,
    ends_at: Instant,
}

impl WebSessions {
    /// Creates a session and returns its id.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn create(&self, token: VerifiedToken, max_age: Duration) -> anyhow::Result<String> {
        let id = SessionToken::random()?;
        let now = Instant::now();
        let mut sessions = self.0.lock();

        // Ended sessions first, before a valid one is ended for space.
        sessions.retain(|_, session| session.ends_at > now);

        if sessions.len() >= MAX_SESSIONS {
            let oldest = sessions
                .iter()
                .min_by_key(|(_, session)| session.ends_at)
                .map(|(key, _)| *key);
            oldest.and_then(|oldest| sessions.remove(&oldest));
        }

        sessions.insert(
            key(id.expose()),
            WebSession {
                token,
                ends_at: now + max_age,
            },
        );
        Ok(id.expose().to_owned())
    }

    /// Returns the token of a session that has not ended.
    pub(super) fn find(&self, id: &str) -> Option<VerifiedToken> {
        let sessions = self.0.lock();
        let session = sessions
            .get(&key(id))
            .filter(|session| session.ends_at > Instant::now());
        session.map(|session| session.token.clone())
    }

    pub(super) fn end(&self, id: &str) {
        self.0.lock().remove(&key(id));
    }
}

/// Returns the hash of an id, so that the duration of a search reveals nothing about other ids.
fn key(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Caller;

    fn token(user: &str) -> VerifiedToken {
        VerifiedToken {
            caller: Caller {
                name: Some(user.to_owned()),
                ..Caller::unauthenticated()
            },
            jti: None,
            kid: None,
        }
    }

    #[test]
    fn session_ends_at_its_maximum_age_and_at_the_log_out() {
        let sessions = WebSessions::default();
        let one = sessions
            .create(token("ada"), Duration::from_hours(1))
            .unwrap();
        let short = sessions.create(token("bob"), Duration::ZERO).unwrap();
        assert_eq!(
            sessions.find(&one).unwrap().caller.name.as_deref(),
            Some("ada")
        );
        assert!(sessions.find(&short).is_none() && sessions.find("").is_none());
        sessions.end(&one);
        assert!(sessions.find(&one).is_none());
    }

    #[test]
    fn number_of_sessions_is_bounded() {
        let sessions = WebSessions::default();
        let first = sessions
            .create(token("ada"), Duration::from_hours(1))
            .unwrap();
        let later = |_| {
            sessions
                .create(token("bob"), Duration::from_hours(2))
                .unwrap()
        };
        let others: Vec<_> = (0..MAX_SESSIONS).map(later).collect();
        assert!(sessions.find(&first).is_none() && sessions.find(&others[0]).is_some());
        assert_eq!(sessions.0.lock().len(), MAX_SESSIONS);
    }
}
