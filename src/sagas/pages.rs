//! Pages of built-in sagas: effects in this process. The API executes them, because they read instances as requests do.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use serde::Serialize;
use serde_json::Value;

/// Executor of a page.
type Executor = Box<dyn Fn(FunctionCall) -> BoxFuture<'static, Result<Value, ProviderError>> + Send + Sync>;

/// Pages of the built-in sagas of a node.
#[derive(Clone, Default)]
pub(crate) struct BuiltInPages {
    pub(crate) batches: Arc<Pages>,
    pub(crate) shadows: Arc<Pages>,
}

/// Pages of one built-in saga.
#[derive(Default)]
pub(crate) struct Pages(OnceLock<Executor>);

impl BuiltInPages {
    /// Returns the upstreams. Their names are not names of files, so no configured upstream has them.
    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        // Few pages at a time leave the threads of reads to requests, and most of the processors to live instances.
        vec![
            orlog_effect::worker::runners(),
            self.batches.upstream(orlog_program::batch::PAGE_EFFECT, 8),
            self.shadows.upstream(orlog_program::shadow::PAGE_EFFECT, 1),
        ]
    }
}

impl Pages {
    fn upstream(self: &Arc<Self>, effect: &'static str, max_concurrency: usize) -> Upstream {
        let pages = Arc::clone(self);
        let execute = move |call: FunctionCall| {
            let outcome = pages.0.get().map(|execute| execute(call));
            async move {
                let missing = || ProviderError::unavailable("starting", "the node is starting");
                outcome.ok_or_else(missing)?.await
            }
        };
        // A page is repeated until it succeeds or fails permanently.
        let policy = Policy { max_attempts: None, max_concurrency, ..Policy::in_process() };
        FunctionProvider::new().effect(effect, execute).upstream(effect, policy)
    }

    /// Sets the executor. Of several APIs of a node, the first one executes pages.
    pub(crate) fn connect<F, O>(&self, execute: F)
    where
        F: Fn(FunctionCall) -> BoxFuture<'static, Result<O, ProviderError>> + Send + Sync + 'static,
        O: Serialize + 'static,
    {
        let executor = move |call| -> BoxFuture<'static, _> {
            let outcome = execute(call);
            Box::pin(async move {
                serde_json::to_value(outcome.await?)
                    .map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))
            })
        };
        drop(self.0.set(Box::new(executor)));
    }
}
