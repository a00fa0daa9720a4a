//! Sagas that continue without end stop the simulator, and the tools say so.

use orlog_model::{EventType, Timestamp};
use orlog_program::{Program, compile_yaml};
use serde_json::json;

use super::*;
use crate::explore::{ExploreOptions, explore};
use crate::runner::{ScenarioRunner, StepError};
use crate::simulate::{ResponsePolicy, SimulateOptions, simulate};
use crate::step::{EventStep, SimulationStep};

/// Saga that restarts each second.
const CLOCK: &str = "
saga: clock
version: 1
start: Go
steps:
  - { id: pause, do: { wait: 1s } }
  - { id: next, do: { restart_as_new: Go } }
";

fn program(text: &str) -> Arc<dyn Program> {
    let compiled = compile_yaml(text, "endless.saga.yaml");
    Arc::new(compiled.unwrap_or_else(|problems| panic!("{problems:?}")))
}

fn runner(program: &Arc<dyn Program>) -> ScenarioRunner {
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(program)]));
    let simulator = Simulator::new(programs, Timestamp::default()).with_max_timers(50);
    ScenarioRunner::new(simulator, program.definition_ref().saga.clone())
}

fn start(data: serde_json::Value) -> SimulationStep {
    SimulationStep::Event(EventStep::new(EventType::new("Go").unwrap(), data))
}

#[test]
fn step_fails_if_a_saga_restarts_without_end() {
    let mut runner = runner(&program(CLOCK));
    runner.run_step(&start(json!({})), None, &mut ()).unwrap();

    let advance = |seconds| SimulationStep::Advance(std::time::Duration::from_secs(seconds));
    runner.run_step(&advance(500), None, &mut ()).unwrap();
    let endless = runner.run_step(&advance(1_000_000), None, &mut ());
    let Err(StepError::Endless(endless)) = endless else {
        panic!("the step has ended: {endless:?}");
    };
    assert_eq!(
        endless.to_string(),
        "clock continues without end: 1050 timers fired while time advanced once, the last one is \
         pause of 1; advance in smaller steps, or give the saga a step that waits"
    );

    // The instance is not complete, so no later step is executed as if it were.
    let later = runner.run_step(&advance(1), None, &mut ());
    assert!(matches!(later, Err(StepError::Endless(_))), "{later:?}");
}

#[test]
fn step_fails_if_a_fact_starts_the_next_instance_without_end() {
    let text = "
saga: chain
version: 1
start: Go
correlate: id
vars: { id: =event.id }
steps:
  - { id: once, do: { effect: e.once }, when: =false }
completed: { fact: Go, data: { id: \"=vars.id + 'x'\" } }
";
    let text = text.replace("vars.id + 'x'", "string(int(vars.id) + 1)");
    let mut runner = runner(&program(&text));
    let endless = runner.run_step(&start(json!({ "id": "1" })), None, &mut ());
    let Err(StepError::Endless(EndlessSaga::Inputs { saga, limit, .. })) = endless else {
        panic!("the step has ended: {endless:?}");
    };
    assert_eq!((saga.as_str(), limit), ("chain", MAX_CONSEQUENCES));
}

#[test]
fn exploration_ends_and_reports_a_saga_without_end() {
    let options = ExploreOptions {
        seed: 1,
        max_runs: 4,
        steps: 12,
    };
    let report = explore(&program(CLOCK), options);
    assert!(report.counterexample.is_none(), "{report:?}");
    let ended = report
        .limits
        .iter()
        .find(|limit| limit.contains("of 4 executions ended early: clock continues without end"));
    assert!(ended.is_some(), "{:?}", report.limits);
}

#[test]
fn simulation_of_a_saga_without_end_stops_and_says_so() {
    let text = "
saga: worker
version: 1
start: Go
steps:
  - { id: work, do: { effect: e.work } }
  - { id: next, do: { restart_as_new: Go } }
";
    let program = program(text);
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let event = |id: &str| Event {
        id: orlog_model::EventId::new(id).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new("Go").unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::default(),
        correlation: Some(orlog_model::CorrelationId::new(id).unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({}),
        user: None,
        attributes: None,
    };
    let options = SimulateOptions {
        responses: ResponsePolicy::ok(),
        run_on_for: std::time::Duration::ZERO,
        record_work: false,
    };
    let report = simulate(programs, &[event("a"), event("b")], &options);
    let stopped = report.stopped.expect("the saga continues without end");
    assert!(stopped.contains("worker/a"), "{stopped}");
    assert_eq!(report.events, 1);
}
