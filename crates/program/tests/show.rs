//! Readable views of states for display.

use orlog_model::EventType;
use orlog_program::{
    CompiledDefinition, EventSubscription, Manifest, NativeProgram, NativeResult, NativeSaga,
    Program, SagaDecision, SagaState, TransitionBuilder, compile_yaml, event_data,
};
use orlog_testkit::definition_suite::{InstanceDriver, failed, succeeded};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const ORDER: &str = "\
saga: order
version: 1
start: OrderPlaced
correlate: orderId
vars: { orderId: =event.orderId }
steps:
  - { id: reserve, do: { effect: http.post, data: {} }, undo: { effect: http.post, data: {} } }
  - { id: charge, do: { effect: http.post, data: {} }, timeout: 30m }
";

fn order() -> CompiledDefinition {
    compile_yaml(ORDER, "order.saga.yaml").expect("the order saga is valid")
}

fn view(program: &dyn Program, run: &InstanceDriver<'_>) -> Value {
    program
        .view_state(run.state())
        .expect("the state belongs to this program")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn step_states(view: &Value) -> Vec<(&str, &str)> {
    let steps = view["steps"].as_array().expect("a list");
    steps
        .iter()
        .map(|step| (text(&step["id"]), text(&step["state"])))
        .collect()
}

#[test]
fn state_view_lists_steps_in_order() {
    let saga = order();
    let mut run = InstanceDriver::new(&saga);
    run.event("OrderPlaced", json!({ "orderId": "o1" }))
        .unwrap();
    let started = view(&saga, &run);
    assert_eq!(
        step_states(&started),
        [("reserve", "running"), ("charge", "pending")]
    );
    assert_eq!(
        (&started["vars"], &started["phase"]),
        (&json!({ "orderId": "o1" }), &json!("running"))
    );
    assert_eq!(
        (&started["failure"], &started["steps"][1]["until"]),
        (&Value::Null, &Value::Null)
    );
    run.outcome("reserve", &succeeded(json!({}))).unwrap();
    let halfway = view(&saga, &run);
    assert_eq!(
        step_states(&halfway),
        [("reserve", "completed"), ("charge", "running")]
    );
    assert!(
        halfway["steps"][1]["until"]
            .as_str()
            .is_some_and(|until| until.ends_with('Z')),
        "{halfway}"
    );
}

#[test]
fn state_view_shows_failure_and_compensation() {
    let saga = order();
    let mut run = InstanceDriver::new(&saga);
    run.event("OrderPlaced", json!({ "orderId": "o1" }))
        .unwrap();
    run.outcome("reserve", &succeeded(json!({}))).unwrap();
    run.outcome("charge", &failed("declined")).unwrap();
    let compensating = view(&saga, &run);
    assert_eq!(
        step_states(&compensating),
        [("reserve", "compensating"), ("charge", "failed")]
    );
    assert_eq!(compensating["phase"], "compensating");
    assert_eq!(
        (
            &compensating["failure"]["code"],
            &compensating["failure"]["step"]
        ),
        (&json!("declined"), &json!("charge"))
    );
    run.outcome("compensate:reserve", &succeeded(json!({})))
        .unwrap();
    assert_eq!(
        step_states(&view(&saga, &run)),
        [("reserve", "compensated"), ("charge", "failed")]
    );
}

#[test]
fn foreign_state_has_no_view() {
    assert_eq!(order().view_state(b"junk"), None);
    assert_eq!(program().view_state(b"junk"), None);
}

#[derive(Serialize, Deserialize)]
struct Count {
    seen: u32,
}

impl SagaState for Count {}

#[derive(Deserialize)]
struct Counted {
    by: u32,
}

struct Counter;

impl NativeSaga for Counter {
    type State = Count;
    const NOUN: &'static str = "counter";

    fn manifest(&self) -> Manifest {
        Manifest {
            subscriptions: vec![EventSubscription {
                kind: EventType::new("Counted").expect("a valid event type"),
                starts: true,
            }],
            ..Manifest::default()
        }
    }

    fn correlate(&self, _: &orlog_model::Event) -> Result<orlog_model::CorrelationId, String> {
        orlog_model::CorrelationId::new("all").map_err(|error| error.to_string())
    }

    fn on_event(
        &self,
        state: Option<Count>,
        event: &orlog_model::Event,
        _: &mut TransitionBuilder<'_>,
    ) -> NativeResult<Count> {
        let Counted { by } = event_data(event)?;
        Ok(SagaDecision::Transition(Count {
            seen: state.map_or(0, |state| state.seen) + by,
        }))
    }
}

fn program() -> NativeProgram<Counter> {
    NativeProgram::new("counter", 1, Counter).expect("a valid name")
}

#[test]
fn native_saga_state_view_is_json() {
    let program = program();
    let mut run = InstanceDriver::new(&program);
    run.event("Counted", json!({ "by": 3 })).unwrap();
    assert_eq!(view(&program, &run), json!({ "seen": 3 }));
}
