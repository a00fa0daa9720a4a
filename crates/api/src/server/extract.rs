//! Extractors of handlers: the tenant, the path parameters and the query, each validated once.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use jiff::SignedDuration;
use orlog_model::{CorrelationId, InstanceKey, SagaName, TenantId, Timestamp, TraceParent};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

use utoipa::IntoParams;

use super::context::{ApiState, RequestContext};
use super::errors::invalid_parameter;
use super::list_tag::ListTag;
use super::page::PageLimits;
use super::problem::{Code, Problem};
use orlog_node::admitted_tenants::AdmittedTenants;
use orlog_node::auth::{Caller, TenantScope};

/// Header with the tenant of the request.
pub(crate) const TENANT_HEADER: &str = "x-tenant-id";

/// Header with the W3C trace context.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// Default number of entries of a page.
const DEFAULT_PAGE_LIMIT: usize = 100;

/// Validated and accepted tenant of the request.
pub(crate) struct Tenant(pub(crate) TenantId);

impl FromRequestParts<ApiState> for Tenant {
    type Rejection = Problem;

    fn from_request_parts(
        parts: &mut Parts,
        api: &ApiState,
    ) -> impl Future<Output = Result<Self, Problem>> + Send {
        ready(tenant(&parts.headers, api.admitted_tenants()).map(Tenant))
    }
}

/// Validated tenant of a request for stored data, which the node does not need to accept.
pub(crate) struct StoredTenant(pub(crate) TenantId);

impl FromRequestParts<ApiState> for StoredTenant {
    type Rejection = Problem;

    fn from_request_parts(
        parts: &mut Parts,
        _api: &ApiState,
    ) -> impl Future<Output = Result<Self, Problem>> + Send {
        ready(stored_tenant(&parts.headers).map(StoredTenant))
    }
}

/// Returns the tenant of the request.
///
/// # Errors
/// If the header is malformed, or if the node does not accept the tenant.
pub(crate) fn tenant(headers: &HeaderMap, admitted: &AdmittedTenants) -> Result<TenantId, Problem> {
    let tenant = stored_tenant(headers)?;
    if admitted.admits(&tenant) {
        Ok(tenant)
    } else {
        let detail = format!("unknown tenant {:?}", tenant.as_str());
        Err(Problem::new(Code::UnknownTenant, detail))
    }
}

/// Returns the tenant of the request, also if the node does not accept it.
///
/// # Errors
/// If the header is malformed.
pub(crate) fn stored_tenant(headers: &HeaderMap) -> Result<TenantId, Problem> {
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let first = values.next();
    // A proxy can repeat the header; different values could be read differently by authorization
    // and handler.
    if let Some(second) = values.find(|value| Some(*value) != first) {
        let detail = format!("duplicate header {TENANT_HEADER}: {first:?} and {second:?}");
        return Err(Problem::new(Code::BadTenant, detail));
    }

    let text =
        std::str::from_utf8(first.map_or(b"", |value| value.as_bytes())).map_err(|error| {
            Problem::new(
                Code::BadTenant,
                format!("{TENANT_HEADER} is not UTF-8: {error}"),
            )
        })?;
    let tenant =
        TenantId::new(text).map_err(|error| Problem::new(Code::BadTenant, error.to_string()))?;
    tracing::Span::current().record("tenant", tenant.as_str());
    Ok(tenant)
}

/// Whether the caller has access to all tenants, and therefore to data of the node.
pub(crate) struct NodeAccess(pub(crate) bool);

impl FromRequestParts<ApiState> for NodeAccess {
    type Rejection = Infallible;

    fn from_request_parts(
        parts: &mut Parts,
        _api: &ApiState,
    ) -> impl Future<Output = Result<Self, Infallible>> + Send {
        let caller = parts.extensions.get::<Caller>();
        ready(Ok(Self(
            caller.is_some_and(|caller| caller.tenants == TenantScope::All),
        )))
    }
}

/// Path of an instance.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct InstanceParams {
    /// Saga name
    saga: String,
    /// Correlation id, percent-encoded
    correlation: String,
}

/// Instance from the tenant and the path.
pub(crate) struct InstancePath(pub(crate) InstanceKey);

impl FromRequestParts<ApiState> for InstancePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Problem> {
        let Tenant(tenant) = Tenant::from_request_parts(parts, api).await?;
        let Path(path) = Path::<InstanceParams>::from_request_parts(parts, api).await?;
        let InstanceParams { saga, correlation } = path;
        let saga =
            SagaName::new(saga).map_err(|error| invalid_parameter("saga", error.to_string()))?;
        let correlation = CorrelationId::new(correlation)
            .map_err(|error| invalid_parameter("correlation", error.to_string()))?;

        Ok(InstancePath(InstanceKey {
            tenant,
            saga,
            correlation,
        }))
    }
}

/// Last segment of the path.
pub(crate) struct LastSegment(pub(crate) String);

impl FromRequestParts<ApiState> for LastSegment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, api).await?;
        Ok(LastSegment(text))
    }
}

/// Parameters of the path; a problem if they cannot be decoded.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<ApiState> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Problem> {
        let Path(params) = Path::<T>::from_request_parts(parts, api).await?;
        Ok(PathParams(params))
    }
}

/// Query parameters; unknown names are rejected.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<ApiState> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Problem> {
        let Query(params) = Query::<T>::from_request_parts(parts, api).await?;
        Ok(QueryParams(params))
    }
}

/// Returns the number of entries of a page: the requested number, within the configured limit.
pub(crate) fn page_limit(requested: Option<usize>, api: &RequestContext) -> usize {
    requested
        .unwrap_or(DEFAULT_PAGE_LIMIT)
        .clamp(1, api.http().max_page_size)
}

/// Returns the trace of the request.
pub(crate) fn request_trace(headers: &HeaderMap) -> Option<TraceParent> {
    headers
        .get(TRACEPARENT)
        .and_then(|value| value.to_str().ok())
        .and_then(TraceParent::new)
}

/// Returns the limits of a page: the requested number of entries and the size, within the
/// configured limits.
pub(crate) fn page_limits(requested: Option<usize>, api: &RequestContext) -> PageLimits {
    let bytes = api.http().max_page_bytes;
    PageLimits {
        entries: page_limit(requested, api),
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        list: ListTag::of(api.scope.uri.path()),
    }
}

/// Parses a duration in a query.
pub(crate) fn duration(name: &str, text: Option<&str>) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok());

    parsed.map(Some).ok_or_else(|| {
        invalid_parameter(
            name,
            format!("invalid duration {text:?}; expected for example \"20s\""),
        )
    })
}

/// Parses an RFC 3339 time in a query.
pub(crate) fn time<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // In a query, an unencoded plus sign arrives as a space.
    let text = text.replace(' ', "+");
    Timestamp::parse(&text).map(Some).map_err(D::Error::custom)
}

/// Returns whether a client requests server-sent events.
pub(crate) fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("text/event-stream"))
}
