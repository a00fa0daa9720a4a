//! HTTP client of a node. Converts problem responses to errors with an exit code.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use orlog_signature::{NODE_HEADER, SigningKey};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH, RETRY_AFTER};
use reqwest::{Certificate, Identity, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Map, Value};

use super::console::{items, note, text};
use super::credentials::Credentials;
use super::exit::{CommandError, CommandExit};
pub(crate) use orlog_node::http_client::SIGNATURE_LIFETIME;
pub(crate) use orlog_node::url_path::path;

/// Request timeout, longer than the maximum response time of a node, except for `drain`.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// URL of a node with the default listen address.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// Header of a response that lacks the data of other pods: their names, percent-encoded and
/// separated by commas.
const MISSING_PODS: &str = "x-orlog-missing-pods";

/// Node and tenant of a request.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// URL of the node
    #[arg(
        long,
        env = "ORLOG_URL",
        default_value = DEFAULT_URL,
        hide_env_values = true
    )]
    url: String,
    /// Tenant; the default tenant if omitted
    #[arg(long, env = "ORLOG_TENANT", hide_env_values = true)]
    tenant: Option<String>,
    /// File with the access token [default: value of `ORLOG_TOKEN`]
    #[arg(
        long,
        value_name = "FILE",
        env = "ORLOG_TOKEN_FILE",
        hide_env_values = true,
        value_parser = path_or_empty()
    )]
    token_file: Option<PathBuf>,
    /// Name or file of the key that signs the requests [default: the key of `orlog key use`,
    /// without a token]
    #[arg(
        long,
        value_name = "NAME|FILE",
        env = "ORLOG_KEY_FILE",
        hide_env_values = true,
        value_parser = path_or_empty()
    )]
    key: Option<PathBuf>,
    /// Name of the node, for which requests are signed if a proxy or a container maps an IP address
    /// or a loopback name to it
    #[arg(long, value_name = "NAME", env = "ORLOG_NODE", hide_env_values = true)]
    node_name: Option<String>,
    /// PEM file with the CA certificates that are trusted instead of those of the system
    #[arg(
        long,
        value_name = "FILE",
        env = "ORLOG_CA_FILE",
        hide_env_values = true
    )]
    ca_file: Option<PathBuf>,
    /// PEM file with a client certificate and its private key
    #[arg(
        long,
        value_name = "FILE",
        env = "ORLOG_CLIENT_CERTIFICATE",
        hide_env_values = true
    )]
    client_certificate: Option<PathBuf>,
}

/// Returns the parser of a path that accepts an empty variable of the environment.
fn path_or_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl ServerArgs {
    /// Returns the HTTP client for the node.
    fn http(&self) -> Result<reqwest::Client, CommandError> {
        let invalid = |flag: &str, file: &Path, reason: &dyn Display| {
            CommandError::usage(format!("{flag} {}: {reason}", file.display()))
        };
        // This client follows no redirects and uses no proxies: only the URL of the user receives
        // the credentials.
        let mut http = orlog_effect::http::client();

        if let Some(file) = &self.ca_file {
            let invalid = |reason: &dyn Display| invalid("--ca-file", file, reason);
            let pem = std::fs::read(file).map_err(|error| invalid(&error))?;
            // An empty file would leave no trusted CA at all, and each request would fail with a
            // TLS error.
            let ca = Certificate::from_pem_bundle(&pem)
                .ok()
                .filter(|ca| !ca.is_empty());
            http = http.tls_certs_only(ca.ok_or_else(|| invalid(&"no certificate in PEM"))?);
        }

        if let Some(file) = &self.client_certificate {
            let invalid = |reason: &dyn Display| invalid("--client-certificate", file, reason);
            let pem = std::fs::read(file).map_err(|error| invalid(&error))?;
            http = http.identity(
                Identity::from_pem(&pem)
                    .map_err(|_| invalid(&"no certificate with its private key in PEM"))?,
            );
        }

        http.build()
            .map_err(|error| CommandError::internal(format!("no HTTP client: {error}")))
    }

    /// Returns the tenant, if set.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

/// Client of the HTTP API of a node.
pub(crate) struct ApiClient {
    http: reqwest::Client,
    url: String,
    tenant: Option<String>,
    /// Name of the node, of which a signature then holds.
    node: Option<HeaderValue>,
    credentials: Credentials,
    idempotency_key: Option<HeaderValue>,
    /// Revision of the resource that a change expects.
    revision: Option<u64>,
    /// Pods whose data the responses lack.
    missing_pods: Mutex<BTreeSet<String>>,
}

/// Unsuccessful response or missing response.
pub(crate) enum ClientError {
    /// The node returned an error.
    Problem {
        /// HTTP status.
        status: u16,
        /// Response body.
        body: Value,
        /// Delay that the response requests before a repetition.
        retry_after: Option<Duration>,
    },
    /// A successful response is not that of a node: the reason, with the URL.
    Unreadable(String),
    /// The node did not respond.
    NoResponse(String),
}

/// Successful response.
struct SuccessfulResponse {
    url: String,
    status: StatusCode,
    content_type: String,
    body: Vec<u8>,
}

impl SuccessfulResponse {
    /// Returns the body as JSON; `null` if the status states that there is none.
    fn json(&self) -> Result<Value, ClientError> {
        if self.status == StatusCode::NO_CONTENT && self.body.is_empty() {
            return Ok(Value::Null);
        }
        // Without this error, the page of a proxy, or its empty body, would be a list without
        // entries.
        serde_json::from_slice(&self.body)
            .map_err(|error| self.unreadable(&format!("no JSON: {error}")))
    }

    /// Returns the body as text.
    fn text(self) -> Result<String, ClientError> {
        match std::str::from_utf8(&self.body) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(self.unreadable(&format!("no UTF-8: {error}"))),
        }
    }

    fn unreadable(&self, reason: &str) -> ClientError {
        let Self {
            url, content_type, ..
        } = self;
        ClientError::Unreadable(format!(
            "the response of {url} has the content type {content_type:?} and is {reason}; check \
             that a node responds there, and not a proxy or another server (--url, ORLOG_URL)"
        ))
    }
}

impl ApiClient {
    pub(crate) fn new(server: &ServerArgs) -> Result<Self, CommandError> {
        let http = server.http()?;
        let url = server.url.trim_end_matches('/').to_owned();
        // Otherwise each request would report an unavailable node, which some commands retry.
        if reqwest::Url::parse(&url).is_err() {
            return Err(CommandError::usage(format!(
                "invalid --url {:?}; expected a URL such as http://127.0.0.1:7070",
                server.url
            )));
        }

        // An empty variable of the environment counts as unset.
        let tenant = server.tenant.clone().filter(|tenant| !tenant.is_empty());
        let node = server.node_name.as_deref().filter(|node| !node.is_empty());
        let node = node.map(HeaderValue::try_from).transpose().map_err(|_| {
            CommandError::usage("--node-name: a name is printable ASCII".to_owned())
        })?;
        Ok(Self {
            http,
            url,
            tenant,
            node,
            credentials: Credentials::read(server.key.as_deref(), server.token_file.as_deref())?,
            idempotency_key: None,
            revision: None,
            missing_pods: Mutex::default(),
        })
    }

    /// Returns the key that signs the requests, if there is one.
    pub(crate) fn key(&self) -> Option<&SigningKey> {
        self.credentials.key()
    }

    /// Returns the tenant of the requests; the default tenant if none is set.
    pub(crate) fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }

    /// Sends this idempotency key with each change.
    pub(crate) fn with_idempotency_key(self, key: Option<&str>) -> Result<Self, CommandError> {
        Ok(Self {
            idempotency_key: key.map(HeaderValue::try_from).transpose().map_err(|_| {
                CommandError::usage("--idempotency-key: a key is printable ASCII".to_owned())
            })?,
            ..self
        })
    }

    /// Returns the pods whose data the responses lack.
    pub(crate) fn missing_pods(&self) -> Vec<String> {
        let missing = self.missing_pods.lock();
        missing.iter().cloned().collect()
    }

    /// Checks that the responses have the data of all pods. Commands check it after they have
    /// printed the result.
    ///
    /// # Errors
    /// If a response lacks the data of a pod.
    pub(crate) fn check_complete(&self) -> Result<(), CommandError> {
        check_complete(&self.missing_pods())
    }

    fn note_missing_pods(&self, headers: &HeaderMap) {
        let names = headers
            .get(MISSING_PODS)
            .and_then(|names| names.to_str().ok());
        let mut missing = self.missing_pods.lock();

        for name in names.into_iter().flat_map(|names| names.split(',')) {
            missing.insert(percent_decode_str(name).decode_utf8_lossy().into_owned());
        }
    }

    /// Sends this revision as `if-match` with each change.
    pub(crate) fn expect_revision(&mut self, revision: Option<u64>) {
        self.revision = revision;
    }

    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<Value, CommandError> {
        self.get_with_timeout(path, query, REQUEST_TIMEOUT).await
    }

    /// Returns all entries of a list whose number is small.
    pub(crate) async fn get_all(&self, path: &str) -> Result<Vec<Value>, CommandError> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let query: Vec<_> = cursor
                .map(|cursor| ("cursor", cursor))
                .into_iter()
                .collect();
            let page = self.get(path, &query).await?;
            all.extend_from_slice(items(&page, "items"));
            // The node can end a page before its limit, so that only a missing cursor is the end.
            cursor = page["next_cursor"].as_str().map(str::to_owned);

            if cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// Sends a GET request with its own timeout, for requests that wait.
    pub(crate) async fn get_with_timeout(
        &self,
        path: &str,
        query: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Value, CommandError> {
        let response = self.call(Method::GET, path, query, None, timeout).await;
        response.map_err(|trouble| self.failure(trouble))
    }

    /// Sends a POST request with a query and its own timeout.
    pub(crate) async fn post_query(
        &self,
        path: &str,
        query: &[(&str, String)],
        body: &Value,
        timeout: Duration,
    ) -> Result<Value, CommandError> {
        let response = self
            .call(Method::POST, path, query, Some(body), timeout)
            .await;
        response.map_err(|trouble| self.failure(trouble))
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CommandError> {
        self.post_with_timeout(path, body, REQUEST_TIMEOUT).await
    }

    /// Sends a POST request with its own timeout, for requests of unbounded duration.
    pub(crate) async fn post_with_timeout(
        &self,
        path: &str,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, CommandError> {
        let response = self.call(Method::POST, path, &[], body, timeout).await;
        self.changed(response)
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, CommandError> {
        let response = self
            .call(Method::PUT, path, &[], Some(body), REQUEST_TIMEOUT)
            .await;
        self.changed(response)
    }

    /// Replaces a resource. The caller handles error responses.
    pub(crate) async fn try_put(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call(Method::PUT, path, &[], Some(body), REQUEST_TIMEOUT)
            .await
    }

    pub(crate) async fn delete(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<Value, CommandError> {
        let response = self
            .call(Method::DELETE, path, query, None, REQUEST_TIMEOUT)
            .await;
        self.changed(response)
    }

    /// Returns the response to a change, and prints a note if a paused instance has stored it.
    fn changed(&self, response: Result<Value, ClientError>) -> Result<Value, CommandError> {
        let response = response.map_err(|trouble| self.failure(trouble))?;
        if let Some(deferred) = response["deferred"].as_str() {
            note(deferred);
        }
        Ok(response)
    }

    /// Requests JSON lines. The caller handles error responses.
    pub(crate) async fn lines(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<String, ClientError> {
        self.fetch(Method::GET, path, query, None, REQUEST_TIMEOUT)
            .await?
            .text()
    }

    /// Sends a body. The caller handles error responses.
    pub(crate) async fn send(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.send_with_timeout(path, body, REQUEST_TIMEOUT).await
    }

    /// Sends a body with its own timeout. The caller handles error responses.
    pub(crate) async fn send_with_timeout(
        &self,
        path: &str,
        body: &Value,
        timeout: Duration,
    ) -> Result<Value, ClientError> {
        self.call(Method::POST, path, &[], Some(body), timeout)
            .await
    }

    /// Sends a request without a body. The caller handles error responses.
    pub(crate) async fn send_query(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<Value, ClientError> {
        self.call(Method::POST, path, query, None, REQUEST_TIMEOUT)
            .await
    }

    /// Downloads a file. The timeout applies to the headers and to gaps between chunks, not to the
    /// whole download, whose duration depends on the size of the file.
    pub(crate) async fn download(&self, path: &str, to: &Path) -> Result<(), CommandError> {
        let request = self.http.get(format!("{}{path}", self.url));
        let response = self.in_time(self.execute(request)).await?;
        let mut response = response.map_err(|trouble| self.failure(trouble))?;
        if !response.status().is_success() {
            let trouble = self.in_time(unsuccessful(response)).await?;
            return Err(self.failure(trouble));
        }

        // Only after the status: an error response must not leave an empty file.
        let mut file = std::fs::File::create(to)?;
        loop {
            let piece = self.in_time(response.chunk()).await?;
            let piece =
                piece.map_err(|error| self.failure(ClientError::NoResponse(innermost(&error))))?;
            let Some(piece) = piece else {
                // The caller reports a complete backup afterwards, so that its files must be
                // durable.
                return Ok(file.sync_all()?);
            };
            file.write_all(&piece)?;
        }
    }

    /// Waits for a part of a download.
    async fn in_time<T>(&self, part: impl Future<Output = T>) -> Result<T, CommandError> {
        let received = tokio::time::timeout(REQUEST_TIMEOUT, part).await;
        received.map_err(|_| {
            let reason = format!("the transfer stalled for {REQUEST_TIMEOUT:?}");
            self.failure(ClientError::NoResponse(reason))
        })
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, ClientError> {
        self.fetch(method, path, query, body, timeout).await?.json()
    }

    async fn fetch(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<SuccessfulResponse, ClientError> {
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.url))
            .map_err(|e| ClientError::NoResponse(e.to_string()))?;
        if !query.is_empty() {
            // An empty list of pairs would append a question mark to the URL.
            url.query_pairs_mut().extend_pairs(query);
        }

        // Commands that change something also read. A key or a revision is about the change only.
        let changes = method != Method::GET;
        let mut request = self.http.request(method, url).timeout(timeout);
        if let Some(tenant) = &self.tenant {
            request = request.header("x-tenant-id", tenant);
        }

        if let Some(key) = self.idempotency_key.as_ref().filter(|_| changes) {
            request = request.header("idempotency-key", key.clone());
        }
        if let Some(revision) = self.revision.filter(|_| changes) {
            request = request.header(IF_MATCH, format!("\"{revision}\""));
        }

        if let Some(body) = body {
            request = request.json(body);
        } else if changes {
            // The node requires it, also without a body (OR0004).
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }

        let response = self.execute(request).await?;
        // Before the status: a 404 also names the pods that can have the object.
        self.note_missing_pods(response.headers());
        if !response.status().is_success() {
            return Err(unsuccessful(response).await);
        }

        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let content_type = content_type.unwrap_or_default().into_owned();
        // Without the query: it can be as long as the data of a start.
        let mut url = response.url().clone();
        url.set_query(None);
        let body = response
            .bytes()
            .await
            .map_err(|error: reqwest::Error| ClientError::NoResponse(innermost(&error)))?;

        Ok(SuccessfulResponse {
            url: url.into(),
            status,
            content_type,
            body: body.into(),
        })
    }

    /// Sends a request with the credentials. A signature covers the request as it is sent.
    async fn execute(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let no_response = |error: reqwest::Error| ClientError::NoResponse(innermost(&error));
        let mut request = request.build().map_err(no_response)?;
        // Before the signature, which covers this header.
        if let Some(node) = &self.node {
            request.headers_mut().insert(NODE_HEADER, node.clone());
        }
        let prepared = self.credentials.add_to(&mut request);
        prepared.map_err(|error| ClientError::NoResponse(error.to_string()))?;
        self.http.execute(request).await.map_err(no_response)
    }

    /// Converts a client error to a command error.
    pub(crate) fn failure(&self, trouble: ClientError) -> CommandError {
        match trouble {
            ClientError::NoResponse(reason) => {
                // The first bytes of the response are no TLS record.
                let advice = if reason.contains("InvalidContentType") {
                    "the server does not use TLS there; set a URL that starts with http:// (--url, \
                     ORLOG_URL)"
                } else {
                    "check that a node runs there (--url, ORLOG_URL)"
                };
                let message = format!("no response from {}: {reason}; {advice}", self.url);

                CommandError::new(CommandExit::Unavailable, message)
            }
            ClientError::Unreadable(reason) => CommandError::failed(reason),
            ClientError::Problem { status, body, .. } => {
                let mut message = problem(status, &body);
                let missing = self.missing_pods();
                if status == StatusCode::NOT_FOUND.as_u16() && !missing.is_empty() {
                    let others = missing.join(", ");
                    message = format!("{message}; another pod can have it: {others}");
                }
                CommandError::new(exit(status), message)
            }
        }
    }
}

/// Returns the error of a result that lacks the data of these pods, if there are any.
pub(crate) fn check_complete(missing_pods: &[String]) -> Result<(), CommandError> {
    if missing_pods.is_empty() {
        return Ok(());
    }

    let message = format!(
        "the result is incomplete: the instances of the tenant are on several pods, and those of \
         other pods are missing: {}; send the command to each pod (--url)",
        missing_pods.join(", ")
    );
    Err(CommandError::new(CommandExit::Incomplete, message))
}

/// Returns the fields of a request body that have a value.
pub(crate) fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let set = fields.into_iter().filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn exit(status: u16) -> CommandExit {
    match StatusCode::from_u16(status) {
        Ok(StatusCode::NOT_FOUND) => CommandExit::NotFound,
        // The same request is rejected again until a state, a role or a credential changes.
        Ok(
            StatusCode::CONFLICT
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::FORBIDDEN
            | StatusCode::UNAUTHORIZED,
        ) => CommandExit::Rejected,
        // The node, or a proxy in front of it, states that a later repetition can succeed.
        Ok(
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
            | StatusCode::INSUFFICIENT_STORAGE,
        ) => CommandExit::Unavailable,
        _ => CommandExit::Failed,
    }
}

/// Reads an unsuccessful response.
async fn unsuccessful(response: Response) -> ClientError {
    let status = response.status().as_u16();
    // A date instead of seconds is not read: the caller then uses its own delay.
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after
        .and_then(|value| value.to_str().ok())
        .and_then(|seconds| seconds.trim().parse().ok())
        .map(Duration::from_secs);

    match response.bytes().await {
        // A proxy responds with HTML, for which the status is the message.
        Ok(body) => ClientError::Problem {
            status,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            retry_after,
        },
        Err(error) => ClientError::NoResponse(innermost(&error)),
    }
}

fn problem(status: u16, body: &Value) -> String {
    let title = text(body, "title");
    let detail = text(body, "detail");
    let code = text(body, "code");
    // No problem of a node: a proxy, or another server at this URL.
    if code.is_empty() {
        return format!("the node returned HTTP status {status}");
    }

    let locations = items(body, "errors").iter().map(|location| {
        format!(
            "\n  {}: {}",
            text(location, "pointer"),
            text(location, "detail")
        )
    });

    format!(
        "{title}: {detail} [{code}]{}",
        locations.collect::<String>()
    )
}

/// Returns the root cause of an error, for example `connection refused`.
fn innermost(error: &dyn std::error::Error) -> String {
    // The outer errors only repeat that a request failed, with its URL.
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
pub(crate) mod tests;
