//! WebAssembly modules: their input, valid output and the handling of faulty modules.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, ExcludedUser, Failure, InstanceKey, Name, SagaName,
    Status, TaskChange, TenantId, TimerChange, Timestamp, Transition, WaitKind, Work, WorkOutcome,
};
use orlog_program::budget::{self, FUEL_PER_UNIT};
use orlog_program::{
    Context, MAX_FUEL, MAX_MODULE_BYTES, Program, ProgramError, ProgramInput, ProgramOutput,
    WasmProgram, is_wasm, load_wasm,
};
use serde_json::{Value, json};

const CONSTANT: &str = include_str!("wasm/constant.wat");
const ECHO: &str = include_str!("wasm/echo.wat");
const HOSTILE: &str = include_str!("wasm/hostile.wat");
const IMPORTS: &str = include_str!("wasm/imports.wat");
const LOCALS: &str = include_str!("wasm/locals.wat");
const MANIFEST: &str = include_str!("wasm/manifest.wat");
const START: &str = include_str!("wasm/start.wat");

fn manifest() -> Value {
    json!({
        "saga": "order",
        "version": 2,
        "events": [
            {"type": "StockReserved", "correlate": "order.id"},
            {"type": "OrderPlaced", "starts": true, "correlate": "orderId"},
            {"type": "Cancelled"},
        ],
        "effects": ["payments.charge"],
        "commands": ["shipping.Ship", "inventory.ReserveStock"],
        "sagas": ["parcel"],
        "earlyEventTtlMs": 5000,
    })
}

/// Escapes a text for a quoted `.wat` string.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn module(text: &str, output: &str) -> Vec<u8> {
    module_with(text, &manifest().to_string(), output)
}

fn module_with(text: &str, manifest: &str, output: &str) -> Vec<u8> {
    let text = text
        .replace("MANIFEST", &quoted(manifest))
        .replace("OUTPUT", &quoted(output));
    wat::parse_str(text.replace("LENGTH", &output.len().to_string())).unwrap()
}

#[track_caller]
fn load(bytes: &[u8]) -> WasmProgram {
    load_wasm(bytes, "order.saga.wasm").unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn problems(bytes: &[u8]) -> Vec<String> {
    load_wasm(bytes, "order.saga.wasm")
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn event(kind: &str, data: Value) -> Event {
    Event {
        id: EventId::new("e1").unwrap(),
        tenant: TenantId::new("acme").unwrap(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:shop".to_owned(),
        subject: None,
        time: Timestamp::from_millis(7),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

fn key() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new("o-1").unwrap(),
    }
}

fn show(
    program: &WasmProgram,
    state: Option<&[u8]>,
    program_input: &ProgramInput<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let key = key();
    program.apply(
        state,
        program_input,
        &Context {
            key: &key,
            version: 3,
            now: Timestamp::from_millis(1_000),
            pending_work: &[],
            attempts: 0,
        },
    )
}

fn apply_with_output(output: &str) -> Result<ProgramOutput, ProgramError> {
    let placed = event("OrderPlaced", json!({}));
    show(
        &load(&module(CONSTANT, output)),
        None,
        &ProgramInput::Event(&placed),
    )
}

#[track_caller]
fn applied(output: Result<ProgramOutput, ProgramError>) -> Transition {
    match output {
        Ok(ProgramOutput::Applied(transition)) => *transition,
        other => panic!("{other:?}"),
    }
}

fn crash_reason(output: Result<ProgramOutput, ProgramError>) -> String {
    match output {
        Err(ProgramError::Crashed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn manifest_lists_the_modules_events() {
    let bytes = module(CONSTANT, "{}");
    let program = load(&bytes);
    assert!(is_wasm(&bytes) && !is_wasm(b"saga: order"));
    let reference = program.definition_ref();
    assert_eq!((reference.saga.as_str(), reference.version), ("order", 2));
    assert_ne!(
        reference.hash,
        load(&module(CONSTANT, "[]")).definition_ref().hash
    );
    let subscriptions = program
        .manifest()
        .subscriptions
        .iter()
        .map(|t| (t.kind.as_str(), t.starts));
    assert_eq!(
        subscriptions.collect::<Vec<_>>(),
        [
            ("Cancelled", false),
            ("OrderPlaced", true),
            ("StockReserved", false)
        ]
    );
    assert_eq!(program.manifest().effects[0].as_str(), "payments.charge");
    assert_eq!(
        program.manifest().commands,
        ["inventory.ReserveStock", "shipping.Ship"]
    );
}

#[test]
fn events_are_correlated_without_running_the_module() {
    let program = load(&module(HOSTILE, "{}"));
    let of = |kind, data| program.correlate(&event(kind, data));
    assert_eq!(
        of("OrderPlaced", json!({"orderId": 17})).unwrap().as_str(),
        "17"
    );
    assert_eq!(
        of("StockReserved", json!({"order": {"id": "o-1"}}))
            .unwrap()
            .as_str(),
        "o-1"
    );
    assert!(matches!(
        of("StockReserved", json!({})),
        Err(ProgramError::SchemaMismatch(_))
    ));
    let enveloped = Event {
        correlation: Some(CorrelationId::new("o-2").unwrap()),
        ..event("Cancelled", json!({}))
    };
    assert_eq!(program.correlate(&enveloped).unwrap().as_str(), "o-2");
}

#[test]
fn module_receives_state_input_and_context() {
    let program = load(&module(ECHO, ""));
    let context =
        json!({"tenant": "acme", "saga": "order", "correlation": "o-1", "version": 3, "now": 1000});
    let check = |state: Option<&[u8]>, program_input: &ProgramInput<'_>, mut expected: Value| {
        expected["context"] = context.clone();
        let state_before =
            state.map_or(Value::Null, |state| serde_json::from_slice(state).unwrap());
        let transition = applied(show(&program, state, program_input));
        assert_eq!(
            program.view_state(&transition.state).unwrap(),
            json!([state_before, expected])
        );
    };
    let placed = event("OrderPlaced", json!({"a": 1}));
    let event_json = json!({
        "id": "e1", "type": "OrderPlaced", "source": "urn:shop", "subject": null, "time": 7, "schemaVersion": 1,
        "data": {"a": 1},
    });
    check(
        None,
        &ProgramInput::Event(&placed),
        json!({"kind": "event", "event": event_json}),
    );
    let paid = WorkOutcome::succeeded(None, json!({"id": 9}));
    check(
        Some(b"[1]"),
        &ProgramInput::WorkResult {
            tag: "charge",
            outcome: &paid,
        },
        json!({"kind": "workResult", "workResult":
            {"tag": "charge", "outcome": "succeeded", "event": null, "payload": {"id": 9}, "failure": null}}),
    );
    let failure = Failure {
        code: "http_503".to_owned(),
        message: "busy".to_owned(),
    };
    let late = WorkOutcome::TimedOut { failure };
    check(
        Some(b"[1]"),
        &ProgramInput::WorkResult {
            tag: "charge",
            outcome: &late,
        },
        json!({"kind": "workResult", "workResult": {"tag": "charge", "outcome": "timedOut", "event": null, "payload": null,
            "failure": {"code": "http_503", "message": "busy"}}}),
    );
    check(
        Some(b"{}"),
        &ProgramInput::Timer { name: "pay" },
        json!({"kind": "timer", "timer": {"name": "pay"}}),
    );
    let cancel = json!({"kind": "cancel", "cancel": {"reason": "by request"}});
    check(
        Some(b"{}"),
        &ProgramInput::Cancel {
            reason: "by request",
        },
        cancel,
    );
    check(Some(b"{}"), &ProgramInput::Retry, json!({"kind": "retry"}));
    check(Some(b"{}"), &ProgramInput::Skip, json!({"kind": "skip"}));
    check(
        Some(b"{}"),
        &ProgramInput::ForceComplete,
        json!({"kind": "forceComplete"}),
    );
}

#[test]
fn module_output_becomes_a_transition() {
    let output = json!({
        "state": {"paid": true},
        "status": "compensating",
        "work": [
            {"command": {"tag": "reserve", "name": "inventory.ReserveStock", "payload": {"n": 1}}},
            {"command": {"tag": "ship", "name": "shipping.Ship", "id": "s-1", "confirm": true, "timeoutMs": 5}},
            {"effect": {"tag": "charge", "name": "payments.charge", "payload": 1, "timeoutMs": 60_000,
                "retry": {"maxAttempts": 3, "initialBackoffMs": 100}}},
            {"fact": {"type": "OrderFailed", "data": {"why": "x"}}},
            {"startChild": {"tag": "parcel", "saga": "parcel", "correlation": "p-1", "data": {"n": 1}}},
            {"cancelChild": {"saga": "parcel", "correlation": "p-2", "reason": "not needed"}},
        ],
        "tasks": [
            {"open": {"tag": "approve", "title": "Approve", "roles": ["clerk"], "notBy": ["starter"], "due": 9, "outcomes": ["Approved"]}},
            {"assign": {"tag": "approve", "assignee": "ada"}},
            {"close": {"tag": "approve"}},
        ],
        "timers": [{"arm": {"name": "pay", "afterMs": 30}}, {"cancel": {"name": "ship"}}],
        "waits": [{"kind": "workResult", "name": "charge", "until": 9}],
        "reference": "o-1",
        "failure": {"code": "declined", "message": "no"},
        "note": "charged",
    });
    let transition = applied(apply_with_output(&output.to_string()));
    assert_eq!(transition.state, br#"{"paid":true}"#);
    assert_eq!(transition.status, Status::Compensating);
    let labels: Vec<_> = transition.work.iter().map(Work::label).collect();
    assert_eq!(
        labels,
        [
            "inventory.ReserveStock",
            "shipping.Ship",
            "payments.charge",
            "OrderFailed",
            "start_child parcel",
            "cancel_child parcel"
        ]
    );
    assert_eq!(transition.tasks.len(), 3);
    let TaskChange::Open(spec) = &transition.tasks[0] else {
        panic!("no open task")
    };
    assert_eq!(spec.not_by, [ExcludedUser::Starter]);
    let Work::Command(reserve) = &transition.work[0] else {
        panic!("no command")
    };
    assert_eq!(reserve.aggregate_id, "o-1");
    let name = |text| Name::new(text).unwrap();
    let timers = [
        TimerChange::Arm {
            name: name("pay"),
            due: Timestamp::from_millis(1_030),
        },
        TimerChange::Cancel { name: name("ship") },
    ];
    assert_eq!(transition.timers, timers);
    assert_eq!(
        (transition.waits[0].kind, transition.waits[0].name.as_str()),
        (WaitKind::WorkResult, "charge")
    );
    assert_eq!(transition.failure.unwrap().failure.code, "declined");
    assert_eq!(
        (transition.reference, transition.note.as_str()),
        (Some("o-1".into()), "charged")
    );
    let shortest = applied(apply_with_output(r#"{"state":1}"#));
    assert_eq!(
        (shortest.status, shortest.note.as_str()),
        (Status::Running, "OrderPlaced")
    );
}

#[test]
fn module_can_ignore_reject_and_dead_letter() {
    assert_eq!(
        apply_with_output(r#"{"ignored":"a duplicate"}"#),
        Ok(ProgramOutput::Ignored("a duplicate".into()))
    );
    assert_eq!(
        apply_with_output(r#"{"rejected":"it has shipped"}"#),
        Ok(ProgramOutput::Rejected("it has shipped".into()))
    );
    assert_eq!(
        apply_with_output(r#"{"deadLetter":"no total"}"#),
        Err(ProgramError::SchemaMismatch("no total".to_owned()))
    );
}

#[test]
fn irrelevant_inputs_skip_the_module() {
    let program = load(&module(HOSTILE, ""));
    let ignored = |state, program_input: &ProgramInput<'_>| {
        matches!(
            show(&program, state, program_input),
            Ok(ProgramOutput::Ignored(_))
        )
    };
    assert!(ignored(
        None,
        &ProgramInput::Event(&event("StockReserved", json!({})))
    ));
    assert!(ignored(
        Some(b"1"),
        &ProgramInput::Event(&event("Unknown", json!({})))
    ));
    assert!(ignored(None, &ProgramInput::Timer { name: "pay" }));
}

#[test]
fn invalid_module_output_is_a_program_error() {
    #[track_caller]
    fn check(output: &str, expected: &str) {
        let reason = crash_reason(apply_with_output(output));
        assert!(reason.contains(expected), "{reason}");
    }
    check("", "its output is invalid");
    check("nonsense", "expected ident at line 1");
    check("{}", "exactly one of `state`");
    check(r#"{"state":1,"ignored":"x"}"#, "exactly one of `state`");
    check(r#"{"state":1,"staet":2}"#, "unknown field `staet`");
    check(r#"{"state":1,"status":"done"}"#, "unknown variant `done`");
    check(
        r#"{"state":1,"work":[{"effect":{"tag":"a","name":"mail.send"}}]}"#,
        "`mail.send`, which its manifest",
    );
    check(
        r#"{"state":1,"work":[{"command":{"tag":"a","name":"mail.Send"}}]}"#,
        "`mail.Send`, which its manifest",
    );
    check(
        r#"{"state":1,"work":[{"cancelChild":{"saga":"x","correlation":"c","reason":""}}]}"#,
        "the saga `x`, which its manifest",
    );
    check(
        r#"{"state":1,"work":[{"effect":{"tag":"","name":"payments.charge"}}]}"#,
        "name must not be empty",
    );
    check(
        r#"{"state":1,"work":[{"effect":{"tag":"a","name":"payments.charge","retry":{"maxAttempts":0}}}]}"#,
        "allows no attempts",
    );
    check(
        r#"{"state":1,"work":[{"fact":{"type":"a\u0000","data":1}}]}"#,
        "control character",
    );
    check(
        r#"{"state":1,"timers":[{"arm":{"name":"a","afterMs":-1}}]}"#,
        "invalid value",
    );
    check(
        &format!(r#"{{"ignored":"{}"}}"#, "x".repeat(5_000)),
        "the `ignored` of its output is 5000 bytes",
    );
    check(
        &format!(r#"{{"state":"{}"}}"#, "x".repeat(300_000)),
        "its state is 300002 bytes",
    );
    check(
        &format!(r#"{{"state":{}1{}}}"#, "[".repeat(65), "]".repeat(65)),
        "exceeds 64 nesting levels",
    );
    let nested = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    check(
        &format!(r#"{{"state":1,"work":[{{"fact":{{"type":"A","data":{nested}}}}}]}}"#),
        "the payload of A",
    );
    let many = vec![json!({"fact": {"type": "A"}}); 1_001];
    check(
        &json!({"state": 1, "work": many}).to_string(),
        "1001 work, the limit is 1000",
    );
}

#[test]
fn module_calls_are_deterministic() {
    let program = load(&module(ECHO, ""));
    let placed = event("OrderPlaced", json!({"b": 1.5, "a": [1, 2]}));
    let first = show(&program, None, &ProgramInput::Event(&placed));
    assert!((0..50).all(|_| show(&program, None, &ProgramInput::Event(&placed)) == first));
}

/// Runs the function and asserts that it ends within a generous time limit.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the test asserts a duration")]
fn in_time<T>(item: &str, run: impl FnOnce() -> T) -> T {
    let start = std::time::Instant::now();
    let result = run();
    assert!(
        start.elapsed() < Duration::from_mins(1),
        "{item} took {:?}",
        start.elapsed()
    );
    result
}

#[test]
fn fuel_exhaustion_stops_the_module() {
    let program = load(&module(HOSTILE, ""));
    let check = |state: &str, expected: &str| {
        let quoted = format!("\"{state}\"");
        let reason = in_time(state, || {
            crash_reason(show(
                &program,
                Some(quoted.as_bytes()),
                &ProgramInput::Retry,
            ))
        });
        assert!(
            reason.contains(expected) && reason.contains(&format!(" of {MAX_FUEL}, memory: ")),
            "{state}: {reason}"
        );
    };
    check("loop", "it ran out of fuel");
    check("fill", "it ran out of fuel");
    check("grow", "it requested more than 256 pages of memory");
    check("table", "a table of more than 10000 elements");
    check("recurse", "it trapped: call stack exhausted");
    check("outside", "is outside its memory");
    check("big", "its output is 2147483647 bytes long");
    check("x", "it trapped: wasm `unreachable` instruction executed");
}

#[test]
fn fuel_of_a_module_is_part_of_the_budget_of_the_transition() {
    let program = load(&module(HOSTILE, ""));
    let run = || show(&program, Some(b"\"loop\""), &ProgramInput::Retry);
    let units = MAX_FUEL / FUEL_PER_UNIT;
    assert!(budget::within(units / 100, run).is_err());
    // The limit of the module itself stays an error of the module.
    let metered = budget::within(2 * units, run).unwrap();
    assert!(crash_reason(metered.value).contains("it ran out of fuel"));
    assert!(metered.units > units / 2, "{}", metered.units);

    let echo = load(&module(ECHO, ""));
    let placed = event("OrderPlaced", json!({"a": 1}));
    let light = budget::within(units / 100, || {
        show(&echo, None, &ProgramInput::Event(&placed))
    });
    assert!(light.is_ok_and(|metered| metered.units < 1_000));
}

#[test]
fn fuel_bounds_call_time() {
    let stopped = |body: &str| {
        let program = load(&module(&LOCALS.replace("LOCALS", body), ""));
        let reason = in_time("a loop of calls", || {
            crash_reason(show(&program, Some(b"1"), &ProgramInput::Retry))
        });
        assert!(reason.contains("ran out of fuel"), "{reason}");
    };
    let locals = |count: usize| format!("(local {})", "i64 ".repeat(count));
    stopped(&locals(1_000));
    let found = problems(&module(&LOCALS.replace("LOCALS", &locals(1_001)), ""));
    assert!(
        found[0].contains("function 0 has 1001 local variables, the limit is 1000"),
        "{found:?}"
    );
    // Operands that are never pushed also use space in the frame.
    let operands = format!(
        "{}{}",
        "i64.const 1 ".repeat(20_000),
        "drop ".repeat(20_000)
    );
    stopped(&format!("(local i64) i32.const 0 if {operands} end"));
    stopped(&format!(
        "(local i64) i32.const 0 if {}{} end",
        "i32.const 1 memory.size ".repeat(10_000),
        "drop ".repeat(20_000)
    ));
}

#[test]
fn module_imports_are_rejected() {
    let found = problems(&module(IMPORTS, ""));
    assert_eq!(
        found[..2],
        [
            "order.saga.wasm: imports: it imports `env.abort`; a saga module must not import anything; \
             compile AssemblyScript with `--use abort=` and your own function",
            "order.saga.wasm: imports: it imports `wasi_snapshot_preview1.random_get`; a saga module must not import \
             anything; build for wasm32-unknown-unknown, without WASI",
        ]
    );
    assert!(
        found[2].contains("`alloc(i32) -> i32`, but its `alloc` is (i64) -> (i32)"),
        "{found:?}"
    );
    assert!(
        found[3].contains("it must export `apply(i32, i32, i32, i32) -> i64`"),
        "{found:?}"
    );
}

#[test]
fn invalid_manifest_is_rejected_with_location() {
    #[track_caller]
    fn check(change: impl Fn(&mut Value), expected: &str) {
        let mut written = manifest();
        change(&mut written);
        let found = problems(&module_with(CONSTANT, &written.to_string(), "{}"));
        assert!(
            found.iter().any(|problem| problem.contains(expected)),
            "{found:?}"
        );
    }
    check(
        |m| m["saga"] = json!(".."),
        "orlog.manifest.saga: saga name must not be",
    );
    check(
        |m| m["version"] = json!(0),
        "orlog.manifest.version: versions start at 1",
    );
    check(|m| m["saga"] = json!(""), "saga name must not be empty");
    check(|m| m["sga"] = json!(""), "unknown field `sga`");
    check(
        |m| m["events"] = json!([]),
        "orlog.manifest.events: no event starts an instance",
    );
    check(
        |m| m["events"][1]["type"] = json!("StockReserved"),
        "orlog.manifest.events[1].type: the event is listed twice",
    );
    check(
        |m| m["events"][0]["correlate"] = json!("order..id"),
        "orlog.manifest.events[0].correlate: a path consists of",
    );
    check(
        |m| m["commands"][0] = json!("Ship"),
        "orlog.manifest.commands[0]: `Ship` is not a command",
    );
    check(
        |m| m["effects"] = json!(vec!["e"; 2_000]),
        "orlog.manifest.effects: there are 2000, the limit is 1000",
    );
    check(
        |m| m["saga"] = json!("x".repeat(70_000)),
        "bytes long, the limit is 65536",
    );
    let without = CONSTANT.replace("(@custom \"orlog.manifest\" \"MANIFEST\")", "");
    let found = problems(&module(&without, "{}"));
    assert!(found[0].starts_with(
        "order.saga.wasm: orlog.manifest: the module has no manifest; put JSON such as"
    ));
}

#[test]
fn manifest_can_be_an_exported_function() {
    let manifest = manifest().to_string();
    let text = |body: &str| {
        MANIFEST
            .replace("BODY", body)
            .replace("LENGTH", &manifest.len().to_string())
    };
    assert_eq!(load(&module(&text(""), "")).definition_ref().version, 2);
    let endless = module(&text("(loop $forever (br $forever))"), "");
    let found = in_time("an endless manifest", || problems(&endless));
    assert!(
        found[0].contains("orlog.manifest: manifest: it ran out of fuel"),
        "{found:?}"
    );
}

#[test]
fn start_function_consumes_fuel() {
    let with = |body: &str| module(&START.replace("BODY", body), "");
    assert_eq!(load(&with("nop")).definition_ref().version, 2);
    for (body, expected) in [
        ("(loop $forever (br $forever))", "ran out of fuel"),
        ("unreachable", "trapped"),
    ] {
        let found = problems(&with(body));
        assert!(
            found[0].contains("the module cannot be instantiated") && found[0].contains(expected),
            "{found:?}"
        );
    }
}

#[test]
fn invalid_module_is_rejected() {
    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let found = problems(bytes);
        assert!(found[0].contains(expected), "{found:?}");
    }
    check(b"saga: order", "not a WebAssembly module");
    check(b"\0asm", "invalid module: ");
    check(b"\0asm\x0d\0\x01\0", "unsupported WebAssembly component");
    check(
        &vec![0; MAX_MODULE_BYTES + 1],
        "the module is larger than 8388608 bytes",
    );
    let valid = module(CONSTANT, "{}");
    check(&valid[..valid.len() / 2], "invalid module: ");
}

#[test]
fn hostile_module_is_handled_in_bounded_time() {
    let with = |item: &str| CONSTANT.replace("(global $free", &format!("{item} (global $free"));
    let check_rejected = |text: String, expected: &str| {
        let bytes = module(&text, "");
        let found = in_time(expected, || problems(&bytes));
        assert!(found[0].contains(expected), "{found:?}");
    };
    // Nested blocks use no native stack: the module is well formed and loads.
    let nested = with(&format!(
        "(func {} {})",
        "block ".repeat(100_000),
        "end ".repeat(100_000)
    ));
    in_time("nested blocks", || load(&module(&nested, "{}")));
    check_rejected(
        CONSTANT.replace("16)", "257)"),
        "its initial memory is 257 pages, the limit is 256",
    );
    check_rejected(with(&"(func) ".repeat(10_001)), "10000 functions");
    check_rejected(with("(memory 1)"), "limit of 1 memories");
    check_rejected(with("(table 10001 funcref)"), "cannot be instantiated");
    check_rejected(
        with("(data (i32.const 16777216) \"x\")"),
        "cannot be instantiated",
    );
    check_rejected(
        with(&format!(
            "(data (i32.const 0) \"{}\")",
            "x".repeat(4 * 1024 * 1024)
        )),
        "cannot be instantiated",
    );
}

#[test]
fn module_migrates_a_state() {
    let old = load(&module(ECHO, ""));
    let key = key();
    let context = Context {
        key: &key,
        version: 3,
        now: Timestamp::from_millis(1_000),
        pending_work: &[],
        attempts: 0,
    };
    let migrated = |output: &str| load(&module(CONSTANT, output)).migrate(&old, b"[1]", &context);
    let tags = json!([{"from": "pay", "to": "charge"}]);
    let migration =
        migrated(&json!({"state": [2], "status": "compensating", "tags": tags}).to_string())
            .unwrap();
    assert_eq!(
        (
            migration.transition.state.as_slice(),
            migration.transition.status
        ),
        (&b"[2]"[..], Status::Compensating)
    );
    assert!(migration.is_mapped && migration.tags[0].1.as_str() == "charge");
    assert!(
        !migrated(r#"{"state":1,"status":"running"}"#)
            .unwrap()
            .is_mapped
    );
    assert_eq!(
        migrated(r#"{"blocked":["pay is open"]}"#),
        Err(vec!["pay is open".to_owned()])
    );
    assert_eq!(migrated(r#"{"state":1}"#).unwrap_err().len(), 1);
    assert_eq!(
        old.migrate(&old, b"[1]", &context),
        Err(vec!["the module exports no `migrate`".to_owned()])
    );
}
