//! Mails of received messages: requested once, with lines for their outcomes.

use orlog_model::{Status, Work};
use serde_json::{Value, json};

use super::Harness;
use crate::message::*;

fn mail(to: &[&str]) -> Value {
    let target = MailTarget {
        effect: "mail.send".parse().unwrap(),
        to: to.iter().map(|to| (*to).to_owned()).collect(),
    };
    json!(ReceiveMessage {
        delivery: Harness::sent(MessageType::Mail).message().delivery(),
        mail: Some(target)
    })
}

/// Requirements: F6.
#[test]
fn mail_is_requested_once_from_the_target_of_the_receiver() {
    let mut inbox = Harness::inbox();
    let mut sent = Harness::sent(MessageType::Mail).message();
    let mut delivery = mail(&["ada@x.io", "bob@x.io"]);
    sent.message.subject = Some("Hello".to_owned());
    sent.message.format = MessageFormat::Md;
    delivery["message"] = json!(sent.message);
    inbox.signal(DELIVER, delivery.clone()).unwrap();
    let Work::Effect(effect) = &inbox.work["mail"] else {
        panic!("{:?}", inbox.work)
    };
    let email = json!({
        "to": ["ada@x.io", "bob@x.io"], "subject": "a@one: Hello", "format": "md", "body": sent.message.body, "sanitize": true,
    });
    assert_eq!(
        (effect.name.as_str(), &effect.payload),
        ("mail.send", &email)
    );
    for again in [
        delivery.clone(),
        mail(&["eve@x.io"]),
        json!(sent.delivery()),
    ] {
        let mut again = again;
        again["message"] = json!(sent.message);
        assert_eq!(
            inbox.signal(DELIVER, again),
            Err("the message exists".to_owned())
        );
    }
    inbox
        .succeed("mail", json!({ "message_id": "<1@x.io>" }))
        .unwrap();
    assert_eq!(
        inbox.signal(DELIVER, delivery),
        Err("the message exists".to_owned())
    );
    let state = inbox.inbox_message();
    assert_eq!(
        (state.status, state.lines[0].text.as_str()),
        (MessageStatus::Dispatched, "mail sent")
    );
    assert_eq!(
        inbox.work.keys().collect::<Vec<_>>(),
        ["report"],
        "the sender receives the line"
    );
}

/// Requirements: F6.
#[test]
fn failed_mail_adds_a_line_and_changes_no_status() {
    let mut inbox = Harness::inbox();
    inbox.signal(DELIVER, mail(&["ada@x.io"])).unwrap();
    inbox.fail("mail").unwrap();
    inbox.signal(PROCESS, json!({ "result": 1 })).unwrap();
    let report = inbox.inbox_message().report();
    assert_eq!(
        (report.status, report.failure),
        (MessageStatus::Processed, None)
    );
    assert_eq!(
        report.lines[0].text, "mail not sent: OR0111",
        "without the response of the mail server"
    );
}

#[test]
fn mail_that_ends_after_its_message_adds_only_a_line() {
    let mut inbox = Harness::inbox();
    inbox.signal(DELIVER, mail(&["ada@x.io"])).unwrap();
    inbox.signal(PROCESS, json!({ "result": 1 })).unwrap();
    let before = inbox.inbox_message();
    inbox.succeed("report", Value::Null).unwrap_err();
    inbox.succeed("mail", Value::Null).unwrap();
    let after = inbox.inbox_message();
    assert_eq!(
        (inbox.status, inbox.work.len(), after.total_lines),
        (Status::Completed, 0, 1)
    );
    assert_eq!(
        (after.status, after.ended_at),
        (before.status, before.ended_at)
    );
}

#[test]
fn message_without_recipients_is_stored_with_a_line_and_one_without_a_target_has_none() {
    let mut inbox = Harness::inbox();
    inbox.signal(DELIVER, mail(&[])).unwrap();
    let state = inbox.inbox_message();
    assert_eq!(
        (state.status, inbox.work.len()),
        (MessageStatus::Dispatched, 0)
    );
    assert!(
        state.report().lines[0]
            .text
            .contains("no actor of the context has a mail address"),
        "{state:?}"
    );
    let plain = Harness::received(MessageType::Mail);
    assert_eq!(
        (plain.work.len(), plain.inbox_message().total_lines),
        (0, 0)
    );
    let withdrawn = Harness::sent(MessageType::Mail).message().withdrawal();
    let target = MailTarget {
        effect: "mail.send".parse().unwrap(),
        to: ["ada@x.io".to_owned()].into(),
    };
    let mut inbox = Harness::inbox();
    inbox
        .signal(
            DELIVER,
            json!(ReceiveMessage {
                delivery: withdrawn,
                mail: Some(target)
            }),
        )
        .unwrap();
    assert_eq!(inbox.work.len(), 0, "a withdrawn message is not sent");
}
