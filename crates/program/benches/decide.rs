//! What a decision costs: the order saga in YAML, step by step, and the kinds of expressions it is made of.

use std::hint::black_box;

use divan::{Bencher, counter::ItemsCount};
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp, Verdict,
};
use orlog_program::{Compiled, Context, Program, Reaction, Stimulus, compile_yaml};
use serde_json::{Value, json};

const ORDER: &str = include_str!("../tests/order.saga.yaml");

fn main() {
    divan::main();
}

fn order() -> Compiled {
    compile_yaml(ORDER, "order").expect("it is well formed")
}

fn key() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").expect("a short word"),
        correlation: CorrelationId::new("o1").expect("a short word"),
    }
}

fn event(kind: &str, data: Value) -> Event {
    Event {
        id: EventId::new("e1").expect("a short word"),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).expect("a short word"),
        source: "urn:bench".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data,
    }
}

fn placed() -> Event {
    let items = json!([{"sku": "tea-250", "quantity": 2, "price": 12}, {"sku": "cup-01", "quantity": 4, "price": 25}]);
    event(
        "OrderPlaced",
        json!({"orderId": "o1", "total": 125, "items": items, "customer": {"email": "ada@example.org"}}),
    )
}

fn apply(saga: &Compiled, state: Option<&[u8]>, stimulus: &Stimulus<'_>) -> Vec<u8> {
    let key = key();
    let context = Context { key: &key, version: 1, now: Timestamp::from_millis(0) };
    match saga.apply(state, stimulus, &context).expect("it is applied") {
        Reaction::Applied(transition) => transition.state,
        Reaction::Ignored(why) | Reaction::Refused(why) => panic!("{why}"),
    }
}

fn bench_apply(bencher: Bencher<'_, '_>, saga: &Compiled, state: Option<&[u8]>, stimulus: &Stimulus<'_>) {
    bencher
        .counter(ItemsCount::new(1_usize))
        .bench_local(|| black_box(apply(saga, black_box(state), black_box(stimulus))));
}

#[divan::bench]
fn start(bencher: Bencher<'_, '_>) {
    bench_apply(bencher, &order(), None, &Stimulus::Event(&placed()));
}

#[divan::bench]
fn event_completes_a_step(bencher: Bencher<'_, '_>) {
    let saga = order();
    let state = apply(&saga, None, &Stimulus::Event(&placed()));
    bench_apply(
        bencher,
        &saga,
        Some(&state),
        &Stimulus::Event(&event("StockReserved", json!({"orderId": "o1"}))),
    );
}

#[divan::bench]
fn outcome_completes_a_step_and_a_condition_decides(bencher: Bencher<'_, '_>) {
    let saga = order();
    let state = apply(&saga, None, &Stimulus::Event(&placed()));
    let state = apply(&saga, Some(&state), &Stimulus::Event(&event("StockReserved", json!({}))));
    let verdict = Verdict::Succeeded { event: None, payload: json!({"paymentId": "p9"}) };
    bench_apply(bencher, &saga, Some(&state), &Stimulus::Outcome { tag: "charge", verdict: &verdict });
}

#[divan::bench]
fn failure_begins_to_undo(bencher: Bencher<'_, '_>) {
    let saga = order();
    let state = apply(&saga, None, &Stimulus::Event(&placed()));
    let state = apply(&saga, Some(&state), &Stimulus::Event(&event("StockReserved", json!({}))));
    bench_apply(bencher, &saga, Some(&state), &Stimulus::Timer { name: "charge" });
}

#[divan::bench]
fn compile() -> Compiled {
    order()
}

/// One step whose payload is that template; the cost beside `literal` is that of the expression.
#[divan::bench(args = ["literal", "=vars.order.customer.email", "=vars.order.total > 100 && vars.order.open == 'yes'",
    "={'id': vars.order.id, 'skus': vars.order.items.map(i, i.sku)}"])]
fn expression(bencher: Bencher<'_, '_>, template: &str) {
    let text = format!(
        "{{saga: s, version: 1, start: Go, vars: {{order: =event}}, steps: [{{id: a, do: {{effect: e, data: {}}}}}]}}",
        json!(template)
    );
    let saga = compile_yaml(&text, "s").expect("it is well formed");
    let order = json!({"id": "o1", "total": 125, "open": "yes", "items": [{"sku": "a"}, {"sku": "b"}], "customer": {"email": "a@b"}});
    bench_apply(bencher, &saga, None, &Stimulus::Event(&event("Go", order)));
}
