//! Permissions of routes. A route without an entry requires the right `admin` for the node; a test
//! verifies that all routes have one.

use super::request_info::{ENROLL_ROUTE, WEBHOOK_ROUTE};
use orlog_node::auth::Right;

/// Permission that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// No authentication.
    Public,
    /// Authentication, but no right.
    Authenticated,
    /// Right for the tenant of the request.
    Tenant(Right),
    /// Right for the tenant in the path: `/v1/contexts/{tenant}`.
    Context(Right),
    /// The actor in the path itself, or the right `admin` for the node: `/v1/actors/{actor}`.
    Actor,
    /// A peer, which has signed the request.
    Peer,
    /// Right with access to all tenants, because the route affects the node.
    Node(Right),
}

use Permission::{Actor, Authenticated, Context, Node, Peer, Public, Tenant};
use Right::{
    Admin, Assign, Audit, Control, Metrics, Publish, Read, ReadMessages, ReadTasks, Tasks, Work,
};

#[rustfmt::skip]
const TABLE: &[(&str, &str, Permission)] = &[
    ("GET", "/", Public),
    ("GET", "/ui/{file}", Public),
    ("GET", "/ui/views/{file}", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/errors/{code}", Public),
    ("GET", "/.well-known/orlog-node", Public),
    ("GET", "/health", Public),
    ("GET", "/ready", Public),
    ("GET", "/auth/login", Public),
    ("GET", "/auth/callback", Public),
    ("POST", "/auth/logout", Authenticated),
    ("GET", "/auth/caller", Authenticated),
    ("GET", "/metrics", Node(Metrics)),
    ("GET", "/info", Node(Read)),
    ("POST", "/admin/drain", Node(Admin)),
    ("POST", "/admin/deploy", Node(Admin)),
    ("POST", "/admin/reload", Node(Admin)),
    ("POST", "/admin/collect", Node(Admin)),
    ("GET", "/admin/log", Node(Read)),
    ("PUT", "/admin/log", Node(Admin)),
    ("DELETE", "/admin/log", Node(Admin)),
    ("GET", "/admin/diagnostics", Node(Read)),
    ("POST", "/admin/backup", Node(Admin)),
    ("GET", "/admin/backup/{id}/files/{path}", Node(Admin)),
    ("DELETE", "/admin/backup/{id}", Node(Admin)),
    ("GET", "/v1/audit", Tenant(Audit)),
    ("POST", "/v1/events", Tenant(Publish)),
    // The signature of the request authenticates it.
    ("POST", WEBHOOK_ROUTE, Public),
    ("GET", "/v1/sagas", Tenant(Read)),
    ("POST", "/v1/sagas/{saga}", Tenant(Publish)),
    ("GET", "/v1/sagas/{saga}/{correlation}", Tenant(Read)),
    ("GET", "/v1/sagas/{saga}/{correlation}/result", Tenant(Read)),
    ("GET", "/v1/sagas/{saga}/{correlation}/graph.svg", Tenant(Read)),
    ("GET", "/v1/sagas/{saga}/{correlation}/job-logs", Tenant(Read)),
    ("POST", "/v1/sagas/{saga}/{correlation}/signal", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/cancel", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/pause", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/resume", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/retry", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/skip", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/force-complete", Tenant(Control)),
    ("POST", "/v1/sagas/{saga}/{correlation}/drop", Tenant(Control)),
    ("GET", "/v1/runners", Tenant(Read)),
    ("POST", "/v1/runners", Tenant(Work)),
    ("DELETE", "/v1/runners/{name}", Tenant(Work)),
    ("GET", "/v1/flows", Tenant(Read)),
    ("POST", "/v1/flows", Tenant(Control)),
    ("GET", "/v1/flows/{id}", Tenant(Read)),
    ("GET", "/v1/flows/{id}/lines", Tenant(Read)),
    ("POST", "/v1/flows/{id}/cancel", Tenant(Control)),
    ("POST", "/v1/flows/{id}/retry", Tenant(Control)),
    ("POST", "/v1/flows/{id}/jobs/{job}/rerun", Tenant(Control)),
    ("GET", "/v1/batches", Tenant(Read)),
    ("POST", "/v1/batches", Tenant(Control)),
    ("GET", "/v1/batches/{id}", Tenant(Read)),
    ("POST", "/v1/batches/{id}/pause", Tenant(Control)),
    ("POST", "/v1/batches/{id}/resume", Tenant(Control)),
    ("POST", "/v1/batches/{id}/stop", Tenant(Control)),
    ("GET", "/v1/messages", Tenant(ReadMessages)),
    ("POST", "/v1/messages", Tenant(Work)),
    ("GET", "/v1/messages/{id}", Tenant(ReadMessages)),
    ("POST", "/v1/messages/{id}/cancel", Tenant(Work)),
    ("POST", "/v1/messages/{id}/acknowledge", Tenant(Work)),
    ("POST", "/v1/messages/{id}/process", Tenant(Work)),
    ("POST", "/v1/messages/{id}/reject", Tenant(Work)),
    ("POST", "/v1/messages/{id}/lines", Tenant(Work)),
    ("GET", "/v1/shadows", Tenant(Read)),
    ("POST", "/v1/shadows", Node(Admin)),
    ("GET", "/v1/shadows/{saga}", Tenant(Read)),
    ("POST", "/v1/shadows/{saga}/stop", Node(Admin)),
    ("POST", "/v1/shadows/{saga}/promote", Node(Admin)),
    ("GET", "/v1/schedules", Tenant(Read)),
    ("GET", "/v1/schedules/{name}", Tenant(Read)),
    ("PUT", "/v1/schedules/{name}", Tenant(Control)),
    ("DELETE", "/v1/schedules/{name}", Tenant(Control)),
    ("POST", "/v1/schedules/{name}/pause", Tenant(Control)),
    ("POST", "/v1/schedules/{name}/resume", Tenant(Control)),
    ("POST", "/v1/schedules/{name}/trigger", Tenant(Control)),
    ("GET", "/v1/tasks", Tenant(ReadTasks)),
    ("GET", "/v1/tasks/{id}", Tenant(ReadTasks)),
    ("POST", "/v1/tasks/{id}/claim", Tenant(Tasks)),
    ("POST", "/v1/tasks/{id}/release", Tenant(Tasks)),
    ("POST", "/v1/tasks/{id}/assign", Tenant(Assign)),
    ("POST", "/v1/tasks/{id}/complete", Tenant(Tasks)),
    ("GET", "/v1/dead-letters", Tenant(Read)),
    ("GET", "/v1/dead-letters/causes", Tenant(Read)),
    ("GET", "/v1/dead-letters/{id}", Tenant(Read)),
    ("GET", "/v1/export", Tenant(Read)),
    ("GET", "/v1/overview", Tenant(Read)),
    ("DELETE", "/v1/dead-letters/{id}", Tenant(Control)),
    ("POST", "/v1/dead-letters/{id}/redrive", Tenant(Control)),
    ("POST", "/v1/dead-letters/redrive", Tenant(Control)),
    ("POST", "/v1/replays", Tenant(Admin)),
    ("GET", "/v1/timers", Tenant(Read)),
    ("GET", "/v1/work", Tenant(Read)),
    ("GET", "/v1/work/waiting", Tenant(Work)),
    ("POST", "/v1/work/claim", Tenant(Work)),
    ("GET", "/v1/work/exchange", Tenant(Work)),
    ("POST", "/v1/work/exchange", Tenant(Work)),
    ("POST", "/v1/work/fetch", Tenant(Work)),
    ("POST", "/v1/work/jobs/{job}/claim", Tenant(Work)),
    ("POST", "/v1/work/jobs/{job}/heartbeat", Tenant(Work)),
    ("POST", "/v1/work/jobs/{job}/logs", Tenant(Work)),
    ("POST", "/v1/work/jobs/{job}/result", Tenant(Work)),
    ("GET", "/v1/definitions", Tenant(Read)),
    ("GET", "/v1/definitions/{saga}", Tenant(Read)),
    ("GET", "/v1/definitions/{saga}/graph.svg", Tenant(Read)),
    ("POST", "/v1/definitions/{saga}/migrate", Tenant(Admin)),
    ("GET", "/v1/contexts", Authenticated),
    ("GET", "/v1/contexts/{tenant}", Context(Read)),
    ("PUT", "/v1/contexts/{tenant}", Context(Admin)),
    ("DELETE", "/v1/contexts/{tenant}", Context(Admin)),
    ("POST", "/v1/contexts/{tenant}/definitions", Context(Admin)),
    ("POST", "/v1/contexts/{tenant}/definitions/collect", Context(Admin)),
    ("GET", "/v1/actors", Node(Admin)),
    ("POST", "/v1/actors", Node(Admin)),
    ("GET", "/v1/actors/{actor}", Actor),
    ("PUT", "/v1/actors/{actor}", Actor),
    ("POST", "/v1/actors/{actor}/keys", Actor),
    ("POST", "/v1/actors/{actor}/keys/{key}/revoke", Actor),
    ("POST", "/v1/actors/{actor}/invitation", Node(Admin)),
    // The token of an invitation authenticates it.
    ("POST", ENROLL_ROUTE, Public),
    ("GET", "/v1/peers", Node(Admin)),
    ("POST", "/v1/peers", Node(Admin)),
    ("GET", "/v1/peers/{peer}", Node(Admin)),
    ("PUT", "/v1/peers/{peer}", Node(Admin)),
    ("DELETE", "/v1/peers/{peer}", Node(Admin)),
    ("POST", "/v1/peers/{peer}/keys", Node(Admin)),
    ("POST", "/v1/peers/{peer}/keys/{key}/revoke", Node(Admin)),
    ("POST", "/v1/peers/{peer}/refresh", Node(Admin)),
    ("POST", "/v1/peers/{peer}/check", Node(Admin)),
    ("POST", "/v1/node-documents", Node(Admin)),
    ("POST", "/v1/peer/check", Peer),
    ("POST", "/v1/peer/messages", Peer),
    ("GET", "/v1/mailboxes", Tenant(Read)),
    ("GET", "/v1/inspect/{table}", Tenant(Read)),
];

/// Returns the permission of a route; `public` lists the configured public routes.
pub(crate) fn required_permission(method: &str, route: &str, public: &[String]) -> Permission {
    // In axum, the handler of GET also executes HEAD, so that both need the same right.
    let method = if method == "HEAD" { "GET" } else { method };
    if method == "GET" && public.iter().any(|open| open == route) {
        return Public;
    }
    let found = TABLE
        .iter()
        .find(|(of, path, _)| *of == method && *path == route);
    // A route without an entry is closed to all but administrators, not open.
    found.map_or(Node(Admin), |(.., right)| *right)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_declares_its_permission() {
        let description = serde_json::to_value(crate::openapi()).unwrap();
        let mut routes = BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            let methods = item
                .as_object()
                .unwrap()
                .iter()
                .filter(|(_, operation)| operation["responses"].is_object());
            routes.extend(methods.map(|(method, _)| format!("{} {path}", method.to_uppercase())));
        }
        let table: BTreeSet<_> = TABLE
            .iter()
            .map(|(method, path, _)| format!("{method} {path}"))
            .collect();
        assert_eq!(table, routes);
        assert_eq!(table.len(), TABLE.len(), "a route stands there twice");
    }

    #[test]
    fn read_routes_change_nothing() {
        // These are public changes: a signature or a token in the body authenticates them.
        let public = [WEBHOOK_ROUTE, ENROLL_ROUTE];
        for (method, path, right) in TABLE.iter().filter(|(_, path, _)| !public.contains(path)) {
            let reads = *method == "GET";
            let only_reads = matches!(
                right,
                Public
                    | Tenant(Read | ReadMessages | ReadTasks | Audit)
                    | Context(Read)
                    | Node(Read | Metrics)
            );
            assert!(reads || !only_reads, "{method} {path}");
            assert!(
                !matches!(right, Public) || !path.starts_with("/v1") && !path.starts_with("/admin"),
                "{path}"
            );
        }
    }

    #[test]
    fn unknown_route_requires_admin() {
        let public = ["/info".to_owned()];
        assert_eq!(required_permission("GET", "/info", &public), Public);
        assert_eq!(required_permission("HEAD", "/info", &[]), Node(Read));
        assert_eq!(required_permission("POST", "/info", &public), Node(Admin));
        assert_eq!(required_permission("GET", "/new", &[]), Node(Admin));
    }
}
