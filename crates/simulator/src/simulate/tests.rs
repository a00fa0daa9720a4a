//! Tests with a few recorded events and two versions of a definition.

use orlog_model::{CorrelationId, EventId, EventType, TenantId};
use orlog_program::{Program, compile_yaml};
use serde_json::json;

use super::*;

fn fine(days: u32) -> Arc<SimulatorPrograms> {
    let text = format!(
        "saga: fine\nversion: {days}\nstart: Notified\nsteps:\n  - {{ id: collect, do: {{ command: fines.Demand }}, ok: Paid, timeout: {days}d }}\n  - {{ id: book, do: {{ effect: ledger.book }} }}\ncompleted: {{ fact: Settled }}\nfailed: {{ fact: Overdue }}\n"
    );
    let compiled: Arc<dyn Program> = Arc::new(compile_yaml(&text, "fine.saga.yaml").unwrap());
    Arc::new(SimulatorPrograms::new([compiled]))
}

fn event(kind: &str, case: &str, day: i64) -> Event {
    Event {
        id: EventId::new(format!("{kind}-{case}-{day}")).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::from_millis(day * 86_400_000),
        correlation: Some(CorrelationId::new(case).unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({}),
        user: None,
        attributes: None,
    }
}

fn recording() -> Vec<Event> {
    vec![
        event("Notified", "early", 0),
        event("Notified", "late", 0),
        event("Notified", "never", 1),
        event("Painted", "early", 2),
        event("Paid", "early", 10),
        event("Paid", "early", 11),
        event("Paid", "late", 40),
    ]
}

fn options(responses: ResponsePolicy) -> SimulateOptions {
    SimulateOptions {
        responses,
        run_on_for: Duration::from_hours(24 * 100),
        record_work: true,
    }
}

#[test]
fn counts_the_status_of_every_instance() {
    let report = simulate(fine(30), &recording(), &options(ResponsePolicy::ok()));
    insta::assert_snapshot!(format!("{:#}", serde_json::to_value(&report).unwrap()));
}

#[test]
fn missing_response_leaves_the_instance_unchanged() {
    let report = simulate(fine(30), &recording(), &options(ResponsePolicy::none()));
    assert_eq!(report.statuses["fine"]["running"], 1);
    assert_eq!(report.steps["fine"]["book"]["running"], 1);
}

#[test]
fn response_policy_matches_by_name() {
    let text = "ledger.book: { fail: no_ledger }\nfines.Demand: { event: Paid }\n";
    let report = simulate(
        fine(30),
        &recording(),
        &options(ResponsePolicy::read(text, "responses.yaml").unwrap()),
    );
    assert_eq!(report.statuses["fine"]["failed"], 3);
    assert_eq!(report.timers_fired.len(), 0);
    let errors = ResponsePolicy::read("a: { okay: 1 }\n", "responses.yaml").unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "responses.yaml:1:6: a.okay: unknown field `okay`; valid: ok, fail, event, data"
    );
}

#[test]
fn two_versions_are_compared_instance_by_instance() {
    let before = simulate(fine(30), &recording(), &options(ResponsePolicy::ok()));
    let after = simulate(fine(60), &recording(), &options(ResponsePolicy::ok()));
    let found = compare(&before, &after, 5);
    assert_eq!(
        (
            found.same,
            found.work_differs,
            found.only_before,
            found.only_after
        ),
        (2, 0, 0, 0)
    );
    assert_eq!(found.status_changed["failed → completed"], 1);
    assert_eq!(found.examples[0].correlation, "late");
}
