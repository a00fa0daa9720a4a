//! Permissions of routes. A route without an entry requires all permissions; a test verifies that all
//! routes have one.

use crate::auth::Role;

/// Permission that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// No authentication.
    Public,
    /// Role for the tenant of the request.
    Tenant(Role),
    /// Role with access to all tenants, because the route affects the node.
    Node(Role),
}

use Permission::{Node, Public, Tenant};
use Role::{Admin, Operator, Viewer};

#[rustfmt::skip]
const TABLE: &[(&str, &str, Permission)] = &[
    ("GET", "/", Public),
    ("GET", "/ui/{file}", Public),
    ("GET", "/ui/views/{file}", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/errors/{code}", Public),
    ("GET", "/health", Public),
    ("GET", "/ready", Public),
    ("GET", "/metrics", Node(Viewer)),
    ("GET", "/info", Node(Viewer)),
    ("POST", "/admin/drain", Node(Admin)),
    ("POST", "/admin/deploy", Node(Admin)),
    ("POST", "/admin/reload", Node(Admin)),
    ("POST", "/admin/collect", Node(Admin)),
    ("GET", "/admin/log", Node(Viewer)),
    ("PUT", "/admin/log", Node(Admin)),
    ("DELETE", "/admin/log", Node(Admin)),
    ("GET", "/admin/diagnostics", Node(Viewer)),
    ("POST", "/admin/backup", Node(Admin)),
    ("GET", "/admin/backup/{id}/files/{path}", Node(Admin)),
    ("DELETE", "/admin/backup/{id}", Node(Admin)),
    ("GET", "/v1/audit", Tenant(Admin)),
    ("POST", "/v1/events", Tenant(Operator)),
    ("GET", "/v1/sagas", Tenant(Viewer)),
    ("GET", "/v1/sagas/{saga}/{correlation}", Tenant(Viewer)),
    ("GET", "/v1/sagas/{saga}/{correlation}/graph.svg", Tenant(Viewer)),
    ("GET", "/v1/sagas/{saga}/{correlation}/job-logs", Tenant(Viewer)),
    ("POST", "/v1/sagas/{saga}/{correlation}/signal", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/cancel", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/pause", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/resume", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/retry", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/skip", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/force-complete", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/drop", Tenant(Operator)),
    ("GET", "/v1/tasks", Tenant(Viewer)),
    ("GET", "/v1/tasks/{id}", Tenant(Viewer)),
    ("POST", "/v1/tasks/{id}/claim", Tenant(Operator)),
    ("POST", "/v1/tasks/{id}/release", Tenant(Operator)),
    ("POST", "/v1/tasks/{id}/assign", Tenant(Operator)),
    ("POST", "/v1/tasks/{id}/complete", Tenant(Operator)),
    ("GET", "/v1/dead-letters", Tenant(Viewer)),
    ("GET", "/v1/dead-letters/causes", Tenant(Viewer)),
    ("GET", "/v1/dead-letters/{id}", Tenant(Viewer)),
    ("GET", "/v1/export", Tenant(Viewer)),
    ("GET", "/v1/overview", Tenant(Viewer)),
    ("DELETE", "/v1/dead-letters/{id}", Tenant(Operator)),
    ("POST", "/v1/dead-letters/{id}/redrive", Tenant(Operator)),
    ("POST", "/v1/dead-letters/redrive", Tenant(Operator)),
    ("POST", "/v1/replays", Tenant(Admin)),
    ("GET", "/v1/timers", Tenant(Viewer)),
    ("GET", "/v1/work", Tenant(Viewer)),
    ("POST", "/v1/work/claim", Tenant(Operator)),
    ("POST", "/v1/work/jobs/{job}/heartbeat", Tenant(Operator)),
    ("POST", "/v1/work/jobs/{job}/logs", Tenant(Operator)),
    ("POST", "/v1/work/jobs/{job}/result", Tenant(Operator)),
    ("GET", "/v1/definitions", Tenant(Viewer)),
    ("GET", "/v1/definitions/{saga}", Tenant(Viewer)),
    ("GET", "/v1/definitions/{saga}/graph.svg", Tenant(Viewer)),
    ("POST", "/v1/definitions/{saga}/migrate", Tenant(Admin)),
    ("GET", "/v1/mailboxes", Tenant(Viewer)),
    ("GET", "/v1/inspect/{table}", Tenant(Viewer)),
];

/// Returns the permission of a route; `public` lists the configured public routes.
pub(super) fn required_permission(method: &str, route: &str, public: &[String]) -> Permission {
    let method = if method == "HEAD" { "GET" } else { method };
    if method == "GET" && public.iter().any(|open| open == route) {
        return Public;
    }
    let found = TABLE.iter().find(|(of, path, _)| *of == method && *path == route);
    found.map_or(Node(Admin), |(.., right)| *right)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_declares_its_permission() {
        let description = serde_json::to_value(super::super::openapi()).unwrap();
        let mut routes = BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            let methods =
                item.as_object().unwrap().iter().filter(|(_, operation)| operation["responses"].is_object());
            routes.extend(methods.map(|(method, _)| format!("{} {path}", method.to_uppercase())));
        }
        let table: BTreeSet<_> = TABLE.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        assert_eq!(table, routes);
        assert_eq!(table.len(), TABLE.len(), "a route stands there twice");
    }

    #[test]
    fn viewer_routes_are_read_only() {
        for (method, path, right) in TABLE {
            let reads = *method == "GET";
            let is_for_viewers = matches!(right, Public | Tenant(Viewer) | Node(Viewer));
            assert!(reads || !is_for_viewers, "{method} {path}");
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
        assert_eq!(required_permission("HEAD", "/info", &[]), Node(Viewer));
        assert_eq!(required_permission("POST", "/info", &public), Node(Admin));
        assert_eq!(required_permission("GET", "/new", &[]), Node(Admin));
    }
}
