//! Requests about messages to other nodes, and to other pods of this node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, header};
use orlog_bus::membership::Pod;
use orlog_effect::ProviderError;
use orlog_model::{Clock, NodeName, SteadyTime};
use parking_lot::Mutex;
use serde_json::Value;

use super::peer_message::{PATH, PeerMessage};
use crate::cluster::PodClient;
use crate::cluster::pod_client::FORWARDED_BY;
use crate::config::Config;
use crate::error_code::Code;
use crate::http_client::{bounded_body, sign};
use crate::peers::{PeerClient, PeerError, Peers};

/// Delay after the first failure of a node; it doubles.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Maximum delay.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Maximum size of a response of a pod, in bytes.
const MAX_RESPONSE: usize = 1 << 20;
/// Rejections of a message or a report itself, which a repetition has too. Every other one can come
/// from a fault of a pod, a proxy or a configuration, which ends.
const FINAL: [Code; 7] = [
    Code::TooLarge,
    Code::DeadLettered,
    Code::InvalidFlow,
    Code::MessageDenied,
    Code::MessageNotFound,
    Code::MessageExists,
    Code::InvalidMessage,
];

/// Sends requests about messages to other nodes and pods.
pub(crate) struct PeerMessageSender {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) peer_client: Arc<PeerClient>,
    pub(crate) pod_client: Arc<PodClient>,
    pub(crate) unreachable: Unreachable,
}

impl PeerMessageSender {
    /// Posts a request to a peer, unless it could not be reached a short time ago.
    ///
    /// # Errors
    /// A permanent one if the peer rejects the request itself.
    pub(super) async fn post_to_node(
        &self,
        node: &NodeName,
        request: &PeerMessage,
    ) -> Result<Value, ProviderError> {
        if let Some(delay) = self.unreachable.delay(node, self.clock.steady()) {
            let reason = format!("{node} could not be reached; the next attempt follows");
            return Err(
                ProviderError::unavailable("peer_unavailable", reason).with_retry_after(delay)
            );
        }

        let body = serde_json::to_vec(request).expect("a request is plain data");
        let started = self.clock.steady();
        let response = self.peer_client.post_json(node, PATH, body).await;
        let is_reached = matches!(
            response,
            Ok(_) | Err(PeerError::Rejected { .. } | PeerError::Invalid { .. })
        );
        self.unreachable
            .record(node, is_reached, started, self.clock.steady());

        response.map_err(|error| failed(&error))
    }

    /// Posts a request to another pod of this node, signed with the key of the node.
    ///
    /// # Errors
    /// A permanent one if the pod rejects the request itself.
    pub(super) async fn post_to_pod(
        &self,
        pod: &Pod,
        request: &PeerMessage,
    ) -> Result<Value, ProviderError> {
        let unavailable = |reason: String| {
            ProviderError::unavailable("pod_unavailable", format!("{}: {reason}", pod.name))
        };
        let identity = self
            .peers
            .identity()
            .map_err(|error| unavailable(error.to_string()))?;
        let body = serde_json::to_vec(request).expect("a request is plain data");

        let builder = self
            .pod_client
            .request(pod, Method::POST, PATH)
            .map_err(|error| unavailable(error.to_string()))?;
        let own_name = HeaderValue::from_str(&self.config.node_name())
            .unwrap_or(HeaderValue::from_static("pod"));
        let (client, request) = builder
            .header(header::CONTENT_TYPE, "application/json")
            .header(FORWARDED_BY, own_name)
            .body(body)
            .build_split();

        let mut request = request.map_err(|error| unavailable(error.without_url().to_string()))?;
        sign(&identity.key, &mut request, self.clock.now())
            .map_err(|error| unavailable(error.to_string()))?;
        let response = client
            .execute(request)
            .await
            .map_err(|error| unavailable(error.without_url().to_string()))?;
        let status = response.status();
        let body = bounded_body(response, MAX_RESPONSE)
            .await
            .map_err(|error| unavailable(format!("{error:#}")))?;

        let body: Value =
            serde_json::from_slice(&body).map_err(|error| unavailable(error.to_string()))?;
        if status.is_success() {
            return Ok(body);
        }

        let code = body["code"].as_str().unwrap_or_default();
        let detail = body["detail"].as_str().unwrap_or_default();
        if is_final(code) {
            return Err(ProviderError::permanent(code, detail));
        }
        Err(unavailable(format!("{code}: {detail}")))
    }
}

/// Nodes that could not be reached, and when the next attempt is made. Many messages can wait for
/// the same node: without this, each one would hold a place until its own connection times out.
#[derive(Default)]
pub(crate) struct Unreachable(Mutex<HashMap<NodeName, Outage>>);

#[derive(Clone, Copy)]
struct Outage {
    delay: Duration,
    next_attempt: SteadyTime,
    failed_at: SteadyTime,
}

impl Unreachable {
    /// Returns the time until the next attempt. The caller that gets none makes it, and others wait
    /// for its result.
    fn delay(&self, node: &NodeName, now: SteadyTime) -> Option<Duration> {
        let mut all = self.0.lock();
        let outage = all.get_mut(node)?;
        if outage.next_attempt > now {
            return Some(outage.next_attempt.duration_since(now));
        }
        outage.next_attempt = now.saturating_add(outage.delay);
        None
    }

    /// Records the outcome of a request with its start and end. A link that is cut fails all
    /// requests in flight: those that started before the last failure do not count again.
    fn record(&self, node: &NodeName, is_reached: bool, started: SteadyTime, now: SteadyTime) {
        let mut all = self.0.lock();
        if is_reached {
            all.remove(node);
            return;
        }

        let delay = match all.get(node) {
            Some(outage) if started < outage.failed_at => return,
            Some(outage) => MAX_DELAY.min(outage.delay * 2),
            None => FIRST_DELAY,
        };
        let outage = Outage {
            delay,
            next_attempt: now.saturating_add(delay),
            failed_at: now,
        };

        all.insert(node.clone(), outage);
    }
}

/// Returns whether a rejection with this code is final: it concerns the message or the report
/// itself.
pub(super) fn is_final(code: &str) -> bool {
    FINAL.iter().any(|known| known.as_str() == code)
}

/// Returns the error of an attempt.
fn failed(error: &PeerError) -> ProviderError {
    match error {
        PeerError::Rejected { code, reason, .. } if is_final(code) => {
            ProviderError::permanent(code, reason)
        }
        _ => ProviderError::unavailable("peer_unavailable", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rejection_of_the_message_itself_is_final() {
        let is_final = |code: &str| {
            let (address, reason) = ("https://b.example".parse().unwrap(), "x".to_owned());
            let error = PeerError::Rejected {
                address,
                status: 403,
                code: code.to_owned(),
                reason,
            };
            matches!(failed(&error), ProviderError::Permanent { .. })
        };
        let found: Vec<_> = Code::ALL
            .iter()
            .map(|code| code.as_str())
            .filter(|code| is_final(code))
            .collect();
        assert_eq!(
            found,
            [
                "OR0005", "OR0015", "OR0092", "OR0111", "OR0112", "OR0113", "OR0114"
            ]
        );
        // A server that is no node returns no code.
        assert!(!is_final("") && !is_final("denied"));
    }

    #[test]
    fn one_attempt_at_a_time_reaches_for_a_node_that_is_away() {
        let (node, start) = (NodeName::new("b").unwrap(), SteadyTime::from_millis(0));
        let nodes = Unreachable::default();
        assert_eq!(nodes.delay(&node, start), None);
        let failed = start.saturating_add(Duration::from_secs(5));
        for _ in 0..20 {
            nodes.record(&node, false, start, failed);
        }
        assert_eq!(
            nodes.delay(&node, failed),
            Some(FIRST_DELAY),
            "requests in flight fail together"
        );
        let next = failed.saturating_add(FIRST_DELAY);
        assert_eq!(nodes.delay(&node, next), None, "one attempt");
        assert_eq!(
            nodes.delay(&node, next),
            Some(FIRST_DELAY),
            "others wait for it"
        );
        nodes.record(&node, false, next, next);
        assert_eq!(nodes.delay(&node, next), Some(2 * FIRST_DELAY));
        for _ in 0..20 {
            nodes.record(&node, false, next, next);
        }
        assert_eq!(nodes.delay(&node, next), Some(MAX_DELAY));
        nodes.record(&node, true, next, next);
        assert_eq!(nodes.delay(&node, next), None);
    }
}
