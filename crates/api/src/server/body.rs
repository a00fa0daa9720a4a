//! Request bodies: read with limits of size and time, then parsed, with the location of every
//! error.

use std::fmt;
use std::io::Read as _;
use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures::StreamExt as _;
use orlog_effect::content_encoding::ContentEncoding;
use orlog_model::parse_foreign_json;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use super::body_budget::{PartialBody, RequestBody};
use super::context::{ApiState, RequestContext};
use super::problem::{Code, Problem, ProblemDetail};
use super::signed_request;
use orlog_node::coded_error::CodedError;

/// Maximum length of `found` text in a problem, in characters.
const MAX_FOUND_CHARS: usize = 64;

/// Number of bytes that are decoded at once.
const DECODED_PIECE_BYTES: usize = 16 << 10;

/// Body as JSON, within `http.max_body_size`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<ApiState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &ApiState) -> Result<Self, Problem> {
        let api = api.for_request(request.extensions());
        Self::read(request, &api).await
    }
}

impl<T: DeserializeOwned + Send + 'static> JsonBody<T> {
    /// Reads and parses the body of a request.
    pub(crate) async fn read(request: Request, api: &RequestContext) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let limit = api.http().max_body_size;
        let body = read(api, &parts.headers, body, limit).await?;

        api.bodies().parse(&body, parse).await.map(Self)
    }
}

/// Value that is a JSON object. A structure alone also accepts an array of its fields.
#[derive(Debug)]
pub(crate) struct ObjectOf<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ObjectOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = ObjectOf<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<ObjectOf<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(ObjectOf)
    }
}

/// Body without a content type, or with that of JSON; within `http.max_body_size`.
pub(crate) struct CheckedBody(pub(crate) RequestBody);

impl CheckedBody {
    /// Parses the body; an empty one is the default.
    pub(crate) fn optional<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.0.trim_ascii().is_empty() {
            Ok(T::default())
        } else {
            parse(&self.0)
        }
    }
}

impl FromRequest<ApiState> for CheckedBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &ApiState) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let content_type = content_type(&parts.headers)?;
        if !matches!(content_type.as_str(), "" | "application/json") {
            return Err(media_type(&content_type));
        }

        let api = api.for_request(&parts.extensions);
        let limit = api.http().max_body_size;
        read(&api, &parts.headers, body, limit).await.map(Self)
    }
}

/// Reads a body of at most `limit` bytes that arrives within `http.request_timeout`, and decodes its
/// content encoding to at most `limit` bytes.
pub(crate) async fn read(
    api: &RequestContext,
    headers: &HeaderMap,
    body: Body,
    limit: u64,
) -> Result<RequestBody, Problem> {
    // Before the body is read.
    let encoding = encoding(headers)?;
    let received = receive(api, headers, body, limit).await?;
    decode_as(api, encoding, received, limit).await
}

/// Reads a body as [`read`] does, in its content encoding: as it was signed.
pub(crate) async fn receive(
    api: &RequestContext,
    headers: &HeaderMap,
    body: Body,
    limit: u64,
) -> Result<RequestBody, Problem> {
    let body_timeout = api.http().request_timeout;
    // A client that announces too much is rejected before it sends it.
    if let Some(announced) = announced(headers).filter(|announced| *announced > limit) {
        return Err(too_large(
            &format!("Content-Length is {announced} bytes"),
            limit,
        ));
    }

    tokio::time::timeout(body_timeout, collect(api, body, limit))
        .await
        .unwrap_or_else(|_| {
            Err(Problem::new(
                Code::BodyTimeout,
                format!("the body did not arrive within {body_timeout:?}"),
            ))
        })
}

/// Decodes the content encoding of a body to at most `limit` bytes.
pub(crate) async fn decode(
    api: &RequestContext,
    headers: &HeaderMap,
    body: &RequestBody,
    limit: u64,
) -> Result<RequestBody, Problem> {
    decode_as(api, encoding(headers)?, body.clone(), limit).await
}

async fn decode_as(
    api: &RequestContext,
    encoding: Option<ContentEncoding>,
    body: RequestBody,
    limit: u64,
) -> Result<RequestBody, Problem> {
    // Some clients also declare an encoding if they send no body.
    let Some(encoding) = encoding.filter(|_| !body.is_empty()) else {
        return Ok(body);
    };

    // The decoded bytes belong to the budget too.
    let decoded = api.bodies().receive(api.scope.caller.as_ref());
    api.bodies()
        .run(move || decode_within(encoding, &body, decoded, limit))
        .await
}

fn encoding(headers: &HeaderMap) -> Result<Option<ContentEncoding>, Problem> {
    ContentEncoding::of(headers).map_err(|error| Problem::unsupported_encoding(&error))
}

fn decode_within(
    encoding: ContentEncoding,
    encoded: &[u8],
    mut decoded: PartialBody,
    limit: u64,
) -> Result<RequestBody, Problem> {
    let mut plain = encoding.decoder(encoded);
    let mut piece = vec![0; DECODED_PIECE_BYTES];
    loop {
        let count = plain.read(&mut piece).map_err(|error| {
            let detail = format!("the body is not valid {encoding}: {error}");
            Problem::new(Code::InvalidEncoding, detail)
        })?;
        if count == 0 {
            return Ok(decoded.finish());
        }

        if (decoded.len() + count) as u64 > limit {
            return Err(too_large("the decoded body exceeds the limit", limit));
        }
        decoded.add(&piece[..count])?;
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

async fn collect(api: &RequestContext, body: Body, limit: u64) -> Result<RequestBody, Problem> {
    let mut all = api.bodies().receive(api.scope.caller.as_ref());
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            // The end of a signed body with another digest is an error of the stream.
            let digest = signed_request::digest_problem(api, &error);
            digest.unwrap_or_else(|| {
                Problem::new(
                    Code::IncompleteBody,
                    format!("the body ended after {} bytes: {error}", all.len()),
                )
            })
        })?;
        // The announced length can be absent or wrong, so that the limit applies to what arrives.
        if (all.len() + chunk.len()) as u64 > limit {
            return Err(too_large("the body exceeds the limit", limit));
        }

        all.add(&chunk)?;
    }

    Ok(all.finish())
}

/// Creates the problem of a body that exceeds `limit`.
pub(crate) fn too_large(found: &str, limit: u64) -> Problem {
    CodedError::too_large(found, limit).into()
}

/// Returns the content type without its parameters, in lower case; empty if there is none.
pub(crate) fn content_type(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(String::new());
    };

    let text = value
        .to_str()
        .map_err(|_| media_type("a non-ASCII content type"))?;
    Ok(text
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase())
}

/// Creates the problem of an unsupported content type.
pub(crate) fn media_type(found: &str) -> Problem {
    let text: String = found.chars().take(MAX_FOUND_CHARS).collect();
    let detail = format!(
        "{text:?} is not supported; send application/json, application/cloudevents+json or \
         application/cloudevents-batch+json"
    );
    Problem::new(Code::UnsupportedMediaType, detail)
}

/// Parses JSON. Errors have a location: line and column of invalid JSON, a pointer for an
/// unexpected structure.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        json_problem(error.inner(), pointer)
    })?;
    // Text behind the value would otherwise be ignored.
    deserializer
        .end()
        .map_err(|error| json_problem(&error, String::new()))?;

    Ok(value)
}

/// Parses JSON of another system, whose text can be cut within a character.
pub(crate) fn parse_foreign(bytes: &[u8]) -> Result<serde_json::Value, Problem> {
    let parsed = parse_foreign_json(bytes).map_err(|error| json_problem(&error, String::new()))?;
    if parsed.is_repaired {
        tracing::warn!("a body has text that is not Unicode; it was replaced by U+FFFD");
    }
    Ok(parsed.value)
}

/// Converts a JSON value. Errors have a pointer, as in [`parse`].
pub(crate) fn parse_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let pointer = pointer(error.path());
        json_problem(error.inner(), pointer)
    })
}

fn json_problem(error: &serde_json::Error, pointer: String) -> Problem {
    match error.classify() {
        Category::Syntax | Category::Eof | Category::Io => {
            Problem::new(Code::InvalidJson, error.to_string())
        }
        Category::Data => {
            let detail = error.to_string();
            let text = if pointer.is_empty() {
                detail.clone()
            } else {
                format!("{pointer}: {detail}")
            };
            Problem::new(Code::InvalidBody, text).with(vec![ProblemDetail { pointer, detail }])
        }
    }
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } => pointer.push_str(&escape(key)),
            Segment::Enum { variant } => pointer.push_str(&escape(variant)),
            Segment::Unknown => pointer.push('?'),
        }
    }

    pointer
}

/// Escapes a name as a token of a JSON pointer (RFC 6901).
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let problem = parse::<Vec<BTreeMap<String, u8>>>(bytes).unwrap_err();
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn invalid_json_error_has_line_and_column() {
        check(b"[{\n  \"a\": }]", "line 2 column 8");
        check(b"", "EOF while parsing a value at line 1 column 0");
        check(b"[] []", "trailing characters at line 1 column 4");
        let deep = parse::<serde_json::Value>(&[b'['; 10_000]).unwrap_err();
        assert!(
            serde_json::to_string(&deep)
                .unwrap()
                .contains("recursion limit"),
            "{deep:?}"
        );
    }

    #[test]
    fn invalid_shape_error_has_a_pointer() {
        check(br#"[{"a":1},{"b/c":"x"}]"#, "\"pointer\":\"/1/b~1c\"");
        check(br#"{"a":1}"#, "OR0002");
    }
}
