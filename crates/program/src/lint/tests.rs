//! Each rule speaks where it should and is silent on what is good.

use super::*;
use crate::yaml::read;

const HEAD: &str = "saga: t\nversion: 1\nstart: Go\n";

/// What is said about a definition with this after its head, as `OL01 5:3 message`.
#[track_caller]
fn lints(text: &str) -> Vec<String> {
    let text = format!("{HEAD}{text}");
    let definition = read(&text).expect("the definition can be read");
    let warnings = warnings(&definition, &text, "t");
    let line =
        |w: &Warning| format!("{} {}:{} {}", w.code, w.problem.line, w.problem.column, w.problem.message);
    warnings.iter().map(line).collect()
}

#[track_caller]
fn speaks(text: &str, warning: &str) {
    assert_eq!(lints(text), [warning], "{text}");
}

#[track_caller]
fn is_silent(text: &str) {
    assert_eq!(lints(text), Vec::<String>::new(), "{text}");
}

#[test]
fn ol01_a_step_that_never_begins() {
    let route = |cases: &str| {
        format!(
            "steps:\n- {{ id: r, do: {{ switch: {cases} }} }}\n- {{ id: a, do: {{ wait: 1s }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: c, after: [a, b], do: {{ wait: 1s }} }}\n"
        )
    };
    is_silent(&route("[{ when: event.x, then: a }, { then: b }]"));
    speaks(
        &route("[{ then: a }, { when: vars.x, then: b }]"),
        "OL01 7:3 step `b` never begins: nothing leads to it",
    );
    speaks(
        &route("[{ when: vars.x, then: a }, { when: =vars.x, then: b }, { then: a }]"),
        "OL01 7:3 step `b` never begins: nothing leads to it",
    );
    speaks(
        "steps: [{ id: a, when: false, do: { wait: 1s } }]",
        "OL01 4:9 step `a` never begins: its `when` is always false",
    );
    let chain = "steps:\n- { id: r, do: { switch: [{ then: a }, { then: b }] } }\n- { id: a, do: { wait: 1s } }\n- { id: b, do: { wait: 1s } }\n- { id: c, after: b, do: { wait: 1s } }\n- { id: d, after: [a, c], do: { wait: 1s } }\n";
    assert_eq!(
        lints(chain),
        [
            "OL01 7:3 step `b` never begins: nothing leads to it",
            "OL01 8:3 step `c` never begins: nothing leads to it"
        ]
    );
}

#[test]
fn ol02_a_step_that_can_only_succeed() {
    speaks(
        "steps: [{ id: a, do: { command: x.A }, ok: Done }]",
        "OL02 4:9 step `a` can only succeed: without an answer the saga waits for ever",
    );
    speaks(
        "steps: [{ id: a, do: { event: Paid } }]",
        "OL02 4:9 step `a` can only succeed: without an answer the saga waits for ever",
    );
    is_silent("steps: [{ id: a, do: { command: x.A } }]");
    is_silent("steps: [{ id: a, do: { command: x.A }, ok: Done, fail: No }]");
    is_silent("steps: [{ id: a, do: { human: { title: T } }, timeout: 1d }]");
    is_silent("timeout: 1d\nsteps: [{ id: a, do: { event: Paid } }]");
    speaks(
        "timeout: 1d\nsteps: [{ id: p, pivot: true, do: { command: x.P } }, { id: a, do: { event: Paid } }]",
        "OL02 5:55 step `a` can only succeed: without an answer the saga waits for ever",
    );
}

#[test]
fn ol03_a_change_that_stays_when_a_later_step_fails() {
    let two =
        |first: &str, second: &str| format!("steps:\n- {{ id: a, {first} }}\n- {{ id: b, {second} }}\n");
    speaks(
        &two("do: { effect: e.a }", "do: { effect: e.b }"),
        "OL03 5:3 step `a` has no `undo`: what it did stays when `b` fails",
    );
    is_silent(&two("do: { effect: e.a }, undo: { effect: e.u }", "do: { effect: e.b }"));
    is_silent(&two("do: { effect: e.a }", "do: { wait: 1d }"));
    is_silent(&two("do: { event: Paid }, timeout: 1d", "do: { effect: e.b }"));
    is_silent(&two("do: { effect: e.a }, pivot: true", "do: { effect: e.b }"));
    speaks(
        &two("do: { effect: e.a }", "after: [], do: { event: P }, timeout: 1d"),
        "OL03 5:3 step `a` has no `undo`: what it did stays when `b` fails",
    );
    is_silent(
        "steps:\n- { id: r, do: { switch: [{ when: vars.x, then: a }, { then: b }] } }\n- { id: a, do: { effect: e.a } }\n- { id: b, do: { effect: e.b } }\n",
    );
}

#[test]
fn ol04_a_name_that_is_escaped_in_subjects() {
    speaks(
        "steps: [{ id: a, do: { command: my stock.Take } }]",
        "OL04 4:33 the aggregate `my stock` holds ' ', which is escaped wherever the name is part of a subject",
    );
    speaks(
        "steps: [{ id: a, do: { command: stock.Take }, ok: [Taken, Fehlgeschlägt], timeout: 1s }]",
        "OL04 4:59 the event `Fehlgeschlägt` holds 'ä', which is escaped wherever the name is part of a subject",
    );
    speaks(
        "steps: [{ id: a, do: { saga: my.kit } }]",
        "OL04 4:30 the saga `my.kit` holds '.', which is escaped wherever the name is part of a subject",
    );
    is_silent("steps: [{ id: a-1, do: { effect: stock.v1.take_all } }]");
}

#[test]
fn ol05_a_switch_without_otherwise() {
    let route = |last: &str| {
        format!(
            "steps:\n- {{ id: r, do: {{ switch: [{{ when: vars.x, then: a }}, {last}] }} }}\n- {{ id: a, do: {{ wait: 1s }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n"
        )
    };
    speaks(
        &route("{ when: vars.y, then: b }"),
        "OL05 5:3 switch `r` has no way for what matches no condition; it fails then with `no_case`",
    );
    is_silent(&route("{ then: b }"));
}

#[test]
fn ol06_a_step_that_only_one_way_leads_to() {
    let join = |after: &str| {
        format!(
            "steps:\n- {{ id: r, do: {{ switch: [{{ when: vars.x, then: a }}, {{ then: b }}] }} }}\n- {{ id: a, do: {{ wait: 1s }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: c, {after} do: {{ wait: 1s }} }}\n"
        )
    };
    speaks(&join(""), "OL06 8:3 step `c` comes after `b` only: when `r` takes `a`, it is left out");
    is_silent(&join("after: [a, b],"));
    is_silent(&join("after: [b],"));
}

#[test]
fn ol07_an_event_that_is_awaited_and_handled() {
    let on = |event: &str| {
        format!(
            "timeout: 1d\non: {{ event: {event}, then: cancel }}\nsteps: [{{ id: a, do: {{ event: Paid }} }}]"
        )
    };
    speaks(&on("Paid"), "OL07 5:5 Paid is awaited by a step too; the handler takes it first");
    is_silent(&on("Off"));
    is_silent("on: { event: Done }\nsteps: [{ id: a, do: { effect: e.x }, ok: Done }]");
}

#[test]
fn ol08_a_step_that_outlasts_the_saga() {
    speaks(
        "timeout: 1d\nsteps: [{ id: a, do: { event: Paid }, timeout: 2d }]",
        "OL08 5:9 step `a` may take as long as the whole saga, whose timeout comes first",
    );
    speaks(
        "timeout: 1d\nsteps: [{ id: a, do: { wait: 24h } }]",
        "OL08 5:9 step `a` may take as long as the whole saga, whose timeout comes first",
    );
    is_silent("timeout: 1d\nsteps: [{ id: a, do: { wait: 23h }, timeout: 1h }]");
    is_silent(
        "timeout: 1d\nsteps: [{ id: p, pivot: true, do: { effect: e.p } }, { id: a, do: { wait: 2d } }]",
    );
}

#[test]
fn ol09_what_is_remembered_for_nothing() {
    speaks("vars: { x: =event.x }\nsteps: [{ id: a, do: { wait: 1s } }]", "OL09 4:9 nothing reads `vars.x`");
    speaks(
        "steps: [{ id: a, do: { effect: e.x }, save: { y: =event.y, z: =vars.y + vars.yy } }]",
        "OL09 4:60 nothing reads `vars.z`",
    );
    for reader in ["=vars.x", "=vars.?x.orValue(1)", "=vars['x']", "=size(vars)", "=has(vars.x) ? 1 : 2"] {
        is_silent(&format!(
            "vars: {{ x: =event.x }}\nsteps: [{{ id: a, do: {{ effect: e.x, data: {reader:?} }} }}]"
        ));
    }
    speaks(
        "vars: { x: =event.x }\nsteps: [{ id: a, do: { effect: e.x, data: '=event.vars.x' } }]",
        "OL09 4:9 nothing reads `vars.x`",
    );
}

#[test]
fn ol10_one_name_saved_by_two_steps_at_once() {
    let two = |after: &str| {
        format!(
            "reference: =vars.x\nsteps:\n- {{ id: a, do: {{ event: A }}, timeout: 1d, save: {{ x: =event.x }} }}\n- {{ id: b, {after} do: {{ event: B }}, timeout: 1d, save: {{ x: =event.x }} }}\n"
        )
    };
    speaks(
        &two("after: [],"),
        "OL10 7:62 `a` and `b` run side by side and both save `x`; which one stays depends on who is first",
    );
    is_silent(&two(""));
    is_silent(
        "reference: =vars.x\nsteps:\n- { id: r, do: { switch: [{ when: vars.x, then: a }, { then: b }] } }\n- { id: a, do: { effect: e.a }, save: { x: 1 } }\n- { id: b, do: { effect: e.b }, save: { x: 2 } }\n",
    );
}

#[test]
fn ol11_a_pivot_at_the_end() {
    speaks(
        "steps: [{ id: a, pivot: true, do: { effect: e.a } }]",
        "OL11 4:9 no step comes after the pivot `a`, so there is nothing to go forward with",
    );
    is_silent("steps: [{ id: a, pivot: true, do: { effect: e.a } }, { id: b, do: { effect: e.b } }]");
}

#[test]
fn ol12_an_undo_of_what_changes_nothing() {
    speaks(
        "steps: [{ id: a, do: { wait: 1s }, undo: { effect: e.u } }]",
        "OL12 4:9 step `a` is a wait, which changes nothing that could be undone",
    );
    is_silent("steps: [{ id: a, do: { effect: e.a }, undo: { effect: e.u } }]");
}

#[test]
fn ol13_a_comment_switches_one_rule_off_for_one_place() {
    let steps = "- { id: a, do: { event: A } }\n- { id: b, do: { event: B } }\n";
    let comment = "# orlog: allow OL02 because the office always answers,\n# sooner or later\n";
    speaks(
        &format!("steps:\n{comment}{steps}"),
        "OL02 8:3 step `b` can only succeed: without an answer the saga waits for ever",
    );
    let one = "steps:\n# orlog: allow OL02\n- { id: a, do: { event: A } }\n";
    speaks(one, "OL13 5:1 OL02 is allowed without a reason");
    let idle = "steps:\n# orlog: allow OL03 because\n# of nothing\n- { id: a, do: { wait: 1s } }\n";
    speaks(idle, "OL13 5:1 OL03 is allowed without a reason");
    let idle = "steps:\n# orlog: allow OL03 because of nothing\n- { id: a, do: { wait: 1s } }\n";
    speaks(idle, "OL13 5:1 OL03 has nothing to say about the next line");
    let unknown = "steps:\n# orlog: allow OL77 because I say so\n- { id: a, do: { wait: 1s } }\n";
    speaks(unknown, "OL13 5:1 there is no rule `OL77`");
}
