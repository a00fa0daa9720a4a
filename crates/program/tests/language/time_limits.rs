//! Time limits that expressions compute: of steps, compensations, tasks, retries and the saga.

use std::time::Duration;

use orlog_model::{RetryPolicy, Status, TimerChange, Work};
use orlog_program::compile_yaml;
use orlog_testkit::definition_suite::{InstanceDriver, failed};
use serde_json::{Value, json};

use super::{diagnostics, fail, ok, saga, start_run, step_state};

/// Start of each run: 2023-11-14T22:13:20Z.
const DEADLINE: &str = "2023-11-14T23:13:20Z";

pub(super) const LIMITED: &str = "vars: { express: =event.express, limit: =event.limit }
timeout: \"= vars.express ? duration('1h') : duration('720h')\"
steps:
  - id: pay
    do: { effect: payments.charge }
    timeout: =vars.limit
    retry: { max_attempts: 3, initial_backoff: \"=vars.express ? '1s' : '1m'\" }
    undo: { command: payments.Refund, ok: Refunded, timeout: =vars.limit, retry: { max_attempts: 2, initial_backoff: =vars.limit } }
  - { id: paid, do: { event: Paid }, timeout: 3d }
";

fn limited(limit: &Value) -> Value {
    json!({ "express": false, "limit": limit })
}

#[track_caller]
fn until(run: &InstanceDriver<'_>, timer: &str) -> Duration {
    run.time_until(timer)
        .unwrap_or_else(|| panic!("{timer} is not armed: {:?}", run.timers()))
}

#[test]
fn timeout_is_a_duration_a_number_of_seconds_or_a_point_in_time() {
    let saga = saga(LIMITED);
    for (limit, seconds) in [
        (json!("90m"), 5400.0),
        (json!("PT30M"), 1800.0),
        (json!("1.5s"), 1.5),
        (json!(300), 300.0),
        (json!(0.25), 0.25),
        (json!(DEADLINE), 3600.0),
        (json!("2023-11-14T22:00:00Z"), 0.001),
    ] {
        let run = start_run(&saga, limited(&limit));
        let expected = Duration::from_secs_f64(seconds);
        assert_eq!(until(&run, "pay"), expected, "{limit}");
        let Work::Effect(effect) = &run.work()[0] else {
            panic!("an effect")
        };
        assert_eq!(effect.timeout, Some(expected), "{limit}");
        let retry = RetryPolicy {
            max_attempts: Some(3),
            initial_backoff: Some(Duration::from_mins(1)),
        };
        assert_eq!(effect.retry, Some(retry));
    }
}

#[test]
fn timeout_of_the_saga_is_evaluated_at_its_start() {
    let saga = saga(LIMITED);
    for (express, hours) in [(true, 1), (false, 30 * 24)] {
        let mut run = start_run(&saga, json!({ "express": express, "limit": "60d" }));
        assert_eq!(until(&run, "saga"), Duration::from_hours(hours));
        run.advance(Duration::from_hours(hours)).unwrap();
        assert_eq!(run.failure().unwrap().code, "saga_timeout");
    }
}

#[test]
fn step_times_out_at_the_computed_time() {
    let saga = saga(LIMITED);
    let mut run = start_run(&saga, limited(&json!(DEADLINE)));
    run.advance(Duration::from_hours(1) - Duration::from_millis(1))
        .unwrap();
    assert_eq!(step_state(&run, "pay"), "running");
    run.advance(Duration::from_millis(1)).unwrap();
    let failure = run.failure().unwrap();
    assert_eq!(
        (failure.code.as_str(), failure.message.as_str()),
        ("timeout", "pay: no response within the computed timeout")
    );
}

#[test]
fn value_that_is_no_time_limit_fails_the_step() {
    let saga = saga(LIMITED);
    for (limit, expected) in [
        (
            json!("soon"),
            "`soon` is not a duration; write 30m, a positive number of seconds, or a time in RFC 3339",
        ),
        (json!("-5s"), "`-5s` is not a duration"),
        (json!(-1), "-1 is not a duration"),
        (json!(1e300), "is not a duration"),
        (json!(0), "a timeout must be longer than zero"),
        (
            json!("2300-01-01T00:00:00Z"),
            "a timeout must not exceed 100 years",
        ),
        (
            json!(1_700_000_000_000_i64),
            "a timeout must not exceed 100 years",
        ),
        (
            json!(true),
            "a duration must be a text such as 30m or a number of seconds, but is true or false",
        ),
    ] {
        let run = start_run(&saga, limited(&limit));
        let failure = run.failure().expect("the step failed");
        assert_eq!(
            (run.status(), failure.code.as_str()),
            (Status::Failed, "expression_error"),
            "{limit}"
        );
        assert!(
            failure.message.contains(expected),
            "{limit}: {}",
            failure.message
        );
        assert!(
            run.requested().is_empty(),
            "nothing is requested without a valid limit"
        );
    }
}

#[test]
fn saga_timeout_without_a_value_rejects_the_start_event() {
    let saga = saga(
        "vars: { limit: =event.limit }\ntimeout: =vars.limit\nsteps: [{ id: a, do: { event: A } }]",
    );
    let error = InstanceDriver::new(&saga)
        .event("Go", json!({ "limit": "never" }))
        .unwrap_err();
    assert!(
        error.contains("cannot compute the saga timeout: `vars.limit`: `never` is not a duration"),
        "{error}"
    );
}

#[test]
fn computed_backoff_doubles_and_is_evaluated_with_each_retry() {
    let saga = saga(
        "vars: { pause: 10 }
on: { event: Slower, save: { pause: =event.pause } }
steps:
  - { id: ask, do: { command: mail.Ask }, ok: Answered, fail: Rejected, timeout: 1h, retry: { max_attempts: 5, initial_backoff: =vars.pause } }
",
    );
    let mut run = start_run(&saga, json!({}));
    let mut reject = |seconds| {
        run.event("Rejected", json!({})).unwrap();
        assert_eq!(until(&run, "retry:ask"), Duration::from_secs(seconds));
        run.fire("retry:ask", Duration::from_secs(seconds)).unwrap();
    };
    reject(10);
    reject(20);
    run.event("Slower", json!({ "pause": "1m" })).unwrap();
    run.event("Rejected", json!({})).unwrap();
    assert_eq!(until(&run, "retry:ask"), Duration::from_mins(4));
    run.fire("retry:ask", Duration::from_mins(4)).unwrap();
    run.event("Slower", json!({ "pause": [] })).unwrap();
    run.event("Rejected", json!({})).unwrap();
    let failure = run
        .failure()
        .expect("a backoff without a value ends the retries");
    assert_eq!(
        (run.status(), failure.code.as_str()),
        (Status::Failed, "expression_error")
    );
}

#[test]
fn compensation_without_a_valid_limit_is_stuck_until_an_operator_decides() {
    let saga = saga(
        "vars: { limit: 1m }
on: { event: Limit, save: { limit: =event.limit } }
steps:
  - { id: a, do: { effect: e.a }, undo: { command: c.Undo, ok: Released, fail: NotReleased, timeout: =vars.limit, retry: { max_attempts: 2, initial_backoff: =vars.limit } } }
  - { id: b, do: { effect: e.b } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a");
    fail(&mut run, "b");
    assert_eq!(until(&run, "compensate:a"), Duration::from_mins(1));
    run.event("NotReleased", json!({})).unwrap();
    assert_eq!(until(&run, "retry:compensate:a"), Duration::from_mins(1));

    let mut run = start_run(&saga, json!({}));
    run.event("Limit", json!({ "limit": "never" })).unwrap();
    ok(&mut run, "a");
    fail(&mut run, "b");
    assert_eq!(run.status(), Status::Stuck);
    assert_eq!(run.failure().unwrap().code, "expression_error");
    run.skip().unwrap();
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn wait_accepts_durations_of_cel_and_seconds() {
    let saga = saga(
        "vars: { n: =event.n }\nsteps: [{ id: pause, do: { wait: =vars.n } }, { id: more, do: { wait: \"=duration('1.5s')\" } }]",
    );
    for (n, seconds) in [(json!(90), 90), (json!("2m"), 120)] {
        let mut run = start_run(&saga, json!({ "n": n }));
        assert_eq!(until(&run, "pause"), Duration::from_secs(seconds));
        run.fire("pause", Duration::from_secs(seconds)).unwrap();
        assert_eq!(until(&run, "more"), Duration::from_millis(1500));
    }
}

#[test]
fn task_is_escalated_at_the_computed_time() {
    let saga = saga(
        "vars: { urgent: =event.urgent }
steps:
  - id: approve
    do: { human: { title: Approve, escalate: { after: \"=vars.urgent ? '10m' : '1d'\", roles: head } } }
    ok: Approved
    timeout: 3d
",
    );
    for (urgent, minutes) in [(true, 10), (false, 24 * 60)] {
        let mut run = start_run(&saga, json!({ "urgent": urgent }));
        assert_eq!(
            until(&run, "escalate:approve"),
            Duration::from_mins(minutes)
        );
        run.advance(Duration::from_mins(minutes)).unwrap();
        assert_eq!(run.last_timers(), &[] as &[TimerChange]);
        assert!(run.state_view()["steps"][0]["state"] == "running");
    }
    let mut run = start_run(&saga, json!({ "urgent": 3 }));
    assert_eq!(run.failure().unwrap().code, "expression_error");
    assert!(run.outcome("approve", &failed("x")).is_err());
}

#[test]
fn constant_values_without_a_meaning_are_reported() {
    let of = |limit: &str| {
        diagnostics(&format!(
            "vars: {{ x: =event.x }}\nsteps: [{{ id: a, do: {{ effect: e.a }}, timeout: {limit} }}]"
        ))
    };
    for (limit, expected) in [
        (
            "\"=duration('-5m')\"",
            "steps[0].timeout: `-300s` is not a duration",
        ),
        (
            "'=0'",
            "steps[0].timeout: a timeout must be longer than zero",
        ),
        (
            "\"=vars.x ? duration('5m') : 'an hour'\"",
            "steps[0].timeout: `an hour` is not a duration",
        ),
        (
            "\"=vars.x ? false : vars.x\"",
            "steps[0].timeout: a duration must be a text such as 30m",
        ),
        ("=vars.y", "steps[0].timeout: "),
        ("=event.x", "steps[0].timeout: "),
        ("soon", "steps[0].timeout: `soon` is not a duration"),
        ("0s", "steps[0].timeout: a timeout must be longer than zero"),
    ] {
        let found = of(limit);
        assert!(found.contains(expected), "{limit}: {found}");
    }
    let found = diagnostics(
        "timeout: '=1 - 2'\nsteps: [{ id: a, do: { command: c.A }, ok: A, retry: { initial_backoff: '=[1]' }, undo: { effect: e.u, timeout: '={}' } }]",
    );
    for path in [
        "timeout: -1 is not",
        "steps[0].retry.initial_backoff: ",
        "steps[0].undo.timeout: ",
    ] {
        assert!(found.contains(path), "{found}");
    }
}

#[test]
fn migration_keeps_the_end_of_the_saga_timeout_and_computes_a_new_one() {
    let steps = "steps: [{ id: a, do: { event: A } }]";
    let version = |version: u32, timeout: &str| {
        let text = format!(
            "saga: t\nversion: {version}\nstart: Go\nvars: {{ limit: =event.limit }}\n{timeout}{steps}"
        );
        compile_yaml(&text, "t").unwrap()
    };
    let (without, old, new) = (
        version(1, ""),
        version(1, "timeout: 1h\n"),
        version(2, "timeout: =vars.limit\n"),
    );
    let mut run = start_run(&old, json!({ "limit": "2d" }));
    run.migrate(&new).unwrap();
    assert_eq!(until(&run, "saga"), Duration::from_hours(1));
    let mut run = start_run(&without, json!({ "limit": "2d" }));
    run.migrate(&new).unwrap();
    assert_eq!(until(&run, "saga"), Duration::from_hours(48));
    let mut run = start_run(&without, json!({ "limit": "never" }));
    let blocked = run.migrate(&new).unwrap_err();
    assert!(
        blocked[0].contains("cannot compute the saga timeout"),
        "{blocked:?}"
    );
}

#[test]
fn time_limits_are_durations_or_expressions() {
    let saga = saga(
        "vars: { limit: =event.limit }
timeout: =vars.limit
steps:
  - { id: a, do: { effect: e.a }, timeout: 90s }
  - id: b
    do: { effect: e.b }
    timeout: 5s
    retry: { max_attempts: 2, initial_backoff: =vars.limit }
",
    );
    let mut run = start_run(&saga, json!({ "limit": "1h" }));
    assert_eq!(
        (until(&run, "saga"), until(&run, "a")),
        (Duration::from_hours(1), Duration::from_secs(90))
    );
    ok(&mut run, "a");
    let Work::Effect(effect) = &run.work()[1] else {
        panic!("an effect")
    };
    assert_eq!(
        effect.retry.unwrap().initial_backoff,
        Some(Duration::from_hours(1))
    );
    assert_eq!(effect.timeout, Some(Duration::from_secs(5)));
}
