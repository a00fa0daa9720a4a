//! Effects of built-in sagas, which this process executes: pages of batches and shadows, and
//! deliveries of messages.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use orlog_effect::retry::Backoff;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use orlog_sagas::{batch, message, shadow};
use serde::Serialize;
use serde_json::Value;

use crate::batches::pages::BatchPages;
use crate::shadows::pages::ShadowPages;

/// Executor of an effect.
type Executor =
    Box<dyn Fn(FunctionCall) -> BoxFuture<'static, Result<Value, ProviderError>> + Send + Sync>;

/// Effects of the built-in sagas of a node.
pub(crate) struct BuiltInEffects {
    pub(crate) batches: Arc<BatchPages>,
    pub(crate) shadows: Arc<ShadowPages>,
    pub(crate) messages: Arc<MessageEffects>,
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
        all.extend(self.messages.upstreams());
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

/// Deliveries and reports of messages. The API executes them, because they also answer requests of
/// peers.
#[derive(Default)]
pub struct MessageEffects(OnceLock<Executor>);

impl MessageEffects {
    /// Returns an upstream for each effect: messages that wait for a node do not use the window of
    /// those for other nodes.
    fn upstreams(self: &Arc<Self>) -> impl Iterator<Item = Upstream> {
        let effects = message::EFFECTS.into_iter();
        effects.map(|effect| self.upstream(effect, message_policy()))
    }

    fn upstream(self: &Arc<Self>, effect: &'static str, policy: Policy) -> Upstream {
        let messages = Arc::clone(self);

        FunctionProvider::new()
            .effect(effect, move |call: FunctionCall| {
                // Shards can dispatch messages before the API of the node has started: those
                // attempts are retried.
                let outcome = messages.0.get().map(|execute| execute(call));
                async move {
                    outcome
                        .ok_or_else(|| {
                            ProviderError::unavailable("starting", "the node is starting")
                        })?
                        .await
                }
            })
            .upstream(effect, policy)
    }

    /// Sets the executor. Of several APIs of a node, the first one executes the effects.
    pub fn connect<F, O>(&self, execute: F)
    where
        F: Fn(FunctionCall) -> BoxFuture<'static, Result<O, ProviderError>> + Send + Sync + 'static,
        O: Serialize + 'static,
    {
        drop(self.0.set(Box::new(move |call| -> BoxFuture<'static, _> {
            let executed = execute(call);
            Box::pin(async move { outcome(executed.await?) })
        })));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use orlog_effect::UpstreamScope;
    use orlog_model::EffectName;

    use super::*;

    #[test]
    fn each_effect_of_messages_has_an_upstream_of_its_own() {
        let messages = Arc::<MessageEffects>::default();
        let upstreams: Vec<_> = messages.upstreams().collect();
        let names: BTreeSet<_> = upstreams
            .iter()
            .map(|upstream| upstream.name.as_str())
            .chain([batch::PAGE_EFFECT, shadow::PAGE_EFFECT])
            .collect();
        assert_eq!(names.len(), upstreams.len() + 2);
        for effect in message::EFFECTS {
            let scope = UpstreamScope::Effects(vec![EffectName::new(effect).unwrap()]);
            let serving: Vec<_> = upstreams
                .iter()
                .filter(|upstream| upstream.scope == scope)
                .collect();
            assert_eq!(serving.len(), 1, "{effect}");
        }
    }
}
