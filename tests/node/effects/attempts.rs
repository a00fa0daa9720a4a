//! Single attempts of effects, without a node.

use std::time::Duration;

use orlog_effect::{Attempt, ProviderError, Reply, TransientCause, Upstream};
use orlog_model::{EffectName, Timestamp, Work, WorkItem};
use orlog_testkit::provider_suite::item;
use serde_json::Value;

/// Returns a request of an effect with this payload.
pub(crate) fn request(effect: &str, payload: Value) -> WorkItem {
    let mut item = item(&EffectName::new(effect).unwrap(), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    item
}

/// Returns a request of the effect `pay.charge`.
pub(crate) fn charge(payload: Value) -> WorkItem {
    request("pay.charge", payload)
}

/// Executes `pay.charge` some seconds after the start.
pub(crate) async fn at(
    seconds: i64,
    upstream: &Upstream,
    payload: Value,
) -> Result<Reply, ProviderError> {
    let at = Timestamp::from_millis(1_700_000_000_000 + seconds * 1000);
    execute(upstream, &charge(payload), at).await
}

/// Executes `pay.charge`.
pub(crate) async fn perform(upstream: &Upstream, payload: Value) -> Result<Reply, ProviderError> {
    at(0, upstream, payload).await
}

/// Executes a request.
pub(crate) async fn execute(
    upstream: &Upstream,
    item: &WorkItem,
    at: Timestamp,
) -> Result<Reply, ProviderError> {
    let attempt = Attempt {
        number: 1,
        timeout: Duration::from_secs(10),
        at,
        in_doubt: false,
    };
    upstream.provider.execute(item, attempt).await
}

/// Returns code and message of a failure.
pub(crate) fn failure(result: &Result<Reply, ProviderError>) -> (String, String) {
    let failure = result.as_ref().expect_err("the attempt fails").failure();
    (failure.code.clone(), failure.message.clone())
}

/// Returns the cause of a transient failure.
pub(crate) fn trouble(result: &Result<Reply, ProviderError>) -> Option<TransientCause> {
    match result {
        Err(ProviderError::Transient { trouble, .. }) => Some(*trouble),
        Ok(_) | Err(ProviderError::Permanent { .. } | ProviderError::Abandoned { .. }) => None,
    }
}
