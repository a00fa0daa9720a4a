//! HTTP client of the runner.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// Timeout of one request.
const REQUEST: Duration = Duration::from_secs(5);
/// Delay between attempts while the runner is down.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Page size of listings.
const PAGE: usize = 1000;

/// Client of one runner.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

/// Saga as displayed by the runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SagaView {
    /// Status, for example `completed`.
    pub status: String,
    /// Version of its state.
    pub version: u64,
    /// Code of the last failure.
    pub failure: Option<String>,
    /// Number of remaining timers, pending work items and outbox rows.
    pub remaining: usize,
    /// All transitions, oldest first.
    pub history: Vec<HistoryStep>,
}

/// Transition of a saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryStep {
    /// State version after the transition.
    pub version: u64,
    /// Requested work: label and id.
    pub work: Vec<(String, String)>,
}

/// Upstream as displayed by the runner.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Upstream {
    /// Name of the upstream.
    pub name: String,
    /// `closed`, `open` or `half_open`.
    pub breaker: Option<String>,
    /// Number of times the breaker has opened since the runner started.
    pub breaker_open_count: u64,
}

/// Builds an HTTP client with a TLS crypto provider, which reqwest requires.
///
/// # Errors
/// Fails if the system does not support TLS.
#[expect(
    clippy::disallowed_methods,
    reason = "a program outside of Orlog, with its own environment"
)]
pub fn http_client() -> anyhow::Result<reqwest::Client> {
    // An error means that a provider is already installed, which is equally suitable.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder()
        .timeout(REQUEST)
        .build()
        .context("cannot create the HTTP client")
}

impl Client {
    /// Creates a client for the runner at this base URL.
    ///
    /// # Errors
    /// Fails if cannot create the HTTP client.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            http: http_client()?,
            url: url.to_owned(),
        })
    }

    /// Publishes `CloudEvents` and returns after they are accepted. Retries while the runner is down.
    ///
    /// # Errors
    /// Fails if the runner rejects the events or does not accept them before the timeout.
    pub async fn publish(&self, events: &[Value], timeout: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + timeout;
        let body = serde_json::to_vec(events).context("events can be serialized as JSON")?;
        while Instant::now() < end {
            let request = self.http.post(format!("{}/v1/events", self.url));
            let request = request.header("content-type", "application/cloudevents-batch+json");
            match request.body(body.clone()).send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) if response.status().is_client_error() => {
                    bail!(
                        "the runner rejected the events: {}",
                        response.text().await.unwrap_or_default()
                    );
                }
                Ok(_) | Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
        bail!("the runner did not accept the events within {timeout:?}")
    }

    /// Returns whether the runner accepts work.
    pub async fn is_ready(&self) -> bool {
        let response = self.http.get(format!("{}/ready", self.url)).send().await;
        response.is_ok_and(|response| response.status().is_success())
    }

    /// Returns whether the runner has committed a transition since its start.
    pub async fn has_committed(&self) -> bool {
        let Ok(response) = self.http.get(format!("{}/metrics", self.url)).send().await else {
            return false;
        };
        let text = response.text().await.unwrap_or_default();
        text.lines()
            .filter(|line| line.starts_with("orlog_transitions_committed_total"))
            .any(|line| line.rsplit(' ').next().is_some_and(|value| value != "0"))
    }

    /// Returns the number of sagas by status.
    ///
    /// # Errors
    /// Fails if the runner is unavailable.
    pub async fn statuses(&self, saga: &str) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for item in self.list(saga).await? {
            *counts.entry(item.status).or_default() += 1;
        }
        Ok(counts)
    }

    /// Returns all sagas of this name with their full state, by correlation id.
    ///
    /// # Errors
    /// Fails if the runner is unavailable.
    pub async fn all(&self, saga: &str) -> anyhow::Result<BTreeMap<String, SagaView>> {
        let mut views = BTreeMap::new();
        for Item { correlation, .. } in self.list(saga).await? {
            let view = self.view(saga, &correlation).await?;
            views.insert(correlation, view);
        }
        Ok(views)
    }

    /// Returns the state of the upstreams.
    ///
    /// # Errors
    /// Fails if the runner is unavailable.
    pub async fn upstreams(&self) -> anyhow::Result<Vec<Upstream>> {
        #[derive(Deserialize)]
        struct Info {
            upstreams: Vec<Upstream>,
        }
        Ok(self.get::<Info>("/info").await?.upstreams)
    }

    async fn view(&self, saga: &str, correlation: &str) -> anyhow::Result<SagaView> {
        let path = format!("/v1/sagas/{saga}/{correlation}?history_limit={PAGE}");
        Ok(self.get::<Detail>(&path).await?.into())
    }

    async fn list(&self, saga: &str) -> anyhow::Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let page: SagaPage = self
                .get(&format!("/v1/sagas?saga={saga}&limit={PAGE}{cursor}"))
                .await?;
            items.extend(page.items);
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={}", encoded(&next)),
                None => return Ok(items),
            }
        }
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.url);
        let response = self
            .http
            .get(&url)
            .send()
            .await
            .with_context(|| format!("GET {url}"))?;
        let status = response.status();
        if !status.is_success() {
            bail!(
                "GET {url} returned {status}: {}",
                response.text().await.unwrap_or_default()
            );
        }
        response
            .json()
            .await
            .with_context(|| format!("GET {url} returned an unexpected response"))
    }
}

/// Encodes a query value.
fn encoded(text: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| {
        if is_unreserved(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(one).collect()
}

#[derive(Deserialize)]
struct SagaPage {
    items: Vec<Item>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    correlation: String,
    status: String,
}

#[derive(Deserialize)]
struct Detail {
    status: String,
    version: u64,
    last_error: Option<Failure>,
    timers: Vec<Value>,
    pending_work: Vec<Value>,
    outbox: Outbox,
    history: History,
}

#[derive(Deserialize)]
struct Failure {
    code: String,
}

#[derive(Deserialize)]
struct Outbox {
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct History {
    items: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    version: u64,
    work: Vec<Work>,
}

#[derive(Deserialize)]
struct Work {
    label: String,
    id: String,
}

impl From<Detail> for SagaView {
    fn from(detail: Detail) -> Self {
        let step = |record: Record| HistoryStep {
            version: record.version,
            work: record
                .work
                .into_iter()
                .map(|work| (work.label, work.id))
                .collect(),
        };
        Self {
            status: detail.status,
            version: detail.version,
            failure: detail.last_error.map(|failure| failure.code),
            remaining: detail.timers.len() + detail.pending_work.len() + detail.outbox.items.len(),
            history: detail.history.items.into_iter().map(step).collect(),
        }
    }
}
