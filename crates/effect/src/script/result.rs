//! What a job's end means.
//!
//! | end | meaning |
//! |---|---|
//! | 0 | done; what it wrote is the answer |
//! | 64, 65 (`EX_USAGE`, `EX_DATAERR`) | failed for good |
//! | 69 (`EX_UNAVAILABLE`) | not done, something that it needs is ill |
//! | any other, or a signal | failed; tried again if attempts are left |

use serde_json::{Value, json};

use super::run::Ended;
use super::spec::Report;
use crate::provider::{Refusal, Reply};

/// The most of a text that is kept where what was written is no JSON, in characters.
const MAX_TEXT: usize = 4096;

/// The most of the last line that is quoted in a message, in characters.
const MAX_QUOTE: usize = 300;

/// What it means; `last` is the last line that it wrote to its standard error.
pub(super) fn judge(ended: &Ended, effect: &str, last: &str) -> Result<Reply, Refusal> {
    let answer = payload(&ended.output);
    let quote: String = last.chars().filter(|c| !c.is_control()).take(MAX_QUOTE).collect();
    let colon = if quote.is_empty() { "" } else { ": " };
    match ended.report {
        Report::Exit(0) => Ok(Reply::from(answer)),
        Report::Exit(status) => {
            let (code, message) =
                (format!("exit_{status}"), format!("{effect} ended with {status}{colon}{quote}"));
            Err(match status {
                64 | 65 => Refusal::failed(code, message).with_payload(answer),
                69 => Refusal::retry(code, message),
                _ => Refusal::busy(code, message),
            })
        }
        Report::Signal(signal) => {
            let reason = match signal {
                9 => " (killed: out of memory or processor time?)",
                24 => " (its processor time is used up)",
                25 => " (a file became too large)",
                _ => "",
            };
            let message = format!("{effect} was ended by signal {signal}{reason}{colon}{quote}");
            Err(Refusal::busy(format!("signal_{signal}"), message))
        }
    }
}

/// The whole as JSON, else its last line, else as text.
fn payload(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let text = text.trim();
    if text.is_empty() {
        return Value::Null;
    }
    let last = text.lines().next_back().unwrap_or_default();
    let json_of = |text: &str| serde_json::from_str(text).ok();
    json_of(text).or_else(|| json_of(last)).unwrap_or_else(|| {
        let kept: String = text.chars().take(MAX_TEXT).collect();
        json!({ "text": kept })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Trouble;

    #[test]
    fn the_answer_is_json_if_it_can_be() {
        for (output, expected) in [
            ("", Value::Null),
            ("{\"a\":\n1}\n", json!({"a": 1})),
            ("working…\n{\"a\": 1}\n", json!({"a": 1})),
            ("fine\n", json!({"text": "fine"})),
            ("7", json!(7)),
        ] {
            assert_eq!(payload(output.as_bytes()), expected, "{output}");
        }
    }

    #[test]
    fn an_end_says_whether_another_attempt_may_help() {
        let of = |report| judge(&Ended { report, output: Vec::new() }, "job.sh", "no film").unwrap_err();
        let Refusal::Final { failure, .. } = of(Report::Exit(65)) else { panic!("65 is final") };
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("exit_65", "job.sh ended with 65: no film")
        );
        for (report, code, expected) in [
            (Report::Exit(1), "exit_1", Trouble::Busy),
            (Report::Exit(69), "exit_69", Trouble::Down),
            (Report::Signal(9), "signal_9", Trouble::Busy),
        ] {
            let Refusal::Transient { failure, trouble, .. } = of(report) else { panic!("{report:?}") };
            assert_eq!((failure.code.as_str(), trouble), (code, expected));
        }
    }
}
