//! A few words of the protocol of NATS, for what a test does to a server behind the back of those it tests: purge a stream,
//! delete a consumer, publish as somebody else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// A server that says nothing for this long is broken.
const PATIENCE: Duration = Duration::from_secs(10);
const INBOX: &str = "_INBOX.wire";

/// A client.
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Connects as nobody in particular.
    ///
    /// # Panics
    /// When nobody answers.
    #[must_use]
    pub fn connect(port: u16) -> Self {
        Self::connect_as(port, &json!({})).expect("everybody is let in")
    }

    /// Connects with credentials, for example `{ "user": "a", "pass": "b" }`.
    ///
    /// # Errors
    /// What the server says against it.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn connect_as(port: u16, credentials: &Value) -> Result<Self, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        let mut wire = Self { stream: BufReader::new(stream) };
        wire.line();
        let mut options = json!({ "verbose": false, "headers": true, "no_responders": true, "lang": "test", "version": "1" });
        for (key, value) in credentials.as_object().into_iter().flatten() {
            options[key] = value.clone();
        }
        wire.send(&format!("CONNECT {options}\r\nPING\r\n"));
        loop {
            match wire.line().as_str() {
                "PONG" => return Ok(wire),
                error if error.starts_with("-ERR") => return Err(error.to_owned()),
                _ => {}
            }
        }
    }

    /// Asks and returns the body of the answer.
    ///
    /// # Errors
    /// When nobody listens there, or this client may not ask.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn request(&mut self, subject: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        self.send(&format!("SUB {INBOX} 1\r\nUNSUB 1 1\r\nPUB {subject} {INBOX} {}\r\n", body.len()));
        self.stream.get_mut().write_all(body).expect("the server reads");
        self.send("\r\n");
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.first().copied() {
                Some("MSG") => return Ok(self.body(&words)),
                Some("HMSG") => return headed(&self.body(&words)),
                Some("PING") => self.send("PONG\r\n"),
                Some("-ERR") => return Err(line),
                _ => {}
            }
        }
    }

    /// Asks JetStream something and returns its answer.
    ///
    /// # Panics
    /// When it refuses.
    pub fn jetstream(&mut self, subject: &str, request: &Value) -> Value {
        let answer = self.request(&format!("$JS.API.{subject}"), request.to_string().as_bytes());
        let answer: Value = serde_json::from_slice(&answer.expect("JetStream answers")).expect("JSON");
        assert!(answer["error"].is_null(), "{subject}: {answer}");
        answer
    }

    /// Subscribes and returns once the server has taken or refused it.
    ///
    /// # Errors
    /// What the server says against it.
    pub fn subscribe(&mut self, subject: &str) -> Result<(), String> {
        self.send(&format!("SUB {subject} 2\r\nPING\r\n"));
        loop {
            match self.line() {
                line if line == "PONG" => return Ok(()),
                line if line.starts_with("-ERR") => return Err(line),
                _ => {}
            }
        }
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).expect("the server reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the server answers in time");
        assert!(!line.is_empty(), "the server closed the connection");
        line.trim_end().to_owned()
    }

    /// The bytes after a line, which ends with their number.
    fn body(&mut self, words: &[&str]) -> Vec<u8> {
        let total = words.last().and_then(|word| word.parse::<usize>().ok()).expect("a number");
        let mut bytes = vec![0; total + 2];
        self.stream.read_exact(&mut bytes).expect("the server sends what it said");
        bytes.truncate(total);
        bytes
    }
}

/// The body behind headers; a status instead of one is an error.
fn headed(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let first = head.lines().next().unwrap_or_default();
    match first.strip_prefix("NATS/1.0 ") {
        Some(status) if !status.is_empty() => Err(status.to_owned()),
        _ => Ok(bytes[end..].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats_server::NatsServer;

    #[test]
    fn asks_jetstream_and_learns_that_nobody_listens() {
        let Some(server) = NatsServer::start() else { return };
        let mut wire = Wire::connect(server.port);
        wire.jetstream("STREAM.CREATE.S", &json!({ "name": "S", "subjects": ["s"] }));
        let ack: Value = serde_json::from_slice(&wire.request("s", b"hello").unwrap()).unwrap();
        assert_eq!((&ack["stream"], &ack["seq"]), (&json!("S"), &json!(1)));
        assert_eq!(wire.request("nobody", b""), Err("503".to_owned()));
    }
}
