//! Schemathesis generates requests from the API description and compares the responses with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use orlog_testkit::host::missing;

use crate::harness::process::Process;
use crate::operations::node::ORDER;

/// Rejected requests are no failures: the description does not contain all rules of a request.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,negative_data_rejection,missing_required_header,\
    ignored_auth";
/// Draining ends the node.
const DRAIN: &str = "^/admin/drain$";

fn schemathesis() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/schemathesis")
}

/// Tests a node with a number of requests for each operation and kind. Returns the output if a check fails.
fn test_description(
    dir: &Path,
    node: &Process,
    token: Option<&str>,
    requests: u32,
) -> Result<String, String> {
    let tools = schemathesis();
    if !tools.join("bin/st").is_file() {
        missing("schemathesis", "test-tools");
    }
    let mut command = Command::new("python3");
    // The working directory receives temporary files.
    command.current_dir(dir);
    command.env("PYTHONPATH", &tools).arg(tools.join("bin/st")).arg("run");
    command.arg(format!("{}/openapi.json", node.url)).args(["--checks", CHECKS]);
    command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", &requests.to_string()]);
    command.args(["--exclude-path-regex", DRAIN, "--request-timeout", "20", "--seed", "1", "--no-color"]);
    command.args(["--workers", "1", "--generation-database", "none"]);
    if let Some(token) = token {
        command.args(["--header", &format!("authorization: Bearer {token}")]);
    }
    let output = command.output().expect("python3 starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

#[test]
fn responses_conform_to_the_api_description() {
    let dir = tempfile::tempdir().expect("a directory can be created");
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).expect("a directory can be created");
    std::fs::write(definitions.join("order.saga.yaml"), ORDER).expect("the definition is written");
    let data = dir.path().join("data");
    let arguments = [
        "--data-dir",
        data.to_str().expect("the path is UTF-8"),
        "--definitions-dir",
        definitions.to_str().expect("the path is UTF-8"),
    ];
    let node = Process::start_with_session(&arguments);
    let token = std::fs::read_to_string(data.join("session-token")).expect("the node writes its token");
    for (token, requests) in [(Some(token.trim()), 5), (None, 2)] {
        let report =
            test_description(dir.path(), &node, token, requests).unwrap_or_else(|report| panic!("{report}"));
        println!("{}", &report[report.find("Test cases:").expect("a summary")..]);
    }
}
