//! What each route asks of its caller. A route that is not in the table asks for everything; a test sees to it that all are.

use crate::auth::Role;

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// Nobody need say who they are.
    Open,
    /// A role, for the tenant of the request.
    Tenant(Role),
    /// A role, for all tenants: it is about the node.
    Node(Role),
}

use Right::{Node, Open, Tenant};
use Role::{Admin, Operator, Viewer};

#[rustfmt::skip]
const TABLE: &[(&str, &str, Right)] = &[
    ("GET", "/", Open),
    ("GET", "/ui/{file}", Open),
    ("GET", "/ui/views/{file}", Open),
    ("GET", "/openapi.json", Open),
    ("GET", "/errors/{code}", Open),
    ("GET", "/health", Open),
    ("GET", "/ready", Open),
    ("GET", "/metrics", Node(Viewer)),
    ("GET", "/info", Node(Viewer)),
    ("POST", "/admin/drain", Node(Admin)),
    ("POST", "/admin/deploy", Node(Admin)),
    ("POST", "/admin/reload", Node(Admin)),
    ("POST", "/admin/collect", Node(Admin)),
    ("GET", "/admin/log", Node(Viewer)),
    ("PUT", "/admin/log", Node(Admin)),
    ("DELETE", "/admin/log", Node(Admin)),
    ("GET", "/admin/diagnosis", Node(Viewer)),
    ("POST", "/admin/backup", Node(Admin)),
    ("GET", "/admin/backup/{id}/files/{path}", Node(Admin)),
    ("DELETE", "/admin/backup/{id}", Node(Admin)),
    ("GET", "/v1/audit", Tenant(Admin)),
    ("POST", "/v1/events", Tenant(Operator)),
    ("GET", "/v1/sagas", Tenant(Viewer)),
    ("GET", "/v1/sagas/{saga}/{correlation}", Tenant(Viewer)),
    ("GET", "/v1/sagas/{saga}/{correlation}/graph.svg", Tenant(Viewer)),
    ("GET", "/v1/sagas/{saga}/{correlation}/lines", Tenant(Viewer)),
    ("POST", "/v1/sagas/{saga}/{correlation}/signal", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/cancel", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/pause", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/resume", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/retry", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/skip", Tenant(Operator)),
    ("POST", "/v1/sagas/{saga}/{correlation}/force-complete", Tenant(Operator)),
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
    ("POST", "/v1/work/jobs/{job}/lines", Tenant(Operator)),
    ("POST", "/v1/work/jobs/{job}/result", Tenant(Operator)),
    ("GET", "/v1/definitions", Tenant(Viewer)),
    ("GET", "/v1/definitions/{saga}", Tenant(Viewer)),
    ("GET", "/v1/definitions/{saga}/graph.svg", Tenant(Viewer)),
    ("POST", "/v1/definitions/{saga}/migrate", Tenant(Admin)),
    ("GET", "/v1/mailboxes", Tenant(Viewer)),
    ("GET", "/v1/inspect/{table}", Tenant(Viewer)),
];

/// What a route asks for; `public` are those that the configuration opens.
pub(super) fn of(method: &str, route: &str, public: &[String]) -> Right {
    let method = if method == "HEAD" { "GET" } else { method };
    if method == "GET" && public.iter().any(|open| open == route) {
        return Open;
    }
    let found = TABLE.iter().find(|(of, path, _)| *of == method && *path == route);
    found.map_or(Node(Admin), |(.., right)| *right)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_says_what_it_asks_for() {
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
    fn who_only_reads_changes_nothing() {
        for (method, path, right) in TABLE {
            let reads = *method == "GET";
            let is_for_viewers = matches!(right, Open | Tenant(Viewer) | Node(Viewer));
            assert!(reads || !is_for_viewers, "{method} {path}");
            assert!(
                !matches!(right, Open) || !path.starts_with("/v1") && !path.starts_with("/admin"),
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_not_known_asks_for_everything() {
        let public = ["/info".to_owned()];
        assert_eq!(of("GET", "/info", &public), Open);
        assert_eq!(of("HEAD", "/info", &[]), Node(Viewer));
        assert_eq!(of("POST", "/info", &public), Node(Admin));
        assert_eq!(of("GET", "/new", &[]), Node(Admin));
    }
}
