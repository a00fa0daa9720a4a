//! Greeting, encryption and credentials of a connection.

use std::sync::Arc;

use orlog_effect::TransientCause;
use orlog_testkit::smtp_server::{SmtpCommand, SmtpGreeting, SmtpServer, SmtpServerOptions};
use parking_lot::Mutex;
use serde_json::json;

use super::{certificate, file, free, open, perform, replying};
use crate::effects::attempts::{failure, trouble};

pub(super) fn encrypted(wrapped: bool, auth: bool) -> SmtpServerOptions {
    let pem = |name: &str| std::fs::read(certificate(name)).unwrap();
    SmtpServerOptions {
        certificate: Some((pem("server.pem"), pem("server.key"))),
        wrapped,
        auth,
        ..SmtpServerOptions::default()
    }
}

#[tokio::test]
async fn credentials_require_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (user, password) = (
        file(&dir, "user", "orlog"),
        file(&dir, "password", "canary-77aa\n"),
    );
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&received);
    let listening = replying(move |message| {
        if let SmtpCommand::Auth { user, password } = message {
            recorded.lock().push(format!("{user}:{password}"));
        }
        None
    });
    let email = || json!({ "to": "a@x.io", "text": "hi" });
    let ca = format!(
        "certificates = {{ ca = \"file:{}\" }}",
        certificate("ca.pem")
    );
    let login = format!("user = {user:?}\npassword = {password:?}");
    for (wrapped, mode) in [
        (false, "required"),
        (true, "wrapper"),
        (false, "opportunistic"),
    ] {
        let server = SmtpServer::open(encrypted(wrapped, true), Arc::clone(&listening)).await;
        perform(
            &free(&server, &format!("tls = {mode:?}\n{ca}\n{login}")),
            email(),
        )
        .await
        .unwrap();
        let mails = server.mails();
        assert_eq!(
            (mails[0].encrypted, mails[0].user.as_deref()),
            (true, Some("orlog")),
            "{mode}"
        );
        let stranger = perform(&free(&server, &format!("tls = {mode:?}")), email()).await;
        assert_eq!(
            (failure(&stranger).0.as_str(), trouble(&stranger)),
            ("tls", Some(TransientCause::Unavailable)),
            "{stranger:?}"
        );
    }
    assert_eq!(*received.lock(), ["orlog:canary-77aa"; 3]);
    let plaintext = open().await;
    let waiting = perform(
        &free(&plaintext, &format!("tls = \"required\"\n{ca}")),
        email(),
    )
    .await;
    assert_eq!(
        (failure(&waiting).0.as_str(), trouble(&waiting)),
        ("tls", Some(TransientCause::Unavailable))
    );
    assert!(
        failure(&waiting).1.contains("does not support STARTTLS"),
        "{waiting:?}"
    );
    perform(&free(&plaintext, "tls = \"opportunistic\""), email())
        .await
        .unwrap();
    assert_eq!(plaintext.mails().len(), 1);
}

#[tokio::test]
async fn offer_of_tls_in_lower_case_sends_nothing_in_plain_text() {
    let options = SmtpServerOptions {
        greeting: SmtpGreeting::LowerCase,
        ..encrypted(false, false)
    };
    let server = SmtpServer::open(options, replying(|_| None)).await;
    for mode in ["opportunistic", "required"] {
        let upstream = free(&server, &format!("tls = {mode:?}"));
        let waiting = perform(&upstream, json!({ "to": "a@x.io", "text": "hi" })).await;
        assert_eq!(failure(&waiting).0, "tls", "{mode}");
        let reason = failure(&waiting).1;
        assert!(reason.contains("not in upper case"), "{mode}: {reason}");
    }
    assert!(server.mails().is_empty());
}

#[tokio::test]
async fn credentials_are_scrubbed_from_server_replies() {
    let dir = tempfile::tempdir().unwrap();
    let (user, password) = (
        file(&dir, "user", "orlog"),
        file(&dir, "password", "canary-77aa"),
    );
    let server = SmtpServer::open(
        SmtpServerOptions {
            auth: true,
            ..SmtpServerOptions::default()
        },
        replying(|received| match received {
            SmtpCommand::Auth { .. } => {
                Some("535 5.7.8 canary-77aa and AG9ybG9nAGNhbmFyeS03N2Fh are wrong")
            }
            _ => None,
        }),
    )
    .await;
    let upstream = free(
        &server,
        &format!("user = {user:?}\npassword = {password:?}"),
    );
    let result = perform(&upstream, json!({ "to": "a@x.io", "text": "hi" })).await;
    assert_eq!(
        (failure(&result).0.as_str(), trouble(&result)),
        ("smtp_auth", Some(TransientCause::Unavailable))
    );
    assert!(
        failure(&result)
            .1
            .ends_with("535 5.7.8 [secret] and [secret] are wrong"),
        "{result:?}"
    );
    let absent = free(
        &server,
        "user = \"env:ORLOG_NOT_SET_7F3A\"\npassword = \"env:ORLOG_NOT_SET_7F3A\"",
    );
    let (code, message) = failure(&perform(&absent, json!({ "to": "a@x.io", "text": "hi" })).await);
    assert!(
        code == "secret" && !message.contains("ORLOG_NOT_SET"),
        "{message}"
    );
}

#[tokio::test]
async fn server_without_ehlo_receives_helo() {
    let options = SmtpServerOptions {
        greeting: SmtpGreeting::HeloOnly,
        ..SmtpServerOptions::default()
    };
    let server = SmtpServer::open(options.clone(), replying(|_| None)).await;
    let upstream = free(&server, "");
    for _ in 0..2 {
        perform(&upstream, json!({ "to": "a@x.io", "text": "hi" }))
            .await
            .unwrap();
    }
    // The second email uses the connection of the first one.
    assert_eq!((server.mails().len(), server.connections()), (2, 2));

    // Without EHLO there is no STARTTLS: a server must not avoid the required encryption.
    let server = SmtpServer::open(options, replying(|_| None)).await;
    let upstream = free(&server, "tls = \"required\"");
    let result = perform(&upstream, json!({ "to": "a@x.io", "text": "hi" })).await;
    assert_eq!(failure(&result).0, "tls");
    assert!(server.mails().is_empty());
}
