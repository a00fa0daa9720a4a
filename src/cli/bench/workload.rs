//! The sagas, effects and events that are measured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use orlog_effect::{Attempt, Native, Policy, Provider, Refusal, Reply, Upstream};
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp, WorkItem,
};
use orlog_program::{Problem, Program, compile_yaml};
use serde_json::json;

/// Three steps, and what undoes them; the third fails when the event says so.
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

/// One step that waits for an event or for its time to pass.
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

/// The saga that sleeps for a month.
pub(super) const SLEEPER: &str = "sleeper";
/// The saga that sleeps until [`NAP`] is over.
pub(super) const NAPPER: &str = "napper";
/// How long a napper sleeps.
pub(super) const NAP: Duration = Duration::from_secs(20);

/// All programs.
pub(super) fn programs() -> anyhow::Result<Vec<Arc<dyn Program>>> {
    let sources = [THREE_STEPS.to_owned(), nap(SLEEPER, "30d"), nap(NAPPER, "20s")];
    let compiled = sources.iter().map(|source| compile_yaml(source, "bench.saga.yaml"));
    let compiled: Result<Vec<_>, Vec<Problem>> = compiled.collect();
    let compiled = compiled
        .map_err(|problems| anyhow!("{}", problems.first().map_or(String::new(), ToString::to_string)))?;
    Ok(compiled.into_iter().map(|program| Arc::new(program) as Arc<dyn Program>).collect())
}

/// All effects, and a Gateway that accepts every command.
pub(super) fn upstreams() -> Vec<Upstream> {
    let done = |_: orlog_effect::PlainCall<'_>| Ok::<_, Refusal>(json!({ "ok": true }));
    let native = Native::new()
        .plain("bench.reserve", done)
        .plain("bench.charge", done)
        .plain("bench.release", done)
        .plain("bench.refund", done)
        .plain("bench.ship", |call| match call.effect.payload["fails"].as_bool() {
            Some(true) => Err(Refusal::failed("no_carrier", "nobody ships this")),
            _ => Ok(json!({ "ok": true })),
        });
    let policy = Policy { concurrency: 16_384, ..Policy::in_process() };
    vec![native.upstream("bench", policy), Upstream::gateway(Arc::new(Accepting), Policy::in_process())]
}

struct Accepting;

#[async_trait]
impl Provider for Accepting {
    async fn perform(&self, _: &WorkItem, _: Attempt) -> Result<Reply, Refusal> {
        Ok(Reply::default())
    }
}

/// The name of instance `number` of a saga.
pub(super) fn key(saga: &str, number: u64) -> anyhow::Result<InstanceKey> {
    Ok(InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new(saga)?,
        correlation: CorrelationId::new(format!("b-{number}"))?,
    })
}

/// The event that begins instance `number` of the three-step saga.
pub(super) fn started(tenant: &str, number: u64, fails: bool, time: Timestamp) -> anyhow::Result<Event> {
    let data = json!({ "id": format!("b-{number}"), "fails": fails });
    Ok(Event { tenant: TenantId::new(tenant)?, ..event("BenchStarted", number, time, data)? })
}

/// The event that begins instance `number` of a sleeping saga.
pub(super) fn asleep(saga: &str, number: u64, time: Timestamp) -> anyhow::Result<Event> {
    event(&format!("{saga}-started"), number, time, json!({ "id": format!("b-{number}") }))
}

fn event(kind: &str, number: u64, time: Timestamp, data: serde_json::Value) -> anyhow::Result<Event> {
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
    })
}
