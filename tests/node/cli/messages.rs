//! `orlog message` with two nodes.

use orlog_testkit::wait::until_blocking;
use serde_json::{Value, json};

use super::peers::Fixture;

impl Fixture {
    /// Adds the node and its keys to the peers of another node.
    fn join(&self, other: &Self) {
        let public = self.json(&["peer", "show"])["public_key"].clone();
        let keys = [
            "--address",
            &self.node.url,
            "--public-key",
            public.as_str().unwrap(),
        ];
        other.done(&[&["peer", "add", self.name], &keys[..]].concat());
    }

    /// Repeats a command until its output meets a condition.
    fn until(&self, args: &[&str], is_met: impl Fn(&Value) -> bool) -> Value {
        until_blocking("the output meets the condition", || {
            Some(self.json(args)).filter(&is_met)
        })
    }
}

/// Requirements: F6.
#[test]
fn message_is_sent_to_another_node_and_processed_there() {
    let (a, b) = (Fixture::start("a.example"), Fixture::start("b.example"));
    a.join(&b);
    b.join(&a);
    b.done(&[
        "context",
        "create",
        "sales",
        "--admin",
        "user:root",
        "--reader",
        "context:shop@a.example",
    ]);
    let (shop, sales) = (["--tenant", "shop"], ["--tenant", "sales"]);
    let command = [
        "message",
        "send",
        "sales@b.example",
        "How many?",
        "--subject",
        "Stock",
        "--thread",
        "t",
    ];
    let sent = a.done(&[&command[..], &["--id", "m-1", "--user", "ann"], &shop].concat());
    assert!(
        sent.starts_with("m-1: dispatched\n") && sent.contains("\nHow many?\n"),
        "{sent}"
    );
    let repeated = a.done(&[&command[..], &["--id", "m-1", "--user", "ann"], &shop].concat());
    assert!(repeated.starts_with("m-1: "), "{repeated}");
    let received = b.until(&[&["message", "list"], &sales[..]].concat(), |page| {
        page["items"][0]["message_id"] == "m-1"
    });
    assert_eq!(received["items"].as_array().unwrap().len(), 1);
    let id = received["items"][0]["id"].as_str().unwrap();
    let listed = b.done(
        &[
            &[
                "message",
                "list",
                "--status",
                "dispatched",
                "--type",
                "chat",
            ],
            &sales[..],
        ]
        .concat(),
    );
    assert!(
        listed.contains("shop@a.example") && listed.contains("Stock"),
        "{listed}"
    );
    let acknowledged =
        b.done(&[&["message", "acknowledge", id, "--user", "bob"], &sales[..]].concat());
    assert!(
        acknowledged.starts_with(&format!("{id}: acknowledged\n")),
        "{acknowledged}"
    );
    b.done(
        &[
            &[
                "message",
                "process",
                id,
                "--result",
                r#"{"items":7}"#,
                "--user",
                "bob",
            ],
            &sales[..],
        ]
        .concat(),
    );
    // The repetition waits for the result.
    let ended = a.json(
        &[
            &command[..],
            &["--id", "m-1", "--user", "ann", "--wait"],
            &shop,
        ]
        .concat(),
    );
    assert_eq!(
        (&ended["status"], &ended["result"]),
        (&json!("processed"), &json!({ "items": 7 }))
    );
    let shown = a.done(&[&["message", "show", "m-1"], &shop[..]].concat());
    assert!(
        shown.starts_with("m-1: processed\n") && shown.contains(r#"{"items":7}"#),
        "{shown}"
    );
    let outbox = a.done(&[&["message", "list", "--box", "out"], &shop[..]].concat());
    assert!(
        outbox.contains("TO") && outbox.contains("sales@b.example"),
        "{outbox}"
    );
    let conversation = a.done(&[&["message", "list", "--thread", "t"], &shop[..]].concat());
    assert!(
        conversation.contains("How many?") && conversation.contains("ann"),
        "{conversation}"
    );
}

/// Requirements: F6.
#[test]
fn rejected_and_cancelled_messages_fail_with_their_reasons() {
    let a = Fixture::start("a.example");
    a.done(&[
        "message", "send", "sales", "Buy", "--type", "mail", "--id", "m-1",
    ]);
    let sales = ["--tenant", "sales"];
    let list = [&["message", "list"], &sales[..]].concat();
    let received = a.until(&list, |page| page["items"][0]["message_id"] == "m-1");
    let id = received["items"][0]["id"].as_str().unwrap();
    a.done(
        &[
            &["message", "reject", id, "--reason", "no budget"],
            &sales[..],
        ]
        .concat(),
    );
    let (code, output, error) = a.run(&[
        "message", "send", "sales", "Buy", "--type", "mail", "--id", "m-1", "--wait",
    ]);
    assert!(
        code == 1 && output.starts_with("m-1: error\n") && error.contains("no budget"),
        "{code}: {error}"
    );
    a.done(&["message", "send", "sales", "Sell", "--id", "m-2"]);
    let cancelled = a.done(&["message", "cancel", "m-2", "--reason", "sold"]);
    assert!(cancelled.starts_with("m-2: error\n"), "{cancelled}");
    let (code, _, error) = a.run(&["message", "send", "sales", "Sell", "--id", "m-2", "--wait"]);
    assert!(
        code == 4 && error.contains("was cancelled"),
        "{code}: {error}"
    );
    let (code, output, error) = a.run(&[
        "message", "send", "sales", "Buy", "--id", "m-3", "--wait", "1ms",
    ]);
    assert!(
        code == 5 && output.starts_with("m-3: dispatched\n"),
        "{code}: {output}"
    );
    assert!(
        error.contains("the message is dispatched: it has not ended"),
        "{error}"
    );
}

#[test]
fn invalid_input_of_a_message_names_its_place() {
    let a = Fixture::start("a.example");
    let dir = tempfile::tempdir().unwrap();
    let flow = dir.path().join("flow.yaml");
    std::fs::write(&flow, "jobs: []\n").unwrap();
    let flow = flow.display().to_string();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["send", "sales"], 2, "<BODY>"),
        (
            &["send", "sales", "--wait", "x"],
            2,
            "--wait as the last argument",
        ),
        (
            &["send", "sales", "x", "--type", "fax"],
            2,
            "possible values: chat, mail",
        ),
        (
            &["send", "sales", "x", "--flow", &flow],
            2,
            "cannot be used with",
        ),
        (&["send", "sales", "--flow", &flow], 2, "1 to 1000 jobs"),
        (
            &["send", "sales", "x", "--result-timeout", "soon"],
            1,
            "timeouts.result: ",
        ),
        (&["send", "sales@b.example", "x"], 1, "orlog peer add"),
        (&["process", "in-1", "--result", "seven"], 2, "--result: "),
        (&["show", "none"], 3, "OR0112"),
    ];
    for (args, expected, reason) in cases {
        let (code, _, error) = a.run(&[&["message"], args].concat());
        assert!(
            code == expected && error.contains(reason),
            "{args:?}: {code}: {error}"
        );
    }
    assert!(
        a.done(&["message", "list", "--box", "out"])
            .contains("no messages")
    );
}
