//! Routes whose requests the owner of the shard of the tenant handles.

use axum::http::Method;

/// Routes that are scoped to a tenant, with those below.
const TENANT_SCOPED_ROUTES: [&str; 16] = [
    "/v1/runners",
    "/v1/sagas",
    "/v1/flows",
    "/v1/messages",
    "/v1/batches",
    "/v1/schedules",
    "/v1/shadows",
    "/v1/tasks",
    "/v1/dead-letters",
    "/v1/export",
    "/v1/timers",
    "/v1/work",
    "/v1/inspect",
    "/v1/mailboxes",
    "/v1/overview",
    "/v1/replays",
];

/// Route of the definitions, with those below.
const DEFINITIONS: &str = "/v1/definitions";

/// Returns whether the owner of the shard of the tenant handles a request.
pub(crate) fn is_scoped(method: &Method, path: &str, query: Option<&str>) -> bool {
    TENANT_SCOPED_ROUTES.iter().any(|root| is_below(path, root))
        // Definitions are on every pod, their instances are not.
        || is_migration(path)
        || is_below(path, DEFINITIONS) && counts_instances(query)
        // The owner of the shard looks for instances before it deletes a context.
        || *method == Method::DELETE && path.starts_with("/v1/contexts/")
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn counts_instances(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|parameter| parameter == "count=true"))
}

fn is_migration(path: &str) -> bool {
    let saga = path
        .strip_prefix(DEFINITIONS)
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|rest| rest.strip_suffix("/migrate"));
    saga.is_some_and(|saga| !saga.is_empty() && !saga.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_a_definition_are_scoped_and_the_definition_itself_is_not() {
        for (path, expected) in [
            ("/v1/definitions/order/migrate", true),
            ("/v1/definitions/order", false),
            ("/v1/definitions", false),
            ("/v1/definitions/migrate", false),
            ("/v1/definitions/order/graph.svg", false),
            ("/v1/timers", true),
            ("/v1/timersets", false),
        ] {
            assert_eq!(is_scoped(&Method::POST, path, None), expected, "{path}");
        }
        for (query, expected) in [
            ("count=true", true),
            ("limit=2&count=true", true),
            ("count=false", false),
            ("limit=2", false),
        ] {
            for path in ["/v1/definitions", "/v1/definitions/order"] {
                let is_scoped = is_scoped(&Method::GET, path, Some(query));
                assert_eq!(is_scoped, expected, "{path}?{query}");
            }
        }
        assert!(is_scoped(&Method::DELETE, "/v1/contexts/acme", None));
        assert!(!is_scoped(&Method::PUT, "/v1/contexts/acme", None));
    }
}
