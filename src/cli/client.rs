//! Talks to a node over HTTP and turns its problems into failures with an exit code.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::console::{items, text};
use super::exit::{Exit, Failure};

/// What may stand in a part of a path as it is.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Longer than a node takes at most for any answer but that to `drain`.
const PATIENCE: Duration = Duration::from_mins(1);

/// Which node is asked, and for whom.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Server {
    /// The node's address
    #[arg(long, env = "ORLOG_URL", default_value = "http://127.0.0.1:7070", hide_env_values = true)]
    url: String,
    /// Whose data; the default tenant where absent
    #[arg(long, env = "ORLOG_TENANT", hide_env_values = true)]
    tenant: Option<String>,
    /// The file with the token that says who you are [default: what `ORLOG_TOKEN` holds]
    #[arg(long, value_name = "FILE", env = "ORLOG_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
}

impl Server {
    /// The token, where there is one. It is never an argument: others could read it.
    fn token(&self) -> Result<Option<HeaderValue>, Failure> {
        let (token, place) = match &self.token_file {
            Some(file) => {
                let wrong = |error| Failure::usage(format!("--token-file {}: {error}", file.display()));
                (std::fs::read_to_string(file).map_err(wrong)?, file.display().to_string())
            }
            None => (std::env::var("ORLOG_TOKEN").unwrap_or_default(), "ORLOG_TOKEN".to_owned()),
        };
        if token.trim().is_empty() {
            let is_wanted = self.token_file.is_some();
            return if is_wanted { Err(Failure::usage(format!("{place} holds no token"))) } else { Ok(None) };
        }
        let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let mut header = header.map_err(|_| Failure::usage(format!("{place} holds no token")))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }

    /// Whose data, where somebody is named.
    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// A node, from here.
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    tenant: Option<String>,
    token: Option<HeaderValue>,
}

/// An answer that is no success.
pub(super) enum Trouble {
    /// The node said no.
    Problem {
        /// Its status.
        status: u16,
        /// What it said.
        body: Value,
    },
    /// Nothing came back.
    Silence(String),
}

impl Client {
    pub(super) fn new(server: &Server) -> Result<Self, Failure> {
        let http = orlog_effect::http::client().build();
        let http = http.map_err(|error| Failure::internal(format!("no HTTP client: {error}")))?;
        let url = server.url.trim_end_matches('/').to_owned();
        if reqwest::Url::parse(&url).is_err() {
            return Err(Failure::usage(format!(
                "--url {:?} is no URL such as http://127.0.0.1:7070",
                server.url
            )));
        }
        let tenant = server.tenant.clone().filter(|tenant| !tenant.is_empty());
        Ok(Self { http, url, tenant, token: server.token()? })
    }

    pub(super) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Failure> {
        self.call(Method::GET, path, query, None, PATIENCE).await.map_err(|trouble| self.failure(trouble))
    }

    pub(super) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        self.call(Method::POST, path, &[], body, PATIENCE).await.map_err(|trouble| self.failure(trouble))
    }

    /// For what takes as long as it takes.
    pub(super) async fn post_patiently(
        &self,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, Failure> {
        self.call(Method::POST, path, &[], body, patience).await.map_err(|trouble| self.failure(trouble))
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let answer = self.call(Method::PUT, path, &[], Some(body), PATIENCE).await;
        answer.map_err(|trouble| self.failure(trouble))
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::DELETE, path, &[], None, PATIENCE).await.map_err(|trouble| self.failure(trouble))
    }

    /// Lines; the caller says what an answer that is no success means.
    pub(super) async fn lines(&self, path: &str, query: &[(&str, String)]) -> Result<String, Trouble> {
        let bytes = self.fetch(Method::GET, path, query, None, PATIENCE).await?;
        String::from_utf8(bytes).map_err(|error| Trouble::Silence(format!("the answer is no text: {error}")))
    }

    /// Publishes a batch.
    pub(super) async fn publish(&self, events: &Value) -> Result<Value, Trouble> {
        self.call(Method::POST, "/v1/events", &[], Some(events), PATIENCE).await
    }

    /// Sends a body; the caller says what an answer that is no success means.
    pub(super) async fn send(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        self.call(Method::POST, path, &[], Some(body), PATIENCE).await
    }

    /// Fetches a file, as long as something comes.
    pub(super) async fn download(&self, path: &str, to: &Path) -> Result<(), Failure> {
        let silence = |error: reqwest::Error| self.failure(Trouble::Silence(innermost(&error)));
        let mut request = self.http.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let mut answer = request.send().await.map_err(silence)?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.bytes().await.map_err(silence)?;
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            return Err(self.failure(Trouble::Problem { status: status.as_u16(), body }));
        }
        let mut file = std::fs::File::create(to)?;
        loop {
            let piece = tokio::time::timeout(PATIENCE, answer.chunk()).await;
            let piece = piece.map_err(|_| self.failure(Trouble::Silence("it stopped sending".to_owned())))?;
            let Some(piece) = piece.map_err(silence)? else { return Ok(file.sync_all()?) };
            file.write_all(&piece)?;
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, Trouble> {
        let bytes = self.fetch(method, path, query, body, patience).await?;
        Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn fetch(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Vec<u8>, Trouble> {
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.url))
            .map_err(|e| Trouble::Silence(e.to_string()))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url).timeout(patience);
        if let Some(tenant) = &self.tenant {
            request = request.header("x-tenant-id", tenant);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let silence = |error: reqwest::Error| Trouble::Silence(innermost(&error));
        let response = request.send().await.map_err(silence)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(silence)?;
        if status.is_success() {
            return Ok(bytes.into());
        }
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Err(Trouble::Problem { status: status.as_u16(), body })
    }

    /// What it means for a command.
    pub(super) fn failure(&self, trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Silence(why) => Failure::new(
                Exit::Unavailable,
                format!("no answer from {}: {why}; is a node running there? (--url, ORLOG_URL)", self.url),
            ),
            Trouble::Problem { status, body } => Failure::new(exit(status), problem(status, &body)),
        }
    }
}

/// A path whose parts are escaped.
pub(super) fn path(parts: &[&str]) -> String {
    parts.iter().flat_map(|part| std::iter::once("/").chain(utf8_percent_encode(part, &PLAIN))).collect()
}

fn exit(status: u16) -> Exit {
    match StatusCode::from_u16(status) {
        Ok(StatusCode::NOT_FOUND) => Exit::NotFound,
        Ok(StatusCode::CONFLICT | StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => Exit::Refused,
        Ok(StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE) => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

fn problem(status: u16, body: &Value) -> String {
    let (title, detail, code) = (text(body, "title"), text(body, "detail"), text(body, "code"));
    if code.is_empty() {
        return format!("the node answered with HTTP status {status}");
    }
    let places = items(body, "errors")
        .iter()
        .map(|place| format!("\n  {}: {}", text(place, "pointer"), text(place, "detail")));
    format!("{title}: {detail} [{code}]{}", places.collect::<String>())
}

/// The error at the bottom says most: `connection refused`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
