//! Client for requests to other pods. The lease bucket contains their addresses, which are not
//! trusted: with TLS, only a verified pod receives a request; without TLS, only loopback addresses
//! do, unless the configuration allows others.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method};
use orlog_bus::membership::Pod;
use orlog_model::format_duration;

use crate::config::{Config, is_loopback_url};
use crate::tls::NodeTls;
use crate::tls::pods::{self, CONNECT_TIMEOUT};

/// Header with the forwarding pod; a forwarded request is not forwarded again.
pub const FORWARDED_BY: HeaderName = HeaderName::from_static("x-orlog-forwarded-by");
/// Header of a request between pods without TLS: the token of the receiver, its incarnation in the
/// lease bucket. Only pods read the bucket.
pub const POD_TOKEN: HeaderName = HeaderName::from_static("x-orlog-pod-token");
/// Maximum wait of a request for a result.
pub const MAX_RESULT_WAIT: Duration = Duration::from_mins(1);

/// Time for the transfer of a response, in addition to the limit of its handler.
const TRANSFER_TIME: Duration = Duration::from_secs(5);
/// Route whose duration depends on the number of messages on the bus.
const UNLIMITED_ROUTE: &str = "/v1/replays";

/// Client for requests to other pods.
pub struct PodClient {
    config: Arc<Config>,
    tls: Option<Arc<NodeTls>>,
    plaintext: reqwest::Client,
}

/// Reason why a request is not sent to a pod, or has no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address has no TLS.
    #[error("the address {0} is not https, and cluster.tls requires it")]
    Plaintext(String),
    /// The address has TLS, and this pod cannot verify it.
    #[error("this pod has no certificates to verify {0}; set [http.tls] and [cluster.tls]")]
    Unverifiable(String),
    /// The address is not loopback, and the configuration does not allow HTTP.
    #[error(
        "HTTP to {0} is not allowed; set [http.tls] and [cluster.tls], or cluster.allow_plaintext"
    )]
    Forbidden(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] pods::Error),
    /// The pod did not respond, or its identity is not the expected one.
    #[error("{0:#}")]
    Request(anyhow::Error),
}

impl Error {
    /// Returns the explanation for the client: the pod, and whether it may have executed the
    /// request, which `limit` bounds. It contains no address of a pod; the log has it.
    #[must_use]
    pub fn explain(&self, pod: &str, limit: Option<Duration>) -> String {
        const LOG: &str = "the log of this pod has the reason";

        let Some(sent) = self.of_sent_request() else {
            return format!(
                "the request was not executed: it cannot be forwarded to pod {pod}; {LOG}"
            );
        };

        let failure = match limit {
            Some(limit) if sent.is_timeout() => {
                format!("did not respond within {}", format_duration(limit))
            }
            _ => "did not respond completely".to_owned(),
        };
        format!(
            "pod {pod} {failure}; it may have executed the request: try again, with the same id \
             if the request has one; {LOG}"
        )
    }

    /// Returns the error of a request that the pod may have received.
    fn of_sent_request(&self) -> Option<&reqwest::Error> {
        let Self::Request(error) = self else {
            return None;
        };
        let error: &reqwest::Error = error.downcast_ref()?;
        // Without a connection, no byte of the request was sent.
        (!error.is_connect() && !error.is_builder()).then_some(error)
    }
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        Self::Request(error.without_url().into())
    }
}

impl PodClient {
    pub(crate) fn new(config: Arc<Config>, tls: Option<Arc<NodeTls>>) -> Self {
        let plaintext = orlog_effect::http::client()
            .connect_timeout(CONNECT_TIMEOUT)
            .build();
        Self {
            config,
            tls,
            plaintext: plaintext.expect("a client with default options is valid"),
        }
    }

    /// Creates a request to a pod, with a timeout.
    ///
    /// # Errors
    /// If the address of the pod does not permit it.
    pub fn request(
        &self,
        pod: &Pod,
        method: Method,
        target: &str,
    ) -> Result<reqwest::RequestBuilder, Error> {
        let request = self.verified_request(pod, method, target)?;
        let timeout = timeout(target, self.config.http.request_timeout);
        Ok(match timeout {
            Some(timeout) => request.timeout(timeout),
            None => request,
        })
    }

    /// Creates a request that only the named pod receives.
    fn verified_request(
        &self,
        pod: &Pod,
        method: Method,
        target: &str,
    ) -> Result<reqwest::RequestBuilder, Error> {
        let url = format!("{}{target}", pod.url);
        let is_https = pod.url.starts_with("https://");
        let is_http = pod.url.starts_with("http://");
        // The lease bucket is not trusted: who can write it must not choose where the credentials
        // of callers go.
        if let Some(trust) = self.tls.as_deref().and_then(NodeTls::pods) {
            if !is_https {
                return Err(Error::Plaintext(pod.url.clone()));
            }
            return Ok(trust.client(&pod.name)?.request(method, url));
        }
        if !is_http {
            return Err(Error::Unverifiable(pod.url.clone()));
        }
        if !self.config.cluster.allow_plaintext && !is_loopback_url(&pod.url) {
            return Err(Error::Forbidden(pod.url.clone()));
        }

        let request = self.plaintext.request(method, url);
        Ok(request.header(POD_TOKEN, pod.incarnation.to_string()))
    }
}

/// Returns the time after which a request to another pod fails, including its response. The pod
/// itself responds earlier, unless it is paused or the connection is lost without a notice. `None`:
/// the duration of the route has no limit.
#[must_use]
pub fn timeout(target: &str, request_timeout: Duration) -> Option<Duration> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path == UNLIMITED_ROUTE {
        return None;
    }

    Some(handling_limit(query, request_timeout) + TRANSFER_TIME)
}

/// Returns the time within which a node handles a request, by its query.
#[must_use]
pub fn handling_limit(query: &str, request_timeout: Duration) -> Duration {
    // The body can take the same time; the rest is for the work.
    let limit = request_timeout * 2;
    let waits = query
        .split('&')
        .any(|parameter| parameter.starts_with("wait="));
    if waits {
        limit + MAX_RESULT_WAIT
    } else {
        limit
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const NAME: &str = "pods.orlog.internal";

    fn file(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/certs")
            .join(name)
    }

    /// Returns the configuration of a node; with `ca`, of a pod.
    fn config(certificate: &str, ca: Option<&str>) -> Config {
        let mut config = Config {
            node_name: "a".to_owned(),
            ..Config::default()
        };
        config.http.tls.certificate = Some(file(&format!("{certificate}.pem")));
        config.http.tls.key = Some(file(&format!("{certificate}.key")));
        config.cluster.tls.ca = ca.map(file);
        NAME.clone_into(&mut config.cluster.tls.peer_name);
        config
    }

    fn load(config: &Config) -> Result<Arc<NodeTls>, String> {
        let loaded = NodeTls::load(config).map_err(|error| error.to_string())?;
        Ok(loaded.expect("TLS is enabled"))
    }

    fn pod(url: String) -> Pod {
        Pod {
            name: "b".to_owned(),
            incarnation: uuid::Uuid::nil(),
            url,
            draining: false,
            node_keys: Vec::new(),
        }
    }

    /// Accepts one connection; returns the bytes that it receives, and whether the client is the
    /// pod `a`.
    async fn accept(listener: TcpListener, tls: Option<Arc<NodeTls>>) -> (String, bool) {
        let mut received = vec![0; 4096];
        let (mut stream, _) = listener.accept().await.unwrap();
        let Some(tls) = tls else {
            let count = stream.read(&mut received).await.unwrap();
            return (
                String::from_utf8_lossy(&received[..count]).into_owned(),
                false,
            );
        };
        let certificates = tls.certificates();
        let acceptor = TlsAcceptor::from(Arc::clone(&certificates.server));
        let Ok(mut stream) = acceptor.accept(stream).await else {
            return (String::new(), false);
        };
        let chain = stream.get_ref().1.peer_certificates();
        let certificate = certificates
            .pods
            .as_ref()
            .and_then(|pods| pods.verify(chain));
        let is_pod = certificate.is_some_and(|certificate| {
            certificates
                .pods
                .as_ref()
                .unwrap()
                .is_pod(&certificate, "a")
        });
        let count = stream.read(&mut received).await.unwrap_or_default();
        if count > 0 {
            let response = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(response.as_bytes()).await.unwrap();
        }
        (
            String::from_utf8_lossy(&received[..count]).into_owned(),
            is_pod,
        )
    }

    /// Sends a request with a token from a pod with TLS to this server.
    async fn send(server: Option<Arc<NodeTls>>) -> (Result<u16, Error>, (String, bool)) {
        let own = config("pod", Some("ca.pem"));
        let tls = load(&own).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if server.is_some() { "https" } else { "http" };
        let to = pod(format!("{scheme}://{}", listener.local_addr().unwrap()));
        let accepted = tokio::spawn(accept(listener, server));
        let client = PodClient::new(Arc::new(own), Some(tls));
        let request = client.request(&to, Method::GET, "/v1/sagas");
        let response = match request {
            Ok(request) => {
                let response = request
                    .header("authorization", "Bearer canary")
                    .send()
                    .await;
                response
                    .map(|response| response.status().as_u16())
                    .map_err(Error::from)
            }
            Err(error) => {
                accepted.abort();
                return (Err(error), (String::new(), false));
            }
        };
        (response, accepted.await.unwrap())
    }

    #[test]
    fn every_request_except_a_replay_ends_after_the_handler_of_the_other_pod() {
        let request_timeout = Duration::from_secs(30);
        let seconds =
            |target: &str| timeout(target, request_timeout).map(|timeout| timeout.as_secs());
        assert_eq!(seconds("/v1/sagas/order"), Some(65));
        assert_eq!(seconds("/v1/work/waiting?wait_seconds=10"), Some(65));
        assert_eq!(
            seconds("/v1/sagas/order?correlation=o-1&wait=60s"),
            Some(125)
        );
        assert_eq!(seconds("/v1/replays"), None);
    }

    #[test]
    fn a_node_handles_a_request_longer_than_it_waits() {
        for timeout in [Duration::from_millis(1), Duration::from_secs(30)] {
            let limit = handling_limit("user=ada&wait=60s", timeout);
            assert!(limit > MAX_RESULT_WAIT, "{limit:?}");
            assert_eq!(handling_limit("wait_seconds=10", timeout), 2 * timeout);
        }
    }

    #[tokio::test]
    async fn pods_verify_each_other() {
        let (response, (received, is_pod)) =
            send(Some(load(&config("pod", Some("ca.pem"))).unwrap())).await;
        assert_eq!(response.unwrap(), 200);
        assert!(
            received.contains("authorization: Bearer canary"),
            "{received}"
        );
        assert!(is_pod, "the sender presented its certificate");
    }

    #[tokio::test]
    async fn an_unverified_pod_receives_no_token() {
        // Another name of the same CA, the expected name of another CA, and a server for clients
        // only.
        for (certificate, reason) in [
            ("stranger", "not valid for name"),
            ("other", "UnknownIssuer"),
            ("server", "not valid for name"),
        ] {
            let (response, (received, _)) =
                send(Some(load(&config(certificate, None)).unwrap())).await;
            let error = response.unwrap_err().to_string();
            assert!(error.contains(reason), "{certificate}: {error}");
            assert_eq!(received, "", "{certificate}");
        }
        let (response, (received, _)) = send(None).await;
        assert!(matches!(response, Err(Error::Plaintext(_))), "{response:?}");
        assert_eq!(received, "");
    }

    /// Sends a request to an address, and returns the explanation of its failure.
    async fn explained(url: String, limit: Duration) -> String {
        let client = PodClient::new(Arc::default(), None);
        let request = client.request(&pod(url), Method::GET, "/");
        let response = request.unwrap().timeout(limit).send().await;
        Error::from(response.unwrap_err()).explain("b", Some(limit))
    }

    #[tokio::test]
    async fn failure_states_the_pod_and_whether_the_request_may_be_executed() {
        let forbidden = Error::Forbidden("http://10.0.0.7:7070".to_owned());
        let text = forbidden.explain("b", None);
        assert!(text.contains("was not executed"), "{text}");
        assert!(!text.contains("10.0.0.7"), "{text}");

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // The connection is open, and no response arrives.
        let text = explained(url.clone(), Duration::from_millis(50)).await;
        assert!(text.starts_with("pod b did not"), "{text}");
        assert!(text.contains("did not respond within 50ms"), "{text}");
        assert!(text.contains("may have executed"), "{text}");

        drop(listener);
        let text = explained(url, Duration::from_secs(5)).await;
        assert!(text.contains("was not executed"), "{text}");
        assert!(text.contains("to pod b;"), "{text}");
    }

    #[test]
    fn a_pod_without_tls_sends_requests_to_loopback_only_unless_allowed() {
        let request = |url: &str, allow_plaintext: bool| {
            let mut config = Config::default();
            config.cluster.allow_plaintext = allow_plaintext;
            PodClient::new(Arc::new(config), None)
                .request(&pod(url.to_owned()), Method::GET, "/")
                .map(|_| ())
        };
        assert!(request("http://127.0.0.1:7070", false).is_ok());
        assert!(matches!(
            request("http://10.0.0.7:7070", false),
            Err(Error::Forbidden(_))
        ));
        assert!(request("http://10.0.0.7:7070", true).is_ok());
        assert!(matches!(
            request("https://10.0.0.7:7070", true),
            Err(Error::Unverifiable(_))
        ));
        assert!(matches!(
            request("ftp://10.0.0.7", true),
            Err(Error::Unverifiable(_))
        ));
    }

    #[test]
    fn a_certificate_that_other_pods_would_reject_prevents_the_start() {
        let error = |certificate: &str, ca: &str| {
            load(&config(certificate, Some(ca)))
                .err()
                .unwrap_or_default()
        };
        assert_eq!(error("pod", "ca.pem"), "");
        for (certificate, ca) in [
            ("pod", "other-ca.pem"),
            ("stranger", "ca.pem"),
            ("server", "ca.pem"),
        ] {
            let error = error(certificate, ca);
            assert!(
                error.contains("other pods would reject it") && error.contains(NAME),
                "{error}"
            );
        }
        let mut by_name = config("pod", Some("ca.pem"));
        "{pod}".clone_into(&mut by_name.cluster.tls.peer_name);
        assert!(load(&by_name).err().unwrap().contains("the name \"a\""));
        NAME.clone_into(&mut by_name.node_name);
        load(&by_name).unwrap();
        "a b".clone_into(&mut by_name.node_name);
        assert!(load(&by_name).err().unwrap().contains("not a valid name"));
    }
}
