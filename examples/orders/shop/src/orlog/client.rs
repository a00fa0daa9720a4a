//! Asks the runner over HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// The time one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// Between attempts while the runner is away.
const PAUSE: Duration = Duration::from_millis(50);
/// Entries asked for at once.
const PAGE: usize = 1000;

/// Asks one runner.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

/// One saga as the runner shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Where it stands, for example `completed`.
    pub status: String,
    /// Its state version.
    pub version: u64,
    /// The code of what went wrong last.
    pub failure: Option<String>,
    /// Timers, open work and outbox rows that are left.
    pub standing: usize,
    /// Every transition, oldest first.
    pub history: Vec<Step>,
}

/// A transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state version after it.
    pub version: u64,
    /// The work it asked for: what people call it, and its id.
    pub work: Vec<(String, String)>,
}

/// How the runner sees one upstream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// `closed`, `open` or `half_open`.
    pub breaker: Option<String>,
    /// How often the breaker has opened since the runner started.
    pub opened: u64,
}

/// A client whose TLS has its cryptography, without which reqwest cannot build one.
///
/// # Errors
/// When the system cannot do TLS.
pub fn http_client() -> anyhow::Result<reqwest::Client> {
    // An error says that somebody else has installed one already, which does as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().timeout(REQUEST).build().context("there can be no HTTP client")
}

impl Client {
    /// For the runner at this base URL.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        Ok(Self { http: http_client()?, url: url.to_owned() })
    }

    /// Publishes `CloudEvents` and returns once they are accepted, however often the runner goes away meanwhile.
    ///
    /// # Errors
    /// When it refuses them, or has not accepted them when the time is over.
    pub async fn publish(&self, events: &[Value], patience: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        let body = serde_json::to_vec(events).context("events are JSON")?;
        while Instant::now() < end {
            let request = self.http.post(format!("{}/v1/events", self.url));
            let request = request.header("content-type", "application/cloudevents-batch+json");
            match request.body(body.clone()).send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) if response.status().is_client_error() => {
                    bail!("the runner refused the events: {}", response.text().await.unwrap_or_default());
                }
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        bail!("the runner did not accept the events within {patience:?}")
    }

    /// Whether it takes work.
    pub async fn is_ready(&self) -> bool {
        let answer = self.http.get(format!("{}/ready", self.url)).send().await;
        answer.is_ok_and(|response| response.status().is_success())
    }

    /// How many sagas there are in each status.
    ///
    /// # Errors
    /// When the runner cannot be asked.
    pub async fn statuses(&self, saga: &str) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for item in self.list(saga).await? {
            *counts.entry(item.status).or_default() += 1;
        }
        Ok(counts)
    }

    /// Every saga of that name, whole, by its correlation id.
    ///
    /// # Errors
    /// When the runner cannot be asked.
    pub async fn all(&self, saga: &str) -> anyhow::Result<BTreeMap<String, View>> {
        let mut views = BTreeMap::new();
        for Item { correlation, .. } in self.list(saga).await? {
            let view = self.view(saga, &correlation).await?;
            views.insert(correlation, view);
        }
        Ok(views)
    }

    /// How it sees its upstreams.
    ///
    /// # Errors
    /// When the runner cannot be asked.
    pub async fn upstreams(&self) -> anyhow::Result<Vec<Upstream>> {
        #[derive(Deserialize)]
        struct Info {
            upstreams: Vec<Upstream>,
        }
        Ok(self.get::<Info>("/info").await?.upstreams)
    }

    async fn view(&self, saga: &str, correlation: &str) -> anyhow::Result<View> {
        let path = format!("/v1/sagas/{saga}/{correlation}?history_limit={PAGE}");
        Ok(self.get::<Detail>(&path).await?.into())
    }

    async fn list(&self, saga: &str) -> anyhow::Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let page: Found = self.get(&format!("/v1/sagas?saga={saga}&limit={PAGE}{cursor}")).await?;
            items.extend(page.items);
            match page.next {
                Some(next) => cursor = format!("&cursor={}", encoded(&next)),
                None => return Ok(items),
            }
        }
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.url);
        let response = self.http.get(&url).send().await.with_context(|| format!("GET {url}"))?;
        let status = response.status();
        if !status.is_success() {
            bail!("GET {url} answered {status}: {}", response.text().await.unwrap_or_default());
        }
        response.json().await.with_context(|| format!("GET {url} answered something unexpected"))
    }
}

/// A value of a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

#[derive(Deserialize)]
struct Found {
    items: Vec<Item>,
    next: Option<String>,
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
    open: Vec<Value>,
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

impl From<Detail> for View {
    fn from(detail: Detail) -> Self {
        let step = |record: Record| Step {
            version: record.version,
            work: record.work.into_iter().map(|work| (work.label, work.id)).collect(),
        };
        Self {
            status: detail.status,
            version: detail.version,
            failure: detail.last_error.map(|failure| failure.code),
            standing: detail.timers.len() + detail.open.len() + detail.outbox.items.len(),
            history: detail.history.items.into_iter().map(step).collect(),
        }
    }
}
