//! Classification of the exit status of a job.
//!
//! | exit status | meaning |
//! |---|---|
//! | 0 | succeeded; its output is the result |
//! | 64, 65 (`EX_USAGE`, `EX_DATAERR`) | permanent error |
//! | 69 (`EX_UNAVAILABLE`) | not executed, a dependency is unavailable |
//! | any other, or a signal | failed; retried if attempts remain |

use serde_json::{Value, json};

use super::run::ScriptExit;
use super::spec::Report;
use crate::provider::{ProviderError, Reply};
use crate::quote::quote;

/// Maximum number of characters that are kept of output that is not JSON.
const MAX_TEXT: usize = 4096;

/// Classifies the exit; `last` is the last line of its standard error.
pub(super) fn classify_exit(
    ended: &ScriptExit,
    effect: &str,
    last: &str,
) -> Result<Reply, ProviderError> {
    let output = payload(&ended.output);
    let quote = quote(last);
    let colon = if quote.is_empty() { "" } else { ": " };

    match ended.report {
        Report::Exit(0) => Ok(Reply::from(output)),
        Report::Exit(status) => {
            let code = format!("exit_{status}");
            let message = format!("{effect} exited with {status}{colon}{quote}");
            let error = match status {
                64 | 65 => ProviderError::permanent(code, message),
                69 => ProviderError::unavailable(code, message),
                _ => ProviderError::throttled(code, message),
            };
            Err(error.with_payload(output))
        }
        Report::Signal(signal) => {
            let reason = match signal {
                9 => " (killed; possible cause: memory or CPU limit)",
                24 => " (CPU time limit exceeded)",
                25 => " (file size limit exceeded)",
                _ => "",
            };

            let message =
                format!("{effect} was terminated by signal {signal}{reason}{colon}{quote}");
            Err(ProviderError::throttled(
                format!("signal_{signal}"),
                message,
            ))
        }
    }
}

/// Parses the whole output as JSON, else its last line, else returns text.
fn payload(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    let text = text.trim();
    if text.is_empty() {
        return Value::Null;
    }

    let last = text.lines().next_back().unwrap_or_default();
    let json_of = |text: &str| serde_json::from_str(text).ok();
    json_of(text).or_else(|| json_of(last)).unwrap_or_else(|| {
        let truncated: String = text.chars().take(MAX_TEXT).collect();
        json!({ "text": truncated })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::TransientCause;

    #[test]
    fn output_is_parsed_as_json_when_possible() {
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
    fn exit_code_decides_whether_to_retry() {
        let of = |report| {
            classify_exit(
                &ScriptExit {
                    report,
                    output: Vec::new(),
                },
                "job.sh",
                "no film",
            )
            .unwrap_err()
        };
        let ProviderError::Permanent { failure, .. } = of(Report::Exit(65)) else {
            panic!("65 is final")
        };
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("exit_65", "job.sh exited with 65: no film")
        );
        for (report, code, expected) in [
            (Report::Exit(1), "exit_1", TransientCause::Throttled),
            (Report::Exit(69), "exit_69", TransientCause::Unavailable),
            (Report::Signal(9), "signal_9", TransientCause::Throttled),
        ] {
            let ProviderError::Transient {
                failure, trouble, ..
            } = of(report)
            else {
                panic!("{report:?}")
            };
            assert_eq!((failure.code.as_str(), trouble), (code, expected));
        }
    }
}
