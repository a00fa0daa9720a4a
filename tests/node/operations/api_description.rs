//! Schemathesis generates requests from the API description and compares the responses with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use axum::http::Method;
use orlog_testkit::host::missing;

use crate::harness::process::Process;
use crate::operations::node::ORDER;

/// Rejected requests are no failures: the description does not contain all rules of a request.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,negative_data_rejection,missing_required_header,\
    ignored_auth";
/// Draining ends the node.
const DRAIN: &str = "^/admin/drain$";

/// Definition that any data starts.
const NOTE: &str = "
saga: note
version: 1
start: Noted
steps:
  - { id: rest, do: { wait: 1h } }
";
/// Webhook whose requests contain its secret.
const WEBHOOK: &str = r#"
[webhooks.shop]
scheme = "token"
secrets = ["env:SHOP_SECRET"]
signature = { header = "x-shop-token" }
id = "= headers['x-shop-delivery']"
type = "OrderPlaced"
data = { orderId = "o-1", total = 5 }
"#;
/// Parameters with which the operations find the definition, the schedule and the webhook of the node: generated names
/// do not exist.
const KNOWN_NAMES: &str = r#"
[[operations]]
include-path-regex = "^/v1/(sagas|definitions)/"
parameters = { "path.saga" = "note" }

[[operations]]
include-path-regex = "^/v1/schedules/"
parameters = { "path.name" = "nightly" }

[[operations]]
include-path = "/v1/webhooks/{name}"
parameters = { "path.name" = "shop" }
headers = { "x-shop-token" = "a shared secret", "x-shop-delivery" = "d-1" }
"#;
/// Operations with known names, and the reload. Deletions and deployments would remove what has these names.
const KNOWN: [&str; 4] = [
    "--include-path-regex",
    "^/(v1/(sagas|schedules|webhooks|definitions)|admin/reload)",
    "--exclude-method",
    "DELETE",
];
/// Operations that the run with known names must reach with a success.
const REACHED: [&str; 5] = [
    "POST /v1/sagas/{saga}",
    "GET /v1/schedules/{name}",
    "POST /v1/schedules/{name}/pause",
    "POST /v1/webhooks/{name}",
    "POST /admin/reload",
];

fn schemathesis() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/schemathesis")
}

/// Run of Schemathesis.
struct Run<'a> {
    token: Option<&'a str>,
    /// Number of requests for each operation and kind.
    requests: u32,
    /// Configuration of Schemathesis.
    config: &'a str,
    /// Filters of the operations.
    filters: &'a [&'a str],
}

/// Tests a node. Returns the output if a check fails.
fn test_description(dir: &Path, node: &Process, run: &Run<'_>) -> Result<String, String> {
    let tools = schemathesis();
    if !tools.join("bin/st").is_file() {
        missing("schemathesis", "test-tools");
    }
    let config = dir.join("schemathesis.toml");
    std::fs::write(&config, run.config).expect("the configuration is written");
    let mut command = Command::new("python3");
    // The working directory receives temporary files.
    command.current_dir(dir);
    command
        .env("PYTHONPATH", &tools)
        .arg(tools.join("bin/st"))
        .arg("--config-file")
        .arg(config);
    command
        .arg("run")
        .arg(format!("{}/openapi.json", node.url))
        .args(["--checks", CHECKS]);
    command.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        &run.requests.to_string(),
    ]);
    command
        .args(run.filters)
        .args(["--exclude-path-regex", DRAIN]);
    command.args(["--request-timeout", "20", "--seed", "1", "--no-color"]);
    command.args(["--workers", "1", "--generation-database", "none"]);
    if let Some(token) = run.token {
        command.args(["--header", &format!("authorization: Bearer {token}")]);
    }
    let output = command.output().expect("python3 starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
}

/// Sends a request; returns the response as text.
async fn request(method: Method, url: String, token: &str, body: &'static str) -> String {
    let request = crate::harness::http::client()
        .request(method, url)
        .bearer_auth(token);
    let request = request
        .header("content-type", "application/json")
        .body(body);
    let response = request.send().await.expect("the node responds");
    assert!(response.status().is_success(), "{response:?}");
    response.text().await.expect("the response is a text")
}

/// Returns whether the node answered a request of an operation with a success.
fn has_succeeded(metrics: &str, operation: &str) -> bool {
    let (method, route) = operation.split_once(' ').expect("a method and a route");
    let (method, route) = (format!("method=\"{method}\""), format!("route=\"{route}\""));
    let requests = metrics
        .lines()
        .filter(|line| line.starts_with("orlog_http_requests_total{"));
    requests
        .filter(|line| line.contains(&method) && line.contains(&route))
        .any(|line| line.contains("status=\"2") && !line.ends_with(" 0"))
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_conform_to_the_api_description() {
    let dir = tempfile::tempdir().expect("a directory can be created");
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).expect("a directory can be created");
    for (name, text) in [("order.saga.yaml", ORDER), ("note.saga.yaml", NOTE)] {
        std::fs::write(definitions.join(name), text).expect("the definition is written");
    }
    std::fs::write(dir.path().join("shop-secret"), "a shared secret")
        .expect("the secret is written");
    let secret = format!("file:{}", dir.path().join("shop-secret").display());
    let config = dir.path().join("orlog.toml");
    std::fs::write(&config, WEBHOOK.replace("env:SHOP_SECRET", &secret)).expect("it is written");
    let data = dir.path().join("data");
    let path = |path: &'_ Path| path.to_str().expect("the path is UTF-8").to_owned();
    let (data_dir, definitions, config) = (path(&data), path(&definitions), path(&config));
    let arguments = [
        "--config",
        &config,
        "--data-dir",
        &data_dir,
        "--definitions-dir",
        &definitions,
    ];
    let node = Process::start_with_session(&arguments);
    let token =
        std::fs::read_to_string(data.join("session-token")).expect("the node writes its token");
    let token = token.trim();
    let spec = r#"{"saga":"order","cron":"0 2 * * *","data":{"orderId":"=schedule.time"}}"#;
    request(
        Method::PUT,
        format!("{}/v1/schedules/nightly", node.url),
        token,
        spec,
    )
    .await;
    let known = Run {
        token: Some(token),
        requests: 4,
        config: KNOWN_NAMES,
        filters: &KNOWN,
    };
    let any = Run {
        requests: 5,
        config: "",
        filters: &[],
        ..known
    };
    for run in [
        known,
        any,
        Run {
            token: None,
            requests: 2,
            config: "",
            filters: &[],
        },
    ] {
        let report =
            test_description(dir.path(), &node, &run).unwrap_or_else(|report| panic!("{report}"));
        println!(
            "{}",
            &report[report.find("Test cases:").expect("a summary")..]
        );
    }
    let metrics = request(Method::GET, format!("{}/metrics", node.url), token, "").await;
    let missed: Vec<_> = REACHED
        .iter()
        .filter(|operation| !has_succeeded(&metrics, operation))
        .collect();
    assert!(
        missed.is_empty(),
        "no generated request of {missed:?} succeeded"
    );
}
