//! Tests of real guest modules: the order saga in `AssemblyScript`, built by npm, and in Rust.
//!
//! The Rust saga runs on the host, because a toolchain may lack `wasm32`. A module that echoes its
//! input provides the input bytes, and a module that contains the output passes it to the runner.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "wasm/assemblyscript.rs"]
mod assemblyscript;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SagaName, Status, TenantId,
    Timestamp, Transition, Work, WorkOutcome,
};
use orlog_program::{
    Context, Program, ProgramError, ProgramInput, ProgramOutput, WasmProgram, load_wasm,
};
use serde_json::{Value, json};

type DecideFn<'a> = &'a dyn Fn(
    Option<&[u8]>,
    &ProgramInput<'_>,
    &Context<'_>,
) -> Result<ProgramOutput, ProgramError>;

/// Run of one order.
struct OrderRun<'a> {
    decide: DecideFn<'a>,
    state: Option<Vec<u8>>,
    version: u64,
}

impl<'a> OrderRun<'a> {
    /// Returns an order that has requested its goods.
    fn start(decide: DecideFn<'a>) -> Self {
        let mut run = Self {
            decide,
            state: None,
            version: 0,
        };
        assert_eq!(
            work_labels(&run.event("OrderPlaced")),
            ["inventory.ReserveStock"]
        );
        run
    }

    #[track_caller]
    fn take(&mut self, program_input: &ProgramInput<'_>) -> Transition {
        match self.show(program_input) {
            ProgramOutput::Applied(transition) => {
                self.state = Some(transition.state.clone());
                self.version += 1;
                *transition
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn show(&self, program_input: &ProgramInput<'_>) -> ProgramOutput {
        let key = InstanceKey {
            tenant: TenantId::default_tenant(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        };
        let context = Context {
            key: &key,
            version: self.version + 1,
            now: Timestamp::from_millis(1_000),
            pending_work: &[],
            attempts: 0,
        };
        let first = (self.decide)(self.state.as_deref(), program_input, &context);
        let second = (self.decide)(self.state.as_deref(), program_input, &context);
        assert_eq!(first, second, "the same input produces the same output");
        first.unwrap_or_else(|fault| panic!("{fault}"))
    }

    #[track_caller]
    fn event(&mut self, kind: &str) -> Transition {
        self.take(&ProgramInput::Event(&event(kind)))
    }

    #[track_caller]
    fn succeeds(&mut self, tag: &str, payload: Value) -> Transition {
        self.take(&ProgramInput::WorkResult {
            tag,
            outcome: &WorkOutcome::succeeded(None, payload),
        })
    }

    #[track_caller]
    fn fails(&mut self, tag: &str) -> Transition {
        let failure = Failure {
            code: "declined".to_owned(),
            message: "no \"funds\"".to_owned(),
        };
        let outcome = WorkOutcome::Failed {
            event: None,
            failure,
            payload: Value::Null,
        };
        self.take(&ProgramInput::WorkResult {
            tag,
            outcome: &outcome,
        })
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
        user: None,
        attributes: None,
    }
}

fn work_labels(transition: &Transition) -> Vec<String> {
    transition
        .work
        .iter()
        .map(|work| work.label().into())
        .collect()
}

fn check_runs(decide: DecideFn<'_>) {
    completes(decide);
    compensates_in_reverse(decide);
    is_cancelled_in_time(decide);
    sticks_and_is_retried(decide);
}

#[track_caller]
fn load(module: &[u8]) -> WasmProgram {
    load_wasm(module, "order.saga.wasm").unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn assemblyscript_order_matches_the_declarative_saga() {
    let module = assemblyscript::order();
    let program = load(&module);
    assert_eq!(
        program.correlate(&event("Shipped")).unwrap().as_str(),
        "o-1"
    );
    check_runs(&|state, program_input, context| program.apply(state, program_input, context));
}

/// `ORLOG_RUST_GUEST` is the path of the module that `cargo build --target wasm32-unknown-unknown -p
/// orlog-example-wasm` produces.
#[test]
fn rust_order_module_matches_native() {
    let Some(file) = std::env::var_os("ORLOG_RUST_GUEST") else {
        println!("skipped: ORLOG_RUST_GUEST is not set");
        return;
    };
    let program = load(&std::fs::read(file).unwrap());
    check_runs(&|state, program_input, context| program.apply(state, program_input, context));
}

const ECHO: &str = include_str!("wasm/echo.wat");
const CONSTANT: &str = include_str!("wasm/constant.wat");
const MANIFEST: &str = include_str!("../../../examples/wasm-rust/src/manifest.json");

#[test]
fn rust_order_matches_the_declarative_saga() {
    let echo = load(&with_manifest(ECHO));
    check_runs(&|state, program_input, context| {
        let echoed = match echo.apply(state.map(|_| b"1".as_slice()), program_input, context)? {
            ProgramOutput::Applied(transition) => transition.state,
            other => return Ok(other),
        };
        let echoed: [Value; 2] = serde_json::from_slice(&echoed).unwrap();
        let input = serde_json::to_vec(&echoed[1]).unwrap();
        let output =
            orlog_guest::apply::<orlog_example_wasm::OrderSaga>(state.unwrap_or_default(), &input);
        let (length, output) = (output.len(), String::from_utf8(output).unwrap());
        let text = CONSTANT
            .replace("OUTPUT", &quoted(&output))
            .replace("LENGTH", &length.to_string());
        load(&with_manifest(&text)).apply(state, program_input, context)
    });
}

fn with_manifest(text: &str) -> Vec<u8> {
    wat::parse_str(text.replace("MANIFEST", &quoted(MANIFEST))).unwrap()
}

/// Escapes a text for a quoted `.wat` string.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn completes(decide: DecideFn<'_>) {
    let mut run = OrderRun::start(decide);
    let charged = run.event("StockReserved");
    let Work::Effect(charge) = &charged.work[0] else {
        panic!("{charged:?}")
    };
    assert_eq!(
        (charge.name.as_str(), &charge.payload["amount"]),
        ("payments.charge", &json!(12_500))
    );
    assert_eq!((charged.timers.len(), charged.waits.len()), (1, 1));
    assert!(
        matches!(
            run.show(&ProgramInput::Event(&event("StockReserved"))),
            ProgramOutput::Ignored(_)
        ),
        "a duplicate"
    );
    let shipped = run.succeeds("charge", json!({"paymentId": "p-9"}));
    assert_eq!(
        (work_labels(&shipped), shipped.timers.len()),
        (vec!["shipping.Ship".to_owned()], 1)
    );
    let end = run.event("Shipped");
    assert_eq!(
        (end.status, work_labels(&end)),
        (Status::Completed, vec!["OrderCompleted".to_owned()])
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&end.state).unwrap()["paymentId"],
        json!("p-9")
    );
}

fn compensates_in_reverse(decide: DecideFn<'_>) {
    let mut run = OrderRun::start(decide);
    run.event("StockReserved");
    run.succeeds("charge", json!({"paymentId": "p-9"}));
    let failed = run.event("ShippingFailed");
    let Work::Effect(refund) = &failed.work[0] else {
        panic!("{failed:?}")
    };
    assert_eq!(
        (refund.name.as_str(), &refund.payload),
        ("payments.refund", &json!({"paymentId": "p-9"}))
    );
    assert_eq!(
        (failed.status, failed.failure.unwrap().failure.code.as_str()),
        (Status::Compensating, "not_shipped")
    );
    assert_eq!(
        work_labels(&run.succeeds("compensate:charge", json!({}))),
        ["inventory.ReleaseStock"]
    );
    let end = run.event("StockReleased");
    assert_eq!(
        (end.status, work_labels(&end)),
        (Status::Failed, vec!["OrderCancelled".to_owned()])
    );
}

fn is_cancelled_in_time(decide: DecideFn<'_>) {
    let mut run = OrderRun::start(decide);
    run.event("StockReserved");
    assert_eq!(
        work_labels(&run.take(&ProgramInput::Timer { name: "charge" })),
        ["inventory.ReleaseStock"]
    );
    let late = run.succeeds("charge", json!({"paymentId": "p-9"}));
    assert!(
        late.work.is_empty() && late.status == Status::Compensating,
        "one compensation at a time"
    );
    assert_eq!(
        work_labels(&run.event("StockReleased")),
        ["payments.refund"]
    );
    assert_eq!(
        run.succeeds("compensate:charge", json!({})).status,
        Status::Failed
    );
}

fn sticks_and_is_retried(decide: DecideFn<'_>) {
    let mut run = OrderRun::start(decide);
    run.event("StockReserved");
    run.succeeds("charge", json!({"paymentId": "p-9"}));
    run.take(&ProgramInput::Cancel {
        reason: "by request",
    });
    let stuck = run.fails("compensate:charge");
    assert_eq!(
        (
            stuck.status,
            stuck.failure.unwrap().failure.message.as_str()
        ),
        (Status::Stuck, "no \"funds\"")
    );
    assert_eq!(
        work_labels(&run.take(&ProgramInput::Retry)),
        ["payments.refund"]
    );
    run.succeeds("compensate:charge", json!({}));
    assert_eq!(run.event("StockReleased").status, Status::Cancelled);
}
