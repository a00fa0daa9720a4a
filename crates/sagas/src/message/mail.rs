//! Mail of a received message: an effect that an SMTP upstream of the receiving node executes.
//!
//! The node of the receiver determines effect and recipients. The sender only writes the subject
//! and the body, of which the upstream keeps harmless elements.

use std::collections::BTreeSet;
use std::time::Duration;

use orlog_model::{Effect, EffectName, Failure, Priority, Work, WorkOutcome};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::content::{Delivery, Message};
use super::transition::name;

/// Tag of the mail.
pub(super) const MAIL_TAG: &str = "mail";
/// Time for which a mail is attempted, also if the message ends before.
const MAIL_TIMEOUT: Duration = Duration::from_hours(7 * 24);

/// Effect that sends a message by SMTP, and its recipients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailTarget {
    /// Effect.
    pub effect: EffectName,
    /// Mail addresses of the recipients.
    pub to: BTreeSet<String>,
}

/// Data of the signal [`super::DELIVER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveMessage {
    /// Delivery of the sender.
    #[serde(flatten)]
    pub delivery: Delivery,
    /// Target of a message of the type `mail`, determined by the node of the receiver; `None`: the
    /// message is not sent by SMTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<MailTarget>,
}

impl MailTarget {
    /// Returns the effect that sends a message.
    ///
    /// # Errors
    /// Without recipients: the line for the message.
    pub(super) fn work(self, message: &Message) -> Result<Work, &'static str> {
        if self.to.is_empty() {
            return Err("mail not sent: no actor of the context has a mail address");
        }

        let Message {
            from,
            format,
            subject,
            body,
            ..
        } = message;

        // The sender writes the subject, so the node puts the name of the sender before it.
        let subject = subject
            .as_ref()
            .map_or_else(|| from.to_string(), |subject| format!("{from}: {subject}"));
        let Self { effect, to } = self;
        let payload = json!({ "to": to, "subject": subject, "format": format, "body": body,
            "sanitize": true });

        Ok(Work::Effect(Effect {
            tag: name(MAIL_TAG),
            round: 0,
            name: effect,
            payload,
            timeout: Some(MAIL_TIMEOUT),
            retry: None,
            schema_version: 1,
            in_doubt: None,
            priority: Priority::Normal,
        }))
    }
}

/// Returns the line of the outcome of a mail, and the note for the history; `None` if it has not
/// ended.
pub(super) fn line_and_note(outcome: &WorkOutcome) -> Option<(String, String)> {
    match outcome {
        WorkOutcome::Succeeded { .. } => Some(("mail sent".to_owned(), "mail sent".to_owned())),
        WorkOutcome::Accepted => None,
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            // The sender receives the line, but neither the recipients nor the response of the mail
            // server, which the note contains.
            let Failure { code, .. } = failure;
            Some((
                format!("mail not sent: {code}"),
                format!("mail not sent: {failure}"),
            ))
        }
    }
}
