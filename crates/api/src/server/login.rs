//! `/auth/login`, `/auth/callback`, `/auth/logout`: log-in of users to the web UI by OpenID
//! Connect.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::QueryParams;
use super::parts::access::Access;
use super::problem::{Code, Problem};
use orlog_node::auth::{LOGIN_COOKIE, LoginError, Oidc, SESSION_COOKIE, cookie};

/// Route that starts a log-in.
pub(crate) const LOGIN_PATH: &str = "/auth/login";
/// Maximum duration of a log-in at the provider, in seconds.
const LOGIN_SECONDS: u32 = 600;

/// Response of the provider.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallbackQuery {
    /// Code to exchange for an ID token.
    #[serde(default)]
    code: String,
    /// State of the log-in.
    #[serde(default)]
    state: String,
    /// Error of the provider.
    #[serde(default)]
    error: String,
}

/// Log in to the web UI
///
/// Redirects the browser to the OpenID provider (`auth.oidc`).
#[utoipa::path(
    get,
    path = "/auth/login",
    tag = "page",
    responses((status = 303, description = "To the provider"))
)]
pub(crate) async fn login(State(access): State<Access>) -> Result<Response, Problem> {
    let start = oidc(&access)?
        .start()
        .await
        .map_err(|error| problem(&error))?;
    // The cookie contains the state of the log-in, so that a client that starts many uses no memory
    // of the node. It is lax: the provider sends the browser back from another site.
    let pending = set_cookie(LOGIN_COOKIE, &start.cookie, "Lax", LOGIN_SECONDS);
    Ok(redirect(&start.url, [pending]))
}

/// Complete a log-in to the web UI
///
/// The OpenID provider redirects the browser here. The response sets the cookie of the session.
#[utoipa::path(
    get,
    path = "/auth/callback",
    tag = "page",
    params(CallbackQuery),
    responses((status = 303, description = "To the web UI"))
)]
pub(crate) async fn callback(
    State(access): State<Access>,
    headers: HeaderMap,
    QueryParams(query): QueryParams<CallbackQuery>,
) -> Result<Response, Problem> {
    let oidc = oidc(&access)?;
    // For example, the user has declined: there is no code to exchange.
    if !query.error.is_empty() {
        let reason = query.error.chars().take(100).collect::<String>();
        return Err(problem(&LoginError::Rejected(anyhow::anyhow!(
            "the provider returned {reason:?}"
        ))));
    }

    let pending = read_cookie(&headers, LOGIN_COOKIE).unwrap_or_default();
    let login = oidc
        .complete(&query.state, &query.code, pending)
        .await
        .map_err(|error| problem(&error))?;
    let max_age = access.session_max_age().as_secs();
    let session = set_cookie(
        SESSION_COOKIE,
        &login.session,
        "Strict",
        max_age.try_into().unwrap_or(u32::MAX),
    );

    // State and verifier are for one log-in, so that their cookie ends with it.
    let mut response = redirect("/", [session, set_cookie(LOGIN_COOKIE, "", "Lax", 0)]);
    // The audit record contains the user.
    response.extensions_mut().insert(login.caller);
    Ok(response)
}

/// Log out of the web UI
#[utoipa::path(
    post,
    path = "/auth/logout",
    tag = "page",
    responses((status = 204, description = "The session has ended"))
)]
pub(crate) async fn logout(State(access): State<Access>, headers: HeaderMap) -> Response {
    if let (Some(oidc), Some(session)) = (
        access.authenticator().oidc(),
        read_cookie(&headers, SESSION_COOKIE),
    ) {
        oidc.end(session);
    }
    // The browser loses its cookie in any case, also if the session has ended already.
    let ended = set_cookie(SESSION_COOKIE, "", "Strict", 0);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, ended)]).into_response()
}

fn oidc(access: &Access) -> Result<&Oidc, Problem> {
    let oidc = access.authenticator().oidc();
    oidc.ok_or_else(|| Problem::new(Code::RouteNotFound, "this node has no log-in (auth.oidc)"))
}

/// Returns an error that does not contain the reason, which is logged.
fn problem(error: &LoginError) -> Problem {
    tracing::warn!(%error, "log-in failed");
    match error {
        LoginError::Unavailable(_) => Problem::new(
            Code::Unavailable,
            "the log-in is not possible at the moment; the log of the node has the reason",
        ),
        LoginError::Rejected(_) => Problem::new(
            Code::LoginFailed,
            "the log-in was not completed; start it again at /auth/login. The log of the node has \
             the reason",
        ),
    }
}

/// Returns whether the session cookie authenticates a request.
pub(crate) fn has_session(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::AUTHORIZATION) && read_cookie(headers, SESSION_COOKIE).is_some()
}

fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    cookie(headers.get(header::COOKIE)?.to_str().ok()?, name)
}

fn set_cookie(name: &str, value: &str, same_site: &str, max_age: u32) -> HeaderValue {
    let text = format!(
        "{name}={value}; Path=/; Max-Age={max_age}; Secure; HttpOnly; SameSite={same_site}"
    );
    HeaderValue::try_from(text).expect("the values are hexadecimal numbers")
}

fn redirect<const N: usize>(url: &str, cookies: [HeaderValue; N]) -> Response {
    let location = HeaderValue::try_from(url).expect("a URL is ASCII");
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response();
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
