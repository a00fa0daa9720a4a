//! What handlers take from a request: the tenant, the names in the path, the query. Each is checked here, once.

use std::future::{Future, ready};

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use orlog_model::{CorrelationId, InstanceKey, SagaName, TenantId, Timestamp, TraceParent};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use super::context::Api;
use super::errors::bad_parameter;
use super::problem::{Code, Problem};

/// The header that says whose request it is.
pub(super) const TENANT_HEADER: &str = "x-tenant-id";

/// The header with the W3C trace context.
pub(super) const TRACEPARENT: &str = "traceparent";

/// Entries of a page where the caller names no number.
const PAGE: usize = 100;

/// Whose request it is; let in.
pub(super) struct Tenant(pub(super) TenantId);

impl FromRequestParts<Api> for Tenant {
    type Rejection = Problem;

    fn from_request_parts(
        parts: &mut Parts,
        api: &Api,
    ) -> impl Future<Output = Result<Self, Problem>> + Send {
        ready(tenant(&parts.headers, api).map(Tenant))
    }
}

fn tenant(headers: &HeaderMap, api: &Api) -> Result<TenantId, Problem> {
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let first = values.next();
    if let Some(second) = values.find(|value| Some(*value) != first) {
        let detail = format!("{TENANT_HEADER} is given twice, as {first:?} and as {second:?}");
        return Err(Problem::new(Code::BadTenant, detail));
    }
    let text = std::str::from_utf8(first.map_or(b"", |value| value.as_bytes()))
        .map_err(|error| Problem::new(Code::BadTenant, format!("{TENANT_HEADER} is not UTF-8: {error}")))?;
    let tenant = TenantId::new(text).map_err(|error| Problem::new(Code::BadTenant, error.to_string()))?;
    tracing::Span::current().record("tenant", tenant.as_str());
    if api.app.config.tenants.admits(&tenant) {
        Ok(tenant)
    } else {
        let detail = format!("the tenant {text:?} is not among those of this deployment");
        Err(Problem::new(Code::UnknownTenant, detail))
    }
}

/// The instance that the tenant and the path name.
pub(super) struct Key(pub(super) InstanceKey);

impl FromRequestParts<Api> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Tenant(tenant) = Tenant::from_request_parts(parts, api).await?;
        let Path((saga, correlation)) = Path::<(String, String)>::from_request_parts(parts, api).await?;
        let saga = SagaName::new(saga).map_err(|error| bad_parameter("saga", error.to_string()))?;
        let correlation = CorrelationId::new(correlation)
            .map_err(|error| bad_parameter("correlation", error.to_string()))?;
        Ok(Key(InstanceKey { tenant, saga, correlation }))
    }
}

/// The last part of the path.
pub(super) struct Part(pub(super) String);

impl FromRequestParts<Api> for Part {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, api).await?;
        Ok(Part(text))
    }
}

/// The query, read into a struct that refuses unknown names.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Query(params) = Query::<T>::from_request_parts(parts, api).await?;
        Ok(Params(params))
    }
}

/// How many entries a page has: what the caller asks for, within the configured bound.
pub(super) fn page_limit(asked: Option<usize>, api: &Api) -> usize {
    asked.unwrap_or(PAGE).clamp(1, api.app.config.http.page_limit)
}

/// The trace that the request belongs to.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).and_then(TraceParent::new)
}

/// Reads an RFC 3339 time in a query.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // In a query, a plus sign that is not encoded arrives as a space.
    let text = text.replace(' ', "+");
    Timestamp::parse(&text).map(Some).map_err(D::Error::custom)
}
