//! Shared names of the queue.

use orlog_model::EffectName;

use crate::Error;
use crate::nats::connection::chain;
use crate::subject::encode_token;

/// Returns the name of the durable consumer that all workers of an effect share.
#[must_use]
pub fn consumer_name(effect: &EffectName) -> String {
    format!("effect-{}", encode_token(effect.as_str()))
}

pub(super) fn unavailable(error: &dyn std::error::Error) -> Error {
    Error::Unavailable(chain(error))
}
