#!/bin/sh
# Guess: a message builder keeps each recipient that it is given, or returns an error.
#
# Seen with lettre 0.11.23 from crates.io: the builder stores recipients as text and parses the
# text again, with a parser for mailboxes that accepts less than the parser for addresses. Recipients
# that `Address` accepts and `Mailbox` does not, such as `"ada lovelace"@example.org` (RFC 5321, 4.1.2)
# and `ada@[192.0.2.1]` (4.1.3), are lost without an error:
#   to(ada), to(bob)   the email goes to Bob only, and names only Bob
#   to(bob), cc(ada)   the email goes to Bob only, but has `Cc:` with Ada
#   to(bob), to(ada)   MissingTo: no recipient remains
#   to(ada)            MissingTo
# A `From` with such an address is MissingFrom. With a header of all mailboxes, To([ada, bob]), and an
# explicit envelope, nothing is lost.
#
# Fails if one of these results changes.
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
features = ["builder"]
TOML

cat >"$dir/src/main.rs" <<'RUST'
use lettre::address::Envelope;
use lettre::message::header::To;
use lettre::message::{Mailbox, MessageBuilder};
use lettre::{Address, Message};

fn mailbox(text: &str) -> Mailbox {
    text.parse::<Address>().unwrap().into()
}

/// Returns the recipients and the lines that name them, or the error.
fn build(builder: MessageBuilder) -> String {
    let message = match builder.body(String::new()) {
        Ok(message) => message,
        Err(error) => return format!("{error:?}"),
    };

    let envelope = message.envelope().to().iter().map(ToString::to_string);
    let text = String::from_utf8(message.formatted()).unwrap();
    let named = |line: &&str| line.starts_with("To:") || line.starts_with("Cc:");
    let lines: Vec<_> = text.lines().filter(named).collect();
    format!("{} | {}", envelope.collect::<Vec<_>>().join(" "), lines.join(" | "))
}

fn main() {
    let bob = || mailbox("bob@example.org");
    let draft = || Message::builder().from(mailbox("shop@example.org"));
    let mut is_same = true;

    for text in [r#""ada lovelace"@example.org"#, "ada@[192.0.2.1]"] {
        let ada = || mailbox(text);
        let both = Envelope::new(None, vec![ada().email, bob().email]).unwrap();
        let header = To::from(lettre::message::Mailboxes::from(vec![ada(), bob()]));

        let results = [
            (
                "to(ada), to(bob)",
                build(draft().to(ada()).to(bob())),
                "bob@example.org | To: bob@example.org".to_owned(),
            ),
            (
                "to(bob), cc(ada)",
                build(draft().to(bob()).cc(ada())),
                format!("bob@example.org | To: bob@example.org | Cc: {text}"),
            ),
            (
                "to(bob), to(ada)",
                build(draft().to(bob()).to(ada())),
                "MissingTo".to_owned(),
            ),
            ("to(ada)", build(draft().to(ada())), "MissingTo".to_owned()),
            (
                "from(ada), to(bob)",
                build(Message::builder().from(ada()).to(bob())),
                "MissingFrom".to_owned(),
            ),
            (
                "To([ada, bob]) and an envelope",
                build(draft().header(header).envelope(both)),
                format!("{text} bob@example.org | To: {text}, bob@example.org"),
            ),
        ];

        println!("ada is {text}; as a mailbox: {:?}", text.parse::<Mailbox>());
        is_same &= text.parse::<Mailbox>().is_err();
        for (calls, result, expected) in results {
            println!("  {calls}: {result}");
            is_same &= result == expected;
        }
    }

    std::process::exit(if is_same { 0 } else { 1 });
}
RUST

CARGO_TARGET_DIR="$dir/target" cargo run --quiet --manifest-path "$dir/Cargo.toml"
