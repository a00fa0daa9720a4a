//! Server of the API: connections, layers, extractors, and errors as problems with a code.
//!
//! A request acts for the tenant in its `x-tenant-id` header and never accesses another tenant.
//! Permissions are in `permissions.rs`. The description at `/openapi.json` is generated from the
//! handlers of the resources.

pub(crate) mod admission;
pub(crate) mod allowed_hosts;
pub(crate) mod audit_guard;
pub(crate) mod authorize;
pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod body_budget;
pub(crate) mod caller;
pub(crate) mod connections;
pub(crate) mod context;
pub(crate) mod errors;
pub(crate) mod extract;
pub(crate) mod forward;
pub(crate) mod health;
pub(crate) mod index;
pub(crate) mod list_tag;
pub(crate) mod logged_reads;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod origin;
pub(crate) mod other_boards;
pub(crate) mod overview_cache;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod permissions;
mod pod_sender;
pub(crate) mod problem;
pub(crate) mod query_guard;
pub(crate) mod query_limit;
pub(crate) mod query_parameters;
pub(crate) mod quotas;
pub(crate) mod read_scope;
pub(crate) mod request_context;
pub(crate) mod request_info;
pub(crate) mod request_metrics;
pub(crate) mod security_headers;
pub(crate) mod serve;
mod signed_node;
pub(crate) mod signed_request;
pub(crate) mod tenant_storage;
pub(crate) mod ui;
