//! What a mail server's replies mean.
//!
//! | reply | meaning |
//! |---|---|
//! | 250 after the mail | done |
//! | 421; a connection, TLS or credentials that fail; a connection lost before the mail was there | down: not done, tried again |
//! | other 4xx | busy: not done, tried again; 450 and 451 put off (greylisting), with a pause |
//! | 5xx | refused for good |
//! | no reply to the mail | lost: it may have been accepted; tried again with the same bytes |

use std::time::Duration;

use serde_json::{Value, json};

use super::connection::{Fault, Said};
use crate::provider::{Refusal, Reply};

/// The most of a reply that is quoted, in characters.
const MAX_QUOTE: usize = 200;

pub(crate) fn judge(
    upstream: &str,
    id: &str,
    sent: Result<Said, Fault>,
    pause: Duration,
) -> Result<Reply, Refusal> {
    match sent {
        Ok(said) => Ok(Reply::from(json!({ "message_id": id, "response": said.to_string() }))),
        Err(Fault::Unreachable(why)) => Err(Refusal::retry("unreachable", format!("{upstream}: {why}"))),
        Err(Fault::Tls(why)) => Err(Refusal::retry("tls", format!("{upstream}: {why}"))),
        Err(Fault::Secret(why)) => Err(Refusal::retry("secret", format!("{upstream}: {why}"))),
        Err(Fault::Credentials(why)) => {
            Err(Refusal::retry("smtp_auth", format!("{upstream} does not take the credentials: {why}")))
        }
        Err(Fault::Broken(why)) => Err(Refusal::retry("transport", format!("{upstream}: {why}"))),
        Err(Fault::Lost(why)) => Err(Refusal::lost("transport", format!("{upstream}: {why}"))),
        Err(Fault::Unfit(why)) => Err(Refusal::failed("smtp_utf8", format!("{upstream}: {why}"))),
        Err(Fault::Refused { said, to }) => Err(refused(upstream, &said, to.as_deref(), pause)),
    }
}

fn refused(upstream: &str, said: &Said, to: Option<&str>, pause: Duration) -> Refusal {
    let quote: String = said.to_string().chars().filter(|c| !c.is_control()).take(MAX_QUOTE).collect();
    let whom = to.map_or_else(String::new, |to| format!(" of {to}"));
    let (code, message) = (format!("smtp_{}", said.code), format!("{upstream} answered{whom} {quote}"));
    match said.code {
        421 => Refusal::retry(code, message),
        450 | 451 => Refusal::busy(code, message).after(asked_for(&said.text).unwrap_or(pause)),
        400..=499 => match asked_for(&said.text) {
            Some(pause) => Refusal::busy(code, message).after(pause),
            None => Refusal::busy(code, message),
        },
        // Who may not send is not let in; the operator mends that.
        530 | 534 | 535 | 538 => Refusal::retry("smtp_auth", message),
        _ => {
            let payload: Value = json!({ "code": said.code, "enhanced": enhanced(&said.text), "response": said.to_string(), "recipient": to });
            Refusal::failed(code, message).with_payload(payload)
        }
    }
}

/// `5.1.1` at the beginning of a reply (RFC 3463).
fn enhanced(text: &str) -> Option<&str> {
    let word = text.split_whitespace().next()?;
    let mut parts = word.split('.');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let fits = parts.clone().count() == 3 && parts.all(is_number);
    fits.then_some(word)
}

/// "try again in 5 minutes", as greylisting servers say.
fn asked_for(text: &str) -> Option<Duration> {
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    words.windows(3).find_map(|three| {
        let [before, number, unit] = three else { return None };
        let number: u64 = number.parse().ok().filter(|_| ["in", "for", "after"].contains(before))?;
        match *unit {
            "s" | "sec" | "secs" | "second" | "seconds" => Some(Duration::from_secs(number)),
            "m" | "min" | "mins" | "minute" | "minutes" => Some(Duration::from_secs(number.checked_mul(60)?)),
            "h" | "hour" | "hours" => Some(Duration::from_secs(number.checked_mul(3600)?)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Trouble;

    fn judged(code: u16, text: &str) -> Refusal {
        let said = Said { code, text: text.to_owned() };
        let fault = Fault::Refused { said, to: Some("ada@x.io".to_owned()) };
        judge("mail", "<1@x>", Err(fault), Duration::from_mins(1)).unwrap_err()
    }

    #[track_caller]
    fn check(code: u16, text: &str, expected: Trouble, pause: Option<u64>) {
        let Refusal::Transient { trouble, retry_after, .. } = judged(code, text) else {
            panic!("it is final")
        };
        assert_eq!((trouble, retry_after), (expected, pause.map(Duration::from_secs)), "{code} {text}");
    }

    #[test]
    fn replies_mean_what_the_table_says() {
        check(421, "4.3.2 going down", Trouble::Down, None);
        check(450, "4.2.0 Greylisted", Trouble::Busy, Some(60));
        check(451, "4.7.1 Greylisted, try again in 5 minutes", Trouble::Busy, Some(300));
        check(451, "4.7.1 please retry in 120 seconds.", Trouble::Busy, Some(120));
        check(452, "4.3.1 out of room", Trouble::Busy, None);
        check(535, "5.7.8 no", Trouble::Down, None);
        let Refusal::Final { failure, payload, .. } = judged(550, "5.1.1 no such user") else { panic!() };
        assert_eq!((failure.code.as_str(), &payload["enhanced"]), ("smtp_550", &json!("5.1.1")));
        assert_eq!(failure.message, "mail answered of ada@x.io 550 5.1.1 no such user");
        let Refusal::Final { payload, .. } = judged(554, "spam") else { panic!() };
        assert_eq!(payload["enhanced"], Value::Null);
    }
}
