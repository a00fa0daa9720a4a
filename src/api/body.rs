//! Bodies: read within a size and a time, then parsed, with the place of every mistake.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use futures::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::problem::{Code, Place, Problem};

/// The longest `found` text in a problem, in characters.
const SHOWN: usize = 64;

/// Reads a body of at most `limit` bytes that arrives within `patience`.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: u64,
    patience: Duration,
) -> Result<Bytes, Problem> {
    if let Some(announced) = announced(headers).filter(|announced| *announced > limit) {
        return Err(too_large(&format!("{announced} bytes are announced"), limit));
    }
    tokio::time::timeout(patience, collect(body, limit)).await.unwrap_or_else(|_| {
        Err(Problem::new(Code::TooSlow, format!("the body did not arrive within {patience:?}")))
    })
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn collect(body: Body, limit: u64) -> Result<Bytes, Problem> {
    let mut chunks = body.into_data_stream();
    let mut all: Vec<u8> = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            Problem::new(Code::BrokenBody, format!("the body broke off after {} bytes: {error}", all.len()))
        })?;
        if (all.len() + chunk.len()) as u64 > limit {
            return Err(too_large("the body is longer", limit));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.into())
}

/// The problem of a body that exceeds `limit`.
pub(super) fn too_large(found: &str, limit: u64) -> Problem {
    Problem::new(Code::TooLarge, format!("{found}; the limit is {limit} bytes"))
}

/// A content type without its parameters, in lower case; empty where there is none.
pub(super) fn content_type(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(String::new()) };
    let text = value.to_str().map_err(|_| media_type("a content type that is not ASCII"))?;
    Ok(text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The problem of a content type that is not read.
pub(super) fn media_type(found: &str) -> Problem {
    let shown: String = found.chars().take(SHOWN).collect();
    let detail = format!(
        "{shown:?} is not read here; send application/json, application/cloudevents+json or \
         application/cloudevents-batch+json"
    );
    Problem::new(Code::MediaType, detail)
}

/// Parses JSON, and says where it is wrong: the line and column of what is no JSON, a pointer to what has another shape.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer(error.path());
        wrong(error.inner(), pointer)
    })?;
    deserializer.end().map_err(|error| wrong(&error, String::new()))?;
    Ok(value)
}

fn wrong(error: &serde_json::Error, pointer: String) -> Problem {
    match error.classify() {
        Category::Syntax | Category::Eof | Category::Io => Problem::new(Code::NotJson, error.to_string()),
        Category::Data => {
            let detail = error.to_string();
            let shown = if pointer.is_empty() { detail.clone() } else { format!("{pointer}: {detail}") };
            Problem::new(Code::WrongBody, shown).with(vec![Place { pointer, detail }])
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

/// A name as a token of a JSON pointer (RFC 6901).
pub(super) fn escape(name: &str) -> String {
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
    fn what_is_no_json_is_named_with_line_and_column() {
        check(b"[{\n  \"a\": }]", "line 2 column 8");
        check(b"", "EOF while parsing a value at line 1 column 0");
        check(b"[] []", "trailing characters at line 1 column 4");
        let deep = parse::<serde_json::Value>(&[b'['; 10_000]).unwrap_err();
        assert!(serde_json::to_string(&deep).unwrap().contains("recursion limit"), "{deep:?}");
    }

    #[test]
    fn what_has_another_shape_is_pointed_at() {
        check(br#"[{"a":1},{"b/c":"x"}]"#, "\"pointer\":\"/1/b~1c\"");
        check(br#"{"a":1}"#, "OR0002");
    }
}
