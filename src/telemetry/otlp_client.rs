//! Requests of OTLP over HTTP (protobuf): batches, with who sends them.
//!
//! Spans and log lines travel alike: `request { resource { who }, scope { "orlog" }, records }`. The records lie one behind the
//! other already, so a request is a batch with a head put before it.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};
use tokio::runtime::Handle;

use super::batch_queue::Batch;
use super::protobuf::{Message, Value, varint};
use crate::config::Config;

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Headers for the collector, under the name that all programs with OpenTelemetry know: they may hold a secret, which has no place
/// in a configuration that is shown.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// The field of all records in a scope, and of all scopes in a resource.
pub(super) const RECORD: u32 = 2;
/// A tag and a length, at most.
const TAG_AND_LENGTH: usize = 11;

/// Sends batches to one path of the collector.
pub(super) struct Post {
    http: Client,
    runtime: Handle,
    url: Url,
    headers: HeaderMap,
    /// The fields `resource` and `scope`, as they stand in every request.
    resource: Vec<u8>,
    scope: Vec<u8>,
}

/// What a collector answers.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    partial: Option<Partial>,
}

/// It took some of the records only.
#[derive(Clone, PartialEq, prost::Message)]
struct Partial {
    #[prost(int64, tag = "1")]
    refused: i64,
    #[prost(string, tag = "2")]
    why: String,
}

impl Post {
    /// Looks where to; call it on a tokio runtime.
    pub(super) fn to(config: &Config, path: &str) -> anyhow::Result<Self> {
        let url = format!("{}{path}", config.telemetry.otlp_endpoint.trim_end_matches('/'));
        let told = std::env::var(HEADERS).unwrap_or_default();
        Ok(Self {
            http: orlog_effect::http::client().build()?,
            runtime: Handle::try_current()?,
            url: address(&url)
                .with_context(|| format!("telemetry.otlp_endpoint: nothing can be sent to {url:?}"))?,
            headers: headers(&told).with_context(|| format!("the environment's {HEADERS}"))?,
            resource: resource(&config.node_name()),
            scope: scope(),
        })
    }

    /// Bytes that a batch leaves free before its first record.
    pub(super) fn room(&self) -> usize {
        self.resource.len() + self.scope.len() + 2 * TAG_AND_LENGTH
    }

    /// Sends a batch, and waits. How many of its records were refused.
    pub(super) fn send(&self, batch: Batch) -> Result<u64, String> {
        let body = self.request(batch.bytes);
        let request = self.http.post(self.url.clone()).headers(self.headers.clone()).body(body);
        // Who waits is none of the runtime's threads, and outlives it where a process ends at once: so the runtime carries it.
        let sent = self.runtime.block_on(self.runtime.spawn(carry(request)));
        sent.map_err(anyhow::Error::from).flatten().map_err(|error| format!("{error:#}"))
    }

    /// Puts the head into the room before the records.
    fn request(&self, mut batch: Vec<u8>) -> Bytes {
        let room = self.room();
        let head = self.head(batch.len() - room);
        let begin = room - head.len();
        batch[begin..room].copy_from_slice(&head);
        Bytes::from(batch).slice(begin..)
    }

    fn head(&self, records: usize) -> Vec<u8> {
        let mut of_resource = self.resource.clone();
        of_resource.push(TAG_OF_RECORD);
        varint(&mut of_resource, (self.scope.len() + records) as u64);
        of_resource.extend(&self.scope);
        let mut head = vec![TAG_OF_FIRST];
        varint(&mut head, (of_resource.len() + records) as u64);
        head.extend(of_resource);
        head
    }
}

async fn carry(request: RequestBuilder) -> anyhow::Result<u64> {
    let response = request.timeout(PATIENCE).send().await?.error_for_status()?;
    let answer = Answer::decode(response.bytes().await?).unwrap_or_default();
    let Some(Partial { refused, why }) = answer.partial else { return Ok(0) };
    if refused > 0 || !why.is_empty() {
        tracing::warn!(refused, why, "the collector does not take everything");
    }
    Ok(u64::try_from(refused).unwrap_or_default())
}

/// Field 1, and field [`RECORD`], with a length behind them.
const TAG_OF_FIRST: u8 = 1 << 3 | 2;
const TAG_OF_RECORD: u8 = 2 << 3 | 2;

fn address(url: &str) -> anyhow::Result<Url> {
    let url = Url::parse(url)?;
    if !["http", "https"].contains(&url.scheme()) {
        bail!("it begins neither with http:// nor with https://");
    }
    Ok(url)
}

/// `name=value,name=value`, values percent-encoded.
fn headers(told: &str) -> anyhow::Result<HeaderMap> {
    let mut headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
    for pair in told.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // Never said aloud: it may be a secret.
        let (name, value) = pair.split_once('=').context("an entry is not of the form name=value")?;
        let name: HeaderName =
            name.trim().parse().with_context(|| format!("{name:?} is no name of a header"))?;
        let value = percent_decode_str(value.trim()).collect::<Vec<u8>>();
        let value = HeaderValue::from_bytes(&value);
        let mut value = value.with_context(|| format!("the value of {name} cannot stand in a header"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Who sends: what all spans and log lines of a process share.
fn resource(node: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Message(&mut bytes).nested(1, |resource| {
        resource.attribute(1, "service.name", Value::Text("orlog"));
        resource.attribute(1, "service.version", Value::Text(env!("CARGO_PKG_VERSION")));
        resource.attribute(1, "service.instance.id", Value::Text(node));
    });
    bytes
}

fn scope() -> Vec<u8> {
    let mut bytes = Vec::new();
    Message(&mut bytes).nested(1, |scope| {
        scope.text(1, "orlog");
        scope.text(2, env!("CARGO_PKG_VERSION"));
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_other_programs_read_them() {
        let read = headers("authorization=Bearer%20abc%3D, x-scope=1 ,").unwrap();
        assert_eq!([&read["authorization"], &read["x-scope"]], ["Bearer abc=", "1"]);
        assert!(read["authorization"].is_sensitive());
        assert_eq!(headers("").unwrap().len(), 1);
        for (bad, why) in
            [("secret", "name=value"), ("a b=secret", "no name"), ("a=secret%0a", "the value of a")]
        {
            let error = format!("{:#}", headers(bad).unwrap_err());
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn only_addresses_that_http_reaches_are_taken() {
        assert!(address("http://127.0.0.1:4318/v1/traces").is_ok());
        for bad in ["", "127.0.0.1:4318/v1/traces", "grpc://collector:4317/v1/traces"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
