//! Loops: rounds, their ends, their compensation, and the kinds of steps in them.

use std::time::Duration;

use orlog_model::{Status, Work, WorkOutcome};
use orlog_program::{CompiledDefinition, MAX_PAYLOAD_BYTES};
use orlog_testkit::definition_suite::{InstanceDriver, in_doubt, succeeded};
use serde_json::{Value, json};

use super::{diagnostics, fail, ok, saga, since, start_run, step_state};

pub(super) const REVIEW: &str = "steps:
  - { id: open, do: { effect: e.open }, undo: { effect: u.open } }
  - id: draft
    do: { effect: e.draft, data: { round: =round, note: =vars.note } }
    save: { text: =event.text }
    undo: { effect: u.draft, data: { round: =round, text: =vars.text, note: =vars.note } }
  - { id: decide, do: { effect: e.decide, data: =vars.text }, save: { note: =event.note }, undo: { effect: u.decide } }
  - { id: review, do: { repeat: draft, while: vars.note == 'again', max: 3 } }
  - { id: print, do: { effect: e.print }, undo: { effect: u.print } }
";

fn answer(run: &mut InstanceDriver<'_>, tag: &str, data: Value) -> String {
    run.outcome(tag, &succeeded(data))
        .unwrap_or_else(|reason| panic!("{tag}: {reason}"))
}

/// Returns the payload of the last effect.
fn last_payload(run: &InstanceDriver<'_>) -> Value {
    let payload = |work: &Work| work.effect().map(|effect| effect.payload.clone());
    run.work().iter().rev().find_map(payload).unwrap()
}

fn review_rounds(saga: &CompiledDefinition, rounds: usize) -> InstanceDriver<'_> {
    let mut run = start_run(saga, json!({}));
    ok(&mut run, "open");
    for round in 0..rounds {
        answer(
            &mut run,
            &format!("draft[{round}]"),
            json!({ "text": format!("text {round}") }),
        );
        answer(
            &mut run,
            &format!("decide[{round}]"),
            json!({ "note": "again" }),
        );
    }
    run
}

fn rounds(run: &InstanceDriver<'_>, id: &str) -> Value {
    let view = run.state_view();
    let step = view["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|step| step["id"] == id)
        .unwrap();
    let rounds = step["rounds"].as_array().unwrap().iter();
    rounds
        .map(|round| json!([round["round"], round["state"]]))
        .collect()
}

#[test]
fn loop_repeats_its_steps_while_the_condition_holds() {
    let saga = saga(REVIEW);
    let mut run = start_run(&saga, json!({}));
    let from = run.work().len();
    ok(&mut run, "open");
    assert_eq!(last_payload(&run), json!({ "round": 0, "note": null }));
    answer(&mut run, "draft[0]", json!({ "text": "first" }));
    assert_eq!(last_payload(&run), "first");
    assert_eq!(
        answer(&mut run, "decide[0]", json!({ "note": "again" })),
        "decide[0]: ok, review: round 1"
    );
    assert_eq!(
        last_payload(&run),
        json!({ "round": 1, "note": "again" }),
        "a round reads the previous one"
    );
    assert_eq!(
        (rounds(&run, "draft"), rounds(&run, "decide")),
        (
            json!([[0, "completed"], [1, "running"]]),
            json!([[0, "completed"], [1, "pending"]])
        )
    );
    assert_eq!(
        run.outcome("draft[0]", &succeeded(json!({}))).unwrap_err(),
        "the step is completed"
    );
    answer(&mut run, "draft[1]", json!({ "text": "second" }));
    assert_eq!(
        answer(&mut run, "decide[1]", json!({ "note": "fine" })),
        "decide[1]: ok, review: ended after 2 rounds"
    );
    assert_eq!(
        run.state_view()["vars"],
        json!({ "text": "second", "note": "fine" })
    );
    assert_eq!(
        since(&run, from),
        ["draft[0]", "decide[0]", "draft[1]", "decide[1]", "print"]
    );
    ok(&mut run, "print");
    assert_eq!(run.status(), Status::Completed);
    assert_eq!(
        rounds(&run, "draft"),
        json!([[1, "completed"]]),
        "past rounds are not kept after the end"
    );
}

#[test]
fn every_round_is_compensated_in_reverse_with_its_own_values() {
    let saga = saga(REVIEW);
    let mut run = review_rounds(&saga, 2);
    answer(&mut run, "draft[2]", json!({ "text": "text 2" }));
    fail(&mut run, "decide[2]");
    let expected = [
        (
            "compensate:draft[2]",
            json!({ "round": 2, "text": "text 2", "note": "again" }),
        ),
        ("compensate:decide[1]", Value::Null),
        (
            "compensate:draft[1]",
            json!({ "round": 1, "text": "text 1", "note": "again" }),
        ),
        ("compensate:decide[0]", Value::Null),
        (
            "compensate:draft[0]",
            json!({ "round": 0, "text": "text 0", "note": "again" }),
        ),
        ("compensate:open", Value::Null),
    ];
    for (tag, data) in expected {
        assert_eq!(
            (
                run.compensated().last().unwrap().as_str(),
                last_payload(&run)
            ),
            (tag, data)
        );
        ok(&mut run, tag);
    }
    assert_eq!(
        (run.status(), step_state(&run, "draft").as_str()),
        (Status::Failed, "compensated")
    );
}

#[test]
fn loop_fails_if_another_round_is_due_after_the_maximum() {
    let saga = saga(REVIEW);
    let run = review_rounds(&saga, 3);
    let failure = run.failure().unwrap();
    assert_eq!(failure.code, "too_many_rounds");
    assert_eq!(
        failure.message,
        "review: another round is due after 3 rounds"
    );
    assert_eq!(
        (run.status(), run.compensated()),
        (
            Status::Compensating,
            vec!["compensate:decide[2]".to_owned()]
        )
    );
}

#[test]
fn loop_continues_after_the_maximum_if_the_definition_says_so() {
    let text = REVIEW.replace("max: 3", "max: 3, on_max: continue");
    let saga = saga(&text);
    let mut run = review_rounds(&saga, 3);
    assert_eq!(step_state(&run, "print"), "running");
    ok(&mut run, "print");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn until_ends_a_loop_and_reads_the_round() {
    let saga = saga(
        "steps:
  - { id: poll, do: { effect: e.poll }, save: { ready: =event.ready } }
  - { id: pause, do: { wait: '=string(round + 1) + \"m\"' } }
  - { id: polled, do: { repeat: [poll], until: vars.ready || round == 2, max: 9 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    for round in 0..3 {
        answer(
            &mut run,
            &format!("poll[{round}]"),
            json!({ "ready": false }),
        );
        assert_eq!(run.timers(), [format!("pause[{round}]")]);
        run.fire(&format!("pause[{round}]"), Duration::from_mins(round + 1))
            .unwrap();
    }
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn parallel_branches_and_joins_start_again_in_each_round() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a }, save: { price: =event.price }, undo: { effect: u.a, data: =round } }
  - { id: b, after: [], do: { effect: e.b }, undo: { effect: u.b, data: =round } }
  - { id: best, after: { any: [a, b] }, do: { effect: e.best }, save: { fits: =event.fits } }
  - { id: search, do: { repeat: [a, b], until: vars.fits, max: 5 } }
  - { id: book, do: { effect: e.book } }
",
    );
    let mut run = start_run(&saga, json!({}));
    answer(&mut run, "a[0]", json!({ "price": 9 }));
    assert_eq!(since(&run, 2), ["best[0]"]);
    answer(&mut run, "best[0]", json!({ "fits": false }));
    assert_eq!(since(&run, 3), ["a[1]", "b[1]"]);
    ok(&mut run, "b[0]");
    assert_eq!(
        run.compensated(),
        ["compensate:b[0]"],
        "a late success of a past round is compensated"
    );
    assert_eq!(last_payload(&run), 0);
    ok(&mut run, "b[1]");
    answer(&mut run, "best[1]", json!({ "fits": true }));
    assert_eq!(since(&run, 6), ["best[1]", "book"]);
    assert_eq!(
        run.status(),
        Status::Running,
        "the branch of the first round is still compensated"
    );
    ok(&mut run, "book");
    assert_eq!(run.status(), Status::Running);
    ok(&mut run, "compensate:b[0]");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn switch_in_a_loop_selects_a_case_in_each_round() {
    let saga = saga(
        "steps:
  - id: route
    do: { switch: [{ when: round == 0, then: one }, { then: two }] }
  - { id: one, do: { effect: e.one } }
  - { id: two, do: { effect: e.two } }
  - { id: again, after: [one, two], do: { repeat: route, while: round < 1, max: 2 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "one[0]");
    ok(&mut run, "two[1]");
    assert_eq!(
        (run.status(), since(&run, 0)[..2].to_vec()),
        (Status::Completed, vec!["one[0]", "two[1]"])
    );
}

#[test]
fn steps_that_end_at_once_pass_all_rounds_in_one_transition() {
    let saga = saga(
        "vars: { items: =event.items }
steps:
  - { id: item, when: '=vars.items[round]', do: { effect: e.item } }
  - { id: all, do: { repeat: item, while: round + 1 < size(vars.items), max: 1000 } }
",
    );
    let mut items = vec![false; 1000];
    items[500] = true;
    let mut run = start_run(&saga, json!({ "items": items }));
    assert_eq!(since(&run, 0), ["item[500]"]);
    ok(&mut run, "item[500]");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn events_of_the_next_round_are_kept() {
    let saga = saga(
        "steps:
  - { id: next, do: { event: [Item, End] }, save: { last: '=has(event.last)' } }
  - { id: store, do: { effect: e.store } }
  - { id: items, do: { repeat: next, until: vars.last, max: 100 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Item", json!({ "n": 0 })).unwrap();
    for n in 1..4 {
        run.event("Item", json!({ "n": n })).unwrap();
    }
    run.event("End", json!({ "last": true })).unwrap();
    for round in 0..4 {
        assert_eq!(
            run.state_view()["early_events"].as_array().unwrap().len(),
            4 - round
        );
        ok(&mut run, &format!("store[{round}]"));
    }
    ok(&mut run, "store[4]");
    assert_eq!(run.status(), Status::Completed);
    assert!(run.state_view().get("early_events").is_none());
}

#[test]
fn event_after_the_last_round_is_late() {
    let saga = saga(
        "steps:
  - { id: paid, do: { command: pay.Ask }, ok: Paid, undo: { command: pay.Return } }
  - { id: twice, do: { repeat: paid, while: round < 1, max: 2 } }
  - { id: ship, do: { effect: e.ship } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.event("Paid", json!({})).unwrap();
    run.event("Paid", json!({})).unwrap();
    assert_eq!(step_state(&run, "ship"), "running");
    run.event("Paid", json!({})).unwrap_err();
}

#[test]
fn commands_tasks_jobs_and_children_of_a_round_have_its_number() {
    let saga = saga(
        "steps:
  - { id: ask, do: { command: x.Ask }, retry: { max_attempts: 2, initial_backoff: 1s } }
  - { id: task, do: { human: { title: '=\"Round \" + string(round)' } }, ok: [Yes, No], timeout: 1h }
  - { id: job, do: { job: { type: js, script: run, args: =round } }, undo: { effect: u.job, data: =results.job } }
  - { id: child, do: { saga: audit }, save: { more: =event.more } }
  - { id: end, do: { repeat: ask, while: vars.more, max: 3 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    for round in 0..2 {
        let tag = |id: &str| format!("{id}[{round}]");
        fail(&mut run, &tag("ask"));
        assert_eq!(run.timers(), [format!("retry:ask[{round}]")]);
        run.fire(&format!("retry:ask[{round}]"), Duration::from_secs(1))
            .unwrap();
        run.outcome(&tag("ask"), &WorkOutcome::Accepted).unwrap();
        let task = run.tasks().last().unwrap();
        assert_eq!(
            (task.tag.as_str(), task.title.as_str()),
            (tag("task").as_str(), &*format!("Round {round}"))
        );
        assert_eq!(run.timers(), [tag("task")]);
        let yes = WorkOutcome::succeeded(Some("Yes".parse().unwrap()), Value::Null);
        run.outcome(&tag("task"), &yes).unwrap();
        answer(&mut run, &tag("job"), json!({ "frames": round }));
        let Some(Work::StartChild(start)) = run.work().last() else {
            panic!("a child saga")
        };
        assert!(
            start
                .correlation
                .as_str()
                .ends_with(&format!(":child[{round}]")),
            "{}",
            start.correlation
        );
        if round == 0 {
            answer(&mut run, &tag("child"), json!({ "more": true }));
        } else {
            fail(&mut run, &tag("child"));
        }
    }
    assert_eq!(
        (
            run.compensated().last().unwrap().as_str(),
            last_payload(&run)
        ),
        ("compensate:job[1]", json!({ "frames": 1 }))
    );
    ok(&mut run, "compensate:job[1]");
    assert_eq!(
        (
            run.compensated().last().unwrap().as_str(),
            last_payload(&run)
        ),
        ("compensate:job[0]", json!({ "frames": 0 }))
    );
}

#[test]
fn doubt_about_a_past_round_is_decided() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a }, in_doubt: ask, undo: { effect: u.a } }
  - { id: b, after: [], do: { effect: e.b } }
  - { id: join, after: { any: [a, b] }, do: { wait: 1s } }
  - { id: end, do: { repeat: [a, b], while: round < 1, max: 2 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    run.outcome("a[0]", &in_doubt()).unwrap();
    ok(&mut run, "b[0]");
    run.fire("join[0]", Duration::from_secs(1)).unwrap();
    ok(&mut run, "b[1]");
    run.fire("join[1]", Duration::from_secs(1)).unwrap();
    assert_eq!(
        (run.status(), step_state(&run, "a").as_str()),
        (Status::Running, "in_doubt_abandoned")
    );
    let executed = WorkOutcome::succeeded(Some("Executed".parse().unwrap()), json!({}));
    run.outcome("a[0]", &executed).unwrap();
    assert_eq!(run.compensated(), ["compensate:a[0]"]);
    ok(&mut run, "compensate:a[0]");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn loop_past_the_pivot_is_stuck_and_can_be_skipped() {
    let text = format!(
        "steps:\n  - {{ id: go, pivot: true, do: {{ effect: e.go }} }}\n{}",
        &REVIEW["steps:\n".len()..]
    );
    let saga = saga(&text);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "go");
    ok(&mut run, "open");
    fail(&mut run, "draft[0]");
    assert_eq!(
        (run.status(), run.state_view()["stuck"]["step"].as_str()),
        (Status::Stuck, Some("draft[0]"))
    );
    run.retry().unwrap();
    for round in 0..3 {
        answer(&mut run, &format!("draft[{round}]"), json!({ "text": "t" }));
        answer(
            &mut run,
            &format!("decide[{round}]"),
            json!({ "note": "again" }),
        );
    }
    assert_eq!(
        (run.status(), run.state_view()["stuck"]["step"].as_str()),
        (Status::Stuck, Some("review"))
    );
    run.skip().unwrap();
    ok(&mut run, "print");
    assert_eq!(run.status(), Status::Completed);
}

#[test]
fn thousand_rounds_stay_within_the_limits() {
    let saga = saga(
        "steps:
  - { id: page, do: { effect: e.page }, save: { cursor: =event.cursor }, undo: { effect: u.page, data: =vars.cursor } }
  - { id: store, do: { effect: e.store }, retry: { max_attempts: 3 } }
  - { id: pages, do: { repeat: page, while: vars.cursor != 'end', max: 1000 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    for round in 0..1000 {
        answer(
            &mut run,
            &format!("page[{round}]"),
            json!({ "cursor": format!("cursor {round}") }),
        );
        ok(&mut run, &format!("store[{round}]"));
    }
    assert_eq!(run.failure().unwrap().code, "too_many_rounds");
    assert!(
        run.state().len() < MAX_PAYLOAD_BYTES / 4,
        "{} bytes",
        run.state().len()
    );
    for round in (0..1000).rev() {
        assert_eq!(last_payload(&run), format!("cursor {round}"));
        ok(&mut run, &format!("compensate:page[{round}]"));
    }
    assert_eq!(run.status(), Status::Failed);
}

#[test]
fn loop_fails_before_its_values_exceed_the_state() {
    let saga = saga(REVIEW);
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "open");
    let large = "x".repeat(MAX_PAYLOAD_BYTES / 3);
    for round in 0..2 {
        answer(
            &mut run,
            &format!("draft[{round}]"),
            json!({ "text": large }),
        );
        answer(
            &mut run,
            &format!("decide[{round}]"),
            json!({ "note": "again" }),
        );
    }
    assert_eq!(run.failure().unwrap().code, "loop_too_large");
    assert_eq!(run.compensated(), ["compensate:decide[1]"]);
}

#[test]
fn instance_in_a_loop_migrates() {
    let version = |number: u32, rest: &str| {
        orlog_program::compile_yaml(
            &format!("saga: t\nversion: {number}\nstart: Go\n{rest}"),
            "t",
        )
        .unwrap()
    };
    let old = version(1, REVIEW);
    let renamed = REVIEW
        .replace("id: draft", "id: write")
        .replace("repeat: draft", "repeat: write")
        + "migrations: [{ from: 1, steps: { draft: write } }]\n";
    let new = version(2, &renamed.replace("max: 3", "max: 9"));
    let mut run = review_rounds(&old, 3 - 1);
    let migration = run.migrate(&new).unwrap();
    let tags: Vec<_> = migration
        .tags
        .iter()
        .map(|(old, new)| format!("{old} {new}"))
        .collect();
    assert!(tags.contains(&"draft[2] write[2]".to_owned()), "{tags:?}");
    assert!(
        tags.contains(&"compensate:draft[0] compensate:write[0]".to_owned()),
        "{tags:?}"
    );
    answer(&mut run, "write[2]", json!({ "text": "text 2" }));
    answer(&mut run, "decide[2]", json!({ "note": "again" }));
    fail(&mut run, "write[3]");
    for tag in [
        "decide[2]",
        "write[2]",
        "decide[1]",
        "write[1]",
        "decide[0]",
        "write[0]",
        "open",
    ] {
        ok(&mut run, &format!("compensate:{tag}"));
    }
    assert_eq!(run.status(), Status::Failed);

    let end = "  - { id: review, do: { repeat: draft, while: vars.note == 'again', max: 3 } }\n";
    let without = version(
        2,
        &(REVIEW.replace(end, "").replace("round: =round, ", "")
            + "migrations: [{ from: 1, steps: { review: null } }]\n"),
    );
    let reasons = review_rounds(&old, 1)
        .migrate(&without)
        .unwrap_err()
        .join("\n");
    assert!(
        reasons.contains("step `draft` has started, and `draft` belongs to another loop"),
        "{reasons}"
    );
}

#[test]
fn invalid_loops_are_rejected() {
    let of = |steps: &str| diagnostics(&format!("steps:\n{steps}"));
    let effect = |id: &str| format!("  - {{ id: {id}, do: {{ effect: e.{id} }} }}\n");
    let (a, b) = (effect("a"), effect("b"));
    let cases = [
        (
            format!("{a}  - {{ id: l, do: {{ repeat: a, max: 2 }} }}\n"),
            "steps[1].do: a loop must have exactly one of `while` and `until`",
        ),
        (
            format!("{a}  - {{ id: l, do: {{ repeat: a, while: round < 1, max: 1001 }} }}\n"),
            "steps[1].do.max: a loop has 1 to 1000 rounds, not 1001",
        ),
        (
            format!("  - {{ id: l, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n{a}"),
            "steps[0].do.repeat[0]: no path leads from `a` to the end of the loop `l`",
        ),
        (
            format!("{a}  - {{ id: l, do: {{ repeat: c, while: round < 1, max: 2 }} }}\n"),
            "steps[1].do.repeat[0]: there is no step `c`",
        ),
        (
            format!("{a}{b}  - {{ id: l, do: {{ repeat: b, while: round < 1, max: 2 }} }}\n  - {{ id: m, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n"),
            "steps[3].do.repeat: `b` belongs to the loop `m` and to another one",
        ),
        (
            "  - { id: a, foreach: { in: '[1]', as: n }, do: { effect: e.a } }\n  - { id: l, do: { repeat: a, while: round < 1, max: 2 } }\n".to_owned(),
            "steps[0].foreach: step `a` of the loop `l` has `foreach`",
        ),
        (
            format!("{a}  - {{ id: p, pivot: true, do: {{ effect: e.p }} }}\n  - {{ id: l, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n"),
            "steps[1].pivot: step `p` of the loop `l` is a pivot",
        ),
        (
            format!("{a}{b}  - {{ id: l, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n  - {{ id: c, after: [a], do: {{ effect: e.c }} }}\n"),
            "steps[3].after: step `c` follows `a` of the loop `l`, which can start another round",
        ),
        (
            format!("{a}  - {{ id: x, after: [], do: {{ effect: e.x }} }}\n  - {{ id: b, after: [a, x], do: {{ effect: e.b }} }}\n  - {{ id: l, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n"),
            "steps[2].after: step `b` of the loop `l` comes after `x`, which is not repeated",
        ),
        (
            format!("{a}  - {{ id: x, after: [], do: {{ effect: e.x }} }}\n  - {{ id: l, after: {{ any: [a, x] }}, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n"),
            "steps[2].after: the loop `l` follows `x`, which it does not repeat",
        ),
        (
            format!("{a}{b}  - {{ id: l, do: {{ repeat: [a, b], while: round < 1, max: 2 }} }}\n"),
            "steps[2].do.repeat: `b` comes after `a`, so a round does not start with it",
        ),
        (
            format!("{a}  - {{ id: l, timeout: 1h, do: {{ repeat: a, while: round < 1, max: 2 }} }}\n"),
            "steps[1].timeout: a loop has no `timeout`",
        ),
        (
            "  - { id: a, do: { effect: e.a, data: =round } }\n".to_owned(),
            "steps[0].do.data: unknown name `round`; available: `vars` and `key`",
        ),
        (
            format!("{}  - {{ id: l, do: {{ repeat: s0, while: round < 1, max: 1000 }} }}\n", (0..11).map(|n| effect(&format!("s{n}"))).collect::<String>()),
            "steps[11].do.max: the loops can start 11000 steps; the limit is 10000",
        ),
    ];
    for (steps, expected) in cases {
        let found = of(&steps);
        assert!(
            found.contains(expected),
            "expected {expected}\nfound {found}"
        );
    }
}

#[test]
fn late_success_of_a_past_round_changes_only_this_round() {
    let saga = saga(
        "steps:
  - { id: a, after: [], do: { effect: e.a } }
  - { id: b, after: [], do: { effect: e.b }, save: { bid: =event.bid }, undo: { effect: u.b, data: =vars.bid } }
  - { id: c, after: [], do: { job: { type: js, script: run } }, undo: { effect: u.c, data: =results.c } }
  - { id: best, after: { any: [a, b, c] }, do: { effect: e.best }, save: { fits: =event.fits } }
  - { id: search, do: { repeat: [a, b, c], until: vars.fits, max: 5 } }
",
    );
    let mut run = start_run(&saga, json!({}));
    ok(&mut run, "a[0]");
    answer(&mut run, "best[0]", json!({ "fits": false }));
    answer(&mut run, "b[1]", json!({ "bid": "bid-1" }));
    let vars = run.state_view()["vars"].clone();
    assert_eq!(vars["bid"], "bid-1");
    answer(&mut run, "b[0]", json!({ "bid": "bid-0" }));
    assert_eq!(run.compensated(), ["compensate:b[0]"]);
    assert_eq!(last_payload(&run), "bid-0");
    ok(&mut run, "compensate:b[0]");
    answer(&mut run, "c[0]", json!({ "frames": 0 }));
    assert_eq!(last_payload(&run), json!({ "frames": 0 }));
    assert_eq!(
        run.state_view()["vars"],
        vars,
        "the current round is unchanged"
    );
}
