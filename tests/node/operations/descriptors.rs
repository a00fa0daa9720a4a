//! Tests of a node with few file descriptors, whose connections are used up by idle clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::process::Process;
use crate::harness::process::limited;

/// Limit of open files of the node.
const OPEN_FILES: usize = 256;
/// More than the node can open.
const FLOOD: usize = 600;
/// Maximum time of a response during the flood.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends a request over a new connection and returns the response.
fn request(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut response = String::new();
    stream
        .read_to_string(&mut response)
        .expect("the node responds in time");
    response
}

fn get(address: &str, path: &str) -> String {
    request(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"),
    )
}

fn publish(address: &str, number: usize) -> String {
    let body = format!(
        r#"{{"specversion":"1.0","id":"e-{number}","source":"t","type":"OrderPlaced","data":{{"orderId":"o-{number}","text":"{}"}}}}"#,
        "x".repeat(8 << 10)
    );
    let length = body.len();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}"
    );
    request(
        address,
        &format!("{head}\r\ncontent-type: application/cloudevents+json\r\n\r\n{body}"),
    )
}

/// Opens idle connections; of three, one has sent a part of a header.
fn flood(address: &str) -> Vec<TcpStream> {
    let open = |number: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        if number.is_multiple_of(3) {
            // An error means that the node has closed this connection for a later one.
            drop(stream.write_all(b"GET /hea"));
        }
        stream
    };
    (0..FLOOD).map(open).collect()
}

#[test]
fn idle_connections_stop_neither_health_checks_nor_publishing_nor_journals() {
    let dir = tempfile::tempdir().unwrap();
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    std::fs::write(
        definitions.join("order.saga.yaml"),
        crate::operations::node::ORDER,
    )
    .unwrap();
    let config = dir.path().join("orlog.toml");
    std::fs::write(&config, "store.journal_segment_size = \"64KiB\"\nbus.segment_size = \"64KiB\"\nbus.retention_size = \"1MiB\"\n").unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (data, definitions, config) = (
        path(&dir.path().join("data")),
        path(&definitions),
        path(&config),
    );
    let args = [
        "--data-dir",
        &data,
        "--definitions-dir",
        &definitions,
        "--config",
        &config,
    ];
    let node = Process::start_with_open_files(OPEN_FILES, &args);
    let address = node.url.strip_prefix("http://").unwrap().to_owned();
    for round in 0..3 {
        let connections = flood(&address);
        for path in ["/health", "/ready", "/metrics"] {
            let start = Instant::now();
            let response = get(&address, path);
            assert!(
                response.starts_with("HTTP/1.1 200"),
                "round {round}, {path}: {response}"
            );
            assert!(start.elapsed() < DEADLINE);
        }
        // More than a segment of the log and of the store.
        for number in 0..20 {
            let response = publish(&address, round * 20 + number);
            assert!(
                response.starts_with("HTTP/1.1 202"),
                "round {round}, event {number}: {response}"
            );
        }
        drop(connections);
    }
    assert!(get(&address, "/health").contains(r#""status":"ok""#));
    node.stop();
}

#[test]
fn too_few_descriptors_for_the_shards_are_an_error_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = limited(
        OPEN_FILES,
        &["run", "--listen", "127.0.0.1:0", "--data-dir"],
    );
    command.arg(&data).env("ORLOG_SHARDS", "64");
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        error.contains("the limit of 256 open files is too low") && error.contains("LimitNOFILE"),
        "{error}"
    );
}
