//! Stand-in of `orlog dev`: executes work without a configured upstream, and returns the success event of the step.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use orlog_actors::ControlError;
use orlog_effect::{Attempt, Policy, Provider, ProviderError, Reply, Upstream};
use orlog_model::{ControlAction, ControlRequest, EventId, EventType, Work, WorkItem};
use orlog_program::Step;
use serde_json::{Value, json};

use crate::app::App;
use crate::config::Config;

/// Provider that succeeds at once.
///
/// An effect succeeds with the first `ok` event of its step. A command is accepted, and its instance receives the first
/// `ok` event of the step as a signal; the data of the event is the payload of the command.
#[derive(Default)]
pub(super) struct StandIn {
    app: OnceLock<Weak<App>>,
}

impl StandIn {
    /// Returns the upstreams for all effects without a configured upstream, and for commands if no gateway is configured.
    pub(super) fn upstreams(self: &Arc<Self>, config: &Config) -> Vec<Upstream> {
        let provider = || Arc::clone(self) as Arc<dyn Provider>;
        let mut upstreams = vec![Upstream::fallback("stand-in", provider(), Policy::in_process())];
        if config.gateway.is_none() {
            upstreams.push(Upstream::gateway(provider(), Policy::in_process()));
        }
        upstreams
    }

    /// Sets the node whose instances receive the events. Until then, work is retried.
    pub(super) fn attach(&self, app: &Arc<App>) {
        // An error means that a node is attached already.
        self.app.set(Arc::downgrade(app)).ok();
    }

    fn app(&self) -> Result<Arc<App>, ProviderError> {
        self.app.get().and_then(Weak::upgrade).ok_or_else(|| unavailable("the node is starting".to_owned()))
    }
}

#[async_trait]
impl Provider for StandIn {
    async fn execute(&self, item: &WorkItem, _: Attempt) -> Result<Reply, ProviderError> {
        let app = self.app()?;
        let event = ok_event(&app, item);
        let event_name = event.as_ref().map(EventType::as_str);
        tracing::info!(instance = %item.instance, work = %item.work.label(), event = event_name, "stand-in executed work");
        match (&item.work, event) {
            (Work::Command(command), Some(event)) => {
                send(&app, item, event, command.payload.clone()).await?;
                Ok(Reply::from(json!({})))
            }
            (Work::Effect(_), Some(event)) => Ok(Reply::with_event(event, json!({}))),
            _ => Ok(Reply::from(json!({}))),
        }
    }
}

/// Returns the first `ok` event of the step or compensation that requested the work.
fn ok_event(app: &App, item: &WorkItem) -> Option<EventType> {
    let instance = app.runtime.reader(&item.instance)?.instance(&item.instance).ok().flatten()?;
    let tag = &instance.pending_work.iter().find(|pending| pending.id == item.id)?.tag;
    let active = app.definitions.active();
    let compiled = active.iter().filter_map(|definition| definition.compiled.as_ref());
    let steps = compiled.map(|compiled| compiled.definition()).find(|found| found.saga == item.instance.saga);
    first_ok(&steps?.steps, tag.as_str())
}

/// Returns the first `ok` event of the step (`charge`, `charge[2]`) or compensation (`compensate:charge`) with this tag.
fn first_ok(steps: &[Step], tag: &str) -> Option<EventType> {
    let (tag, is_compensation) = match tag.strip_prefix("compensate:") {
        Some(step) => (step, true),
        None => (tag, false),
    };
    let id = tag.split('[').next()?;
    let step = steps.iter().find(|step| step.id.as_str() == id)?;
    let ok = if is_compensation { &step.compensate.as_ref()?.ok } else { &step.ok };
    ok.first().map(|matcher| matcher.event.clone())
}

/// Sends the event to the instance of the work. The work id makes a repeated delivery a duplicate.
async fn send(app: &App, item: &WorkItem, kind: EventType, data: Value) -> Result<(), ProviderError> {
    let request = ControlRequest {
        id: EventId::new(format!("stand-in:{}", item.id)).expect("a prefix and a UUID are a valid id"),
        action: ControlAction::Signal { kind, data },
        expected_version: None,
        at: app.clock.now(),
        user: None,
        reason: None,
        trace: item.trace.clone(),
    };
    match app.runtime.control(&item.instance, request).await {
        Ok(_) | Err(ControlError::Rejected(_) | ControlError::DeadLettered(_)) => Ok(()),
        Err(error @ ControlError::Unavailable) => Err(unavailable(error.to_string())),
    }
}

fn unavailable(message: String) -> ProviderError {
    ProviderError::unavailable("stand_in_unavailable", message)
}

#[cfg(test)]
mod tests {
    use orlog_program::{Definition, StepAction};

    use super::*;

    #[test]
    fn first_ok_finds_steps_elements_and_compensations() {
        let saga = Definition::builder("order")
            .version(1)
            .start("OrderPlaced")
            .step("reserve", StepAction::command("inventory.ReserveStock"))
            .ok("StockReserved")
            .undo(StepAction::command("inventory.ReleaseStock"))
            .build()
            .expect("the saga is valid");
        let of = |tag| first_ok(&saga.definition().steps, tag).map(|event| event.to_string());
        assert_eq!(of("reserve").as_deref(), Some("StockReserved"));
        assert_eq!(of("reserve[3]").as_deref(), Some("StockReserved"));
        assert_eq!(of("compensate:reserve"), None);
        assert_eq!(of("other"), None);
    }
}
