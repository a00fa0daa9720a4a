//! Lints of failure handlers.

use super::{has_no_warnings, lints, warns};

#[test]
fn ol24_unknown_field_of_failure() {
    warns(
        "reference: =vars.why\nsteps: [{ id: a, do: { effect: e.a }, on_failure: { save: { why: =failure.kode } } }]",
        "OL24 5:66 `failure.kode` does not exist; the handler does not apply, and the saga fails \
         with `expression_error`",
    );
    warns(
        "steps: [{ id: a, do: { effect: e.a }, undo: { effect: e.u, data: { at: =failure.time } } }]",
        "OL24 4:72 `failure.time` does not exist; the compensation fails, and the instance becomes \
         stuck",
    );
    warns(
        "steps: [{ id: a, do: { effect: e.a } }]\nfailed: { fact: Off, data: { why: '=has(failure.reason)' } }",
        "OL24 5:35 `failure.reason` does not exist; the input that ends the instance becomes a \
         dead letter",
    );
    for field in ["code", "message", "step"] {
        has_no_warnings(&format!(
            "reference: =vars.why\nsteps: [{{ id: a, do: {{ effect: e.a }}, on_failure: {{ save: {{ why: =failure.{field} }} }} }}]"
        ));
    }
}

#[test]
fn ol25_handler_of_a_step_that_cannot_fail() {
    let step = |fields: &str| format!("timeout: 9d\nsteps: [{{ id: a, {fields} }}]");
    warns(
        &step("do: { event: E }, on_failure: continue"),
        "OL25 5:48 step `a` cannot fail, so `on_failure` never applies",
    );
    warns(
        &step("do: { human: { title: T } }, on_failure: continue"),
        "OL25 5:59 step `a` cannot fail, so `on_failure` never applies",
    );
    warns(
        &step("do: { event: E }, timeout: 1h, on_timeout: continue, on_failure: continue"),
        "OL25 5:83 step `a` can only time out, so `on_failure` never applies beside `on_timeout`",
    );
    for fields in [
        "do: { event: E }, fail: F, on_failure: continue",
        "do: { event: E }, timeout: 1h, on_failure: continue",
        "do: { event: E, count: 2 }, on_failure: continue",
        "when: key.saga == 't', do: { event: E }, on_failure: continue",
        "do: { human: { title: =key.saga } }, on_failure: continue",
        "do: { effect: e.a }, on_failure: continue",
    ] {
        has_no_warnings(&step(fields));
    }
}

#[test]
fn ol26_handler_of_a_pivot_continues() {
    let steps = |handler: &str| {
        format!(
            "steps:\n- {{ id: p, pivot: true, do: {{ effect: e.p }}, undo: {{ effect: e.u }}{handler} }}\n- {{ id: b, do: {{ effect: e.b }} }}\n"
        )
    };
    warns(
        &steps(", on_failure: continue"),
        "OL26 5:81 `on_failure` continues although the pivot `p` has not completed: if a later \
         step fails, the steps before the pivot are compensated",
    );
    has_no_warnings(&steps(""));
    has_no_warnings(&steps(", on_failure: fail"));
}

#[test]
fn ol26_handler_past_a_pivot_lets_the_saga_fail() {
    let steps = |handler: &str| {
        format!(
            "steps:\n- {{ id: p, pivot: true, do: {{ effect: e.p }} }}\n- {{ id: b, do: {{ effect: e.b }}{handler} }}\n"
        )
    };
    warns(
        &steps(", on_failure: fail"),
        "OL26 6:45 step `b` follows a pivot, where the saga cannot fail: with `on_failure: fail`, \
         the instance becomes stuck",
    );
    has_no_warnings(&steps(", on_failure: continue"));
}

#[test]
fn ol03_pivot_with_a_handled_failure_is_not_passed() {
    let steps = |handler: &str| {
        format!(
            "steps:\n- {{ id: a, do: {{ effect: e.a }} }}\n- {{ id: p, pivot: true, do: {{ effect: e.p }}, undo: {{ effect: e.u }}{handler} }}\n- {{ id: b, do: {{ effect: e.b }} }}\n"
        )
    };
    let handled = lints(&steps(", on_failure: continue"));
    assert_eq!(
        handled[0],
        "OL03 5:3 step `a` has no `undo`: its change remains if `b` fails"
    );
    let failing = lints(&steps(""));
    assert_eq!(
        failing,
        ["OL03 5:3 step `a` has no `undo`: its change remains if `p` fails"]
    );
}

#[test]
fn ol03_names_the_step_that_a_handler_selects() {
    warns(
        "steps:\n- { id: v, do: { event: V }, timeout: 1d, on_timeout: { then: late } }\n- { id: a, do: { wait: 1s } }\n- { id: late, do: { effect: e.late } }\n- { id: bye, after: [late], do: { effect: e.bye } }\n",
        "OL03 7:3 step `late` has no `undo`: its change remains if `bye` fails",
    );
    let found = lints(
        "steps:\n- { id: v, do: { effect: e.v }, on_failure: { then: late } }\n- { id: a, do: { wait: 1s } }\n- { id: late, do: { effect: e.late } }\n",
    );
    assert_eq!(
        found,
        [
            "OL03 5:3 step `v` has no `undo`: its change remains if `late` fails, which follows a \
             failure of `v`"
        ]
    );
}

#[test]
fn ol01_step_that_a_handler_selects_requires_another_branch() {
    let steps = |after: &str| {
        format!(
            "steps:\n- {{ id: a, do: {{ event: A }}, timeout: 1h, on_timeout: {{ then: late }} }}\n- {{ id: b, do: {{ event: B }}, timeout: 1h, on_timeout: {{ then: late }} }}\n- {{ id: c, do: {{ wait: 1s }} }}\n- {{ id: late, {after} do: {{ wait: 1s }} }}\n"
        )
    };
    warns(
        &steps("after: [b],"),
        "OL01 8:22 step `late` does not start when `a` selects it: its `after` requires another \
         branch",
    );
    has_no_warnings(&steps("after: [a, b],"));
    has_no_warnings(&steps(""));
}
