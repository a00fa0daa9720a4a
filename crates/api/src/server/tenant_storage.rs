//! Storage quota of a tenant: a request that adds data of a tenant above it is rejected. Other
//! tenants are not affected.
//!
//! The sizes are those of the last flush, so that they cost a commit nothing; a tenant can exceed a
//! quota by what it adds until the next flush. Requests that end or delete something are not
//! rejected.

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use orlog_model::TenantId;
use orlog_store::TenantUsage;

use super::context::{ApiState, RequestContext};
use super::extract;
use super::problem::{Code, Problem};
use orlog_node::app::App;
use orlog_node::config::TenantStorageConfig;

/// Routes that add data of the tenant in the header of the request. Two handlers check the quota
/// themselves: that of a webhook, whose tenant is configured, and that of an exchange, which adds
/// only the log lines of its message.
const GROWING_ROUTES: [(Method, &str); 9] = [
    (Method::POST, "/v1/events"),
    (Method::POST, "/v1/sagas/{saga}"),
    (Method::POST, "/v1/sagas/{saga}/{correlation}/signal"),
    (Method::POST, "/v1/flows"),
    (Method::POST, "/v1/messages"),
    (Method::POST, "/v1/batches"),
    (Method::PUT, "/v1/schedules/{name}"),
    (Method::POST, "/v1/schedules/{name}/trigger"),
    (Method::POST, "/v1/work/jobs/{job}/logs"),
];

/// Kind of stored rows with a quota.
struct QuotaKind {
    /// Rows, in errors.
    label: &'static str,
    /// Key of the configuration.
    key: &'static str,
    used: u64,
    limit: Option<u64>,
    /// Remedy.
    remedy: &'static str,
}

/// Handles a request, unless it adds data of a tenant above its quota.
pub(crate) async fn enforce(State(api): State<ApiState>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let is_growing = route.is_some_and(|route| {
        GROWING_ROUTES
            .iter()
            .any(|(method, path)| method == request.method() && *path == route.as_str())
    });

    // The handler rejects an invalid tenant.
    if is_growing
        && let Ok(tenant) = extract::tenant(request.headers(), api.admitted_tenants())
        && let Err(problem) = check_usage(&api.shared.app, &tenant)
    {
        return problem.into_response();
    }
    next.run(request).await
}

/// Checks that a tenant is below its quotas on this node.
///
/// # Errors
/// If it is not.
pub(crate) fn check(api: &RequestContext, tenant: &TenantId) -> Result<(), Problem> {
    check_usage(&api.shared.app, tenant)
}

fn check_usage(app: &App, tenant: &TenantId) -> Result<(), Problem> {
    let quotas = &app.config.tenant_storage;
    // Without quotas, the sizes are not read at all.
    if *quotas == TenantStorageConfig::default() {
        return Ok(());
    }

    let mut usage = TenantUsage::default();
    // The instances of a key-sharded tenant are in several shards of this node.
    for reader in app.runtime.readers() {
        usage.add(&reader.usage(tenant)?);
    }

    // At the limit, not above it: the size of what a request adds is unknown here.
    let exceeded = kinds(quotas, &usage)
        .into_iter()
        .find(|kind| kind.limit.is_some_and(|limit| kind.used >= limit));
    match exceeded {
        Some(kind) => Err(kind.problem(tenant)),
        None => Ok(()),
    }
}

fn kinds(quotas: &TenantStorageConfig, usage: &TenantUsage) -> [QuotaKind; 4] {
    [
        QuotaKind {
            label: "dead letters",
            key: "tenant_storage.dead_letters",
            used: usage.dead_letters,
            limit: quotas.dead_letters,
            remedy: "correct their cause, then redrive or discard them (orlog dlq list)",
        },
        QuotaKind {
            label: "buffered inputs",
            key: "tenant_storage.buffered_inputs",
            used: usage.buffered_inputs,
            limit: quotas.buffered_inputs,
            remedy: "start the instances for which the events wait, or resume paused ones",
        },
        QuotaKind {
            label: "instances",
            key: "tenant_storage.instances",
            used: usage.instances,
            limit: quotas.instances,
            remedy: "end instances, and set retention.instances so that ended ones are purged",
        },
        QuotaKind {
            label: "lines of jobs",
            key: "tenant_storage.job_lines",
            used: usage.job_lines,
            limit: quotas.job_lines,
            remedy: "lower jobs.lines, and set retention.instances so that ended flows are purged",
        },
    ]
}

impl QuotaKind {
    fn problem(&self, tenant: &TenantId) -> Problem {
        let Self {
            label,
            key,
            used,
            remedy,
            ..
        } = self;
        let limit = self.limit.unwrap_or_default();
        let detail = format!(
            "the {label} of the tenant {tenant:?} have {used} bytes on this node, and the quota is \
             {limit} ({key}); {remedy}"
        );

        Problem::new(Code::TenantStorageExceeded, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_rows_has_its_own_quota() {
        let usage = TenantUsage {
            dead_letters: 10,
            buffered_inputs: 20,
            instances: 30,
            job_lines: 40,
        };
        let quotas = TenantStorageConfig {
            dead_letters: Some(11),
            buffered_inputs: Some(20),
            instances: None,
            job_lines: Some(39),
        };
        let exceeded: Vec<_> = kinds(&quotas, &usage)
            .into_iter()
            .filter(|kind| kind.limit.is_some_and(|limit| kind.used >= limit))
            .map(|kind| kind.key)
            .collect();
        assert_eq!(
            exceeded,
            ["tenant_storage.buffered_inputs", "tenant_storage.job_lines"]
        );
    }
}
