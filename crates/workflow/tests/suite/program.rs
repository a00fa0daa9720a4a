//! Workflows as programs: decisions about inputs, without a node.

use std::sync::Arc;
use std::time::Duration;

use orlog_model::{Failure, Status, TimerChange, WorkOutcome};
use orlog_program::{Program, ProgramInput};
use orlog_testkit::definition_suite::{InstanceDriver, failed, succeeded};
use orlog_workflow::{NodeParts, NodeWorkflow, Retry, Workflow};
use serde_json::{Value, json};

use crate::tasks::{Order, step, undo};

fn program(workflow: NodeWorkflow) -> Arc<dyn Program> {
    NodeParts::of([workflow]).expect("valid").programs.remove(0)
}

fn order() -> Value {
    json!(Order {
        key: "k".to_owned(),
        ..Order::new()
    })
}

/// Three tasks, two of them with a compensation, and a signal with a limit.
fn purchase() -> Workflow<Order, (Order, u32)> {
    let workflow = Workflow::builder("purchase")
        .then("reserve", step)
        .undo(undo)
        .then("charge", step)
        .timeout(Duration::from_secs(30))
        .retry(
            Retry::attempts(3)
                .delay(Duration::from_secs(1))
                .max_delay(Duration::from_secs(4)),
        )
        .undo(undo)
        .undo_unknown(|_: &orlog_workflow::Context, _: Order| async { Ok(()) })
        .signal::<u32>("approve")
        .timeout(Duration::from_hours(1));
    workflow.build().expect("valid")
}

fn started(program: &dyn Program) -> InstanceDriver<'_> {
    let mut run = InstanceDriver::new(program);
    run.event("purchase.start", order()).expect("starts");
    run
}

fn timed_out() -> WorkOutcome {
    let (code, message) = ("timeout".to_owned(), "no response".to_owned());
    WorkOutcome::TimedOut {
        failure: Failure { code, message },
    }
}

/// Requirements: T3, T5.
#[test]
fn state_has_the_current_and_the_completed_steps() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    assert_eq!(run.state_view()["current"], json!(["reserve"]));
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &succeeded(order())).expect("applied");
    let view = run.state_view();
    assert_eq!(
        (&view["phase"], &view["current"], &view["completed"]),
        (
            &json!("running"),
            &json!(["approve"]),
            &json!(["reserve", "charge"])
        )
    );
    assert_eq!(view["steps"][2]["state"], "running");
    assert_eq!(view["vars"]["approve"]["key"], "k");
    assert_eq!(run.timers(), ["approve"]);
    run.event("approve", json!(7)).expect("applied");
    assert_eq!((run.status(), run.timers()), (Status::Completed, vec![]));
    assert_eq!(
        run.work().last().and_then(|work| work.payload()),
        Some(&json!([order(), 7]))
    );
    assert_eq!(
        run.state_view()["completed"],
        json!(["reserve", "charge", "approve"])
    );
}

/// Requirements: S4.
#[test]
fn effects_have_the_retries_and_the_time_limit_of_their_task() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    let [reserve, charge] =
        [0, 1].map(|index| run.work()[index].effect().expect("an effect").clone());
    assert_eq!(
        (reserve.name.as_str(), reserve.timeout),
        ("purchase.reserve", None)
    );
    assert_eq!(charge.payload["key"], "k");
    let retry = charge.retry.expect("a policy");
    assert_eq!(
        (retry.max_attempts, retry.initial_backoff),
        (Some(3), Some(Duration::from_secs(1)))
    );
    assert_eq!(
        charge.timeout,
        Some(Duration::from_secs(3 * 30 + 2 * 4)),
        "three attempts and two delays"
    );
}

/// Requirements: T3.
#[test]
fn failure_compensates_in_reverse_order_and_names_the_step() {
    let program = program(purchase().on_node().failed_event("PurchaseFailed"));
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &succeeded(order())).expect("applied");
    run.advance(Duration::from_hours(1))
        .expect("the timer fires");
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Compensating, vec!["compensate:charge".to_owned()])
    );
    let payload = run
        .work()
        .last()
        .and_then(|work| work.payload())
        .expect("a payload");
    assert_eq!(
        (&payload["input"]["key"], &payload["output"]["key"]),
        (&json!("k"), &json!("k"))
    );
    run.outcome("compensate:charge", &succeeded(json!(null)))
        .expect("applied");
    run.outcome("compensate:reserve", &succeeded(json!(null)))
        .expect("applied");
    assert_eq!(run.status(), Status::Failed);
    let fact = run.work().last().expect("a fact");
    assert_eq!(fact.label(), "PurchaseFailed");
    assert_eq!(
        fact.payload(),
        Some(&json!({
            "step": "approve", "code": "signal_timed_out", "message": "signal \"approve\" did not arrive within 3600s"
        }))
    );
}

/// Requirements: S4, T3.
#[test]
fn unknown_outcome_is_compensated_without_output() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &timed_out()).expect("applied");
    let last = run
        .work()
        .last()
        .and_then(|work| work.effect())
        .expect("an effect");
    assert_eq!(last.name.as_str(), "purchase.charge.undo_unknown");
    assert_eq!(last.payload.get("output"), None);
    assert_eq!(
        run.state_view()["failure"],
        json!({ "code": "timeout", "message": "no response", "step": "charge" })
    );
}

/// Requirements: T4.
#[test]
fn result_of_another_type_is_a_contract_violation() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(json!({ "receipt": 1 })))
        .expect("applied");
    assert_eq!(run.status(), Status::Failed);
    let failure = run.failure().expect("a failure");
    assert_eq!(failure.code, "contract_violation");
    assert_eq!(
        failure.message,
        "the result of step \"reserve\" is not a `Order`: missing field `key`"
    );
}

/// Requirements: T4.
#[test]
fn task_that_violated_its_contract_may_have_had_its_effect() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &succeeded(json!(1)))
        .expect("applied");
    assert_eq!(
        run.labels().last().map(String::as_str),
        Some("purchase.charge.undo_unknown")
    );
}

#[test]
fn effect_of_others_has_the_retries_of_its_upstream_unless_the_workflow_sets_them() {
    let workflow = |retry: Retry| {
        let workflow = Workflow::builder::<Order>("purchase")
            .remote::<Order>("charge", "bank.charge")
            .retry(retry);
        let workflow = workflow
            .undo_remote("bank.refund")
            .then("end", step)
            .build()
            .expect("valid");
        program(workflow.on_node())
    };
    for (attempts, expected) in [(1, None), (3, Some(Some(3)))] {
        let program = workflow(Retry::attempts(attempts));
        let mut run = started(&*program);
        run.outcome("charge", &succeeded(order())).expect("applied");
        run.outcome("end", &failed("broken")).expect("applied");
        let retries = run.work().iter().filter_map(|work| work.effect());
        let retries: Vec<_> = retries
            .map(|effect| effect.retry.map(|retry| retry.max_attempts))
            .collect();
        assert_eq!(retries, [expected, Some(Some(1)), None]);
    }
}

/// Requirements: T4.
#[test]
fn late_results_are_ignored() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &failed("sold_out"))
        .expect("applied");
    assert_eq!(run.status(), Status::Failed);
    for tag in ["reserve", "charge", "compensate:reserve"] {
        let reason = run.outcome(tag, &succeeded(order())).expect_err("late");
        assert!(reason.ends_with("no longer awaited"), "{reason}");
    }
}

#[test]
fn input_of_another_type_starts_nothing() {
    let program = program(purchase().on_node());
    let error = InstanceDriver::new(&*program).event("purchase.start", json!({ "key": 1 }));
    assert_eq!(
        error.expect_err("rejected"),
        "invalid input of workflow \"purchase\": not a `Order`: invalid type: integer `1`, expected a string"
    );
}

#[test]
fn workflow_without_input_starts_without_data() {
    let workflow = Workflow::builder("tick")
        .map("now", |(): ()| async { Ok(1) })
        .build()
        .expect("valid");
    let program = program(workflow.on_node());
    let mut run = InstanceDriver::new(&*program);
    run.event("tick.start", json!({})).expect("starts");
    run.outcome("now", &succeeded(json!(1))).expect("applied");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn signal_with_another_payload_is_rejected_and_an_early_one_is_kept() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    let error = run.event("approve", json!("yes")).expect_err("rejected");
    assert!(
        error.starts_with("the payload of signal \"approve\" is invalid: not a `u32`"),
        "{error}"
    );
    assert_eq!(
        run.event("other", json!(1)).expect_err("unknown"),
        "the workflow has no signal of this name"
    );
    run.event("approve", json!(5)).expect("kept");
    assert_eq!(run.state_view()["signals"], json!(["approve"]));
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &succeeded(order())).expect("applied");
    assert_eq!((run.status(), run.timers()), (Status::Completed, vec![]));
}

#[test]
fn cancellation_compensates_after_started_tasks_have_ended() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.cancel("changed their mind").expect("applied");
    assert_eq!(
        (run.status(), run.compensated()),
        (Status::Compensating, vec![])
    );
    assert!(run.cancel("again").is_err());
    run.outcome("charge", &succeeded(order())).expect("applied");
    for step in ["charge", "reserve"] {
        run.outcome(&format!("compensate:{step}"), &succeeded(json!(null)))
            .expect("applied");
    }
    assert_eq!(run.status(), Status::Cancelled);
    assert_eq!(run.state_view()["failure"]["message"], "changed their mind");
}

#[test]
fn stuck_compensation_is_retried_skipped_or_forced() {
    for decision in [
        ProgramInput::Retry,
        ProgramInput::Skip,
        ProgramInput::ForceComplete,
    ] {
        let program = program(purchase().on_node());
        let mut run = started(&*program);
        run.outcome("reserve", &succeeded(order()))
            .expect("applied");
        run.outcome("charge", &failed("declined")).expect("applied");
        assert!(run.take(&decision).is_err(), "it is not stuck yet");
        run.outcome("compensate:reserve", &failed("unavailable"))
            .expect("applied");
        assert_eq!(run.status(), Status::Stuck);
        assert_eq!(
            run.state_view()["stuck"],
            json!({ "step": "reserve", "action": "compensate" })
        );
        run.take(&decision).expect("applied");
        if decision == ProgramInput::Retry {
            assert_eq!(run.status(), Status::Compensating);
            run.outcome("compensate:reserve", &succeeded(json!(null)))
                .expect("applied");
        }
        assert_eq!(run.status(), Status::Failed, "{decision:?}");
    }
}

#[test]
fn timer_of_a_clock_that_was_set_back_is_due() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &succeeded(order())).expect("applied");
    run.fire("approve", Duration::ZERO).expect("applied");
    assert_eq!(run.status(), Status::Compensating);
}

#[test]
fn signal_ends_its_timer() {
    let program = program(purchase().on_node());
    let mut run = started(&*program);
    run.outcome("reserve", &succeeded(order()))
        .expect("applied");
    run.outcome("charge", &succeeded(order())).expect("applied");
    run.event("approve", json!(1)).expect("applied");
    assert!(
        matches!(run.last_timers(), [TimerChange::Cancel { name }] if name.as_str() == "approve")
    );
}

#[test]
fn problems_of_a_deployment_name_their_place() {
    let workflow = |name: &str, step_name: &str| {
        Workflow::builder(name)
            .then(step_name, step)
            .undo(undo)
            .build()
            .expect("valid")
            .on_node()
    };
    let error = NodeParts::of([
        workflow("a", "weigh[1]"),
        workflow("b", "x"),
        workflow("b", "y"),
        workflow("c", "z").version(0),
        workflow("d.e", "f"),
        workflow("d", "e.f"),
    ]);
    assert_eq!(
        error.err().expect("invalid").problems,
        [
            "workflow \"a\": step \"weigh[1]\": the name contains '[', which a node uses in paths; rename the step",
            "workflow \"b\": version 1 is deployed twice, and step \"x\" is missing now; deploy it once, or set another version",
            "workflow \"c\": versions begin with 1; set another with `version`",
            "workflow \"d\": the effect d.e.f is performed by step \"f\" of workflow \"d.e\" and by step \"e.f\" of workflow \"d\"; \
             a function performs one step, give each its own effect",
        ]
    );
}

#[test]
fn steps_are_drawn_like_those_of_a_definition() {
    let ship = Workflow::builder("ship")
        .then("label", step)
        .build()
        .expect("valid");
    let workflow = Workflow::builder("all")
        .fork(|f| f.branch("invoice", step).branch("pack", step))
        .join(
            "both",
            |(order, _): (Order, Order)| async move { Ok(order) },
        )
        .when(
            "express",
            |order: &Order| order.express,
            |b| b.child("ship", &ship),
        )
        .otherwise(|b| b.delay("pause", Duration::from_mins(1)))
        .repeat(
            "poll",
            3,
            |order: &Order| order.express,
            |b| b.then("ask", step).undo(undo),
        )
        .each(
            "parcels",
            |order: &Order| order.parcels.clone(),
            |b| b.map("weigh", |parcel: u32| async move { Ok(parcel) }),
        )
        .build()
        .expect("valid");
    let program = program(workflow.on_node());
    let steps = program
        .drawing()
        .expect("a drawing")
        .steps
        .iter()
        .map(|step| {
            let after = step
                .after
                .iter()
                .flat_map(|after| &after.steps)
                .map(ToString::to_string);
            format!("{} after {}", step.id, after.collect::<Vec<_>>().join(", "))
        });
    assert_eq!(
        steps.collect::<Vec<_>>(),
        [
            "invoice after ",
            "pack after ",
            "both after invoice, pack",
            "express after both",
            "ship/label after express",
            "pause after express",
            "ask after pause, ship/label",
            "poll after ask",
            "weigh after poll",
        ]
    );
}
