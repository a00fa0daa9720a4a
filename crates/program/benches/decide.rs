//! Benchmarks of transitions: the order saga in YAML, step by step, and its kinds of expressions.

use std::hint::black_box;

use divan::{Bencher, counter::ItemsCount};
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp,
    WorkOutcome,
};
use orlog_program::{
    CompiledDefinition, Context, Program, ProgramInput, ProgramOutput, compile_yaml,
};
use serde_json::{Value, json};

const ORDER: &str = include_str!("../tests/order.saga.yaml");

fn main() {
    divan::main();
}

fn order() -> CompiledDefinition {
    compile_yaml(ORDER, "order").expect("the definition is valid")
}

fn key() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").expect("a valid name"),
        correlation: CorrelationId::new("o1").expect("a valid name"),
    }
}

fn event(kind: &str, data: Value) -> Event {
    Event {
        id: EventId::new("e1").expect("a valid name"),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).expect("a valid name"),
        source: "urn:bench".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

fn placed() -> Event {
    let items = json!([{"sku": "tea-250", "quantity": 2, "price": 12}, {"sku": "cup-01", "quantity": 4, "price": 25}]);
    event(
        "OrderPlaced",
        json!({"orderId": "o1", "total": 125, "items": items, "customer": {"email": "ada@example.org"}}),
    )
}

fn apply(saga: &CompiledDefinition, state: Option<&[u8]>, input: &ProgramInput<'_>) -> Vec<u8> {
    let key = key();
    let context = Context {
        key: &key,
        version: 1,
        now: Timestamp::from_millis(0),
        pending_work: &[],
        attempts: 0,
    };
    match saga
        .apply(state, input, &context)
        .expect("the input is applied")
    {
        ProgramOutput::Applied(transition) => transition.state,
        ProgramOutput::Ignored(reason) | ProgramOutput::Rejected(reason) => panic!("{reason}"),
    }
}

fn bench_apply(
    bencher: Bencher<'_, '_>,
    saga: &CompiledDefinition,
    state: Option<&[u8]>,
    input: &ProgramInput<'_>,
) {
    bencher
        .counter(ItemsCount::new(1_usize))
        .bench_local(|| black_box(apply(saga, black_box(state), black_box(input))));
}

#[divan::bench]
fn start(bencher: Bencher<'_, '_>) {
    bench_apply(bencher, &order(), None, &ProgramInput::Event(&placed()));
}

#[divan::bench]
fn event_completes_a_step(bencher: Bencher<'_, '_>) {
    let saga = order();
    let state = apply(&saga, None, &ProgramInput::Event(&placed()));
    bench_apply(
        bencher,
        &saga,
        Some(&state),
        &ProgramInput::Event(&event("StockReserved", json!({"orderId": "o1"}))),
    );
}

#[divan::bench]
fn outcome_completes_a_step_and_a_condition_decides(bencher: Bencher<'_, '_>) {
    let saga = order();
    let state = apply(&saga, None, &ProgramInput::Event(&placed()));
    let state = apply(
        &saga,
        Some(&state),
        &ProgramInput::Event(&event("StockReserved", json!({}))),
    );
    let outcome = WorkOutcome::succeeded(None, json!({"paymentId": "p9"}));
    bench_apply(
        bencher,
        &saga,
        Some(&state),
        &ProgramInput::WorkResult {
            tag: "charge",
            outcome: &outcome,
        },
    );
}

#[divan::bench]
fn failure_starts_compensation(bencher: Bencher<'_, '_>) {
    let saga = order();
    let state = apply(&saga, None, &ProgramInput::Event(&placed()));
    let state = apply(
        &saga,
        Some(&state),
        &ProgramInput::Event(&event("StockReserved", json!({}))),
    );
    bench_apply(
        bencher,
        &saga,
        Some(&state),
        &ProgramInput::Timer { name: "charge" },
    );
}

#[divan::bench]
fn compile() -> CompiledDefinition {
    order()
}

/// Returns a saga with one step whose payload is this template. Its cost above `literal` is that of the
/// expression.
#[divan::bench(args = ["literal", "=vars.order.customer.email", "=vars.order.total > 100 && vars.order.open == 'yes'",
    "={'id': vars.order.id, 'skus': vars.order.items.map(i, i.sku)}"])]
fn expression(bencher: Bencher<'_, '_>, template: &str) {
    let text = format!(
        "{{saga: s, version: 1, start: Go, vars: {{order: =event}}, steps: [{{id: a, do: {{effect: e, data: {}}}}}]}}",
        json!(template)
    );
    let saga = compile_yaml(&text, "s").expect("the definition is valid");
    let order = json!({"id": "o1", "total": 125, "open": "yes", "items": [{"sku": "a"}, {"sku": "b"}], "customer": {"email": "a@b"}});
    bench_apply(
        bencher,
        &saga,
        None,
        &ProgramInput::Event(&event("Go", order)),
    );
}
