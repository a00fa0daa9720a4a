//! Classification of SMTP replies by the table of `crate::decisions`. Replies 450 and
//! 451 (greylisting) are retried after a delay.

use std::time::Duration;

use serde_json::{Value, json};

use super::connection::{SendError, SmtpReply};
use crate::decisions::{Decision, decide_smtp};
use crate::provider::{ProviderError, Reply};
use crate::quote::quote;

pub(crate) fn classify_reply(
    upstream: &str,
    id: &str,
    sent: Result<SmtpReply, SendError>,
    delay: Duration,
) -> Result<Reply, ProviderError> {
    match sent {
        Ok(reply) => Ok(Reply::from(
            json!({ "message_id": id, "response": reply.to_string() }),
        )),
        Err(SendError::Unavailable(code, reason)) => Err(ProviderError::unavailable(
            code,
            format!("{upstream}: {reason}"),
        )),
        Err(SendError::Credentials(reason)) => Err(ProviderError::unavailable(
            "smtp_auth",
            format!("{upstream} rejected the credentials: {reason}"),
        )),
        Err(SendError::Broken(reason)) => Err(ProviderError::unavailable(
            "transport",
            format!("{upstream}: {reason}"),
        )),
        Err(SendError::Lost(reason)) => Err(ProviderError::response_lost(
            "transport",
            format!("{upstream}: {reason}"),
        )),
        Err(SendError::Unfit(reason)) => Err(ProviderError::permanent(
            "smtp_utf8",
            format!("{upstream}: {reason}"),
        )),
        Err(SendError::Rejected {
            reply,
            to,
            after_message,
        }) => {
            let decision = decide(&reply, after_message);
            Err(rejection(upstream, &reply, to.as_deref(), delay, decision))
        }
    }
}

fn rejection(
    upstream: &str,
    reply: &SmtpReply,
    to: Option<&str>,
    delay: Duration,
    decision: Decision,
) -> ProviderError {
    let quote = quote(&reply.to_string());
    let recipient = to.map_or_else(String::new, |to| format!(" for {to}"));
    let code = format!("smtp_{}", reply.code);
    let message = format!("{upstream} returned {quote}{recipient}");

    let error = match (decision, reply.code) {
        // The sender is not authorized; effects wait until the operator corrects it.
        (Decision::Unavailable, 500..) => {
            return ProviderError::decided(decision, "smtp_auth", message);
        }
        (Decision::Failed, _) => {
            let payload: Value = json!({
                "code": reply.code,
                "enhanced": enhanced(&reply.text),
                "response": reply.to_string(),
                "recipient": to,
            });
            ProviderError::decided(decision, code, message).with_payload(payload)
        }
        (_, _) => ProviderError::decided(decision, code, message),
    };

    let requested = requested_delay(&reply.text);
    let retry_after = match reply.code {
        421 => None,
        450 | 451 => Some(requested.unwrap_or(delay)),
        _ => requested,
    };
    error.of_attempt().with_retry_after(retry_after)
}

fn decide(reply: &SmtpReply, after_message: bool) -> Decision {
    // Greylisting is a policy of the server that replies, so no relay has passed the email on.
    let is_policy = enhanced(&reply.text).is_some_and(|status| status.starts_with("4.7."));
    decide_smtp(reply.code, after_message && !is_policy)
}

/// Returns the enhanced status, such as `5.1.1`, at the start of a reply (RFC 3463).
fn enhanced(text: &str) -> Option<&str> {
    let code = text.split_whitespace().next()?;
    let mut parts = code.split('.');
    let fits = parts.clone().count() == 3
        && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    fits.then_some(code)
}

/// Parses a delay such as "try again in 5 minutes" of greylisting servers.
fn requested_delay(text: &str) -> Option<Duration> {
    let tokens: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    tokens.windows(3).find_map(|three| {
        let [before, number, unit] = three else {
            return None;
        };
        let number: u64 = number
            .parse()
            .ok()
            .filter(|_| ["in", "for", "after"].contains(before))?;

        match *unit {
            "s" | "sec" | "secs" | "second" | "seconds" => Some(Duration::from_secs(number)),
            "m" | "min" | "mins" | "minute" | "minutes" => {
                Some(Duration::from_secs(number.checked_mul(60)?))
            }
            "h" | "hour" | "hours" => Some(Duration::from_secs(number.checked_mul(3600)?)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::TransientCause;

    fn classify(code: u16, text: &str) -> ProviderError {
        let reply = SmtpReply {
            code,
            text: text.to_owned(),
        };
        let fault = SendError::Rejected {
            reply,
            to: Some("ada@x.io".to_owned()),
            after_message: false,
        };
        classify_reply("mail", "<1@x>", Err(fault), Duration::from_mins(1)).unwrap_err()
    }

    #[track_caller]
    fn check(code: u16, text: &str, expected: TransientCause, delay: Option<u64>) {
        let ProviderError::Transient {
            trouble,
            retry_after,
            ..
        } = classify(code, text)
        else {
            panic!("it is final")
        };
        assert_eq!(
            (trouble, retry_after),
            (expected, delay.map(Duration::from_secs)),
            "{code} {text}"
        );
    }

    #[test]
    fn smtp_replies_are_classified() {
        check(421, "4.3.2 going down", TransientCause::Unavailable, None);
        check(450, "4.2.0 Greylisted", TransientCause::Throttled, Some(60));
        check(
            451,
            "4.7.1 Greylisted, try again in 5 minutes",
            TransientCause::Throttled,
            Some(300),
        );
        check(
            451,
            "4.7.1 please retry in 120 seconds.",
            TransientCause::Throttled,
            Some(120),
        );
        check(452, "4.3.1 out of space", TransientCause::Throttled, None);
        check(535, "5.7.8 no", TransientCause::Unavailable, None);
        let ProviderError::Permanent {
            failure, payload, ..
        } = classify(550, "5.1.1 no such user")
        else {
            panic!()
        };
        assert_eq!(
            (failure.code.as_str(), &payload["enhanced"]),
            ("smtp_550", &json!("5.1.1"))
        );
        assert_eq!(
            failure.message,
            "mail returned 550 5.1.1 no such user for ada@x.io"
        );
        let ProviderError::Permanent { payload, .. } = classify(554, "spam") else {
            panic!()
        };
        assert_eq!(payload["enhanced"], Value::Null);
    }
}
