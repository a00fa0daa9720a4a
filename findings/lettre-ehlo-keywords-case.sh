#!/bin/sh
# Guess: an SMTP client reads the keywords of the response to EHLO in upper and lower case, as RFC
# 5321 requires (2.4, 4.1.1.1).
#
# Seen with lettre 0.11.23 from crates.io: it compares them with upper-case literals. A server with
# `starttls`, `auth PLAIN`, `8bitmime` and `smtputf8` has, for lettre, no extension at all. With TLS
# required, each connection fails with "STARTTLS is not supported on this server", before the client
# sends STARTTLS. smtplib of Python 3 reads all four from the same response. The same server with
# upper-case keywords receives STARTTLS.
#
# Fails if lettre reads a lower-case keyword, or does not read an upper-case one.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

mkdir "$dir/src"
cat >"$dir/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"

[dependencies.lettre]
version = "=0.11.23"
default-features = false
features = ["ring", "rustls", "smtp-transport", "webpki-roots"]
TOML

cat >"$dir/src/main.rs" <<'RUST'
use std::time::Duration;

use lettre::transport::smtp::authentication::Mechanism;
use lettre::transport::smtp::client::SmtpConnection;
use lettre::transport::smtp::extension::{ClientId, Extension};
use lettre::SmtpTransport;

/// Prints the extensions that lettre reads, and the result of a connection that requires TLS.
fn main() {
    let port = std::env::args().nth(1).unwrap().parse().unwrap();
    let hello = ClientId::Domain("client.example".to_owned());
    let timeout = Some(Duration::from_secs(10));
    let mut connection =
        SmtpConnection::connect(("127.0.0.1", port), timeout, &hello, None, None).unwrap();

    for (keyword, extension) in [
        ("STARTTLS", Extension::StartTls),
        ("AUTH", Extension::Authentication(Mechanism::Plain)),
        ("8BITMIME", Extension::EightBitMime),
        ("SMTPUTF8", Extension::SmtpUtfEight),
    ] {
        if connection.server_info().supports_feature(extension) {
            println!("{keyword}");
        }
    }
    connection.quit().unwrap();

    let transport = SmtpTransport::starttls_relay("127.0.0.1").unwrap();
    let error = transport.port(port).build().test_connection().unwrap_err();
    println!("{error}");
}
RUST

CARGO_TARGET_DIR="$dir/target" cargo build --quiet --manifest-path "$dir/Cargo.toml"

python3 - "$dir/target/debug/finding" <<'PYTHON'
import smtplib
import socketserver
import subprocess
import sys
import threading

KEYWORDS = ["STARTTLS", "AUTH", "8BITMIME", "SMTPUTF8"]
NOT_SUPPORTED = "STARTTLS is not supported on this server"


class Server(socketserver.ThreadingTCPServer):
    """An SMTP server that announces the keywords in one case, and has no TLS at the moment."""

    daemon_threads = True

    def __init__(self, case):
        super().__init__(("127.0.0.1", 0), Session)
        self.extensions = [case(word) + (" PLAIN" if word == "AUTH" else "") for word in KEYWORDS]
        self.commands = []
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Session(socketserver.StreamRequestHandler):
    def reply(self, code, *lines):
        for line in lines[:-1]:
            self.wfile.write(f"{code}-{line}\r\n".encode())
        self.wfile.write(f"{code} {lines[-1]}\r\n".encode())

    def handle(self):
        self.reply(220, "mail.example ESMTP")
        for line in self.rfile:
            verb = line.decode().split()[0].upper()
            self.server.commands.append(verb)
            if verb == "EHLO":
                self.reply(250, "mail.example", *self.server.extensions)
            elif verb == "STARTTLS":
                self.reply(454, "TLS not available due to temporary reason")
            elif verb == "QUIT":
                return self.reply(221, "closing")
            else:
                self.reply(502, "not implemented")


def seen_by_lettre(server):
    output = subprocess.run(
        [sys.argv[1], str(server.port)], check=True, stdout=subprocess.PIPE, text=True, timeout=60
    ).stdout.splitlines()
    print(f"{server.extensions}\n  lettre: {output[:-1]}; TLS required: {output[-1]}")
    return output[:-1], output[-1], "STARTTLS" in server.commands


def seen_by_smtplib(server):
    with smtplib.SMTP("127.0.0.1", server.port, timeout=10) as client:
        client.ehlo("client.example")
        found = [word for word in KEYWORDS if client.has_extn(word)]
    print(f"  smtplib: {found}")
    return found


upper = Server(str.upper)
found, error, asked = seen_by_lettre(upper)
control = found == KEYWORDS and asked and NOT_SUPPORTED not in error
control = control and seen_by_smtplib(upper) == KEYWORDS

lower = Server(str.lower)
found, error, asked = seen_by_lettre(lower)
same = found == [] and not asked and NOT_SUPPORTED in error
same = same and seen_by_smtplib(lower) == KEYWORDS
sys.exit(0 if control and same else 1)
PYTHON
