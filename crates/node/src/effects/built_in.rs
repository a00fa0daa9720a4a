//! Effects of built-in sagas, which this process executes: pages of batches and shadows, and
//! deliveries of messages.

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::retry::Backoff;
use orlog_effect::{FunctionProvider, Policy, ProviderError, Upstream};
use orlog_sagas::{batch, message, shadow};
use serde::Serialize;
use serde_json::Value;

use crate::batches::pages::BatchPages;
use crate::messages::delivery::MessageDelivery;
use crate::shadows::pages::ShadowPages;

/// Effects of the built-in sagas of a node.
pub(crate) struct BuiltInEffects {
    pub(crate) batches: Arc<BatchPages>,
    pub(crate) shadows: Arc<ShadowPages>,
    pub(crate) messages: Arc<MessageDelivery>,
}

impl BuiltInEffects {
    /// Returns the upstreams. Their names are not names of files, so no configured upstream has
    /// them.
    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        let mut all = vec![
            orlog_effect::worker::runners(),
            self.batches(),
            self.shadows(),
        ];
        // An upstream for each effect: messages that wait for a node do not use the window of those
        // for other nodes.
        all.extend(message::EFFECTS.map(|effect| self.messages(effect)));
        all
    }

    /// Few pages at a time leave the threads of reads to requests.
    fn batches(&self) -> Upstream {
        let batches = Arc::clone(&self.batches);
        FunctionProvider::new()
            .effect(batch::PAGE_EFFECT, move |call| {
                let batches = Arc::clone(&batches);
                async move { outcome(batches.execute(call).await?) }
            })
            .upstream(batch::PAGE_EFFECT, page_policy(8))
    }

    /// One page at a time leaves most of the processors to live instances.
    fn shadows(&self) -> Upstream {
        let shadows = Arc::clone(&self.shadows);
        FunctionProvider::new()
            .effect(shadow::PAGE_EFFECT, move |call| {
                let shadows = Arc::clone(&shadows);
                async move { outcome(shadows.execute(call).await?) }
            })
            .upstream(shadow::PAGE_EFFECT, page_policy(1))
    }

    fn messages(&self, effect: &'static str) -> Upstream {
        let messages = Arc::clone(&self.messages);
        FunctionProvider::new()
            .effect(effect, move |call| {
                let messages = Arc::clone(&messages);
                async move { messages.execute(call).await }
            })
            .upstream(effect, message_policy())
    }
}

/// Returns the result of an effect.
fn outcome(outcome: impl Serialize) -> Result<Value, ProviderError> {
    serde_json::to_value(outcome)
        .map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))
}

/// Returns the policy of pages: a page is repeated until it succeeds or fails permanently.
fn page_policy(max_concurrency: usize) -> Policy {
    Policy {
        max_attempts: None,
        max_concurrency,
        ..Policy::in_process()
    }
}

/// Returns the policy of messages: attempts end with the message, not by their number.
fn message_policy() -> Policy {
    let backoff = Backoff {
        initial: Duration::from_millis(200),
        max: Duration::from_secs(30),
        ..Backoff::default()
    };
    Policy {
        attempt_timeout: Duration::from_mins(1),
        backoff,
        ..page_policy(32)
    }
}
