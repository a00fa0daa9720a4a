//! Failure handlers: what follows a step that fails or times out.

use std::time::Duration;

use orlog_model::Status;
use orlog_program::compile_yaml;
use serde_json::{Value, json};

use super::{diagnostics, fail, ok, saga, start_run, step_state};
use orlog_testkit::definition_suite::{InstanceDriver, failed, succeeded};

pub(super) const SIGN_UP: &str = "steps:
  - id: verified
    do: { event: Verified }
    timeout: 24h
    on_timeout: { save: { why: =failure.code }, then: farewell }
  - { id: account, do: { effect: accounts.create }, undo: { effect: accounts.delete } }
  - id: charge
    do: { effect: payments.charge }
    timeout: 1h
    save: { plan: =event.plan }
    undo: { effect: payments.refund }
    on_failure: { save: { plan: free } }
  - { id: welcome, do: { effect: mail.welcome, data: =vars.plan } }
  - { id: farewell, do: { effect: mail.farewell, data: =vars.why } }
";

pub(super) const LINES: &str = "vars: { items: =event.items }
steps:
  - id: lines
    foreach: { in: =vars.items, as: item }
    do: { effect: stock.reserve, data: =item }
    undo: { effect: stock.release }
    on_failure: { then: apologize }
  - { id: ship, do: { effect: parcels.send } }
  - { id: apologize, do: { effect: mail.sorry } }
";

fn failure_of(run: &InstanceDriver<'_>, id: &str) -> Value {
    let view = run.state_view();
    let steps = view["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["id"] == id).unwrap();
    step["failure"].clone()
}

#[test]
fn timeout_selects_the_steps_of_its_handler() {
    let saga = saga(SIGN_UP);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(24)).unwrap();
    assert_eq!(run.labels(), ["mail.farewell"]);
    for step in ["account", "charge", "welcome"] {
        assert_eq!(step_state(&run, step), "bypassed", "{step}");
    }
    assert_eq!(run.state_view()["vars"]["why"], "timeout");
    assert_eq!(
        failure_of(&run, "verified"),
        json!({ "code": "timeout", "message": "verified: no response within 86400s", "handled_by": "on_timeout" })
    );

    ok(&mut run, "farewell");
    assert_eq!(run.status(), Status::Completed);
    assert!(run.failure().is_none());
}

#[test]
fn steps_of_a_handler_are_bypassed_if_the_step_completes() {
    let saga = saga(SIGN_UP);
    let mut run = start_run(&saga, json!({}));
    run.event("Verified", json!({})).unwrap();
    assert_eq!(step_state(&run, "farewell"), "bypassed");
    ok(&mut run, "account");
    run.outcome("charge", &succeeded(json!({ "plan": "pro" })))
        .unwrap();
    ok(&mut run, "welcome");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn handler_without_steps_continues_with_its_values() {
    let saga = saga(SIGN_UP);
    let mut run = start_run(&saga, json!({}));
    run.event("Verified", json!({})).unwrap();
    ok(&mut run, "account");
    let note = fail(&mut run, "charge");
    assert_eq!(
        note,
        "charge: broken, charge: failed with broken; on_failure continues"
    );
    assert_eq!(step_state(&run, "charge"), "failed");
    assert_eq!(run.state_view()["vars"]["plan"], "free");
    ok(&mut run, "welcome");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn late_success_is_compensated_and_keeps_the_values_of_the_handler() {
    let saga = saga(SIGN_UP);
    let mut run = start_run(&saga, json!({}));
    run.event("Verified", json!({})).unwrap();
    ok(&mut run, "account");
    run.advance(Duration::from_hours(1)).unwrap();
    assert_eq!(step_state(&run, "charge"), "abandoned");
    assert_eq!(step_state(&run, "welcome"), "running");

    run.outcome("charge", &succeeded(json!({ "plan": "pro" })))
        .unwrap();
    assert_eq!(run.compensated(), ["compensate:charge"]);
    assert_eq!(run.state_view()["vars"]["plan"], "free");
    ok(&mut run, "welcome");
    ok(&mut run, "compensate:charge");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn failure_at_the_end_of_the_time_limit_is_a_timeout() {
    let steps = "steps:
  - { id: pay, do: { effect: e.pay }, timeout: 2s, on_timeout: { then: late }, on_failure: { then: broken } }
  - { id: late, do: { effect: e.late } }
  - { id: broken, do: { effect: e.broken } }
";
    let saga = saga(steps);
    // The work of the step ends 200 ms before its timer.
    for (millis, step) in [(1799, "broken"), (1800, "late")] {
        let mut run = start_run(&saga, json!({}));
        run.advance(Duration::from_millis(millis)).unwrap();
        fail(&mut run, "pay");
        assert_eq!(step_state(&run, step), "running", "{millis}");
        assert_eq!(failure_of(&run, "pay")["code"], "broken");
    }
}

#[test]
fn event_that_rejects_a_command_is_no_timeout() {
    let steps = "steps:
  - { id: book, do: { command: air.Book }, ok: Booked, fail: Full, timeout: 10s, on_timeout: { then: late }, on_failure: { then: other } }
  - { id: late, do: { effect: e.late } }
  - { id: other, do: { effect: e.other } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_millis(9_900)).unwrap();
    run.event("Full", json!({})).unwrap();
    assert_eq!(step_state(&run, "other"), "running");
}

#[test]
fn command_that_may_have_been_executed_is_compensated_while_the_saga_runs() {
    let steps = "steps:
  - { id: book, do: { command: air.Book }, ok: Booked, timeout: 1m, undo: { command: air.Cancel }, on_timeout: continue }
  - { id: next, do: { effect: e.next } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_mins(1)).unwrap();
    assert_eq!(run.compensated(), ["compensate:book"]);
    assert_eq!(step_state(&run, "next"), "running");
    ok(&mut run, "next");
    assert_eq!(run.status(), Status::Running);
    ok(&mut run, "compensate:book");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn fail_is_the_default() {
    let steps = "steps:
  - { id: pay, do: { effect: e.pay }, timeout: 1m, on_timeout: fail, on_failure: continue }
  - { id: next, do: { effect: e.next } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_mins(1)).unwrap();
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(run.failure().unwrap().code, "timeout");

    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "pay");
    assert_eq!(step_state(&run, "next"), "running");
}

#[test]
fn completed_elements_of_a_failed_step_are_compensated() {
    let saga = saga(LINES);
    let mut run = start_run(&saga, json!({ "items": [1, 2, 3] }));
    ok(&mut run, "lines[0]");
    fail(&mut run, "lines[1]");
    assert_eq!(step_state(&run, "ship"), "bypassed");
    assert_eq!(run.compensated(), ["compensate:lines[0]"]);

    // An element that succeeds late is compensated as well.
    ok(&mut run, "lines[2]");
    ok(&mut run, "compensate:lines[0]");
    ok(&mut run, "compensate:lines[2]");
    ok(&mut run, "apologize");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn saga_past_its_pivot_continues() {
    let steps = "steps:
  - { id: pay, pivot: true, do: { effect: e.pay } }
  - { id: mail, do: { effect: e.mail }, on_failure: continue }
  - { id: last, do: { effect: e.last } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "pay");
    fail(&mut run, "mail");
    ok(&mut run, "last");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn member_whose_handler_continues_satisfies_a_join() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a }, on_failure: continue }
  - { id: b, after: [], do: { effect: e.b }, on_failure: { then: other } }
  - { id: other, do: { effect: e.other } }
  - { id: first, after: { any: [a, b] }, do: { effect: e.first } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "b");
    assert_eq!(step_state(&run, "first"), "pending");
    fail(&mut run, "a");
    assert_eq!(step_state(&run, "first"), "running");
}

#[test]
fn join_meets_both_outcomes() {
    let steps = "steps:
  - { id: pay, do: { effect: e.pay }, on_failure: { then: invoice } }
  - { id: receipt, do: { effect: e.receipt } }
  - { id: invoice, do: { effect: e.invoice } }
  - { id: ship, after: [receipt, invoice], do: { effect: e.ship } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "pay");
    ok(&mut run, "receipt");
    assert_eq!(step_state(&run, "ship"), "running");

    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "pay");
    ok(&mut run, "invoice");
    assert_eq!(step_state(&run, "ship"), "running");
}

/// A charge that requires the verification and the card.
const CHECKED: &str = "steps:
  - { id: verified, after: [], do: { event: Verified }, timeout: 1d, on_timeout: { then: farewell } }
  - { id: card, after: [], do: { effect: cards.check } }
  - { id: charge, after: [verified, card], do: { effect: payments.charge } }
  - { id: receipt, do: { effect: mail.receipt } }
  - { id: farewell, do: { effect: mail.farewell } }
";

#[test]
fn join_without_a_step_that_was_not_reached_does_not_start() {
    let saga = saga(CHECKED);
    let day = Duration::from_hours(24);

    // Both orders: the card before the timeout, and after it.
    for is_checked in [true, false] {
        let mut run = start_run(&saga, json!({}));
        if is_checked {
            ok(&mut run, "card");
        }
        run.advance(day).unwrap();
        if !is_checked {
            ok(&mut run, "card");
        }
        for step in ["charge", "receipt"] {
            assert_eq!(step_state(&run, step), "bypassed", "{step}");
        }
        ok(&mut run, "farewell");
        assert_eq!(run.status(), Status::Completed);
        assert!(!run.labels().contains(&"payments.charge".to_owned()));
    }

    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "card");
    run.event("Verified", json!({})).unwrap();
    assert_eq!(step_state(&run, "charge"), "running");
}

/// As above, with a step between the verification and the join, behind a switch.
#[test]
fn join_after_a_step_that_a_failure_bypasses_does_not_start() {
    let account = CHECKED.replace(
        "  - { id: card,",
        "  - { id: account, do: { effect: accounts.create } }\n  - { id: card,",
    );
    let switch = CHECKED.replace(
        "  - { id: card,",
        "  - { id: route, after: [verified], do: { switch: [{ when: false, then: other }, { then: account }] } }
  - { id: account, do: { effect: accounts.create } }
  - { id: other, do: { effect: accounts.open } }
  - { id: card,",
    );
    for (steps, members) in [
        (account, "[account, card]"),
        (switch, "[account, other, card]"),
    ] {
        let saga = saga(&steps.replace("[verified, card]", members));
        let mut run = start_run(&saga, json!({}));
        ok(&mut run, "card");
        run.advance(Duration::from_hours(24)).unwrap();
        assert_eq!(step_state(&run, "charge"), "bypassed", "{members}");
        ok(&mut run, "farewell");
        assert_eq!(run.status(), Status::Completed);

        let mut run = start_run(&saga, json!({}));
        ok(&mut run, "card");
        run.event("Verified", json!({})).unwrap();
        ok(&mut run, "account");
        assert_eq!(step_state(&run, "charge"), "running", "{members}");
    }
}

/// The branches of a failure meet again, at once or after further steps.
#[test]
fn join_of_a_step_and_of_what_replaces_it_starts() {
    let direct = CHECKED.replace("[verified, card]", "[verified, farewell, card]");
    let later = CHECKED.replace("[verified, card]", "[verified, blocked, card]");
    let later = format!("{later}  - {{ id: blocked, do: {{ effect: accounts.block }} }}\n");
    for (steps, replacing) in [
        (direct, &["farewell"][..]),
        (later, &["farewell", "blocked"]),
    ] {
        let saga = saga(&steps);
        let mut run = start_run(&saga, json!({}));
        ok(&mut run, "card");
        run.advance(Duration::from_hours(24)).unwrap();
        for step in replacing {
            assert_eq!(step_state(&run, "charge"), "pending");
            ok(&mut run, step);
        }
        assert_eq!(step_state(&run, "charge"), "running");

        let mut run = start_run(&saga, json!({}));
        run.event("Verified", json!({})).unwrap();
        ok(&mut run, "card");
        assert_eq!(step_state(&run, "charge"), "running");
    }
}

/// A replacement that a switch then leaves out does not replace the failed step.
#[test]
fn join_whose_replacement_is_not_selected_does_not_start() {
    let steps = "vars: { again: =event.again }
steps:
  - { id: pay, after: [], do: { effect: e.pay }, on_failure: { then: decide } }
  - { id: card, after: [], do: { effect: e.card } }
  - { id: decide, do: { switch: [{ when: vars.again, then: invoice }, { then: sorry }] } }
  - { id: invoice, do: { effect: e.invoice } }
  - { id: sorry, do: { effect: e.sorry } }
  - { id: ship, after: [pay, invoice, card], do: { effect: e.ship } }
";
    let saga = saga(steps);
    for (again, branch, ship) in [(true, "invoice", "running"), (false, "sorry", "bypassed")] {
        let mut run = start_run(&saga, json!({ "again": again }));
        fail(&mut run, "pay");
        ok(&mut run, branch);
        ok(&mut run, "card");
        assert_eq!(step_state(&run, "ship"), ship);
    }
}

#[test]
fn branch_of_a_failure_that_is_not_selected_is_like_a_case() {
    let steps = "steps:
  - { id: pay, after: [], do: { effect: e.pay }, timeout: 1h, on_timeout: { then: late }, on_failure: { then: broken } }
  - { id: late, do: { effect: e.late } }
  - { id: broken, do: { effect: e.broken } }
  - { id: end, after: [late, broken], do: { effect: e.end } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "pay");
    ok(&mut run, "broken");
    assert_eq!(step_state(&run, "end"), "running");
}

#[test]
fn race_without_the_step_that_was_not_reached_requires_the_others() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a }, on_failure: { then: other } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: other, do: { effect: e.other } }
  - { id: first, after: { any: [a, b] }, do: { effect: e.first } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "a");
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "first"), "running");

    // The saga goes on with `other` in either order of the failures.
    for order in [["a", "b"], ["b", "a"]] {
        let mut run = start_run(&saga, json!({}));
        for step in order {
            fail(&mut run, step);
        }
        assert_eq!(step_state(&run, "first"), "bypassed", "{order:?}");
        ok(&mut run, "other");
        assert_eq!(run.status(), Status::Completed, "{order:?}");
    }
}

#[test]
fn quorum_does_not_count_what_a_handler_replaced_elsewhere() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a }, on_failure: { then: other } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: c, after: [], do: { effect: e.c } }
  - { id: other, do: { effect: e.other } }
  - { id: quorum, after: { count: 3, of: [a, b, c] }, do: { effect: e.q } }
";
    let three = saga(steps);
    let mut run = start_run(&three, json!({}));
    ok(&mut run, "b");
    fail(&mut run, "a");
    assert_eq!(step_state(&run, "quorum"), "bypassed");
    ok(&mut run, "c");
    ok(&mut run, "other");
    assert_eq!(run.status(), Status::Completed);

    let two = saga(&steps.replace("count: 3", "count: 2"));
    let mut run = start_run(&two, json!({}));
    fail(&mut run, "a");
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "quorum"), "pending");
    ok(&mut run, "c");
    assert_eq!(step_state(&run, "quorum"), "running");
}

/// The saga follows the replacement, so its failure is not tolerated.
#[test]
fn failed_replacement_in_a_race_fails_the_saga() {
    let steps = "steps:
  - { id: pay, after: [], do: { effect: e.pay }, on_failure: { then: invoice } }
  - { id: invoice, do: { effect: e.invoice } }
  - { id: ship, after: { any: [pay, invoice] }, do: { effect: e.ship } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "pay");
    fail(&mut run, "invoice");
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn handler_that_selects_the_join_starts_it() {
    let steps = "steps:
  - { id: verified, after: [], do: { event: Verified }, timeout: 1d, on_timeout: { then: close } }
  - { id: account, do: { effect: e.account } }
  - { id: card, after: [], do: { effect: e.card } }
  - { id: close, after: [verified, account, card], do: { effect: e.close } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "card");
    run.advance(Duration::from_hours(24)).unwrap();
    assert_eq!(step_state(&run, "close"), "running");
}

#[test]
fn join_in_a_loop_decides_in_each_round() {
    let steps = "steps:
  - { id: ask, after: [], do: { event: Answered }, timeout: 1d, on_timeout: { then: remind } }
  - { id: note, after: [ask], do: { effect: e.note } }
  - { id: file, after: [ask, note], do: { effect: e.file } }
  - { id: remind, do: { effect: e.remind } }
  - { id: again, after: [file, remind], do: { repeat: ask, while: round < 1, max: 2 } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(24)).unwrap();
    assert_eq!(step_state(&run, "file"), "bypassed");
    ok(&mut run, "remind[0]");
    run.event("Answered", json!({})).unwrap();
    ok(&mut run, "note[1]");
    assert_eq!(step_state(&run, "file"), "running");
    ok(&mut run, "file[1]");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn value_that_a_handler_cannot_compute_fails_the_saga() {
    let steps = "vars: { amount: =event.?amount.orValue('') }
steps:
  - { id: pay, do: { effect: e.pay }, on_failure: { save: { rest: =vars.amount - 1 } } }
  - { id: next, do: { effect: e.next, data: =vars.rest } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "pay");
    let failure = run.failure().unwrap();
    assert_eq!(
        (run.status(), failure.code.as_str()),
        (Status::Failed, "expression_error")
    );
    assert!(
        failure.message.contains("cannot set vars.rest"),
        "{}",
        failure.message
    );
    assert!(
        failure.message.contains("after broken"),
        "{}",
        failure.message
    );
}

#[test]
fn each_round_of_a_loop_has_its_own_failure() {
    let steps = "vars: { left: 2 }
steps:
  - { id: call, do: { effect: e.call }, on_failure: { save: { left: =vars.left - 1 } } }
  - { id: again, do: { repeat: call, while: =vars.left > 0, max: 5 } }
  - { id: last, do: { effect: e.last } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "call[0]");
    assert_eq!(failure_of(&run, "call"), Value::Null);
    fail(&mut run, "call[1]");
    assert_eq!(failure_of(&run, "call")["handled_by"], "on_failure");
    ok(&mut run, "last");
    assert_eq!(run.status(), Status::Completed);
}

/// Returns the data of the last effect of this name.
fn last_data(run: &InstanceDriver<'_>, name: &str) -> Value {
    let effects = run.work().iter().rev().filter_map(|work| work.effect());
    let mut named = effects.filter(|effect| effect.name.as_str() == name);
    named.next().unwrap().payload.clone()
}

#[test]
fn late_success_changes_no_variable_of_the_steps_that_follow() {
    let steps = "steps:
  - { id: first, do: { effect: q.first }, timeout: 1h, save: { price: =event.p }, undo: { effect: q.undo, data: [=vars.price] }, on_timeout: { then: second } }
  - { id: second, do: { effect: q.second }, save: { price: =event.p } }
  - { id: approved, do: { event: Approved } }
  - { id: pay, do: { effect: e.pay, data: [=vars.price] } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    run.outcome("second", &succeeded(json!({ "p": 20 })))
        .unwrap();
    run.outcome("first", &succeeded(json!({ "p": 999 })))
        .unwrap();
    assert_eq!(last_data(&run, "q.undo"), json!([999]));
    run.event("Approved", json!({})).unwrap();
    assert_eq!(last_data(&run, "e.pay"), json!([20]));
}

/// As above, in a loop whose round has ended before the late success.
#[test]
fn late_success_of_a_past_round_changes_only_its_own_undo() {
    let steps = "steps:
  - { id: first, do: { effect: q.first }, timeout: 1h, save: { price: =event.p }, undo: { effect: q.undo, data: [=vars.price] }, on_timeout: { save: { price: 0 } } }
  - { id: second, do: { effect: q.second }, save: { price: =event.p }, undo: { effect: s.undo, data: [=vars.price] } }
  - { id: again, do: { repeat: first, while: round < 1, max: 2 } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    run.outcome("second[0]", &succeeded(json!({ "p": 20 })))
        .unwrap();
    run.outcome("first[0]", &succeeded(json!({ "p": 999 })))
        .unwrap();
    assert_eq!(last_data(&run, "q.undo"), json!([999]));
    ok(&mut run, "compensate:first[0]");

    run.cancel("test").unwrap();
    assert_eq!(last_data(&run, "s.undo"), json!([20]));
}

#[test]
fn undo_of_a_failed_step_reads_its_own_values() {
    let steps = "vars: { items: =event.items }
steps:
  - id: pay
    foreach: { in: =vars.items, as: item }
    do: { effect: e.pay }
    save: { ids: =event.id }
    undo: { effect: e.refund, data: [=vars.ids] }
    on_failure: { save: { ids: [] } }
  - { id: next, do: { effect: e.next, data: [=vars.ids] } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({ "items": [1, 2] }));
    run.outcome("pay[0]", &succeeded(json!({ "id": "p-0" })))
        .unwrap();
    fail(&mut run, "pay[1]");
    assert_eq!(last_data(&run, "e.next"), json!([[]]));
    assert_eq!(last_data(&run, "e.refund"), json!([["p-0", null]]));
}

#[test]
fn member_of_a_race_whose_handler_fails_ends_the_saga() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a }, on_failure: fail }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: first, after: { any: [a, b] }, do: { effect: e.first } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    fail(&mut run, "a");
    assert_eq!(run.status(), Status::Failed);
}

/// A reminder loop: the event that arrives between two waits must not be lost.
#[test]
fn event_after_a_timeout_counts_for_the_next_wait() {
    let steps = "steps:
  - { id: paid, do: { event: Paid }, timeout: 7d, on_timeout: { save: { again: true } }, save: { again: false, amount: =event.amount } }
  - { id: remind, when: =vars.again, do: { effect: mail.remind } }
  - { id: next, do: { repeat: paid, while: =vars.again, max: 3 }, on_failure: { then: debt } }
  - { id: ship, do: { effect: parcels.send, data: =vars.amount } }
  - { id: debt, do: { effect: debts.collect } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(7 * 24)).unwrap();
    run.event("Paid", json!({ "amount": 5 })).unwrap();
    assert_eq!(run.state_view()["early_events"], json!(["Paid"]));
    ok(&mut run, "remind[0]");
    assert_eq!(run.state_view()["vars"]["amount"], 5);
    ok(&mut run, "ship");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn event_after_a_timeout_counts_for_a_later_step() {
    let steps = "steps:
  - { id: paid, do: { event: Paid }, timeout: 1h, on_timeout: continue }
  - { id: check, do: { effect: e.check } }
  - { id: second, do: { event: Paid }, timeout: 1h }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(1)).unwrap();
    run.event("Paid", json!({})).unwrap();
    ok(&mut run, "check");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn event_after_a_timeout_that_no_step_wants_is_recorded() {
    let saga = saga(SIGN_UP);
    let mut run = start_run(&saga, json!({}));
    run.advance(Duration::from_hours(24)).unwrap();
    assert_eq!(
        run.event("Verified", json!({})).unwrap(),
        "verified: ok, late"
    );
    ok(&mut run, "farewell");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn loop_with_too_many_rounds_has_a_handler() {
    let steps = "steps:
  - { id: call, do: { effect: e.call } }
  - { id: again, do: { repeat: call, while: round < 5, max: 1 }, on_failure: { then: stop } }
  - { id: last, do: { effect: e.last } }
  - { id: stop, do: { effect: e.end } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "call[0]");
    assert_eq!(failure_of(&run, "again")["code"], "too_many_rounds");
    assert_eq!(step_state(&run, "last"), "bypassed");
    ok(&mut run, "stop");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn migration_keeps_the_failure() {
    let version = |number: u32, id: &str| {
        let steps = format!(
            "migrations: [{{ from: 1, steps: {{ pay: {id} }} }}]
steps:
  - {{ id: {id}, do: {{ effect: e.pay }}, on_failure: {{ then: late }} }}
  - {{ id: next, do: {{ effect: e.next }} }}
  - {{ id: late, do: {{ effect: e.late }} }}
  - {{ id: end, after: [next, late], do: {{ effect: e.end }} }}
"
        );
        let steps = steps.replace("[{ from: 1, steps: { pay: pay } }]", "[]");
        compile_yaml(
            &format!("saga: t\nversion: {number}\nstart: Go\n{steps}"),
            "t",
        )
        .unwrap()
    };
    let old = version(1, "pay");
    let new = version(2, "charge");
    let mut run = start_run(&old, json!({}));
    run.outcome("pay", &failed("broken")).unwrap();
    run.migrate(&new).unwrap();
    assert_eq!(failure_of(&run, "charge")["code"], "broken");
    ok(&mut run, "late");
    assert_eq!(step_state(&run, "end"), "running");
}

#[test]
fn tolerated_failure_is_shown_at_its_step() {
    let steps = "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: first, after: { any: [a, b] }, do: { effect: e.first } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({}));
    let note = fail(&mut run, "a");
    assert_eq!(note, "a: broken, a: failed with broken; tolerated by first");
    assert_eq!(
        failure_of(&run, "a"),
        json!({ "code": "broken", "message": "failed with broken", "handled_by": "join" })
    );
    ok(&mut run, "b");
    assert_eq!(step_state(&run, "first"), "running");
}

#[test]
fn handlers_without_a_meaning_are_rejected() {
    let found = diagnostics(
        "steps:
  - { id: a, do: { effect: e.a }, on_timeout: continue }
  - { id: b, do: { wait: 1h }, on_failure: continue }
  - { id: c, do: { effect: e.c }, on_failure: d }
  - { id: d, do: { effect: e.d }, on_failure: {} }
  - { id: e, do: { effect: e.e }, on_failure: { then: unknown } }
  - { id: f, do: { effect: e.f }, on_failure: { then: a } }
  - { id: g, do: { effect: e.g }, on_failure: { then: [] } }
  - { id: h, do: { effect: e.h }, on_failure: { then: continue } }
",
    );
    for expected in [
        "steps[0].on_timeout: the step has no `timeout`, so `on_timeout` never applies",
        "steps[1].on_failure: a wait has no `on_failure`",
        "steps[2].on_failure: this must be `continue` or `fail`",
        "steps[3].on_failure: the handler has neither `save` nor `then`",
        "steps[4].on_failure.then: there is no step `unknown`",
        "steps[6].on_failure.then: the list names no step",
        "steps[7].on_failure.then: there is no step `continue`",
    ] {
        assert!(
            found.contains(expected),
            "{expected} is missing in\n{found}"
        );
    }
    let cycle = diagnostics(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, do: { effect: e.b }, on_failure: { then: a } }
",
    );
    assert!(
        cycle.contains("step `b` selects `a`, which does not come after it"),
        "{cycle}"
    );
}

#[test]
fn then_without_a_step_has_a_remedy() {
    for (handler, remedy) in [
        (
            "on_timeout: { save: { x: 1 }, then: continue }",
            "omit `then`, or write `on_timeout: continue`",
        ),
        ("on_timeout: { then: fail }", "write `on_timeout: fail`"),
        ("on_timeout: { then: [] }", "write `on_timeout: continue`"),
        (
            "on_timeout: { save: { x: 1 }, then: [] }",
            "omit `then` to go on",
        ),
    ] {
        let text = format!(
            "saga: t\nversion: 1\nstart: Go\nsteps: [{{ id: a, do: {{ event: E }}, timeout: 1h, {handler} }}]"
        );
        let found = compile_yaml(&text, "t").unwrap_err();
        let suggestion = found[0].suggestion.clone().unwrap_or_default();
        assert!(suggestion.contains(remedy), "{handler}: {found:?}");
    }
}

#[test]
fn history_states_why_a_handler_failed() {
    let saga = saga(
        "steps: [{ id: a, do: { effect: e.a }, on_failure: { save: { x: =failure.code.y } } }]",
    );
    let mut run = start_run(&saga, json!({}));
    let note = fail(&mut run, "a");
    assert!(
        note.contains("a: on_failure failed: cannot set vars.x: `failure.code.y`"),
        "{note}"
    );
}

#[test]
fn steps_after_a_failed_foreach_do_not_read_a_part_of_its_list() {
    let steps = "vars: { items: =event.items }
steps:
  - id: pay
    foreach: { in: =vars.items, as: item }
    do: { effect: e.pay }
    save: { ids: =event.id }
    undo: { effect: e.refund, data: [=vars.ids] }
    on_failure: { save: { paid: =size(vars.ids) } }
  - { id: next, do: { effect: e.next, data: [=vars.ids, =vars.paid] } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({ "items": [1, 2] }));
    run.outcome("pay[0]", &succeeded(json!({ "id": "p-0" })))
        .unwrap();
    fail(&mut run, "pay[1]");
    assert_eq!(last_data(&run, "e.next"), json!([null, 2]));
    assert_eq!(last_data(&run, "e.refund"), json!([["p-0", null]]));
}

#[test]
fn steps_after_a_join_do_not_read_a_part_of_the_list_of_a_failed_foreach() {
    let steps = "vars: { items: =event.items }
steps:
  - id: pay
    after: []
    foreach: { in: =vars.items, as: item }
    do: { effect: e.pay }
    save: { ids: =event.id }
    undo: { effect: e.refund, data: [=vars.ids] }
  - { id: invoice, after: [], do: { event: Invoiced } }
  - { id: next, after: { any: [pay, invoice] }, do: { effect: e.next, data: [=vars.ids] } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({ "items": [1, 2] }));
    run.outcome("pay[0]", &succeeded(json!({ "id": "p-0" })))
        .unwrap();
    fail(&mut run, "pay[1]");
    assert_eq!(last_data(&run, "e.refund"), json!([["p-0", null]]));

    run.event("Invoiced", json!({})).unwrap();
    assert_eq!(last_data(&run, "e.next"), json!([null]));
}

#[test]
fn steps_after_a_join_do_not_read_a_part_of_the_list_of_a_losing_foreach() {
    let steps = "vars: { items: =event.items }
steps:
  - id: pay
    after: []
    foreach: { in: =vars.items, as: item }
    do: { effect: e.pay }
    save: { ids: =event.id }
    undo: { effect: e.refund, data: [=vars.ids] }
  - { id: invoice, after: [], do: { event: Invoiced } }
  - { id: next, after: { any: [pay, invoice] }, do: { effect: e.next, data: [=vars.ids] } }
  - { id: last, do: { effect: e.last, data: [=vars.ids] } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({ "items": [1, 2] }));
    run.outcome("pay[0]", &succeeded(json!({ "id": "p-0" })))
        .unwrap();
    run.event("Invoiced", json!({})).unwrap();
    assert_eq!(last_data(&run, "e.next"), json!([null]));
    assert_eq!(last_data(&run, "e.refund"), json!([["p-0", null]]));

    // An element that succeeds late changes only its `undo`.
    run.outcome("pay[1]", &succeeded(json!({ "id": "p-1" })))
        .unwrap();
    ok(&mut run, "compensate:pay[0]");
    assert_eq!(last_data(&run, "e.refund"), json!([["p-0", "p-1"]]));
    ok(&mut run, "next");
    assert_eq!(last_data(&run, "e.last"), json!([null]));
}

#[test]
fn late_element_of_a_tolerated_failure_changes_only_its_undo() {
    let steps = "vars: { items: =event.items }
steps:
  - id: pay
    after: []
    foreach: { in: =vars.items, as: item }
    do: { effect: e.pay }
    save: { ids: =event.id }
    undo: { effect: e.refund, data: [=vars.ids] }
  - { id: invoice, after: [], do: { event: Invoiced } }
  - { id: next, after: { any: [pay, invoice] }, do: { effect: e.next, data: [=vars.ids] } }
";
    let saga = saga(steps);
    let mut run = start_run(&saga, json!({ "items": [1, 2] }));
    fail(&mut run, "pay[0]");
    run.outcome("pay[1]", &succeeded(json!({ "id": "p-1" })))
        .unwrap();
    assert_eq!(last_data(&run, "e.refund"), json!([[null, "p-1"]]));
    run.event("Invoiced", json!({})).unwrap();
    assert_eq!(last_data(&run, "e.next"), json!([null]));
}
