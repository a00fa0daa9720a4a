//! Reminders of a step that waits.

use std::time::Duration;

use orlog_model::{Effect, Status, Work};
use orlog_program::{CompiledDefinition, compile_yaml};
use orlog_testkit::definition_suite::{InstanceDriver, failed, succeeded};
use serde_json::{Value, json};

use super::{diagnostics, fail, ok, saga, start_run, step_state};

const DAY: Duration = Duration::from_hours(24);

pub(super) const PAYMENT: &str = "vars: { to: =event.to }
steps:
  - { id: order, do: { effect: e.order }, undo: { effect: u.order } }
  - id: paid
    do: { event: Paid }
    timeout: 10d
    on_timeout: { then: late }
    remind: { every: 2d, max: 3, do: { effect: mail.remind, data: { number: =reminder, to: =vars.to } } }
  - { id: ship, do: { effect: e.ship } }
  - { id: late, do: { effect: e.late } }
";

/// Returns an instance that waits for the payment.
fn waiting(saga: &CompiledDefinition) -> InstanceDriver<'_> {
    let mut run = start_run(saga, json!({ "to": "ada" }));
    ok(&mut run, "order");
    run
}

/// Advances by days. Each reminder has its result before the next one is due.
fn advance_days(run: &mut InstanceDriver<'_>, days: u32) {
    for _ in 0..days {
        run.advance(DAY).unwrap();
        for tag in tags(run) {
            // The result changes nothing.
            drop(run.outcome(&tag, &succeeded(json!({}))));
        }
    }
}

/// Returns the effects that reminders requested.
fn reminders<'r>(run: &'r InstanceDriver<'_>) -> Vec<&'r Effect> {
    let effects = run.work().iter().filter_map(|work| match work {
        Work::Effect(effect) => Some(effect),
        _ => None,
    });
    effects
        .filter(|effect| effect.tag.as_str().starts_with("remind:"))
        .collect()
}

/// Returns the tags of the reminders.
fn tags(run: &InstanceDriver<'_>) -> Vec<String> {
    let all = reminders(run).into_iter();
    all.map(|effect| effect.tag.to_string()).collect()
}

fn reminders_in_view(run: &InstanceDriver<'_>, id: &str) -> Value {
    let view = run.state_view();
    let steps = view["steps"].as_array().expect("the steps are a list");
    let step = steps.iter().find(|step| step["id"] == id);
    step.expect("the step exists")["reminders"].clone()
}

#[test]
fn reminders_are_sent_at_their_times_up_to_their_maximum() {
    let saga = saga(PAYMENT);
    let mut run = waiting(&saga);
    assert_eq!(run.timers(), ["paid", "remind:paid"]);
    assert_eq!(run.time_until("remind:paid"), Some(2 * DAY));

    run.advance(Duration::from_millis(2 * 24 * 3_600_000 - 1))
        .unwrap();
    assert!(reminders(&run).is_empty());
    let notes = run.advance(Duration::from_millis(1)).unwrap();
    assert_eq!(notes, ["paid: reminder 1"]);
    assert_eq!(run.time_until("remind:paid"), Some(2 * DAY));
    let next = "2023-11-18T22:13:20.000Z";
    assert_eq!(
        reminders_in_view(&run, "paid"),
        json!({ "sent": 1, "next": next })
    );

    drop(run.outcome("remind:paid:1", &succeeded(json!({}))));
    advance_days(&mut run, 5);
    let sent: Vec<_> = reminders(&run)
        .iter()
        .map(|effect| (effect.tag.to_string(), effect.payload.clone()))
        .collect();
    let expected = |number: u32| {
        (
            format!("remind:paid:{number}"),
            json!({ "number": number, "to": "ada" }),
        )
    };
    assert_eq!(sent, [expected(1), expected(2), expected(3)]);
    assert_eq!(run.timers(), ["paid"], "the third one is the last");
    assert_eq!(
        reminders_in_view(&run, "paid"),
        json!({ "sent": 3, "next": null })
    );

    run.event("Paid", json!({})).unwrap();
    assert_eq!(
        (step_state(&run, "ship").as_str(), run.timers().len()),
        ("running", 0)
    );
    assert_eq!(reminders_in_view(&run, "paid"), Value::Null);
}

#[test]
fn event_ends_the_reminders() {
    let saga = saga(PAYMENT);
    let mut run = waiting(&saga);
    run.advance(3 * DAY).unwrap();
    run.event("Paid", json!({})).unwrap();
    assert!(run.timers().is_empty());
    run.advance(30 * DAY).unwrap();
    assert_eq!(tags(&run), ["remind:paid:1"]);
    let stale = run.take(&orlog_program::ProgramInput::Timer {
        name: "remind:paid",
    });
    assert_eq!(stale.unwrap_err(), "the timer is stale");
}

#[test]
fn early_event_leaves_no_timer_of_reminders() {
    let saga = saga(PAYMENT);
    let mut run = start_run(&saga, json!({ "to": "ada" }));
    run.event("Paid", json!({})).unwrap();
    ok(&mut run, "order");
    assert_eq!(
        (step_state(&run, "ship").as_str(), run.timers().len()),
        ("running", 0)
    );
}

#[test]
fn timeout_applies_beside_the_reminders() {
    let saga = saga(&PAYMENT.replace("max: 3", "max: 100"));
    let mut run = waiting(&saga);
    advance_days(&mut run, 10);
    assert_eq!(tags(&run).len(), 4, "the fifth one is due with the timeout");
    assert_eq!(
        (step_state(&run, "paid"), step_state(&run, "late")),
        ("abandoned".to_owned(), "running".to_owned())
    );
    assert!(run.timers().is_empty());
}

#[test]
fn result_of_a_reminder_changes_nothing() {
    let saga = saga(PAYMENT);
    let mut run = waiting(&saga);
    run.advance(2 * DAY).unwrap();
    let before = run.state().to_vec();

    let error = run.outcome("remind:paid:1", &failed("no_mailbox"));
    assert_eq!(
        error.unwrap_err(),
        "the reminder failed; its step is not affected"
    );
    let error = run.outcome("remind:paid:1", &succeeded(json!({ "event": "Paid" })));
    assert_eq!(error.unwrap_err(), "results of reminders are not awaited");
    assert_eq!(run.state(), before);

    run.advance(2 * DAY).unwrap();
    assert_eq!(tags(&run), ["remind:paid:1", "remind:paid:2"]);
}

#[test]
fn reminder_without_a_value_is_recorded_and_the_step_waits_on() {
    let saga = saga(&PAYMENT.replace("to: =vars.to } }", "to: =vars.to.address } }"));
    let mut run = waiting(&saga);
    let notes = run.advance(2 * DAY).unwrap();
    assert!(notes[0].starts_with("paid: reminder 1: `"), "{notes:?}");
    assert_eq!(run.failure().unwrap().code, "expression_error");
    assert_eq!(step_state(&run, "paid"), "running");
    assert_eq!(run.time_until("remind:paid"), Some(2 * DAY));
    assert!(tags(&run).is_empty());

    run.event("Paid", json!({})).unwrap();
    assert_eq!(step_state(&run, "ship"), "running");
}

#[test]
fn late_timer_sends_one_reminder() {
    let saga = saga(&PAYMENT.replace("max: 3", "max: 100"));
    let mut run = waiting(&saga);
    run.fire("remind:paid", 9 * DAY).unwrap();
    assert_eq!(tags(&run).len(), 1);
    assert_eq!(run.time_until("remind:paid"), Some(2 * DAY));
}

#[test]
fn elements_and_rounds_send_their_own_reminders() {
    let each = "vars: { items: =event.items }
steps:
  - id: lines
    foreach: { in: =vars.items, as: item }
    do: { event: Packed, when: event.item == item }
    timeout: 9d
    remind: { every: 1d, max: 2, do: { effect: mail.remind, data: { item: =item, number: =reminder } } }
";
    let each = saga(each);
    let mut run = start_run(&each, json!({ "items": ["a", "b"] }));
    run.event("Packed", json!({ "item": "a" })).unwrap();
    advance_days(&mut run, 3);
    assert_eq!(tags(&run), ["remind:lines[1]:1", "remind:lines[1]:2"]);
    assert_eq!(
        reminders(&run)[1].payload,
        json!({ "item": "b", "number": 2 })
    );

    let rounds = "steps:
  - id: ask
    do: { event: Answered }
    save: { again: =event.again }
    timeout: 9d
    remind: { every: 1d, max: 2, do: { effect: mail.remind, data: { round: =round, number: =reminder } } }
  - { id: next, do: { repeat: ask, while: =vars.again, max: 3 } }
";
    let rounds = saga(rounds);
    let mut run = start_run(&rounds, json!({}));
    run.advance(DAY).unwrap();
    run.event("Answered", json!({ "again": true })).unwrap();
    run.advance(DAY).unwrap();
    assert_eq!(tags(&run), ["remind:ask[0]:1", "remind:ask[1]:1"]);
    assert_eq!(
        reminders(&run)[1].payload,
        json!({ "round": 1, "number": 1 })
    );
    run.event("Answered", json!({ "again": false })).unwrap();
    assert_eq!((run.status(), run.timers().len()), (Status::Completed, 0));
}

const BOOKING: &str = "steps:
  - { id: start, pivot: true, do: { effect: e.start } }
  - id: book
    do: { command: air.Book }
    ok: Booked
    fail: Full
    retry: { max_attempts: 2, initial_backoff: 1h }
    timeout: 90d
    remind: { every: 1d, max: 2, do: { effect: mail.remind } }
  - { id: other, after: [start], do: { event: Other }, timeout: 90d, remind: { every: 3d, max: 2, do: { command: crm.Call } } }
";

#[test]
fn reminders_continue_while_a_command_is_retried() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "start");
    advance_days(&mut run, 1);
    run.event("Full", json!({})).unwrap();
    assert_eq!(step_state(&run, "book"), "retrying");
    assert_eq!(run.time_until("remind:book"), Some(DAY));
    run.advance(DAY).unwrap();
    assert_eq!(step_state(&run, "book"), "running");
    assert_eq!(tags(&run), ["remind:book:1", "remind:book:2"]);
    assert!(!run.timers().contains(&"remind:book"));
}

#[test]
fn retry_of_an_operator_starts_the_reminders_again_with_further_numbers() {
    let saga = saga(BOOKING);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "start");
    advance_days(&mut run, 1);
    run.event("Full", json!({})).unwrap();
    run.advance(Duration::from_hours(1)).unwrap();
    run.event("Full", json!({})).unwrap();
    assert_eq!(run.status(), Status::Stuck);

    run.retry().unwrap();
    let mut timers = run.timers();
    timers.sort_unstable();
    assert_eq!(
        timers,
        ["book", "other", "remind:book", "remind:other"],
        "the reminders of the step that waits on are armed again"
    );
    assert_eq!(run.time_until("remind:book"), Some(DAY));
    advance_days(&mut run, 3);
    let book: Vec<_> = tags(&run)
        .into_iter()
        .filter(|tag| tag.starts_with("remind:book:"))
        .collect();
    assert_eq!(book, ["remind:book:1", "remind:book:2", "remind:book:3"]);
}

#[test]
fn new_run_sends_its_own_reminders() {
    let text = "vars: { n: =event.n }
steps:
  - { id: paid, do: { event: Paid }, timeout: 9d, remind: { every: 1d, max: 2, do: { effect: mail.remind, data: =vars.n } } }
  - { id: next, do: { restart_as_new: Go, data: { n: =vars.n + 1 } } }
";
    let saga = saga(text);
    let mut run = start_run(&saga, json!({ "n": 1 }));
    run.advance(DAY).unwrap();
    run.event("Paid", json!({})).unwrap();
    assert_eq!(run.timers(), ["paid", "remind:paid"]);
    assert_eq!(reminders_in_view(&run, "paid")["sent"], 0);
    run.advance(DAY).unwrap();
    let payloads: Vec<_> = reminders(&run)
        .iter()
        .map(|effect| effect.payload.clone())
        .collect();
    assert_eq!(payloads, [json!(1), json!(2)]);
}

#[test]
fn cancellation_and_compensation_end_the_reminders() {
    let saga = saga(PAYMENT);
    let mut run = waiting(&saga);
    run.cancel("test").unwrap();
    assert!(run.timers().is_empty());
    ok(&mut run, "compensate:order");
    assert_eq!(run.status(), Status::Cancelled);

    let parallel = saga_with_failing_branch();
    let mut run = start_run(&parallel, json!({}));
    assert_eq!(run.timers(), ["paid", "remind:paid"]);
    fail(&mut run, "other");
    assert_eq!((run.status(), run.timers().len()), (Status::Failed, 0));
}

fn saga_with_failing_branch() -> CompiledDefinition {
    saga(
        "steps:
  - { id: paid, after: [], do: { event: Paid }, timeout: 9d, remind: { every: 1d, max: 2, do: { effect: mail.remind } } }
  - { id: other, after: [], do: { effect: e.other } }
",
    )
}

#[test]
fn open_task_is_reminded_of() {
    let text = "steps:
  - id: approve
    do: { human: { title: Approve, due: 2d, escalate: { roles: [head] } } }
    ok: Approved
    timeout: 9d
    remind: { every: 1d, max: 5, do: { effect: chat.post } }
";
    let saga = saga(text);
    let mut run = start_run(&saga, json!({}));
    advance_days(&mut run, 3);
    assert_eq!(tags(&run).len(), 3);
    assert_eq!(run.tasks()[0].roles, ["head"]);
    run.outcome(
        "approve",
        &orlog_model::WorkOutcome::succeeded(Some("Approved".parse().unwrap()), json!({})),
    )
    .unwrap();
    assert_eq!((run.status(), run.timers().len()), (Status::Completed, 0));
}

fn version(number: u32, rest: &str) -> CompiledDefinition {
    let text = format!("saga: t\nversion: {number}\nstart: Go\n{rest}");
    compile_yaml(&text, "t").expect("the definition is valid")
}

#[test]
fn step_that_still_waits_keeps_its_reminders_after_a_migration() {
    let step = |id: &str, remind: &str| {
        format!("steps:\n  - {{ id: {id}, do: {{ event: Paid }}, timeout: 30d{remind} }}\n")
    };
    let remind = |every: &str, max: u32| {
        format!(", remind: {{ every: {every}, max: {max}, do: {{ effect: mail.remind }} }}")
    };
    let old = version(1, &step("paid", &remind("2d", 2)));
    let renamed = format!(
        "{}migrations: [{{ from: 1, steps: {{ paid: settled }} }}]\n",
        step("settled", &remind("3d", 2))
    );
    let renamed = version(2, &renamed);
    let mut run = start_run(&old, json!({}));
    run.advance(3 * DAY).unwrap();
    run.migrate(&renamed).unwrap();
    assert_eq!(run.timers(), ["settled", "remind:settled"]);
    assert_eq!(run.time_until("remind:settled"), Some(DAY));
    drop(run.outcome("remind:settled:1", &succeeded(json!({}))));
    run.advance(9 * DAY).unwrap();
    assert_eq!(tags(&run), ["remind:paid:1", "remind:settled:2"]);

    let none = version(2, &step("paid", ""));
    let mut run = start_run(&old, json!({}));
    run.advance(3 * DAY).unwrap();
    run.migrate(&none).unwrap();
    assert_eq!(run.timers(), ["paid"]);
    assert_eq!(reminders_in_view(&run, "paid"), Value::Null);
    run.advance(9 * DAY).unwrap();
    run.event("Paid", json!({})).unwrap();
    assert_eq!(run.status(), Status::Completed);

    let mut run = start_run(&none, json!({}));
    run.advance(DAY).unwrap();
    let first = version(3, &step("paid", &remind("2d", 2)));
    run.migrate(&first).unwrap();
    assert_eq!(run.time_until("remind:paid"), Some(2 * DAY));
    advance_days(&mut run, 2);

    // The last one was sent: a version that permits more continues, one with fewer does not.
    run.advance(9 * DAY).unwrap();
    assert_eq!(run.timers(), ["paid"]);
    let more = version(4, &step("paid", &remind("5d", 3)));
    run.migrate(&more).unwrap();
    assert_eq!(run.time_until("remind:paid"), Some(5 * DAY));
    let fewer = version(5, &step("paid", &remind("5d", 1)));
    run.migrate(&fewer).unwrap();
    assert_eq!(run.timers(), ["paid"]);
}

#[test]
fn version_without_reminders_keeps_their_number() {
    let step = |remind: &str| {
        format!("steps:\n  - {{ id: paid, do: {{ event: Paid }}, timeout: 30d{remind} }}\n")
    };
    let remind = ", remind: { every: 2d, max: 3, do: { effect: mail.remind } }";
    let first = version(1, &step(remind));
    let second = version(2, &step(""));
    let third = version(3, &step(remind));
    let mut run = start_run(&first, json!({}));
    advance_days(&mut run, 3);
    run.migrate(&second).unwrap();
    assert_eq!(run.timers(), ["paid"]);
    advance_days(&mut run, 3);
    run.migrate(&third).unwrap();
    assert_eq!(run.time_until("remind:paid"), Some(2 * DAY));
    advance_days(&mut run, 9);
    assert_eq!(
        tags(&run),
        ["remind:paid:1", "remind:paid:2", "remind:paid:3"]
    );
    run.event("Paid", json!({})).unwrap();
    assert_eq!((run.status(), run.timers().len()), (Status::Completed, 0));
}

#[test]
fn pending_reminder_migrates_with_its_step() {
    let each = |id: &str, rest: &str| {
        format!(
            "vars: {{ items: =event.items }}
{rest}steps:
  - id: {id}
    foreach: {{ in: =vars.items, as: item }}
    do: {{ event: Packed, when: event.item == item }}
    remind: {{ every: 1d, max: 9, do: {{ effect: mail.remind }} }}
"
        )
    };
    let old = version(1, &each("pack", ""));
    let renamed = "migrations: [{ from: 1, steps: { pack: parcel } }]\n";
    let new = version(2, &each("parcel", renamed));
    let mut run = start_run(&old, json!({ "items": ["a", "b"] }));
    run.advance(DAY).unwrap();
    let migration = run.migrate(&new).unwrap();
    let tag = |text: &str| orlog_model::Name::new(text).unwrap();
    let moved = (tag("remind:pack[1]:1"), tag("remind:parcel[1]:1"));
    assert!(migration.tags.contains(&moved), "{:?}", migration.tags);

    // It is still the previous reminder of the step.
    run.advance(DAY).unwrap();
    assert_eq!(tags(&run), ["remind:pack[0]:1", "remind:pack[1]:1"]);
}

#[test]
fn reminder_is_skipped_while_the_previous_one_has_no_result() {
    let saga = saga(PAYMENT);
    let mut run = waiting(&saga);
    run.advance(2 * DAY).unwrap();
    let notes = run.advance(2 * DAY).unwrap();
    assert_eq!(
        notes,
        ["paid: reminder 2 skipped: the previous one has no result"]
    );

    drop(run.outcome("remind:paid:1", &succeeded(json!({}))));
    run.advance(2 * DAY).unwrap();
    assert_eq!(tags(&run), ["remind:paid:1", "remind:paid:3"]);
    assert_eq!(run.timers(), ["paid"], "the skipped one counts");
}

/// After an outage or a pause, the timer of the reminder can fire first.
#[test]
fn no_reminder_is_sent_after_the_time_limit() {
    let saga = saga(PAYMENT);
    let mut run = waiting(&saga);
    let note = run.fire("remind:paid", 11 * DAY).unwrap();
    assert_eq!(note, "paid: no further reminder: the time limit has passed");
    assert_eq!(run.timers(), ["paid"]);
    run.advance(DAY).unwrap();
    assert_eq!(step_state(&run, "late"), "running");
    assert!(tags(&run).is_empty());

    let limited = format!(
        "timeout: 3d\n{}",
        PAYMENT.replace("timeout: 10d", "timeout: 90d")
    );
    let limited = super::saga(&limited);
    let mut run = waiting(&limited);
    run.fire("remind:paid", 4 * DAY).unwrap();
    assert!(tags(&run).is_empty());
}

#[test]
fn numbers_of_restarted_reminders_migrate() {
    let text = |id: &str, migrations: &str| {
        let steps = BOOKING.replace("id: book", &format!("id: {id}"));
        format!("{steps}{migrations}")
    };
    let old = version(1, &text("book", ""));
    let migrations = "migrations: [{ from: 1, steps: { book: reserve } }]\n";
    let new = version(2, &text("reserve", migrations));
    let mut run = start_run(&old, json!({}));
    ok(&mut run, "start");
    run.advance(DAY).unwrap();
    run.event("Full", json!({})).unwrap();
    run.advance(Duration::from_hours(1)).unwrap();
    run.event("Full", json!({})).unwrap();
    run.retry().unwrap();
    run.migrate(&new).unwrap();
    drop(run.outcome("remind:reserve:1", &succeeded(json!({}))));
    run.advance(DAY).unwrap();
    let last = tags(&run).pop();
    assert_eq!(last, Some("remind:reserve:2".to_owned()));
}

#[test]
fn invalid_reminders_are_rejected() {
    let remind = "remind: { every: 1d, max: 2, do: { effect: e.x } }";
    let cases = [
        (
            format!("do: {{ effect: e.y }}, {remind}"),
            "steps[0].remind: an effect does not wait for an event or a user, so it has no `remind`",
        ),
        (
            format!("do: {{ wait: 5d }}, {remind}"),
            "steps[0].remind: a wait does not wait for an event or a user, so it has no `remind`",
        ),
        (
            format!("do: {{ command: a.B }}, {remind}"),
            "steps[0].remind: step `a` completes when its command is accepted, so it sends no reminder",
        ),
        (
            "do: { event: E }, remind: { every: 0s, max: 2, do: { effect: e.x } }".to_owned(),
            "steps[0].remind.every: the interval must be longer than zero and at most 100 years",
        ),
        (
            "do: { event: E }, remind: { every: 1d, max: 0, do: { effect: e.x } }".to_owned(),
            "steps[0].remind.max: the number of reminders must be 1 to 1000",
        ),
        (
            "do: { event: E }, remind: { every: 1d, max: 1001, do: { effect: e.x } }".to_owned(),
            "steps[0].remind.max: the number of reminders must be 1 to 1000",
        ),
        (
            "do: { event: E }, remind: { every: 1d, max: 2, do: { saga: child } }".to_owned(),
            "steps[0].remind.do: a reminder cannot await a saga",
        ),
        (
            "do: { event: E }, remind: { every: 1d, max: 2, do: { human: { title: Ask } } }"
                .to_owned(),
            "steps[0].remind.do: a reminder cannot await a human task",
        ),
        (
            "do: { event: E }, remind: { every: 1d, do: { effect: e.x } }".to_owned(),
            "steps[0].remind: `max` is missing",
        ),
        (
            "do: { effect: e.x, data: =reminder }".to_owned(),
            "steps[0].do.data",
        ),
    ];
    for (step, expected) in cases {
        let found = diagnostics(&format!("steps:\n  - {{ id: a, {step} }}\n"));
        assert!(found.contains(expected), "{step}: {found}");
    }
}
