//! Restate: the server invokes the handler of an order and journals the result of each `run`.

use std::future::ready;
use std::sync::Arc;

use anyhow::Result;
use restate_sdk::prelude::{
    Context, ContextSideEffects, Endpoint, HandlerError, HttpServer, RunFuture, WorkflowContext,
    service, workflow,
};

use super::{STEPS, Steps};

/// Serves the handlers on `port`.
pub(super) async fn serve(steps: &Arc<Steps>, port: u16) -> Result<()> {
    let endpoint = Endpoint::builder()
        .bind(Order(Arc::clone(steps)))
        .bind(OrderWorkflow(Arc::clone(steps)));
    HttpServer::new(endpoint.build())
        .listen_and_serve(([127, 0, 0, 1], port).into())
        .await;
    Ok(())
}

struct Order(Arc<Steps>);

#[service]
impl Order {
    #[handler]
    async fn run(&self, ctx: Context<'_>, order: u64) -> Result<(), HandlerError> {
        for (step, name) in STEPS.iter().enumerate() {
            let steps = Arc::clone(&self.0);
            let execute = move || {
                steps.execute(step, order);
                ready(Ok(()))
            };
            ctx.run(execute).name(*name).await?;
        }
        Ok(())
    }
}

struct OrderWorkflow(Arc<Steps>);

#[workflow]
impl OrderWorkflow {
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, order: u64) -> Result<(), HandlerError> {
        for (step, name) in STEPS.iter().enumerate() {
            let steps = Arc::clone(&self.0);
            let execute = move || {
                steps.execute(step, order);
                ready(Ok(()))
            };
            ctx.run(execute).name(*name).await?;
        }
        Ok(())
    }
}
