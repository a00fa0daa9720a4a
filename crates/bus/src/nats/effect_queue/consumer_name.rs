//! What the parts of the queue have in common.

use orlog_model::EffectName;

use crate::Error;
use crate::nats::connection::chain;
use crate::subject::encode_token;

/// The name of the durable consumer that all takers of an effect's jobs share.
#[must_use]
pub fn consumer_name(effect: &EffectName) -> String {
    format!("effect-{}", encode_token(effect.as_str()))
}

pub(super) fn unavailable(error: &dyn std::error::Error) -> Error {
    Error::Unavailable(chain(error))
}
