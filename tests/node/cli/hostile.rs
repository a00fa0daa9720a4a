//! A hostile environment of the command line: texts of a node that control terminals, proxies and redirects.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::process::orlog;

/// Clears the screen, sets a color with an 8-bit sequence, and reverses the text after it.
const TEXT: &str = "x\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{2066}y";

/// Server that responds to every request with this head and body.
fn server(head: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            respond(stream, head, &body);
        }
    });
    url
}

/// Reads a request and writes the response. A client that disconnects early is not an error of the server.
fn respond(mut stream: TcpStream, head: &str, body: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    for line in reader
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
    {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    drop(reader.take(length).read_to_end(&mut Vec::new()));
    let response = format!(
        "{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    drop(stream.write_all(response.as_bytes()));
}

/// Listener that must receive no connection.
fn trap() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[track_caller]
fn assert_untouched(trap: &TcpListener) {
    let error = trap.accept().expect_err("no connection is expected");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

fn output(mut command: Command) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    (
        status.success(),
        String::from_utf8([stdout, stderr].concat()).unwrap(),
    )
}

/// Response that has every field of the shown objects, with hostile texts.
fn hostile() -> Value {
    let names = [
        "id",
        "saga",
        "correlation",
        "title",
        "assignee",
        "claimed_by",
        "reason",
        "message",
        "label",
        "user",
        "name",
        "note",
        "reference",
        "detail",
        "code",
        "at",
        "node",
        "outcome",
        "filter",
        "target",
        "route",
        "key",
    ];
    let mut object = serde_json::Map::new();
    object.extend(names.map(|name| (name.to_owned(), json!(TEXT))));
    object.insert("status".to_owned(), json!(TEXT));
    let mut outer = object.clone();
    outer.insert(
        "last_error".to_owned(),
        json!({ "message": TEXT, "code": TEXT }),
    );
    outer.insert("original".to_owned(), json!({ TEXT: TEXT }));
    outer.insert("data".to_owned(), json!({ TEXT: TEXT }));
    outer.insert("state".to_owned(), json!({ "vars": { TEXT: TEXT } }));
    outer.insert("history".to_owned(), json!({ "items": [object.clone()] }));
    for name in ["items", "events", "waits", "timers", "rows", "records"] {
        outer.insert(name.to_owned(), json!([object.clone()]));
    }
    outer.insert("roles".to_owned(), json!([TEXT]));
    outer.insert("next_cursor".to_owned(), Value::Null);
    outer.into()
}

#[track_caller]
fn assert_harmless(printed: &str) {
    assert!(printed.contains("\\u"), "the text is printed: {printed}");
    let raw: Vec<char> = printed
        .chars()
        .filter(|c| (c.is_control() && *c != '\n') || TEXT[1..].contains(*c) && !c.is_ascii())
        .collect();
    assert!(raw.is_empty(), "{raw:?} in {}", printed.escape_debug());
}

#[test]
fn texts_of_a_node_reach_the_terminal_as_escapes() {
    let url = server(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json",
        hostile().to_string(),
    );
    let commands: [&[&str]; 9] = [
        &["saga", "list"],
        &["saga", "show", "order", "o-1"],
        &["saga", "pause", "order", "o-1"],
        &["task", "list"],
        &["task", "show", "t-1"],
        &["dlq", "list"],
        &["dlq", "show", "d-1"],
        &["inspect", "instance"],
        &["timers"],
    ];
    for command in commands {
        for format in ["table", "json"] {
            let (_, printed) = output(orlog(
                &[command, &["--url", &url, "--output", format]].concat(),
            ));
            assert_harmless(&printed);
        }
    }
    let problem = json!({ "title": TEXT, "detail": TEXT, "code": TEXT, "errors": [{ "pointer": TEXT, "detail": TEXT }] });
    let url = server("HTTP/1.1 422 Unprocessable Entity", problem.to_string());
    let (succeeded, printed) = output(orlog(&["saga", "list", "--url", &url]));
    assert!(!succeeded);
    assert_harmless(&printed);
}

#[test]
fn proxies_of_the_environment_receive_no_token() {
    let url = server("HTTP/1.1 200 OK", json!({ "items": [] }).to_string());
    let (proxy, proxy_url) = trap();
    let mut command = orlog(&["saga", "list", "--url", &url]);
    command
        .env("ORLOG_TOKEN", "secret")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, &proxy_url);
    }
    let (succeeded, printed) = output(command);
    assert!(succeeded, "{printed}");
    assert_untouched(&proxy);
}

#[test]
fn redirects_of_a_node_are_not_followed() {
    let (elsewhere, target) = trap();
    let head = Box::leak(
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {target}/v1/sagas").into_boxed_str(),
    );
    let url = server(head, String::new());
    let (succeeded, printed) = output(orlog(&["saga", "list", "--url", &url]));
    assert!(
        !succeeded && printed.contains("HTTP status 307"),
        "{printed}"
    );
    assert_untouched(&elsewhere);
}
