//! Boards of the other pods, as far as they have jobs of key-sharded tenants: what this pod has
//! received from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use orlog_bus::membership::Pod;
use orlog_effect::worker::{ClaimRequest, WaitingJobs};
use orlog_model::TenantId;
use orlog_signature::KeyId;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Time after the last request for jobs of a tenant after which the boards of the other pods are
/// not followed any more.
const IDLE: Duration = Duration::from_mins(1);
/// Age after which the credentials of a newer request replace those with which the boards are
/// followed.
const CREDENTIALS_AGE: Duration = Duration::from_secs(5);
/// Maximum number of requests for jobs of a tenant that wait for a response of one pod. The others
/// wait for their turn.
const MAX_REQUESTS: usize = 4;

/// Boards of the other pods, by tenant.
#[derive(Default)]
pub(crate) struct OtherBoards(Mutex<BTreeMap<TenantId, Arc<TenantBoards>>>);

/// Boards of the other pods, as far as they have jobs of one tenant.
pub(crate) struct TenantBoards {
    pub(crate) tenant: TenantId,
    state: Mutex<TenantState>,
    /// Changes when a board has new jobs.
    pub(crate) arrivals: watch::Sender<u64>,
}

#[derive(Default)]
struct TenantState {
    /// The last request for jobs; its credentials follow the boards.
    last: Option<LastRequest>,
    /// By the name of the pod.
    boards: BTreeMap<String, OtherBoard>,
    /// Number of requests that have taken jobs: it decides which board is first.
    turn: usize,
}

struct LastRequest {
    credentials: Credentials,
    /// Time of the credentials.
    since: Instant,
    /// Time of the request.
    at: Instant,
}

/// Credentials of a worker.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// Headers of its request.
    pub(crate) headers: HeaderMap,
    /// Key that signed the request.
    pub(crate) key: Option<KeyId>,
}

struct OtherBoard {
    pod: Pod,
    waiting: Vec<WaitingJobs>,
    requests: Arc<Semaphore>,
}

/// Board that a request takes jobs from.
pub(crate) enum Source {
    Own,
    Other(Pod, Arc<Semaphore>),
}

impl OtherBoards {
    /// Returns the boards of a tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<TenantBoards> {
        let mut tenants = self.0.lock();
        let boards = tenants.entry(tenant.clone()).or_insert_with(|| {
            Arc::new(TenantBoards {
                tenant: tenant.clone(),
                state: Mutex::default(),
                arrivals: watch::Sender::new(0),
            })
        });

        Arc::clone(boards)
    }
}

impl TenantBoards {
    /// Notes a request for jobs, and returns the names of the pods whose boards are not followed
    /// yet; the caller must follow them. `credentials` are those of the request.
    pub(crate) fn note_request(
        &self,
        pods: Vec<Pod>,
        credentials: impl FnOnce() -> Credentials,
    ) -> Vec<String> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let is_recent = state
            .last
            .as_ref()
            .is_some_and(|last| now.duration_since(last.since) < CREDENTIALS_AGE);

        // The headers are copied every few seconds only, not for each request of a busy worker.
        match &mut state.last {
            Some(last) if is_recent => last.at = now,
            last => {
                *last = Some(LastRequest {
                    credentials: credentials(),
                    since: now,
                    at: now,
                });
            }
        }

        let mut added = Vec::new();
        for pod in pods {
            if state.boards.contains_key(&pod.name) {
                continue;
            }

            added.push(pod.name.clone());
            let board = OtherBoard {
                pod: pod.clone(),
                waiting: Vec::new(),
                requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            };
            state.boards.insert(pod.name, board);
        }

        added
    }

    /// Returns the credentials with which a board is followed; `None`, and removes the board, if no
    /// worker has asked for jobs for some time.
    pub(crate) fn credentials(&self, pod: &str) -> Option<Credentials> {
        let mut state = self.state.lock();
        let last = state.last.as_ref();
        let found = last
            .filter(|last| last.at.elapsed() < IDLE)
            .map(|last| last.credentials.clone());

        if found.is_none() {
            // Under the lock of the decision, so that the next request starts another task for the
            // board.
            state.boards.remove(pod);
        }
        found
    }

    /// Removes the board of a pod that has left.
    pub(crate) fn remove(&self, pod: &str) {
        self.state.lock().boards.remove(pod);
    }

    /// Returns the boards that have jobs for a request. Each request begins at another board.
    pub(crate) fn sources(&self, request: &ClaimRequest) -> Vec<Source> {
        let mut state = self.state.lock();
        let mut sources = vec![Source::Own];
        for board in state.boards.values() {
            if board.has_jobs(request) {
                let requests = Arc::clone(&board.requests);
                sources.push(Source::Other(board.pod.clone(), requests));
            }
        }

        let first = state.turn % sources.len();
        state.turn = state.turn.wrapping_add(1);
        sources.rotate_left(first);
        sources
    }

    /// Returns whether the board of a pod has jobs for a request.
    pub(crate) fn has_jobs(&self, pod: &str, request: &ClaimRequest) -> bool {
        let state = self.state.lock();
        let board = state.boards.get(pod);
        board.is_some_and(|board| board.has_jobs(request))
    }

    /// Removes the jobs of a board that a request would take: it has no more of them.
    pub(crate) fn emptied(&self, pod: &str, request: &ClaimRequest) {
        if let Some(board) = self.state.lock().boards.get_mut(pod) {
            board.waiting.retain(|waiting| !waiting.is_for(request));
        }
    }

    /// Sets the jobs that wait on the board of a pod.
    pub(crate) fn set(&self, pod: Pod, waiting: Vec<WaitingJobs>) {
        let has_jobs = !waiting.is_empty();
        // A board that was removed meanwhile is not added again: no task would follow it.
        if let Some(board) = self.state.lock().boards.get_mut(&pod.name) {
            board.pod = pod;
            board.waiting = waiting;
        }

        if has_jobs {
            self.arrivals
                .send_modify(|number| *number = number.wrapping_add(1));
        }
    }
}

impl OtherBoard {
    fn has_jobs(&self, request: &ClaimRequest) -> bool {
        self.waiting.iter().any(|waiting| waiting.is_for(request))
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::EffectName;
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Pod {
        Pod {
            name: name.to_owned(),
            incarnation: uuid::Uuid::nil(),
            url: String::new(),
            draining: false,
            node_keys: Vec::new(),
        }
    }

    fn request(worker: &str) -> ClaimRequest {
        ClaimRequest {
            tenant: TenantId::new("acme").unwrap(),
            effects: vec![EffectName::new("job.t").unwrap()],
            worker: worker.to_owned(),
            probes: false,
            labels: BTreeMap::new(),
            capacity: None,
        }
    }

    /// Returns jobs for every runner, or for the one with this name.
    fn jobs(runner: Option<&str>) -> Vec<WaitingJobs> {
        let runner = runner.map(|name| json!({ "name": name, "labels": {} }));
        let waiting = json!([{ "effect": "job.t", "requires_probe": false, "runner": runner }]);
        serde_json::from_value(waiting).unwrap()
    }

    fn sources(boards: &TenantBoards, worker: &str) -> Vec<String> {
        let sources = boards.sources(&request(worker)).into_iter();
        sources
            .map(|source| match source {
                Source::Own => "own".to_owned(),
                Source::Other(pod, _) => pod.name,
            })
            .collect()
    }

    fn followed() -> Arc<TenantBoards> {
        let boards = OtherBoards::default().of(&TenantId::new("acme").unwrap());
        let credentials = || Credentials {
            headers: HeaderMap::new(),
            key: None,
        };
        let added = boards.note_request(vec![pod("b"), pod("c")], credentials);
        assert_eq!(added, ["b", "c"]);
        assert_eq!(
            boards.note_request(vec![pod("b")], credentials),
            Vec::<String>::new()
        );
        boards
    }

    /// Requirements: F5.
    #[tokio::test]
    async fn boards_with_jobs_take_turns() {
        let boards = followed();
        assert_eq!(sources(&boards, "r"), ["own"]);
        boards.set(pod("b"), jobs(None));
        boards.set(pod("c"), jobs(None));
        let first: Vec<_> = (0..3).map(|_| sources(&boards, "r").remove(0)).collect();
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ["b", "c", "own"], "{first:?}");
    }

    #[tokio::test]
    async fn board_without_jobs_for_a_worker_is_not_asked() {
        let boards = followed();
        let mut arrivals = boards.arrivals.subscribe();
        boards.set(pod("b"), jobs(Some("r-1")));
        assert!(arrivals.has_changed().unwrap());
        arrivals.mark_unchanged();
        assert_eq!(sources(&boards, "r-2"), ["own"]);
        assert!(boards.has_jobs("b", &request("r-1")));

        boards.emptied("b", &request("r-2"));
        assert!(boards.has_jobs("b", &request("r-1")));
        boards.emptied("b", &request("r-1"));
        assert!(!boards.has_jobs("b", &request("r-1")));
        boards.set(pod("b"), Vec::new());
        assert!(!arrivals.has_changed().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn boards_are_not_followed_without_requests() {
        let boards = followed();
        assert!(boards.credentials("b").is_some());
        tokio::time::advance(IDLE).await;
        assert!(boards.credentials("b").is_none());
        let credentials = || Credentials {
            headers: HeaderMap::new(),
            key: None,
        };
        let pods = vec![pod("b"), pod("c")];
        assert_eq!(boards.note_request(pods, credentials), ["b"]);
    }
}
