//! Benchmarks of WebAssembly sagas: instantiation, input encoding, the transition, and validation of
//! the output.

#[path = "../tests/wasm/assemblyscript.rs"]
mod assemblyscript;

use std::hint::black_box;

use divan::Bencher;
use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, TenantId, Timestamp,
    WorkOutcome,
};
use orlog_program::{Context, Program, ProgramInput, ProgramOutput, WasmProgram, load_wasm};
use serde_json::{Value, json};

const ECHO: &str = include_str!("../tests/wasm/echo.wat");
const MANIFEST: &str =
    r#"{"saga":"order","version":1,"events":[{"type":"OrderPlaced","starts":true}]}"#;

fn main() {
    divan::main();
}

fn load(module: &[u8]) -> WasmProgram {
    load_wasm(module, "bench").expect("the definition is valid")
}

fn echo() -> WasmProgram {
    let text = ECHO.replace("MANIFEST", &MANIFEST.replace('"', "\\\""));
    load(&wat::parse_str(text).expect("the definition is valid"))
}

/// Returns a real guest: the module in the file `ORLOG_BENCH_WASM`, or the `AssemblyScript` example.
fn guest() -> Vec<u8> {
    match std::env::var_os("ORLOG_BENCH_WASM") {
        Some(file) => {
            std::fs::read(file).expect("ORLOG_BENCH_WASM is the path of an order saga module")
        }
        None => assemblyscript::order(),
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
    let customer = json!({"email": "ada@example.org"});
    event(
        "OrderPlaced",
        json!({"orderId": "o1", "total": 125, "items": items, "customer": customer}),
    )
}

fn apply(saga: &WasmProgram, state: Option<&[u8]>, input: &ProgramInput<'_>) -> Vec<u8> {
    let key = InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").expect("a valid name"),
        correlation: CorrelationId::new("o1").expect("a valid name"),
    };
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

#[divan::bench]
fn least_module(bencher: Bencher<'_, '_>) {
    let (saga, placed) = (echo(), placed());
    bencher.bench_local(|| black_box(apply(&saga, None, black_box(&ProgramInput::Event(&placed)))));
}

#[divan::bench]
fn order_starts(bencher: Bencher<'_, '_>) {
    let saga = load(&guest());
    let placed = placed();
    bencher.bench_local(|| black_box(apply(&saga, None, black_box(&ProgramInput::Event(&placed)))));
}

#[divan::bench]
fn order_is_charged(bencher: Bencher<'_, '_>) {
    let saga = load(&guest());
    let state = apply(&saga, None, &ProgramInput::Event(&placed()));
    let state = apply(
        &saga,
        Some(&state),
        &ProgramInput::Event(&event("StockReserved", json!({"orderId": "o1"}))),
    );
    let outcome = WorkOutcome::succeeded(None, json!({"paymentId": "p9"}));
    let input = ProgramInput::WorkResult {
        tag: "charge",
        outcome: &outcome,
    };
    bencher.bench_local(|| black_box(apply(&saga, Some(&state), black_box(&input))));
}

#[divan::bench]
fn load_order(bencher: Bencher<'_, '_>) {
    let module = guest();
    bencher.bench_local(|| black_box(load(black_box(&module))));
}
