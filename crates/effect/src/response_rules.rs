//! Response rules of effects, for upstreams that respond with a status and JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, Failure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::provider::{ProbeResult, ProviderError, RejectionScope, Reply, TransientCause};
use crate::template::plain;

/// Rule over statuses `S` with the class `C`. The first matching rule decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseRule<S, C = ResponseClass> {
    /// Matched statuses. Default: all.
    #[serde(default = "any")]
    pub status: Option<S>,
    /// JSON pointers into the body with the expected values. All must match.
    #[serde(default)]
    pub when: BTreeMap<String, Value>,
    /// Classification of the response.
    pub result: C,
    /// Event for the saga: its name, or a JSON pointer to it.
    pub event: Option<String>,
    /// Code of a failure: the text, or a JSON pointer to it.
    pub code: Option<String>,
    /// Message of a failure: the text, or a JSON pointer to it.
    pub message: Option<String>,
    /// JSON pointer to the part of the body that is the result. Default: the whole body.
    pub payload: Option<String>,
}

/// Classification of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseClass {
    /// The effect was executed.
    Succeeded,
    /// A permanent error.
    Failed,
    /// Not executed; the upstream is unhealthy; a retry may succeed.
    Unavailable,
    /// Not executed; the upstream is healthy and throttles the call.
    Throttled,
    /// The outcome is unknown.
    ResponseLost,
}

/// Classification of the response to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeClass {
    /// The effect was executed; the response has its result.
    Executed,
    /// The effect failed permanently.
    Failed,
    /// The effect was not executed, and an earlier attempt cannot execute it any more.
    NotExecuted,
    /// There is no final answer yet; the upstream is probed again.
    Pending,
    /// The outcome stays unknown.
    Unknown,
}

/// Response to classify, and the default failure text.
pub(crate) struct ResponseContext<'a> {
    pub(crate) body: &'a Value,
    pub(crate) usual: Failure,
    pub(crate) retry_after: Option<Duration>,
}

/// Fields that a rule reads from a response.
struct ResponseFields {
    event: Option<EventType>,
    failure: Failure,
    payload: Value,
}

impl<S, C> ResponseRule<S, C> {
    /// Checks rules across keys.
    fn check(&self) -> Result<(), String> {
        let invalid = self
            .when
            .keys()
            .chain(&self.payload)
            .find(|pointer| !pointer.is_empty() && !is_pointer(pointer));
        if let Some(invalid) = invalid {
            return Err(format!(
                "{invalid:?} is not a valid JSON pointer; example: /error/code"
            ));
        }

        // An event at a pointer is known only with a response.
        match self
            .event
            .as_deref()
            .filter(|event| !is_pointer(event))
            .map(EventType::new)
        {
            Some(Err(error)) => Err(format!("invalid event: {error}")),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    pub(crate) fn matches(&self, covers: impl FnOnce(&S) -> bool, body: &Value) -> bool {
        self.status.as_ref().is_none_or(covers)
            && self
                .when
                .iter()
                .all(|(pointer, value)| body.pointer(pointer) == Some(value))
    }

    fn fields(&self, body: &Value, usual: Failure) -> ResponseFields {
        let payload = self.payload.as_ref().map_or_else(
            || body.clone(),
            |pointer| body.pointer(pointer).cloned().unwrap_or(Value::Null),
        );

        let failure = Failure {
            code: text(self.code.as_ref(), body).unwrap_or(usual.code),
            message: text(self.message.as_ref(), body).unwrap_or(usual.message),
        };

        ResponseFields {
            event: self.event(body),
            failure,
            payload,
        }
    }

    /// Returns the event. An invalid event name in the body is ignored: the conditions of the
    /// definition decide then.
    fn event(&self, body: &Value) -> Option<EventType> {
        EventType::new(text(self.event.as_ref(), body)?).ok()
    }
}

impl<S> ResponseRule<S> {
    pub(crate) fn classify(&self, context: ResponseContext<'_>) -> Result<Reply, ProviderError> {
        let ResponseContext {
            body,
            usual,
            retry_after,
        } = context;
        let ResponseFields {
            event,
            failure,
            payload,
        } = self.fields(body, usual);

        let trouble = match self.result {
            ResponseClass::Succeeded => {
                return Ok(Reply {
                    event,
                    ..Reply::from(payload)
                });
            }
            ResponseClass::Failed => {
                return Err(ProviderError::Permanent {
                    failure,
                    event,
                    payload,
                    facts: None,
                    scope: RejectionScope::Effect,
                });
            }
            ResponseClass::Unavailable => TransientCause::Unavailable,
            ResponseClass::Throttled => TransientCause::Throttled,
            ResponseClass::ResponseLost => TransientCause::ResponseLost,
        };

        Err(ProviderError::Transient {
            failure,
            trouble,
            retry_after,
            payload,
        })
    }
}

impl<S> ResponseRule<S, ProbeClass> {
    pub(crate) fn probe_result(&self, context: ResponseContext<'_>) -> ProbeResult {
        let ResponseContext {
            body,
            usual,
            retry_after,
        } = context;
        let ResponseFields {
            event,
            failure,
            payload,
        } = self.fields(body, usual);

        match self.result {
            ProbeClass::Executed => ProbeResult::Done(Reply {
                event,
                ..Reply::from(payload)
            }),
            ProbeClass::Failed => ProbeResult::Failed(ProviderError::Permanent {
                failure,
                event,
                payload,
                facts: None,
                scope: RejectionScope::Effect,
            }),
            ProbeClass::NotExecuted => ProbeResult::NotDone,
            ProbeClass::Pending => ProbeResult::Unanswered {
                failure,
                retry_after,
            },
            ProbeClass::Unknown => ProbeResult::Unknown,
        }
    }
}

/// Checks the rules of an effect or a probe.
pub(crate) fn check_rules<S, C>(rules: &[ResponseRule<S, C>]) -> Result<(), String> {
    let mut rules = rules.iter().enumerate();
    rules.try_for_each(|(index, rule)| {
        rule.check()
            .map_err(|reason| format!("responses[{index}]: {reason}"))
    })
}

/// Checks the rules of a probe. A status alone does not tell whether the effect was executed, so
/// that at least one rule is required.
pub(crate) fn check_probe_rules<S>(
    rules: &[ResponseRule<S, ProbeClass>],
    example: &str,
) -> Result<(), String> {
    if rules.is_empty() {
        return Err(format!(
            "responses is missing; example: responses = [{example}]"
        ));
    }
    check_rules(rules)
}

/// Returns a literal text, or the text at a pointer.
fn text(source: Option<&String>, body: &Value) -> Option<String> {
    let source = source?;
    if is_pointer(source) {
        body.pointer(source).and_then(plain)
    } else {
        Some(source.clone())
    }
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/')
}

fn any<S>() -> Option<S> {
    None
}
