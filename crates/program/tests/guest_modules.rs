//! Real guests, led through their lives: the order saga in `AssemblyScript`, built by npm, and the one in Rust.
//!
//! The one in Rust runs on the host, because a toolchain need not know `wasm32`: a module that repeats what it is told gives
//! the bytes of the input, and a module that holds the answer hands it to the runner.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "wasm/assemblyscript.rs"]
mod assemblyscript;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SagaName, Status, TenantId, Timestamp,
    Transition, Verdict, Work,
};
use orlog_program::{Context, Fault, Program, Reaction, Stimulus, WasmProgram, load_wasm};
use serde_json::{Value, json};

type Decide<'a> = &'a dyn Fn(Option<&[u8]>, &Stimulus<'_>, &Context<'_>) -> Result<Reaction, Fault>;

/// One order.
struct Life<'a> {
    decide: Decide<'a>,
    state: Option<Vec<u8>>,
    version: u64,
}

impl<'a> Life<'a> {
    /// An order whose goods are asked for.
    fn begun(decide: Decide<'a>) -> Self {
        let mut life = Self { decide, state: None, version: 0 };
        assert_eq!(asked(&life.event("OrderPlaced")), ["inventory.ReserveStock"]);
        life
    }

    #[track_caller]
    fn take(&mut self, stimulus: &Stimulus<'_>) -> Transition {
        match self.show(stimulus) {
            Reaction::Applied(transition) => {
                self.state = Some(transition.state.clone());
                self.version += 1;
                *transition
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn show(&self, stimulus: &Stimulus<'_>) -> Reaction {
        let key = InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        };
        let context = Context { key: &key, version: self.version + 1, now: Timestamp::from_millis(1_000) };
        let first = (self.decide)(self.state.as_deref(), stimulus, &context);
        let again = (self.decide)(self.state.as_deref(), stimulus, &context);
        assert_eq!(first, again, "the same input leads to the same answer");
        first.unwrap_or_else(|fault| panic!("{fault}"))
    }

    #[track_caller]
    fn event(&mut self, kind: &str) -> Transition {
        self.take(&Stimulus::Event(&event(kind)))
    }

    #[track_caller]
    fn succeeds(&mut self, tag: &str, payload: Value) -> Transition {
        self.take(&Stimulus::Outcome { tag, verdict: &Verdict::Succeeded { event: None, payload } })
    }

    #[track_caller]
    fn fails(&mut self, tag: &str) -> Transition {
        let failure = Failure { code: "declined".to_owned(), message: "no \"funds\"".to_owned() };
        let verdict = Verdict::Failed { event: None, failure, payload: Value::Null };
        self.take(&Stimulus::Outcome { tag, verdict: &verdict })
    }
}

fn event(kind: &str) -> Event {
    Event {
        id: EventId::new(kind).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:shop".to_owned(),
        subject: None,
        time: Timestamp::from_millis(0),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({"orderId": "o-1", "total": 12_500, "customer": {"name": "Åsa \u{1F600}"}}),
    }
}

fn asked(transition: &Transition) -> Vec<String> {
    transition.work.iter().map(Work::label).collect()
}

fn lives(decide: Decide<'_>) {
    completes(decide);
    undoes_in_reverse(decide);
    is_cancelled_in_time(decide);
    sticks_and_is_retried(decide);
}

#[track_caller]
fn load(module: &[u8]) -> WasmProgram {
    load_wasm(module, "order.saga.wasm").unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn an_order_in_assemblyscript_lives_like_the_declarative_one() {
    let Some(module) = assemblyscript::order() else { return };
    let program = load(&module);
    assert_eq!(program.correlate(&event("Shipped")).unwrap().as_str(), "o-1");
    lives(&|state, stimulus, context| program.apply(state, stimulus, context));
}

/// `ORLOG_RUST_GUEST` names the module that `cargo build --target wasm32-unknown-unknown -p orlog-example-wasm` made.
#[test]
fn an_order_in_rust_lives_the_same_as_a_module() {
    let Some(file) = std::env::var_os("ORLOG_RUST_GUEST") else {
        println!("passed over: ORLOG_RUST_GUEST names no module");
        return;
    };
    let program = load(&std::fs::read(file).unwrap());
    lives(&|state, stimulus, context| program.apply(state, stimulus, context));
}

const ECHO: &str = include_str!("wasm/echo.wat");
const CONSTANT: &str = include_str!("wasm/constant.wat");
const MANIFEST: &str = include_str!("../../../examples/wasm-rust/src/manifest.json");

#[test]
fn an_order_in_rust_lives_like_the_declarative_one() {
    let echo = load(&with_manifest(ECHO));
    lives(&|state, stimulus, context| {
        let told = match echo.apply(state.map(|_| b"1".as_slice()), stimulus, context)? {
            Reaction::Applied(transition) => transition.state,
            other => return Ok(other),
        };
        let told: [Value; 2] = serde_json::from_slice(&told).unwrap();
        let input = serde_json::to_vec(&told[1]).unwrap();
        let answer = orlog_guest::apply::<orlog_example_wasm::Orders>(state.unwrap_or_default(), &input);
        let (length, answer) = (answer.len(), String::from_utf8(answer).unwrap());
        let text = CONSTANT.replace("ANSWER", &quoted(&answer)).replace("LENGTH", &length.to_string());
        load(&with_manifest(&text)).apply(state, stimulus, context)
    });
}

fn with_manifest(text: &str) -> Vec<u8> {
    wat::parse_str(text.replace("MANIFEST", &quoted(MANIFEST))).unwrap()
}

/// A text as it stands between quotes in `.wat`.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn completes(decide: Decide<'_>) {
    let mut life = Life::begun(decide);
    let charged = life.event("StockReserved");
    let Work::Effect(charge) = &charged.work[0] else { panic!("{charged:?}") };
    assert_eq!((charge.name.as_str(), &charge.payload["amount"]), ("payments.charge", &json!(12_500)));
    assert_eq!((charged.timers.len(), charged.waits.len()), (1, 1));
    assert!(
        matches!(life.show(&Stimulus::Event(&event("StockReserved"))), Reaction::Ignored(_)),
        "a duplicate"
    );
    let shipped = life.succeeds("charge", json!({"paymentId": "p-9"}));
    assert_eq!((asked(&shipped), shipped.timers.len()), (vec!["shipping.Ship".to_owned()], 1));
    let end = life.event("Shipped");
    assert_eq!((end.status, asked(&end)), (Status::Completed, vec!["OrderCompleted".to_owned()]));
    assert_eq!(serde_json::from_slice::<Value>(&end.state).unwrap()["paymentId"], json!("p-9"));
}

fn undoes_in_reverse(decide: Decide<'_>) {
    let mut life = Life::begun(decide);
    life.event("StockReserved");
    life.succeeds("charge", json!({"paymentId": "p-9"}));
    let failed = life.event("ShippingFailed");
    let Work::Effect(refund) = &failed.work[0] else { panic!("{failed:?}") };
    assert_eq!((refund.name.as_str(), &refund.payload), ("payments.refund", &json!({"paymentId": "p-9"})));
    assert_eq!((failed.status, failed.failure.unwrap().code.as_str()), (Status::Compensating, "not_shipped"));
    assert_eq!(asked(&life.succeeds("undo:charge", json!({}))), ["inventory.ReleaseStock"]);
    let end = life.event("StockReleased");
    assert_eq!((end.status, asked(&end)), (Status::Failed, vec!["OrderCancelled".to_owned()]));
}

fn is_cancelled_in_time(decide: Decide<'_>) {
    let mut life = Life::begun(decide);
    life.event("StockReserved");
    assert_eq!(asked(&life.take(&Stimulus::Timer { name: "charge" })), ["inventory.ReleaseStock"]);
    let late = life.succeeds("charge", json!({"paymentId": "p-9"}));
    assert!(late.work.is_empty() && late.status == Status::Compensating, "one undo at a time");
    assert_eq!(asked(&life.event("StockReleased")), ["payments.refund"]);
    assert_eq!(life.succeeds("undo:charge", json!({})).status, Status::Failed);
}

fn sticks_and_is_retried(decide: Decide<'_>) {
    let mut life = Life::begun(decide);
    life.event("StockReserved");
    life.succeeds("charge", json!({"paymentId": "p-9"}));
    life.take(&Stimulus::Cancel { reason: "a wish" });
    let stuck = life.fails("undo:charge");
    assert_eq!((stuck.status, stuck.failure.unwrap().message.as_str()), (Status::Stuck, "no \"funds\""));
    assert_eq!(asked(&life.take(&Stimulus::Retry)), ["payments.refund"]);
    life.succeeds("undo:charge", json!({}));
    assert_eq!(life.event("StockReleased").status, Status::Cancelled);
}
