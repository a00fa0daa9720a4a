//! Tests of a node whose clients send large bodies slowly.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use orlog_testkit::WAIT_TIMEOUT;

use crate::harness::process::Process;

/// Size that each request announces.
const ANNOUNCED: usize = 1 << 20;
/// Number of bodies for which the node has space.
const SPACE: usize = 8;
const REQUESTS: usize = 20;

/// Begins a batch and sends all bytes of its body but one.
fn hold(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {ANNOUNCED}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The node may reject the request before it has read all of it.
    drop(stream.write_all(&vec![b' '; ANNOUNCED - 1]));
    stream
}

/// Sends one event and returns the status line.
fn publish(address: &str) -> String {
    let event = r#"{"specversion":"1.0","id":"e-1","source":"t","type":"Nothing","data":{}}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let length = event.len();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n"
    );
    let request = format!("{head}content-type: application/cloudevents+json\r\n\r\n{event}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream
        .read_to_string(&mut response)
        .expect("the node responds in time");
    response
}

#[test]
fn bodies_in_flight_have_a_limit_over_all_requests() {
    let (node, address, _dir) = start(1.0);
    let mut streams: Vec<_> = (0..REQUESTS).map(|_| hold(&address)).collect();
    wait_for_rejections(&mut streams, REQUESTS - SPACE);
    drop(streams);
    let started = Instant::now();
    while !publish(&address).starts_with("HTTP/1.1 202") {
        assert!(
            started.elapsed() < WAIT_TIMEOUT,
            "the space of ended requests is not free again"
        );
    }
    node.stop();
}

#[tokio::test]
async fn the_bodies_of_one_caller_leave_space_for_others() {
    let (node, address, _dir) = start(0.5);
    let mut streams: Vec<_> = (0..REQUESTS).map(|_| hold(&address)).collect();
    wait_for_rejections(&mut streams, REQUESTS - SPACE / 2);
    fill(&mut streams, &address);
    let other = std::net::IpAddr::from([127, 0, 0, 2]);
    let other = orlog_effect::http::client()
        .local_address(other)
        .build()
        .unwrap();
    let event = r#"{"specversion":"1.0","id":"e-2","source":"t","type":"Nothing","data":{}}"#;
    let request = other.post(format!("{}/v1/events", node.url)).body(event);
    let accepted = request
        .header("content-type", "application/cloudevents+json")
        .send()
        .await
        .unwrap();
    assert_eq!(accepted.status(), 202);
    node.stop();
}

/// Starts a node with [`SPACE`] MiB for bodies, of which one caller has this share.
fn start(share: f64) -> (Process, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orlog.toml");
    let text = format!(
        "http.max_batch_size = \"1MiB\"\nhttp.max_bytes_in_flight = \"{SPACE}MiB\"\n\
         http.per_caller.max_share = {share:?}\n"
    );
    std::fs::write(&config, text).unwrap();
    let data = dir.path().join("data");
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let node = Process::start(&["--data-dir", &path(&data), "--config", &path(&config)]);
    let address = node.url.strip_prefix("http://").unwrap().to_owned();
    (node, address, dir)
}

/// Adds bodies until the node rejects a small one. It can reject two bodies where the space is enough for one of them.
fn fill(streams: &mut Vec<TcpStream>, address: &str) {
    let started = Instant::now();
    while !publish(address).starts_with("HTTP/1.1 503") {
        assert!(
            started.elapsed() < WAIT_TIMEOUT,
            "the node has space for another body"
        );
        streams.push(hold(address));
    }
}

/// Waits until the node has rejected this number of requests, in any order: the others receive nothing before their
/// body is complete.
fn wait_for_rejections(streams: &mut [TcpStream], expected: usize) {
    for stream in &mut *streams {
        stream.set_nonblocking(true).unwrap();
    }
    let (mut rejected, started) = (vec![false; streams.len()], Instant::now());
    while rejected.iter().filter(|rejected| **rejected).count() < expected {
        assert!(
            started.elapsed() < WAIT_TIMEOUT,
            "not all are rejected: {rejected:?}"
        );
        for (stream, rejected) in streams.iter_mut().zip(&mut rejected) {
            let mut response = [0; 4096];
            match stream.read(&mut response) {
                Ok(length) if length > 0 => {
                    let text = String::from_utf8_lossy(&response[..length]);
                    assert!(text.starts_with("HTTP/1.1 503") || *rejected, "{text}");
                    *rejected = true;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // The node closes the connection of a body that it has not read.
                Ok(_) | Err(_) => *rejected = true,
            }
        }
        std::thread::yield_now();
    }
}
