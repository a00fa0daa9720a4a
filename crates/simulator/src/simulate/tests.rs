//! A few recorded events, two versions of a definition.

use orlog_model::{CorrelationId, EventId, EventType, TenantId};
use orlog_program::{Program, compile_yaml};
use serde_json::json;

use super::*;

fn fine(days: u32) -> Arc<Programs> {
    let text = format!(
        "saga: fine\nversion: {days}\nstart: Notified\nsteps:\n  - {{ id: collect, do: {{ command: fines.Demand }}, ok: Paid, timeout: {days}d }}\n  - {{ id: book, do: {{ effect: ledger.book }} }}\ncompleted: {{ fact: Settled }}\nfailed: {{ fact: Overdue }}\n"
    );
    let compiled: Arc<dyn Program> = Arc::new(compile_yaml(&text, "fine.saga.yaml").unwrap());
    Arc::new(Programs::new([compiled]))
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
    }
}

fn record() -> Vec<Event> {
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

fn options(answers: Answers) -> Options {
    Options { answers, then: Duration::from_hours(24 * 100), remembers_work: true }
}

#[test]
fn what_became_of_every_instance_is_counted() {
    let report = simulate(fine(30), &record(), &options(Answers::ok()));
    insta::assert_snapshot!(format!("{:#}", serde_json::to_value(&report).unwrap()));
}

#[test]
fn silence_leaves_instances_where_they_are() {
    let report = simulate(fine(30), &record(), &options(Answers::none()));
    assert_eq!(report.statuses["fine"]["running"], 1);
    assert_eq!(report.steps["fine"]["book"]["running"], 1);
}

#[test]
fn a_policy_answers_by_name() {
    let text = "ledger.book: { fail: no_ledger }\nfines.Demand: { event: Paid }\n";
    let report = simulate(fine(30), &record(), &options(Answers::read(text, "answers.yaml").unwrap()));
    assert_eq!(report.statuses["fine"]["failed"], 3);
    assert_eq!(report.timers_fired.len(), 0);
    let wrong = Answers::read("a: { okay: 1 }\n", "answers.yaml").unwrap_err();
    assert_eq!(
        wrong[0].to_string(),
        "answers.yaml:1:6: a.okay: there is no field `okay`; valid are ok, fail, event, data"
    );
}

#[test]
fn two_versions_are_compared_instance_by_instance() {
    let before = simulate(fine(30), &record(), &options(Answers::ok()));
    let after = simulate(fine(60), &record(), &options(Answers::ok()));
    let found = compare(&before, &after, 5);
    assert_eq!((found.same, found.work_differs, found.only_before, found.only_after), (2, 0, 0, 0));
    assert_eq!(found.status_changed["failed → completed"], 1);
    assert_eq!(found.examples[0].correlation, "late");
}
