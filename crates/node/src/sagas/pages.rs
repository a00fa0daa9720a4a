//! Pages of built-in sagas: effects in this process. The API executes them, because they read
//! instances as requests do.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use orlog_effect::retry::Backoff;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use serde::Serialize;
use serde_json::Value;

/// Executor of a page.
type Executor =
    Box<dyn Fn(FunctionCall) -> BoxFuture<'static, Result<Value, ProviderError>> + Send + Sync>;

/// Pages of the built-in sagas of a node.
#[derive(Clone, Default)]
pub struct BuiltInPages {
    pub batches: Arc<Pages>,
    pub shadows: Arc<Pages>,
    /// Deliveries and reports of messages.
    pub messages: Arc<Pages>,
}

/// Pages of one built-in saga.
#[derive(Default)]
pub struct Pages(OnceLock<Executor>);

impl BuiltInPages {
    /// Returns the upstreams. Their names are not names of files, so no configured upstream has
    /// them.
    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        // Few pages at a time leave the threads of reads to requests, and most of the processors to
        // live instances.
        let mut all = vec![
            orlog_effect::worker::runners(),
            self.batches
                .upstream(orlog_sagas::batch::PAGE_EFFECT, page(8)),
            self.shadows
                .upstream(orlog_sagas::shadow::PAGE_EFFECT, page(1)),
        ];

        // A window of each one: messages that wait for a node do not stop those for the nodes of
        // other upstreams.
        all.extend(
            orlog_sagas::message::EFFECTS.map(|effect| self.messages.upstream(effect, message())),
        );
        all
    }
}

/// Returns the policy of pages: a page is repeated until it succeeds or fails permanently.
fn page(max_concurrency: usize) -> Policy {
    Policy {
        max_attempts: None,
        max_concurrency,
        ..Policy::in_process()
    }
}

/// Returns the policy of messages: attempts end with the message, not by their number.
fn message() -> Policy {
    let backoff = Backoff {
        initial: Duration::from_millis(200),
        max: Duration::from_secs(30),
        ..Backoff::default()
    };
    Policy {
        attempt_timeout: Duration::from_mins(1),
        backoff,
        ..page(32)
    }
}

impl Pages {
    fn upstream(self: &Arc<Self>, effect: &'static str, policy: Policy) -> Upstream {
        let pages = Arc::clone(self);

        FunctionProvider::new()
            .effect(effect, move |call: FunctionCall| {
                // Shards can dispatch pages before the API of the node has started: those attempts
                // are retried.
                let outcome = pages.0.get().map(|execute| execute(call));
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

    /// Sets the executor. Of several APIs of a node, the first one executes pages.
    pub fn connect<F, O>(&self, execute: F)
    where
        F: Fn(FunctionCall) -> BoxFuture<'static, Result<O, ProviderError>> + Send + Sync + 'static,
        O: Serialize + 'static,
    {
        drop(self.0.set(Box::new(move |call| -> BoxFuture<'static, _> {
            let outcome = execute(call);
            Box::pin(async move {
                serde_json::to_value(outcome.await?)
                    .map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))
            })
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
        let upstreams = BuiltInPages::default().upstreams();
        let names: BTreeSet<_> = upstreams
            .iter()
            .map(|upstream| upstream.name.as_str())
            .collect();
        assert_eq!(names.len(), upstreams.len());
        for effect in orlog_sagas::message::EFFECTS {
            let scope = UpstreamScope::Effects(vec![EffectName::new(effect).unwrap()]);
            let serving: Vec<_> = upstreams
                .iter()
                .filter(|upstream| upstream.scope == scope)
                .collect();
            assert_eq!(serving.len(), 1, "{effect}");
        }
    }
}
