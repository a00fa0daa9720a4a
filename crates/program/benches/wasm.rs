//! What a transition of a WebAssembly saga costs: a fresh instance, the input in, the decision, the answer out and checked.

#[path = "../tests/wasm/assemblyscript.rs"]
mod assemblyscript;

use std::hint::black_box;

use divan::Bencher;
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp, Verdict,
};
use orlog_program::{Context, Program, Reaction, Stimulus, WasmProgram, load_wasm};
use serde_json::{Value, json};

const ECHO: &str = include_str!("../tests/wasm/echo.wat");
const MANIFEST: &str = r#"{"saga":"order","version":1,"events":[{"type":"OrderPlaced","starts":true}]}"#;

fn main() {
    divan::main();
}

fn load(module: &[u8]) -> WasmProgram {
    load_wasm(module, "bench").expect("it is well formed")
}

fn echo() -> WasmProgram {
    let text = ECHO.replace("MANIFEST", &MANIFEST.replace('"', "\\\""));
    load(&wat::parse_str(text).expect("it is well formed"))
}

/// A real guest: the module in the file `ORLOG_BENCH_WASM`, or the `AssemblyScript` example; `None` without npm.
fn guest() -> Option<Vec<u8>> {
    match std::env::var_os("ORLOG_BENCH_WASM") {
        Some(file) => Some(std::fs::read(file).expect("ORLOG_BENCH_WASM names a module of the order saga")),
        None => assemblyscript::order(),
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
    let customer = json!({"email": "ada@example.org"});
    event("OrderPlaced", json!({"orderId": "o1", "total": 125, "items": items, "customer": customer}))
}

fn apply(saga: &WasmProgram, state: Option<&[u8]>, stimulus: &Stimulus<'_>) -> Vec<u8> {
    let key = InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").expect("a short word"),
        correlation: CorrelationId::new("o1").expect("a short word"),
    };
    let context = Context { key: &key, version: 1, now: Timestamp::from_millis(0) };
    match saga.apply(state, stimulus, &context).expect("it is applied") {
        Reaction::Applied(transition) => transition.state,
        Reaction::Ignored(why) | Reaction::Refused(why) => panic!("{why}"),
    }
}

#[divan::bench]
fn least_module(bencher: Bencher<'_, '_>) {
    let (saga, placed) = (echo(), placed());
    bencher.bench_local(|| black_box(apply(&saga, None, black_box(&Stimulus::Event(&placed)))));
}

#[divan::bench]
fn order_starts(bencher: Bencher<'_, '_>) {
    let Some(saga) = guest().map(|module| load(&module)) else { return };
    let placed = placed();
    bencher.bench_local(|| black_box(apply(&saga, None, black_box(&Stimulus::Event(&placed)))));
}

#[divan::bench]
fn order_is_charged(bencher: Bencher<'_, '_>) {
    let Some(saga) = guest().map(|module| load(&module)) else { return };
    let state = apply(&saga, None, &Stimulus::Event(&placed()));
    let state =
        apply(&saga, Some(&state), &Stimulus::Event(&event("StockReserved", json!({"orderId": "o1"}))));
    let verdict = Verdict::Succeeded { event: None, payload: json!({"paymentId": "p9"}) };
    let stimulus = Stimulus::Outcome { tag: "charge", verdict: &verdict };
    bencher.bench_local(|| black_box(apply(&saga, Some(&state), black_box(&stimulus))));
}

#[divan::bench]
fn load_order(bencher: Bencher<'_, '_>) {
    let Some(module) = guest() else { return };
    bencher.bench_local(|| black_box(load(black_box(&module))));
}
