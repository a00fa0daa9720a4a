//! Sagas, effects and events of the benchmark.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use orlog_effect::{Attempt, FunctionProvider, Policy, Provider, ProviderError, Reply, Upstream};
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp, WorkItem,
};
use orlog_program::{Diagnostic, Program, compile_yaml};
use serde_json::json;

/// Definition with three steps and their compensations; the third step fails if the event requests
/// it.
const THREE_STEPS: &str = r"
saga: bench
version: 1
correlate: id
start: BenchStarted
vars: { id: =event.id, fails: =event.fails }
steps:
  - id: reserve
    do: { effect: bench.reserve, data: { id: =vars.id } }
    ok: Reserved
    fail: ReserveFailed
    undo: { effect: bench.release, data: { id: =vars.id } }
  - id: charge
    do: { effect: bench.charge, data: { id: =vars.id } }
    ok: Charged
    fail: ChargeFailed
    undo: { effect: bench.refund, data: { id: =vars.id } }
  - id: ship
    do: { effect: bench.ship, data: { id: =vars.id, fails: =vars.fails } }
    ok: Shipped
    fail: ShipFailed
";

/// Returns a definition with one step that waits for an event or its timeout.
fn nap(name: &str, timeout: &str) -> String {
    format!(
        r"
saga: {name}
version: 1
correlate: id
start: {name}-started
vars: {{ id: =event.id }}
steps:
  - id: nap
    do: {{ command: bench.Remind, data: {{ id: =vars.id }} }}
    ok: Woken
    fail: Disturbed
    timeout: {timeout}
"
    )
}

/// Saga that waits for a month.
pub(super) const SLEEPER: &str = "sleeper";
/// Saga that waits for [`SHORT_SLEEP`].
pub(super) const SHORT_SLEEPER: &str = "short_sleeper";
/// Wait time of the short sleeper.
pub(super) const SHORT_SLEEP: Duration = Duration::from_secs(20);

/// Returns all programs.
pub(super) fn programs() -> anyhow::Result<Vec<Arc<dyn Program>>> {
    let sources = [
        THREE_STEPS.to_owned(),
        nap(SLEEPER, "30d"),
        nap(SHORT_SLEEPER, "20s"),
    ];
    let compiled = sources
        .iter()
        .map(|source| compile_yaml(source, "bench.saga.yaml"));
    let compiled: Result<Vec<_>, Vec<Diagnostic>> = compiled.collect();
    let compiled = compiled.map_err(|problems| {
        anyhow!(
            "{}",
            problems.first().map_or(String::new(), ToString::to_string)
        )
    })?;

    Ok(compiled
        .into_iter()
        .map(|program| Arc::new(program) as Arc<dyn Program>)
        .collect())
}

/// Returns all effects, and a gateway that accepts every command.
pub(super) fn upstreams() -> Vec<Upstream> {
    let done =
        |_: orlog_effect::SyncFunctionCall<'_>| Ok::<_, ProviderError>(json!({ "ok": true }));
    // Synchronous functions: the figures then show the cost of the runtime, not that of an
    // upstream.
    let native = FunctionProvider::new()
        .sync_effect("bench.reserve", done)
        .sync_effect("bench.charge", done)
        .sync_effect("bench.release", done)
        .sync_effect("bench.refund", done)
        .sync_effect("bench.ship", |call| {
            match call.effect.payload["fails"].as_bool() {
                Some(true) => Err(ProviderError::permanent(
                    "no_carrier",
                    "no carrier is available",
                )),
                _ => Ok(json!({ "ok": true })),
            }
        });

    let policy = Policy {
        // The default of 1,024 would limit runs with more concurrent sagas.
        max_concurrency: 16_384,
        ..Policy::in_process()
    };
    vec![
        native.upstream("bench", policy),
        Upstream::gateway(Arc::new(AcceptAllGateway), Policy::in_process()),
    ]
}

struct AcceptAllGateway;

#[async_trait]
impl Provider for AcceptAllGateway {
    async fn execute(&self, _: &WorkItem, _: Attempt) -> Result<Reply, ProviderError> {
        Ok(Reply::default())
    }
}

/// Returns the key of instance `number` of a saga.
pub(super) fn key(saga: &str, number: u64) -> anyhow::Result<InstanceKey> {
    Ok(InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new(saga)?,
        correlation: CorrelationId::new(format!("b-{number}"))?,
    })
}

/// Returns the start event of instance `number` of the three-step saga.
pub(super) fn started(
    tenant: &str,
    number: u64,
    fails: bool,
    time: Timestamp,
) -> anyhow::Result<Event> {
    let data = json!({ "id": format!("b-{number}"), "fails": fails });
    Ok(Event {
        tenant: TenantId::new(tenant)?,
        ..event("BenchStarted", number, time, data)?
    })
}

/// Returns the start event of instance `number` of a waiting saga.
pub(super) fn sleep_requested(saga: &str, number: u64, time: Timestamp) -> anyhow::Result<Event> {
    event(
        &format!("{saga}-started"),
        number,
        time,
        json!({ "id": format!("b-{number}") }),
    )
}

/// Returns an event of the default tenant whose data contains the correlation id as `id`.
pub(super) fn event(
    kind: &str,
    number: u64,
    time: Timestamp,
    data: serde_json::Value,
) -> anyhow::Result<Event> {
    Ok(Event {
        id: EventId::new(format!("{kind}-{number}"))?,
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind)?,
        source: "urn:bench".to_owned(),
        subject: None,
        time,
        correlation: Some(CorrelationId::new(format!("b-{number}"))?),
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    })
}
