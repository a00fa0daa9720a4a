//! Origin of requests: rejects requests that a page of another site sends through the browser of a
//! user.
//!
//! - `Host` must name this node, so that a page cannot reach it under a name that the page controls
//!   (DNS rebinding).
//! - `Origin` and `Sec-Fetch-Site` must not name another site. Links from other sites to pages
//!   work.
//! - A request that changes state needs a header that a form of another site cannot send: a JSON
//!   content type, or one of a few others.
//!
//! Health checks and metrics are exempt: probes address a pod by its IP address or by any name.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, Uri, header};

use super::allowed_hosts::AllowedHosts;
use super::body;
use super::extract::TENANT_HEADER;
use super::problem::{Code, Problem};
use super::request_info::WEBHOOK_ROUTE;

/// Header of a request that changes state and has no body.
const REQUEST_HEADER: &str = "x-orlog-request";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Routes of health checks and metrics.
const PROBE_ROUTES: [&str; 3] = ["/health", "/ready", "/metrics"];
/// Maximum length of a header value in a problem, in characters.
const MAX_FOUND_CHARS: usize = 100;

/// Rejects a request that another site may have sent.
pub(crate) fn check(
    hosts: &AllowedHosts,
    route: &str,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let is_safe = method.is_safe();
    if is_safe && PROBE_ROUTES.contains(&route) {
        return Ok(());
    }

    // A page can point a DNS name that it controls to this node, and would then be of the same
    // origin.
    let host = check_host(hosts, uri, headers)?;
    check_site(hosts, host.as_ref(), is_safe, headers)?;
    // A signature is the proof of a webhook, which can be a form.
    if is_safe || route == WEBHOOK_ROUTE {
        Ok(())
    } else {
        check_content_type(headers)
    }
}

/// Checks a request whose credentials the browser sends by itself: a change requires the header
/// `Origin`, which every browser sends and which [`check`] compares with the host.
pub(crate) fn check_session(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let is_safe = method.is_safe();
    if is_safe || headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    Err(cross_site(
        "no Origin, which a change with a session requires",
    ))
}

/// Returns the host and port of the request; `None` without the header, which every browser sends.
fn check_host(
    hosts: &AllowedHosts,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Authority>, Problem> {
    let mut found = headers.get_all(header::HOST).iter();
    let value = found.next();
    // Several headers are ambiguous: a proxy can have checked another one than this node.
    let more = found.next();
    let text = match (uri.authority(), value) {
        // A target in absolute form takes precedence over `Host` (RFC 9112).
        (Some(authority), _) => authority.as_str(),
        (None, Some(value)) => value.to_str().unwrap_or_default(),
        (None, None) => return Ok(None),
    };
    let authority = text.parse::<Authority>().ok().filter(|_| more.is_none());

    match authority {
        Some(authority) if hosts.contains(&name(&authority)) => Ok(Some(authority)),
        _ => {
            let detail = format!(
                "this node does not accept requests for the host {:?}; if a proxy or a DNS name \
                 leads here, add the name to http.allowed_hosts",
                shortened(text)
            );
            Err(Problem::new(Code::HostNotAllowed, detail))
        }
    }
}

fn check_site(
    hosts: &AllowedHosts,
    host: Option<&Authority>,
    is_safe: bool,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if is_same_site(hosts, host, origin) {
            return Ok(());
        }
        return Err(cross_site(&format!("Origin: {}", shortened(origin))));
    }

    let text = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    // A page of another site can link to this node, but cannot read what the link opens.
    let is_navigation = is_safe && text(FETCH_MODE) == Some("navigate");

    match text(FETCH_SITE) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if is_navigation => Ok(()),
        Some(site) => Err(cross_site(&format!("Sec-Fetch-Site: {}", shortened(site)))),
    }
}

fn is_same_site(hosts: &AllowedHosts, host: Option<&Authority>, origin: &str) -> bool {
    let Ok(origin) = origin.parse::<Uri>() else {
        return false;
    };
    let (Some(scheme), Some(of_page)) = (origin.scheme_str(), origin.authority()) else {
        return false;
    };

    let default_port = if scheme == "https" { 443 } else { 80 };
    let port = of_page.port_u16().unwrap_or(default_port);
    // `Host` and `Origin` omit the default port of the scheme.
    let is_same = host.is_some_and(|host| {
        name(host) == name(of_page)
            && host
                .port_u16()
                .map_or(port == default_port, |of_node| of_node == port)
    });

    is_same || hosts.names(&name(of_page))
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = body::content_type(headers)?;
    let is_json = content_type == "application/json"
        || content_type.starts_with("application/") && content_type.ends_with("+json");

    // A browser sends none of these headers to another site without the consent of this node.
    let is_proof = |name: &HeaderName| {
        [
            header::AUTHORIZATION.as_str(),
            TENANT_HEADER,
            REQUEST_HEADER,
        ]
        .contains(&name.as_str())
            || name.as_str().starts_with("ce-")
    };
    if is_json || headers.keys().any(is_proof) {
        return Ok(());
    }
    if !content_type.is_empty() {
        return Err(body::media_type(&content_type));
    }

    let detail = format!(
        "a request that changes state requires content-type: application/json, also without a \
         body, or the header {REQUEST_HEADER}"
    );
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

fn cross_site(found: &str) -> Problem {
    let detail = format!(
        "a page of another site sent this request ({found}); if a proxy serves the web UI under \
         this name, add the name to http.allowed_hosts"
    );
    Problem::new(Code::CrossSite, detail)
}

/// Returns the host in lower case, without the dot of a fully qualified name.
fn name(authority: &Authority) -> String {
    let host = authority.host().to_ascii_lowercase();
    host.strip_suffix('.').map_or(host.clone(), str::to_owned)
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_FOUND_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;
    use orlog_node::config::Config;

    fn hosts(allowed: &[&str]) -> AllowedHosts {
        let mut config = Config::default();
        config.http.allowed_hosts = allowed.iter().map(|text| text.parse().unwrap()).collect();
        config.cluster.advertise_url = "http://orlog-0.orlog:7070".to_owned();
        AllowedHosts::new(&config)
    }

    fn result(
        hosts: &AllowedHosts,
        method: &Method,
        route: &str,
        headers: &[(&str, &str)],
    ) -> Option<&'static str> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let uri = Uri::from_static("/path");
        let headers = HeaderMap::from_iter::<Vec<_>>(headers.collect());
        let rejected = check(hosts, route, method, &uri, &headers).err()?;
        rejected
            .into_response()
            .extensions()
            .get::<Code>()
            .map(|code| code.as_str())
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn host_must_name_this_node() {
        let check = |host: &str| {
            result(
                &hosts(&["orlog.example.com", "*.internal"]),
                &Method::GET,
                "/info",
                &[("host", host)],
            )
        };
        for own in [
            "localhost",
            "localhost:7070",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1:7070",
            "[::1]:7070",
            "10.2.3.4",
            "orlog-0.orlog:7070",
            "orlog.example.com",
            "Orlog.Example.com:443",
            "a.b.internal",
        ] {
            assert_eq!(check(own), None, "{own}");
        }
        for foreign in [
            "evil.com",
            "localhost.evil.com",
            "xinternal",
            "internal",
            "orlog.example.com.evil.com",
            "",
            "a b",
            "user@evil.com",
        ] {
            assert_eq!(check(foreign), Some("OR0045"), "{foreign}");
        }
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(
            result(&hosts(&[]), &Method::GET, "/info", &twice),
            Some("OR0045")
        );
        let absolute = Uri::from_static("http://evil.com/info");
        assert!(
            super::check(
                &hosts(&[]),
                "/info",
                &Method::GET,
                &absolute,
                &HeaderMap::new()
            )
            .is_err()
        );
    }

    #[test]
    fn probes_work_under_any_name() {
        for route in PROBE_ROUTES {
            assert_eq!(
                result(&hosts(&[]), &Method::GET, route, &[("host", "any.name")]),
                None
            );
            assert!(result(&hosts(&[]), &Method::POST, route, &[("host", "any.name")]).is_some());
        }
    }

    #[test]
    fn pages_of_other_sites_are_rejected() {
        let hosts = hosts(&["orlog.example.com", "*"]);
        let check = |method: &Method, host: &str, more: (&str, &str)| {
            result(&hosts, method, "/v1/sagas", &[("host", host), more, JSON])
        };
        let node = "localhost:7070";
        for (name, value) in [
            ("origin", "http://localhost:7070"),
            ("origin", "https://orlog.example.com"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(
                check(&Method::POST, node, (name, value)),
                None,
                "{name}: {value}"
            );
        }
        for (name, value) in [
            ("origin", "http://evil.com"),
            ("origin", "http://localhost:3000"),
            ("origin", "http://localhost"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            for method in [Method::POST, Method::GET, Method::DELETE] {
                assert_eq!(
                    check(&method, node, (name, value)),
                    Some("OR0046"),
                    "{method} {name}: {value}"
                );
            }
        }
        assert_eq!(
            check(
                &Method::POST,
                "orlog.internal",
                ("origin", "https://orlog.internal")
            ),
            None
        );
    }

    #[test]
    fn links_from_other_sites_open_pages() {
        let link = [
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert_eq!(result(&hosts(&[]), &Method::GET, "/", &link), None);
        let form = [&link[..], &[("content-type", "text/plain")]].concat();
        assert_eq!(
            result(&hosts(&[]), &Method::POST, "/admin/drain", &form),
            Some("OR0046")
        );
    }

    #[test]
    fn changes_require_a_header_that_forms_cannot_send() {
        let check =
            |headers: &[(&str, &str)]| result(&hosts(&[]), &Method::POST, "/admin/drain", headers);
        for proof in [
            JSON,
            ("content-type", "application/cloudevents-batch+json"),
            ("authorization", "Bearer x"),
            ("x-tenant-id", "acme"),
            ("x-orlog-request", "1"),
            ("ce-specversion", "1.0"),
        ] {
            assert_eq!(check(&[proof]), None, "{proof:?}");
        }
        assert_eq!(check(&[]), Some("OR0004"));
        for form in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "image/svg+json",
        ] {
            assert_eq!(check(&[("content-type", form)]), Some("OR0004"), "{form}");
        }
    }
}
