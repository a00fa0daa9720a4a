//! OTLP requests over HTTP (protobuf): batches of records with the resource of the process.
//!
//! Spans and log records use the same form: `request { resource { … }, scope { "orlog" }, records }`. A
//! batch already contains the encoded records, so a request is a batch with a prepended header.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};
use tokio::runtime::Handle;

use super::batch_queue::Batch;
use super::protobuf::{MessageWriter, Value, varint};
use crate::config::Config;

/// Timeout of a request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers for the collector, under the standard OpenTelemetry name. They may contain a secret, which
/// must not be in a configuration that is displayed.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Field number of the records in a scope, and of the scopes in a resource.
pub(super) const RECORDS_FIELD: u32 = 2;
/// Maximum size of a tag and a length in bytes.
const TAG_AND_LENGTH: usize = 11;

/// Client that sends batches to one path of the collector.
pub(super) struct OtlpClient {
    http: Client,
    runtime: Handle,
    url: Url,
    headers: HeaderMap,
    /// Encoded fields `resource` and `scope`, equal in all requests.
    resource: Vec<u8>,
    scope: Vec<u8>,
}

/// Response of the collector.
#[derive(Clone, PartialEq, prost::Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// Partial success: the collector accepted only some records.
#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    message: String,
}

impl OtlpClient {
    /// Resolves the endpoint and creates the client; call it on a tokio runtime.
    pub(super) fn new(config: &Config, path: &str) -> anyhow::Result<Self> {
        let url = format!("{}{path}", config.telemetry.otlp_endpoint.trim_end_matches('/'));
        let text = std::env::var(HEADERS).unwrap_or_default();
        Ok(Self {
            http: orlog_effect::http::client().build()?,
            runtime: Handle::try_current()?,
            url: address(&url)
                .with_context(|| format!("telemetry.otlp_endpoint: invalid address {url:?}"))?,
            headers: headers(&text).with_context(|| format!("environment variable {HEADERS}"))?,
            resource: resource(&config.node_name()),
            scope: scope(),
        })
    }

    /// Returns the number of bytes that a batch reserves before its first record.
    pub(super) fn room(&self) -> usize {
        self.resource.len() + self.scope.len() + 2 * TAG_AND_LENGTH
    }

    /// Sends a batch and blocks until the response. Returns the number of rejected records.
    pub(super) fn send(&self, batch: Batch) -> Result<u64, String> {
        let body = self.request(batch.bytes);
        let request = self.http.post(self.url.clone()).headers(self.headers.clone()).body(body);
        // The caller is not a runtime thread and may outlive the runtime when the process ends; so the runtime
        // runs the request.
        let sent = self.runtime.block_on(self.runtime.spawn(carry(request)));
        sent.map_err(anyhow::Error::from).flatten().map_err(|error| format!("{error:#}"))
    }

    /// Writes the header into the reserved bytes before the records.
    fn request(&self, mut batch: Vec<u8>) -> Bytes {
        let room = self.room();
        let header = self.header(batch.len() - room);
        let start = room - header.len();
        batch[start..room].copy_from_slice(&header);
        Bytes::from(batch).slice(start..)
    }

    fn header(&self, records: usize) -> Vec<u8> {
        let mut of_resource = self.resource.clone();
        of_resource.push(TAG_OF_RECORD);
        varint(&mut of_resource, (self.scope.len() + records) as u64);
        of_resource.extend(&self.scope);
        let mut header = vec![TAG_OF_FIRST];
        varint(&mut header, (of_resource.len() + records) as u64);
        header.extend(of_resource);
        header
    }
}

async fn carry(request: RequestBuilder) -> anyhow::Result<u64> {
    let response = request.timeout(EXPORT_TIMEOUT).send().await?.error_for_status()?;
    let export_response = ExportResponse::decode(response.bytes().await?).unwrap_or_default();
    let Some(PartialSuccess { rejected, message: reason }) = export_response.partial_success else {
        return Ok(0);
    };
    if rejected > 0 || !reason.is_empty() {
        tracing::warn!(rejected, reason, "collector rejected some records");
    }
    Ok(u64::try_from(rejected).unwrap_or_default())
}

/// Tags of field 1 and field [`RECORDS_FIELD`], both length-delimited.
const TAG_OF_FIRST: u8 = 1 << 3 | 2;
const TAG_OF_RECORD: u8 = 2 << 3 | 2;

fn address(url: &str) -> anyhow::Result<Url> {
    let url = Url::parse(url)?;
    if !["http", "https"].contains(&url.scheme()) {
        bail!("it must start with http:// or https://");
    }
    Ok(url)
}

/// Parses `name=value,name=value` with percent-encoded values.
fn headers(text: &str) -> anyhow::Result<HeaderMap> {
    let mut headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // Never included in a message, because it may be a secret.
        let (name, value) = pair.split_once('=').context("an entry is not of the form name=value")?;
        let name: HeaderName =
            name.trim().parse().with_context(|| format!("{name:?} is not a header name"))?;
        let value = percent_decode_str(value.trim()).collect::<Vec<u8>>();
        let value = HeaderValue::from_bytes(&value);
        let mut value = value.with_context(|| format!("the value of {name} is not a valid header value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Encodes the resource, shared by all spans and log records of a process.
fn resource(node: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageWriter(&mut bytes).nested(1, |resource| {
        resource.attribute(1, "service.name", Value::Text("orlog"));
        resource.attribute(1, "service.version", Value::Text(env!("CARGO_PKG_VERSION")));
        resource.attribute(1, "service.instance.id", Value::Text(node));
    });
    bytes
}

fn scope() -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageWriter(&mut bytes).nested(1, |scope| {
        scope.text(1, "orlog");
        scope.text(2, env!("CARGO_PKG_VERSION"));
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn otlp_headers_are_parsed_like_the_sdk() {
        let read = headers("authorization=Bearer%20abc%3D, x-scope=1 ,").unwrap();
        assert_eq!([&read["authorization"], &read["x-scope"]], ["Bearer abc=", "1"]);
        assert!(read["authorization"].is_sensitive());
        assert_eq!(headers("").unwrap().len(), 1);
        for (invalid, reason) in
            [("secret", "name=value"), ("a b=secret", "not a header name"), ("a=secret%0a", "the value of a")]
        {
            let error = format!("{:#}", headers(invalid).unwrap_err());
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn otlp_endpoint_must_be_http() {
        assert!(address("http://127.0.0.1:4318/v1/traces").is_ok());
        for invalid in ["", "127.0.0.1:4318/v1/traces", "grpc://collector:4317/v1/traces"] {
            assert!(address(invalid).is_err(), "{invalid}");
        }
    }
}
