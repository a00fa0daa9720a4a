//! Query of a request: it has only parameters of its route, and a cursor of its own list.
//!
//! A cursor of a client starts with the tag of its list; handlers receive the rest.

use std::collections::BTreeSet;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::context::ApiState;
use super::errors::invalid_parameter;
use super::list_tag::ListTag;
use super::problem::Problem;
use super::query_parameters::QueryParameters;

/// Parameter with the position in a list.
const CURSOR: &str = "cursor";

/// Rejects a request with a parameter that its route does not have, and reads its cursor.
pub(crate) async fn check(
    State(api): State<ApiState>,
    mut request: Request,
    next: Next,
) -> Response {
    match checked(&api.shared.query_parameters, &request) {
        Ok(None) => {}
        Ok(Some(uri)) => *request.uri_mut() = uri,
        Err(problem) => return problem.into_response(),
    }
    next.run(request).await
}

/// Returns the URI for the handler, if it differs from that of the client.
fn checked(parameters: &QueryParameters, request: &Request) -> Result<Option<Uri>, Problem> {
    let uri = request.uri();
    let route = request.extensions().get::<MatchedPath>();
    let Some(query) = uri.query() else {
        return Ok(None);
    };
    // A path without a route has no parameters either.
    let Some(route) = route else {
        return Ok(None);
    };
    let Some(known) = parameters.of_route(request.method(), route.as_str()) else {
        return Ok(None);
    };

    let mut has_cursor = false;
    for (name, _) in form_urlencoded::parse(query.as_bytes()) {
        if !known.contains(name.as_ref()) {
            return Err(unknown(&name, known));
        }
        has_cursor |= name == CURSOR;
    }
    if !has_cursor {
        return Ok(None);
    }

    let tag = ListTag::of(uri.path());
    let mut rest = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == CURSOR {
            let position = tag.position(&value).ok_or_else(foreign_cursor)?;
            rest.append_pair(&name, position);
        } else {
            rest.append_pair(&name, &value);
        }
    }
    let path_and_query = format!("{}?{}", uri.path(), rest.finish());
    let mut parts = uri.clone().into_parts();
    let parsed = path_and_query.parse();
    parts.path_and_query = Some(parsed.expect("an encoded query is a valid one"));

    Ok(Some(
        Uri::from_parts(parts).expect("a URI with another query is a valid one"),
    ))
}

fn foreign_cursor() -> Problem {
    let detail = "not a cursor of this list; start without a cursor";
    invalid_parameter(CURSOR, detail)
}

fn unknown(name: &str, known: &BTreeSet<String>) -> Problem {
    let name: String = name.chars().take(64).collect();
    let known = if known.is_empty() {
        "it has none".to_owned()
    } else {
        let names: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
        format!("expected one of {}", names.join(", "))
    };
    let detail = format!("invalid query: unknown field `{name}`, {known}");
    invalid_parameter(&name, detail)
}
