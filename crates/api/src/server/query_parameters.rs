//! Query parameters of the routes, as the description of the API states them: a new route is among
//! them.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use utoipa::openapi::path::{Operation, ParameterIn, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

/// Routes with parameters that others choose, and why they accept all.
const OPEN_ROUTES: [&str; 3] = [
    // Portals, mail programs and analytics add parameters to the links to a page.
    "/",
    // An OpenID provider may add parameters, which a client must ignore (RFC 6749, 4.1.2).
    "/auth/callback",
    // The sender of a webhook can be unable to send a URL without parameters.
    "/v1/webhooks/{name}",
];

/// Query parameters of the routes, by path and method.
pub(crate) struct QueryParameters(BTreeMap<String, BTreeMap<&'static str, BTreeSet<String>>>);

impl QueryParameters {
    /// Reads the parameters from the description of the API.
    pub(crate) fn of(mut description: OpenApi) -> Self {
        let mut routes = BTreeMap::new();
        for (path, item) in &mut description.paths.paths {
            let mut methods = BTreeMap::new();
            for (method, operation) in operations(item) {
                let parameters = operation.parameters.iter().flatten();
                let names = parameters.filter_map(|parameter| match parameter {
                    RefOr::T(it) if it.parameter_in == ParameterIn::Query => Some(it.name.clone()),
                    RefOr::T(_) | RefOr::Ref(_) => None,
                });
                methods.insert(method, names.collect());
            }
            routes.insert(path.clone(), methods);
        }
        Self(routes)
    }

    /// Returns the parameters of a route; `None` if it accepts all.
    pub(crate) fn of_route(&self, method: &Method, route: &str) -> Option<&BTreeSet<String>> {
        if OPEN_ROUTES.contains(&route) {
            return None;
        }
        // A response to HEAD is that to GET.
        let method = match method.as_str() {
            "HEAD" => "GET",
            other => other,
        };
        self.0.get(route)?.get(method)
    }
}

/// Returns the operations of a path, with their methods.
pub(crate) fn operations(
    item: &mut PathItem,
) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem {
        get,
        put,
        post,
        delete,
        patch,
        ..
    } = item;
    let methods = [
        ("GET", get),
        ("PUT", put),
        ("POST", post),
        ("DELETE", delete),
        ("PATCH", patch),
    ];

    methods
        .into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}
