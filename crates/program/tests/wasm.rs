//! WebAssembly modules: what they are told, what they may answer, and what becomes of those that misbehave.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, Name, SagaName, Status, TenantId,
    TimerChange, Timestamp, Transition, Verdict, WaitKind, Work,
};
use orlog_program::{
    Context, Fault, MAX_FUEL, MAX_MODULE_BYTES, Program, Reaction, Stimulus, WasmProgram, is_wasm, load_wasm,
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
        "earlyMs": 5000,
    })
}

/// A text as it stands between quotes in `.wat`.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn module(text: &str, answer: &str) -> Vec<u8> {
    module_with(text, &manifest().to_string(), answer)
}

fn module_with(text: &str, manifest: &str, answer: &str) -> Vec<u8> {
    let text = text.replace("MANIFEST", &quoted(manifest)).replace("ANSWER", &quoted(answer));
    wat::parse_str(text.replace("LENGTH", &answer.len().to_string())).unwrap()
}

#[track_caller]
fn load(bytes: &[u8]) -> WasmProgram {
    load_wasm(bytes, "order.saga.wasm").unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn problems(bytes: &[u8]) -> Vec<String> {
    load_wasm(bytes, "order.saga.wasm").unwrap_err().iter().map(ToString::to_string).collect()
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
    }
}

fn key() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new("o-1").unwrap(),
    }
}

fn show(program: &WasmProgram, state: Option<&[u8]>, stimulus: &Stimulus<'_>) -> Result<Reaction, Fault> {
    let key = key();
    program.apply(state, stimulus, &Context { key: &key, version: 3, now: Timestamp::from_millis(1_000) })
}

fn answered(answer: &str) -> Result<Reaction, Fault> {
    let placed = event("OrderPlaced", json!({}));
    show(&load(&module(CONSTANT, answer)), None, &Stimulus::Event(&placed))
}

#[track_caller]
fn applied(reaction: Result<Reaction, Fault>) -> Transition {
    match reaction {
        Ok(Reaction::Applied(transition)) => *transition,
        other => panic!("{other:?}"),
    }
}

fn broken(reaction: Result<Reaction, Fault>) -> String {
    match reaction {
        Err(Fault::Broken(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_manifest_says_what_the_module_takes() {
    let bytes = module(CONSTANT, "{}");
    let program = load(&bytes);
    assert!(is_wasm(&bytes) && !is_wasm(b"saga: order"));
    let reference = program.reference();
    assert_eq!((reference.saga.as_str(), reference.version), ("order", 2));
    assert_ne!(reference.hash, load(&module(CONSTANT, "[]")).reference().hash);
    let triggers = program.manifest().triggers.iter().map(|t| (t.kind.as_str(), t.starts));
    assert_eq!(
        triggers.collect::<Vec<_>>(),
        [("Cancelled", false), ("OrderPlaced", true), ("StockReserved", false)]
    );
    assert_eq!(program.manifest().effects[0].as_str(), "payments.charge");
    assert_eq!(program.manifest().commands, ["inventory.ReserveStock", "shipping.Ship"]);
}

#[test]
fn events_are_correlated_without_running_the_module() {
    let program = load(&module(HOSTILE, "{}"));
    let of = |kind, data| program.correlate(&event(kind, data));
    assert_eq!(of("OrderPlaced", json!({"orderId": 17})).unwrap().as_str(), "17");
    assert_eq!(of("StockReserved", json!({"order": {"id": "o-1"}})).unwrap().as_str(), "o-1");
    assert!(matches!(of("StockReserved", json!({})), Err(Fault::Schema(_))));
    let enveloped =
        Event { correlation: Some(CorrelationId::new("o-2").unwrap()), ..event("Cancelled", json!({})) };
    assert_eq!(program.correlate(&enveloped).unwrap().as_str(), "o-2");
}

#[test]
fn a_module_is_told_its_state_the_stimulus_and_the_context() {
    let program = load(&module(ECHO, ""));
    let context = json!({"tenant": "acme", "saga": "order", "correlation": "o-1", "version": 3, "now": 1000});
    let check = |state: Option<&[u8]>, stimulus: &Stimulus<'_>, mut expected: Value| {
        expected["context"] = context.clone();
        let state_before = state.map_or(Value::Null, |state| serde_json::from_slice(state).unwrap());
        let transition = applied(show(&program, state, stimulus));
        assert_eq!(program.show(&transition.state).unwrap(), json!([state_before, expected]));
    };
    let placed = event("OrderPlaced", json!({"a": 1}));
    let told = json!({
        "id": "e1", "type": "OrderPlaced", "source": "urn:shop", "subject": null, "time": 7, "schemaVersion": 1,
        "data": {"a": 1},
    });
    check(None, &Stimulus::Event(&placed), json!({"kind": "event", "event": told}));
    let paid = Verdict::Succeeded { event: None, payload: json!({"id": 9}) };
    check(
        Some(b"[1]"),
        &Stimulus::Outcome { tag: "charge", verdict: &paid },
        json!({"kind": "outcome", "outcome":
            {"tag": "charge", "verdict": "succeeded", "event": null, "payload": {"id": 9}, "failure": null}}),
    );
    let failure = Failure { code: "http_503".to_owned(), message: "busy".to_owned() };
    let late = Verdict::TimedOut { failure };
    check(
        Some(b"[1]"),
        &Stimulus::Outcome { tag: "charge", verdict: &late },
        json!({"kind": "outcome", "outcome": {"tag": "charge", "verdict": "timedOut", "event": null, "payload": null,
            "failure": {"code": "http_503", "message": "busy"}}}),
    );
    check(Some(b"{}"), &Stimulus::Timer { name: "pay" }, json!({"kind": "timer", "timer": {"name": "pay"}}));
    let cancel = json!({"kind": "cancel", "cancel": {"reason": "wish"}});
    check(Some(b"{}"), &Stimulus::Cancel { reason: "wish" }, cancel);
    check(Some(b"{}"), &Stimulus::Retry, json!({"kind": "retry"}));
    check(Some(b"{}"), &Stimulus::Skip, json!({"kind": "skip"}));
    check(Some(b"{}"), &Stimulus::ForceComplete, json!({"kind": "forceComplete"}));
}

#[test]
fn an_answer_becomes_a_transition() {
    let answer = json!({
        "state": {"paid": true},
        "status": "compensating",
        "work": [
            {"command": {"tag": "reserve", "name": "inventory.ReserveStock", "payload": {"n": 1}}},
            {"command": {"tag": "ship", "name": "shipping.Ship", "id": "s-1", "confirm": true, "timeoutMs": 5}},
            {"effect": {"tag": "charge", "name": "payments.charge", "payload": 1, "timeoutMs": 60_000,
                "retry": {"attempts": 3, "backoffMs": 100}}},
            {"fact": {"type": "OrderFailed", "data": {"why": "x"}}},
            {"start": {"tag": "parcel", "saga": "parcel", "correlation": "p-1", "data": {"n": 1}}},
            {"stop": {"saga": "parcel", "correlation": "p-2", "reason": "lost"}},
        ],
        "tasks": [
            {"open": {"tag": "approve", "title": "Approve", "roles": ["clerk"], "due": 9, "outcomes": ["Approved"]}},
            {"assign": {"tag": "approve", "assignee": "ada"}},
            {"close": {"tag": "approve"}},
        ],
        "timers": [{"arm": {"name": "pay", "afterMs": 30}}, {"cancel": {"name": "ship"}}],
        "waits": [{"kind": "outcome", "name": "charge", "until": 9}],
        "reference": "o-1",
        "failure": {"code": "declined", "message": "no"},
        "note": "charged",
    });
    let transition = applied(answered(&answer.to_string()));
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
            "start parcel",
            "stop parcel"
        ]
    );
    assert_eq!(transition.tasks.len(), 3);
    let Work::Command(reserve) = &transition.work[0] else { panic!("no command") };
    assert_eq!(reserve.aggregate_id, "o-1");
    let name = |text| Name::new(text).unwrap();
    let timers = [
        TimerChange::Arm { name: name("pay"), due: Timestamp::from_millis(1_030) },
        TimerChange::Cancel { name: name("ship") },
    ];
    assert_eq!(transition.timers, timers);
    assert_eq!((transition.waits[0].kind, transition.waits[0].name.as_str()), (WaitKind::Outcome, "charge"));
    assert_eq!(transition.failure.unwrap().code, "declined");
    assert_eq!((transition.reference.as_deref(), transition.note.as_str()), (Some("o-1"), "charged"));
    let shortest = applied(answered(r#"{"state":1}"#));
    assert_eq!((shortest.status, shortest.note.as_str()), (Status::Running, "OrderPlaced"));
}

#[test]
fn a_module_may_ignore_refuse_and_reject_with_its_own_words() {
    assert_eq!(answered(r#"{"ignored":"a duplicate"}"#), Ok(Reaction::Ignored("a duplicate".into())));
    assert_eq!(answered(r#"{"refused":"it has shipped"}"#), Ok(Reaction::Refused("it has shipped".into())));
    assert_eq!(answered(r#"{"rejected":"no total"}"#), Err(Fault::Schema("no total".to_owned())));
}

#[test]
fn a_module_is_not_asked_about_what_cannot_concern_it() {
    let program = load(&module(HOSTILE, ""));
    let ignored =
        |state, stimulus: &Stimulus<'_>| matches!(show(&program, state, stimulus), Ok(Reaction::Ignored(_)));
    assert!(ignored(None, &Stimulus::Event(&event("StockReserved", json!({})))));
    assert!(ignored(Some(b"1"), &Stimulus::Event(&event("Unknown", json!({})))));
    assert!(ignored(None, &Stimulus::Timer { name: "pay" }));
}

#[test]
fn an_answer_that_is_none_breaks_and_says_what_is_wrong() {
    #[track_caller]
    fn check(answer: &str, says: &str) {
        let why = broken(answered(answer));
        assert!(why.contains(says), "{why}");
    }
    check("", "its answer is not what it should be");
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
        r#"{"state":1,"work":[{"stop":{"saga":"x","correlation":"c","reason":""}}]}"#,
        "the saga `x`, which its manifest",
    );
    check(r#"{"state":1,"work":[{"effect":{"tag":"","name":"payments.charge"}}]}"#, "name is empty");
    check(
        r#"{"state":1,"work":[{"effect":{"tag":"a","name":"payments.charge","retry":{"attempts":0}}}]}"#,
        "no attempt",
    );
    check(r#"{"state":1,"work":[{"fact":{"type":"a\u0000","data":1}}]}"#, "control character");
    check(r#"{"state":1,"timers":[{"arm":{"name":"a","afterMs":-1}}]}"#, "invalid value");
    check(&format!(r#"{{"ignored":"{}"}}"#, "x".repeat(5_000)), "the `ignored` of its answer is 5000 bytes");
    check(&format!(r#"{{"state":"{}"}}"#, "x".repeat(300_000)), "its state would be 300002 bytes");
    check(&format!(r#"{{"state":{}1{}}}"#, "[".repeat(65), "]".repeat(65)), "deeper than 64");
    let nested = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    check(
        &format!(r#"{{"state":1,"work":[{{"fact":{{"type":"A","data":{nested}}}}}]}}"#),
        "the payload of A",
    );
    let many = vec![json!({"fact": {"type": "A"}}); 1_001];
    check(&json!({"state": 1, "work": many}).to_string(), "1001 work, the limit is 1000");
}

#[test]
fn the_same_bytes_lead_to_the_same_answer() {
    let program = load(&module(ECHO, ""));
    let placed = event("OrderPlaced", json!({"b": 1.5, "a": [1, 2]}));
    let first = show(&program, None, &Stimulus::Event(&placed));
    assert!((0..50).all(|_| show(&program, None, &Stimulus::Event(&placed)) == first));
}

/// Runs it and demands that it ended in time: far more than it takes, far less than for ever.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "that something is bounded in time is shown by the time")]
fn in_time<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let begin = std::time::Instant::now();
    let result = run();
    assert!(begin.elapsed() < Duration::from_mins(1), "{what} took {:?}", begin.elapsed());
    result
}

#[test]
fn a_module_that_misbehaves_is_stopped_and_its_fuel_is_named() {
    let program = load(&module(HOSTILE, ""));
    let check = |state: &str, says: &str| {
        let quoted = format!("\"{state}\"");
        let why = in_time(state, || broken(show(&program, Some(quoted.as_bytes()), &Stimulus::Retry)));
        assert!(why.contains(says) && why.contains(&format!(" of {MAX_FUEL}, memory: ")), "{state}: {why}");
    };
    check("loop", "it ran out of fuel");
    check("fill", "it ran out of fuel");
    check("grow", "it asked for more than 256 pages of memory");
    check("table", "a table of more than 10000 elements");
    check("recurse", "it trapped: call stack exhausted");
    check("outside", "lies outside its memory");
    check("big", "its answer is 2147483647 bytes long");
    check("x", "it trapped: wasm `unreachable` instruction executed");
}

#[test]
fn a_call_cannot_cost_much_more_time_than_fuel() {
    let stopped = |body: &str| {
        let program = load(&module(&LOCALS.replace("LOCALS", body), ""));
        let why = in_time("a loop of calls", || broken(show(&program, Some(b"1"), &Stimulus::Retry)));
        assert!(why.contains("ran out of fuel"), "{why}");
    };
    let locals = |count: usize| format!("(local {})", "i64 ".repeat(count));
    stopped(&locals(1_000));
    let found = problems(&module(&LOCALS.replace("LOCALS", &locals(1_001)), ""));
    assert!(found[0].contains("function 0 has 1001 local variables, the limit is 1000"), "{found:?}");
    // Operands that are never pushed take their place in the frame too.
    let operands = format!("{}{}", "i64.const 1 ".repeat(20_000), "drop ".repeat(20_000));
    stopped(&format!("(local i64) i32.const 0 if {operands} end"));
    stopped(&format!(
        "(local i64) i32.const 0 if {}{} end",
        "i32.const 1 memory.size ".repeat(10_000),
        "drop ".repeat(20_000)
    ));
}

#[test]
fn a_module_with_imports_is_refused_import_by_import() {
    let found = problems(&module(IMPORTS, ""));
    assert_eq!(
        found[..2],
        [
            "order.saga.wasm: imports: it imports `env.abort`; a saga's module may import nothing; \
             compile AssemblyScript with `--use abort=` and your own function",
            "order.saga.wasm: imports: it imports `wasi_snapshot_preview1.random_get`; a saga's module may import \
             nothing; build for wasm32-unknown-unknown, without WASI",
        ]
    );
    assert!(found[2].contains("`alloc(i32) -> i32`, but its `alloc` is (i64) -> (i32)"), "{found:?}");
    assert!(found[3].contains("it must export `apply(i32, i32, i32, i32) -> i64`"), "{found:?}");
}

#[test]
fn a_wrong_manifest_is_refused_with_its_place() {
    #[track_caller]
    fn check(change: impl Fn(&mut Value), says: &str) {
        let mut written = manifest();
        change(&mut written);
        let found = problems(&module_with(CONSTANT, &written.to_string(), "{}"));
        assert!(found.iter().any(|problem| problem.contains(says)), "{found:?}");
    }
    check(|m| m["version"] = json!(0), "orlog.manifest.version: versions are counted from 1");
    check(|m| m["saga"] = json!(""), "saga name is empty");
    check(|m| m["sga"] = json!(""), "unknown field `sga`");
    check(|m| m["events"] = json!([]), "orlog.manifest.events: no event begins an instance");
    check(
        |m| m["events"][1]["type"] = json!("StockReserved"),
        "orlog.manifest.events[1].type: the event is listed twice",
    );
    check(
        |m| m["events"][0]["correlate"] = json!("order..id"),
        "orlog.manifest.events[0].correlate: a path is",
    );
    check(|m| m["commands"][0] = json!("Ship"), "orlog.manifest.commands[0]: `Ship` is no command");
    check(
        |m| m["effects"] = json!(vec!["e"; 2_000]),
        "orlog.manifest.effects: there are 2000, the limit is 1000",
    );
    check(|m| m["saga"] = json!("x".repeat(70_000)), "bytes long, the limit is 65536");
    let without = CONSTANT.replace("(@custom \"orlog.manifest\" \"MANIFEST\")", "");
    let found = problems(&module(&without, "{}"));
    assert!(
        found[0].starts_with("order.saga.wasm: orlog.manifest: the module has no manifest; put JSON such as")
    );
}

#[test]
fn a_manifest_may_be_exported_as_a_function() {
    let manifest = manifest().to_string();
    let text = |body: &str| MANIFEST.replace("BODY", body).replace("LENGTH", &manifest.len().to_string());
    assert_eq!(load(&module(&text(""), "")).reference().version, 2);
    let endless = module(&text("(loop $for_ever (br $for_ever))"), "");
    let found = in_time("an endless manifest", || problems(&endless));
    assert!(found[0].contains("orlog.manifest: manifest: it ran out of fuel"), "{found:?}");
}

#[test]
fn a_start_function_is_metered_like_everything_else() {
    let with = |body: &str| module(&START.replace("BODY", body), "");
    assert_eq!(load(&with("nop")).reference().version, 2);
    for (body, says) in [("(loop $for_ever (br $for_ever))", "ran out of fuel"), ("unreachable", "trapped")] {
        let found = problems(&with(body));
        assert!(
            found[0].contains("the module cannot be instantiated") && found[0].contains(says),
            "{found:?}"
        );
    }
}

#[test]
fn what_is_no_module_is_refused() {
    #[track_caller]
    fn check(bytes: &[u8], says: &str) {
        let found = problems(bytes);
        assert!(found[0].contains(says), "{found:?}");
    }
    check(b"saga: order", "it is no WebAssembly module");
    check(b"\0asm", "the module is refused");
    check(b"\0asm\x0d\0\x01\0", "it is a WebAssembly component");
    check(&vec![0; MAX_MODULE_BYTES + 1], "the module is larger than 8388608 bytes");
    let whole = module(CONSTANT, "{}");
    check(&whole[..whole.len() / 2], "the module is refused");
}

#[test]
fn a_module_that_is_hostile_in_size_or_depth_is_refused_or_loaded_in_bounded_time() {
    let with = |what: &str| CONSTANT.replace("(global $free", &format!("{what} (global $free"));
    let refused = |text: String, says: &str| {
        let bytes = module(&text, "");
        let found = in_time(says, || problems(&bytes));
        assert!(found[0].contains(says), "{found:?}");
    };
    // Blocks in blocks cost no native stack: the module is well formed and loads.
    let nested = with(&format!("(func {} {})", "block ".repeat(100_000), "end ".repeat(100_000)));
    in_time("nested blocks", || load(&module(&nested, "{}")));
    refused(CONSTANT.replace("16)", "257)"), "its memory begins with 257 pages, the limit is 256");
    refused(with(&"(func) ".repeat(10_001)), "10000 functions");
    refused(with("(memory 1)"), "limit of 1 memories");
    refused(with("(table 10001 funcref)"), "cannot be instantiated");
    refused(with("(data (i32.const 16777216) \"x\")"), "cannot be instantiated");
    refused(
        with(&format!("(data (i32.const 0) \"{}\")", "x".repeat(4 * 1024 * 1024))),
        "cannot be instantiated",
    );
}

#[test]
fn a_state_is_migrated_by_the_module() {
    let old = load(&module(ECHO, ""));
    let key = key();
    let context = Context { key: &key, version: 3, now: Timestamp::from_millis(1_000) };
    let migrated = |answer: &str| load(&module(CONSTANT, answer)).migrate(&old, b"[1]", &context);
    let tags = json!([{"from": "pay", "to": "charge"}]);
    let moved = migrated(&json!({"state": [2], "status": "compensating", "tags": tags}).to_string()).unwrap();
    assert_eq!(
        (moved.transition.state.as_slice(), moved.transition.status),
        (&b"[2]"[..], Status::Compensating)
    );
    assert!(moved.mapped && moved.tags[0].1.as_str() == "charge");
    assert!(!migrated(r#"{"state":1,"status":"running"}"#).unwrap().mapped);
    assert_eq!(migrated(r#"{"blocked":["pay is open"]}"#), Err(vec!["pay is open".to_owned()]));
    assert_eq!(migrated(r#"{"state":1}"#).unwrap_err().len(), 1);
    assert_eq!(old.migrate(&old, b"[1]", &context), Err(vec!["the module exports no `migrate`".to_owned()]));
}
