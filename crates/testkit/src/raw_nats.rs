//! Minimal NATS client for operations that bypass the code under test: purge a stream, delete a
//! consumer, publish with other credentials.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// Time limit for a response of the server.
const TIMEOUT: Duration = Duration::from_secs(10);
const INBOX: &str = "_INBOX.raw";
/// Subscription of the responses to requests.
const REQUESTS: &str = "1";

/// Subject of the data of a backup.
const BACKUP_INBOX: &str = "_INBOX.backup";
/// Size of a chunk of a backup.
const CHUNK_BYTES: usize = 64 << 10;

/// Faithful copy of a stream.
pub struct StreamBackup {
    name: String,
    /// Configuration and state.
    description: Value,
    data: Vec<u8>,
}

/// NATS client.
pub struct RawNatsClient {
    stream: BufReader<TcpStream>,
    inbox: String,
    /// Messages of other subscriptions that arrived before the response to a request.
    early: VecDeque<Received>,
}

/// Message of a subscription.
struct Received {
    subscription: String,
    reply: Option<String>,
    /// Body; a status instead of a body is an error.
    body: Result<Vec<u8>, String>,
}

/// Response to a request.
pub struct RawNatsMessage {
    /// Subject of a response to it: the acknowledgement of a message of a consumer.
    pub reply: Option<String>,
    /// Body.
    pub body: Vec<u8>,
}

impl RawNatsClient {
    /// Connects without credentials.
    ///
    /// # Panics
    /// If the server does not respond.
    #[must_use]
    pub fn connect(port: u16) -> Self {
        Self::connect_as(port, &json!({})).expect("no credentials are required")
    }

    /// Connects with credentials, for example `{ "user": "a", "pass": "b" }`.
    ///
    /// # Errors
    /// The error of the server.
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn connect_as(port: u16, credentials: &Value) -> Result<Self, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("the timeout is valid");
        let mut client = Self {
            stream: BufReader::new(stream),
            inbox: INBOX.to_owned(),
            early: VecDeque::new(),
        };
        client.line();
        let mut options = json!({ "verbose": false, "headers": true, "no_responders": true, "lang": "test", "version": "1" });
        for (key, value) in credentials.as_object().into_iter().flatten() {
            options[key] = value.clone();
        }
        client.send(&format!("CONNECT {options}\r\nPING\r\n"));
        loop {
            match client.line().as_str() {
                "PONG" => return Ok(client),
                error if error.starts_with("-ERR") => return Err(error.to_owned()),
                _ => {}
            }
        }
    }

    /// Receives the responses to its requests on another subject.
    #[must_use]
    pub fn with_inbox(self, inbox: &str) -> Self {
        Self {
            inbox: inbox.to_owned(),
            ..self
        }
    }

    /// Sends a request and returns the body of the response.
    ///
    /// # Errors
    /// No subscriber exists, or the client lacks the permission.
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn request(&mut self, subject: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        self.request_message(subject, body)
            .map(|response| response.body)
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// As [`Self::request`].
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn request_message(
        &mut self,
        subject: &str,
        body: &[u8],
    ) -> Result<RawNatsMessage, String> {
        let inbox = &self.inbox;
        let request = format!(
            "SUB {inbox} {REQUESTS}\r\nUNSUB {REQUESTS} 1\r\nPUB {subject} {inbox} {}\r\n",
            body.len()
        );
        self.send(&request);
        self.stream
            .get_mut()
            .write_all(body)
            .expect("the server reads");
        self.send("\r\n");
        loop {
            let received = self.receive()?;
            if received.subscription == REQUESTS {
                return Ok(RawNatsMessage {
                    reply: received.reply,
                    body: received.body?,
                });
            }
            self.early.push_back(received);
        }
    }

    /// Waits for the next message of any subscription.
    fn receive(&mut self) -> Result<Received, String> {
        loop {
            let line = self.line();
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();

            // The reply is optional; the sizes are at the end: one, or two with headers.
            let (sizes, has_headers) = match fields.first().copied() {
                Some("MSG") => (1, false),
                Some("HMSG") => (2, true),
                Some("PING") => {
                    self.send("PONG\r\n");
                    continue;
                }
                Some("-ERR") => return Err(line),
                _ => continue,
            };
            let reply = (fields.len() == 4 + sizes).then(|| fields[3].to_owned());
            let body = self.body(&fields);
            return Ok(Received {
                subscription: fields[2].to_owned(),
                reply,
                body: if has_headers { headed(&body) } else { Ok(body) },
            });
        }
    }

    /// Publishes this number of empty messages, and waits until the server has read them.
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn publish_empty(&mut self, subject: &str, count: usize) {
        let messages = format!("PUB {subject} 0\r\n\r\n").repeat(count);
        self.send(&format!("{messages}PING\r\n"));
        while self.line() != "PONG" {}
    }

    /// Publishes a message that names a subject for its response, and waits until the server has read it.
    ///
    /// # Panics
    /// If the server does not respond.
    pub fn publish_with_reply(&mut self, subject: &str, reply: &str, body: &str) {
        self.send(&format!(
            "PUB {subject} {reply} {}\r\n{body}\r\nPING\r\n",
            body.len()
        ));
        while self.line() != "PONG" {}
    }

    /// Sends a JetStream request and returns the response.
    ///
    /// # Panics
    /// If JetStream returns an error.
    pub fn jetstream(&mut self, subject: &str, request: &Value) -> Value {
        let response = self.request(
            &format!("$JS.API.{subject}"),
            request.to_string().as_bytes(),
        );
        let response: Value =
            serde_json::from_slice(&response.expect("JetStream responds")).expect("JSON");
        assert!(response["error"].is_null(), "{subject}: {response}");
        response
    }

    /// Subscribes and returns after the server accepted or rejected the subscription.
    ///
    /// # Errors
    /// The error of the server.
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

    /// Returns a faithful copy of a stream.
    ///
    /// # Panics
    /// If JetStream returns an error.
    pub fn back_up_stream(&mut self, stream: &str) -> StreamBackup {
        self.send(&format!("SUB {BACKUP_INBOX} 3\r\n"));
        let request = json!({ "deliver_subject": BACKUP_INBOX, "chunk_size": CHUNK_BYTES });
        let description = self.jetstream(&format!("STREAM.SNAPSHOT.{stream}"), &request);
        let mut data = Vec::new();
        loop {
            // The first chunks can overtake the response to the request.
            let chunk = match self.early.pop_front() {
                Some(chunk) => chunk,
                None => self.receive().expect("the server sends the copy"),
            };

            // The last message has a status, or no data.
            let bytes = chunk.body.unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            data.extend(bytes);
            if let Some(reply) = chunk.reply {
                self.send(&format!("PUB {reply} 0\r\n\r\n"));
            }
        }
        StreamBackup {
            name: stream.to_owned(),
            description,
            data,
        }
    }

    /// Creates a missing stream from its copy.
    ///
    /// # Panics
    /// If JetStream returns an error.
    pub fn restore_stream(&mut self, backup: &StreamBackup) {
        let StreamBackup {
            name,
            description,
            data,
        } = backup;
        let request = json!({ "config": description["config"], "state": description["state"] });
        let accepted = self.jetstream(&format!("STREAM.RESTORE.{name}"), &request);
        let target = accepted["deliver_subject"]
            .as_str()
            .expect("a subject for the data");
        for chunk in data.chunks(CHUNK_BYTES) {
            self.request(target, chunk).expect("JetStream responds");
        }
        let response = self.request(target, b"").expect("JetStream responds");
        let response: Value = serde_json::from_slice(&response).expect("JSON");
        assert!(response["error"].is_null(), "{name}: {response}");
    }

    fn send(&mut self, text: &str) {
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .expect("the server reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the server responds in time");
        assert!(!line.is_empty(), "the server closed the connection");
        line.trim_end().to_owned()
    }

    /// Reads the body after a line that ends with its length.
    fn body(&mut self, fields: &[&str]) -> Vec<u8> {
        let total = fields
            .last()
            .and_then(|field| field.parse::<usize>().ok())
            .expect("a number");
        let mut bytes = vec![0; total + 2];
        self.stream
            .read_exact(&mut bytes)
            .expect("the server sends the announced length");
        bytes.truncate(total);
        bytes
    }
}

/// Returns the body after the headers; a status instead of a body is an error.
fn headed(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map_or(bytes.len(), |at| at + 4);
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
    fn reports_no_responders() {
        let server = NatsServer::start();
        let mut client = RawNatsClient::connect(server.port);
        client.jetstream(
            "STREAM.CREATE.S",
            &json!({ "name": "S", "subjects": ["s"] }),
        );
        let ack: Value = serde_json::from_slice(&client.request("s", b"hello").unwrap()).unwrap();
        assert_eq!((&ack["stream"], &ack["seq"]), (&json!("S"), &json!(1)));
        assert_eq!(client.request("no.subscriber", b""), Err("503".to_owned()));
    }
}
