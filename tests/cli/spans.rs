//! Spans: what a collector hears of an instance whose first event carried a `traceparent`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::json;

use crate::node::{Node, PATIENCE};

const DEFINITION: &str = "saga: order\nversion: 1\nstart: OrderPlaced\nsteps:\n  - id: reserve\n    do: { effect: stock.reserve }\n";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The first line and the body of a request, answered with 200.
fn take(mut stream: TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    for line in reader.by_ref().lines() {
        match line.unwrap() {
            line if line.is_empty() => break,
            line => head.push(line),
        }
    }
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    (head.swap_remove(0), body)
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[test]
fn the_collector_hears_of_transitions_and_attempts_in_the_trace_of_the_event() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in collector.incoming() {
            drop(sender.send(take(stream.unwrap())));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("order.saga.yaml"), DEFINITION).unwrap();
    let environment = [("ORLOG_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
    let node = Node::start_with(&folder.path().join("data"), folder.path(), &environment);
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "test", "type": "OrderPlaced", "correlationid": "o-1",
        "traceparent": format!("00-{TRACE}-00f067aa0ba902b7-01"),
    });
    assert!(node.feed(&["publish"], &event.to_string()).status.success());
    assert_eq!(node.end("TERM"), Some(0));

    let (line, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert!(line.starts_with("POST /v1/traces "), "{line}");
    let trace: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&TRACE[2 * i..2 * i + 2], 16).unwrap()).collect();
    for part in [&trace[..], b"order OrderPlaced", b"order succeeded", b"stock.reserve"] {
        assert!(holds(&body, part), "{}", String::from_utf8_lossy(part));
    }
}
