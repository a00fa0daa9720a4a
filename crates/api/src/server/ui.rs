//! Web UI: files of `ui/`, embedded in the binary. They load no external resources and contain no
//! data.

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use super::extract::PathParams;
use super::problem::{Code, Problem};

/// Content security policy: only resources of this server; no inline scripts and styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

/// File of the web UI.
struct UiFile {
    path: &'static str,
    text: &'static str,
    /// Hash of the content, for conditional requests.
    etag: String,
}

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        static FILES: LazyLock<Vec<UiFile>> = LazyLock::new(|| {
            vec![$(UiFile::of($path, include_str!(concat!("../../../../ui/", $path)))),+]
        });
    };
}

files! {
    "api.js",
    "app.js",
    "caller.js",
    "diff.js",
    "dom.js",
    "format.js",
    "graph.js",
    "icon.svg",
    "index.html",
    "json.js",
    "list.js",
    "poll.js",
    "start.js",
    "style.css",
    "batches.js",
    "dialog.js",
    "components.js",
    "router.js",
    "settings.js",
    "views/batch.js",
    "views/batches.js",
    "views/context.js",
    "views/contexts.js",
    "views/definition.js",
    "views/definitions.js",
    "views/deploy.js",
    "views/flow.js",
    "views/flows.js",
    "views/instance.js",
    "views/instances.js",
    "views/dead_letters.js",
    "views/message.js",
    "views/messages.js",
    "views/node.js",
    "views/overview.js",
    "views/schedule.js",
    "views/schedules.js",
    "views/shadow.js",
    "views/shadows.js",
    "views/task.js",
    "views/tasks.js",
    "views/timers.js",
}

impl UiFile {
    fn of(path: &'static str, text: &'static str) -> Self {
        let etag = format!(
            "\"{}\"",
            hex::encode(&Sha256::digest(text.as_bytes())[..12])
        );
        Self { path, text, etag }
    }
}

/// Returns whether a client prefers the web UI to JSON: it accepts HTML with the highest
/// preference.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = || {
        headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
    };
    let weight = |media: &str| {
        let ranges = accepted().flat_map(|value| value.split(','));
        let found = ranges.filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_it = parts.next()?.eq_ignore_ascii_case(media);
            let weight = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(Some(1.0), |q| q.parse().ok());
            weight.filter(|_| is_it)
        });

        found.fold(0.0_f32, f32::max)
    };
    // `*/*` counts for neither, so that clients without a preference receive JSON.
    let html = weight("text/html");

    html > 0.0 && html >= weight("application/json")
}

/// Returns the HTML page.
pub(crate) fn index(headers: &HeaderMap) -> Response {
    let mut response = serve("index.html", headers).unwrap_or_else(IntoResponse::into_response);
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Get a file of the web UI
#[utoipa::path(
    get,
    path = "/ui/{file}",
    tag = "page",
    params(("file" = String, Path, description = "For example style.css")),
    responses((status = 200, description = "The file"))
)]
pub(crate) async fn file(
    PathParams(file): PathParams<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    serve(&file, &headers)
}

/// Get a view of the web UI
#[utoipa::path(
    get,
    path = "/ui/views/{file}",
    tag = "page",
    params(("file" = String, Path, description = "For example overview.js")),
    responses((status = 200, description = "The file"))
)]
pub(crate) async fn view(
    PathParams(file): PathParams<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    serve(&format!("views/{file}"), &headers)
}

fn serve(path: &str, requested: &HeaderMap) -> Result<Response, Problem> {
    let missing = || {
        Problem::new(
            Code::RouteNotFound,
            format!("the web UI has no file {path:?}"),
        )
    };
    let UiFile { path, text, etag } = FILES
        .iter()
        .find(|file| file.path == path)
        .ok_or_else(missing)?;

    let kind = match path.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    };
    let headers: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (
            header::ETAG,
            HeaderValue::try_from(etag).expect("digits and quotes are ASCII"),
        ),
        // Browsers revalidate each file, because it belongs to this binary.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(POLICY),
        ),
        (
            PERMISSIONS_POLICY,
            HeaderValue::from_static("camera=(), geolocation=(), microphone=()"),
        ),
    ];

    // A proxy that compresses a file can weaken its tag; the content is the same.
    let has_it = |known: &str| {
        known
            .split(',')
            .any(|known| known.trim().trim_start_matches("W/") == etag)
    };
    let requested = requested
        .get(header::IF_NONE_MATCH)
        .and_then(|known| known.to_str().ok());

    Ok(if requested.is_some_and(has_it) {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, *text).into_response()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: bool) {
        let headers =
            HeaderMap::from_iter([(header::ACCEPT, HeaderValue::try_from(accept).unwrap())]);
        assert_eq!(prefers_html(&headers), expected, "{accept}");
    }

    #[test]
    fn accept_header_selects_html_or_json() {
        check(
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            true,
        );
        check("TEXT/HTML", true);
        check("*/*", false);
        check("application/json", false);
        check("application/json, text/html;q=0.5", false);
        check("text/html;q=0", false);
        assert!(!prefers_html(&HeaderMap::new()));
    }

    #[test]
    fn every_ui_file_is_embedded() {
        let ui_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui");
        let mut found = BTreeSet::new();
        for (dir, prefix) in [(ui_dir.clone(), ""), (ui_dir.join("views"), "views/")] {
            let files = dir.read_dir().unwrap().map(Result::unwrap);
            let names = files.filter(|file| file.path().is_file());
            found.extend(
                names.map(|file| format!("{prefix}{}", file.file_name().to_str().unwrap())),
            );
        }
        let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
        assert_eq!(found, served);
    }
}
