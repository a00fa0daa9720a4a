//! States in words: what people are shown of an instance.

use orlog_model::EventType;
use orlog_program::{Answer, Compiled, Definition, Do, Native, NativeProgram, Orders, Program, Trigger};
use orlog_testkit::definition_suite::{Life, failed, succeeded};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn order() -> Compiled {
    Definition::builder("order")
        .start("OrderPlaced")
        .correlate("orderId")
        .var("orderId", json!("=event.orderId"))
        .step("reserve", Do::effect("http.post").data(json!({})))
        .undo(Do::effect("http.post").data(json!({})))
        .step("charge", Do::effect("http.post").data(json!({})))
        .timeout(std::time::Duration::from_mins(30))
        .build()
        .expect("the order saga is well formed")
}

fn shown(program: &dyn Program, life: &Life<'_>) -> Value {
    program.show(life.state()).expect("it is a state of this program")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn words(shown: &Value) -> Vec<(&str, &str)> {
    let steps = shown["steps"].as_array().expect("a list");
    steps.iter().map(|step| (text(&step["id"]), text(&step["state"]))).collect()
}

#[test]
fn a_definition_shows_its_steps_by_name_in_their_order() {
    let saga = order();
    let mut life = Life::new(&saga);
    life.event("OrderPlaced", json!({ "orderId": "o1" })).unwrap();
    let begun = shown(&saga, &life);
    assert_eq!(words(&begun), [("reserve", "running"), ("charge", "pending")]);
    assert_eq!((&begun["vars"], &begun["phase"]), (&json!({ "orderId": "o1" }), &json!("running")));
    assert_eq!((&begun["failure"], &begun["steps"][1]["until"]), (&Value::Null, &Value::Null));
    life.outcome("reserve", &succeeded(json!({}))).unwrap();
    let halfway = shown(&saga, &life);
    assert_eq!(words(&halfway), [("reserve", "done"), ("charge", "running")]);
    assert!(halfway["steps"][1]["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{halfway}");
}

#[test]
fn a_definition_shows_why_and_what_it_undoes() {
    let saga = order();
    let mut life = Life::new(&saga);
    life.event("OrderPlaced", json!({ "orderId": "o1" })).unwrap();
    life.outcome("reserve", &succeeded(json!({}))).unwrap();
    life.outcome("charge", &failed("declined")).unwrap();
    let turned = shown(&saga, &life);
    assert_eq!(words(&turned), [("reserve", "undoing"), ("charge", "failed")]);
    assert_eq!(turned["phase"], "compensating");
    assert_eq!(
        (&turned["failure"]["code"], &turned["failure"]["step"]),
        (&json!("declined"), &json!("charge"))
    );
    life.outcome("undo:reserve", &succeeded(json!({}))).unwrap();
    assert_eq!(words(&shown(&saga, &life)), [("reserve", "undone"), ("charge", "failed")]);
}

#[test]
fn what_is_no_state_of_the_program_is_not_shown() {
    assert_eq!(order().show(b"junk"), None);
    assert_eq!(program().show(b"junk"), None);
}

#[derive(Serialize, Deserialize)]
struct Count {
    seen: u32,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "data")]
enum Seen {
    Counted { by: u32 },
}

struct Counter;

impl Native for Counter {
    type State = Count;
    type Event = Seen;

    fn triggers(&self) -> Vec<Trigger> {
        vec![Trigger { kind: EventType::new("Counted").expect("a short word"), starts: true }]
    }

    fn correlate(&self, _: &orlog_model::Event) -> Result<orlog_model::CorrelationId, String> {
        orlog_model::CorrelationId::new("all").map_err(|error| error.to_string())
    }

    fn on(&self, state: Option<Count>, event: Seen, _: &mut Orders<'_>) -> Answer<Count> {
        let Seen::Counted { by } = event;
        Answer::Become(Count { seen: state.map_or(0, |state| state.seen) + by })
    }
}

fn program() -> NativeProgram<Counter> {
    NativeProgram::new("counter", 1, Counter).expect("a good name")
}

#[test]
fn a_native_saga_shows_its_state_as_json() {
    let program = program();
    let mut life = Life::new(&program);
    life.event("Counted", json!({ "by": 3 })).unwrap();
    assert_eq!(shown(&program, &life), json!({ "seen": 3 }));
}
