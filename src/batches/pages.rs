//! Upstream of the pages of batches: an effect in this process. The API executes it, because it reads instances as a request does.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use orlog_effect::{FunctionCall, FunctionProvider, Policy, ProviderError, Upstream};
use orlog_program::batch::{PAGE_EFFECT, PageOutcome};

/// Executor of a page.
type Executor =
    Box<dyn Fn(FunctionCall) -> BoxFuture<'static, Result<PageOutcome, ProviderError>> + Send + Sync>;

/// Pages of batches of a node.
#[derive(Default)]
pub(crate) struct BatchPages(OnceLock<Executor>);

impl BatchPages {
    /// Returns the upstream. Its name is not a name of a file, so no configured upstream has it.
    pub(crate) fn upstream(self: &Arc<Self>) -> Upstream {
        let pages = Arc::clone(self);
        let execute = move |call: FunctionCall| {
            let outcome = pages.0.get().map(|execute| execute(call));
            async move {
                let missing = || ProviderError::unavailable("starting", "the node is starting");
                let outcome = outcome.ok_or_else(missing)?.await?;
                serde_json::to_value(outcome)
                    .map_err(|error| ProviderError::permanent("invalid_result", error.to_string()))
            }
        };
        // A page is repeated until it succeeds or fails permanently. Few pages at a time leave the threads of reads to requests.
        let policy = Policy { max_attempts: None, max_concurrency: 8, ..Policy::in_process() };
        FunctionProvider::new().effect(PAGE_EFFECT, execute).upstream(PAGE_EFFECT, policy)
    }

    /// Sets the executor. Of several APIs of a node, the first one executes pages.
    pub(crate) fn connect(&self, executor: Executor) {
        drop(self.0.set(executor));
    }
}
