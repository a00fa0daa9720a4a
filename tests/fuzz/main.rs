//! Fuzzing of inputs from outside the process ([`orlog_testkit::fuzz`]): messages of the bus, HTTP requests, tokens, files
//! of upstreams. No input panics, needs much time or memory, or causes an internal error.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bus;
mod http;
mod tokens;
mod upstreams;

use orlog_testkit::fuzz::fuzz;

#[test]
fn bus_messages_never_panic() {
    fuzz("bus", bus::make, bus::run, |message| format!("{message:?}"));
}

#[test]
fn subjects_never_panic_and_round_trip() {
    fuzz(
        "subject",
        bus::make_subject,
        |subject| bus::run_subject(subject),
        Clone::clone,
    );
}

#[test]
fn http_requests_cause_no_internal_error() {
    let node = http::Node::start(|_| ());
    fuzz(
        "http",
        http::make,
        |request| node.run(request),
        |request| format!("{request:?}"),
    );
}

#[test]
fn changed_tokens_are_never_accepted() {
    let issuer = tokens::Issuer::new();
    let node = http::Node::start(|config| issuer.configure(config));
    fuzz(
        "token",
        |random| issuer.make(random),
        |token| issuer.run(&node, token),
        |token| format!("{token:?}"),
    );
}

#[test]
fn upstream_files_never_panic() {
    fuzz(
        "upstream",
        upstreams::make,
        |text| upstreams::run(text),
        Clone::clone,
    );
}
