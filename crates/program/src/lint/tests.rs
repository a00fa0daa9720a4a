//! Each rule reports violations and accepts valid definitions.

use super::rules::warnings;
use super::*;
use crate::compile::CompiledDefinition;
use crate::program::Program;
use crate::yaml::{compile_yaml, read};

mod handlers;
mod values;

const HEAD: &str = "saga: t\nversion: 1\nstart: Go\n";

/// Returns the warnings of a definition with this text after its header, as `OL01 5:3 message`.
#[track_caller]
fn lints(text: &str) -> Vec<String> {
    let text = format!("{HEAD}{text}");
    let definition = read(&text).expect("the definition is readable");
    let warnings = warnings(&definition, &text, "t", Vec::new());
    let line = |w: &LintWarning| {
        format!(
            "{} {}:{} {}",
            w.code, w.diagnostic.line, w.diagnostic.column, w.diagnostic.message
        )
    };
    warnings.iter().map(line).collect()
}

#[track_caller]
fn warns(text: &str, warning: &str) {
    assert_eq!(lints(text), [warning], "{text}");
}

#[track_caller]
fn has_no_warnings(text: &str) {
    assert_eq!(lints(text), Vec::<String>::new(), "{text}");
}

#[test]
fn ol01_step_never_starts() {
    let route = |cases: &str| {
        format!(
            "steps:\n- {{ id: r, do: {{ switch: {cases} }} }}\n- {{ id: a, do: {{ wait: 1s }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: c, after: [a, b], do: {{ wait: 1s }} }}\n"
        )
    };
    has_no_warnings(&route("[{ when: event.x, then: a }, { then: b }]"));
    warns(
        &route("[{ then: a }, { when: vars.x, then: b }]"),
        "OL01 7:3 step `b` never starts: it is unreachable",
    );
    warns(
        &route("[{ when: vars.x, then: a }, { when: =vars.x, then: b }, { then: a }]"),
        "OL01 7:3 step `b` never starts: it is unreachable",
    );
    warns(
        "steps: [{ id: a, when: false, do: { wait: 1s } }]",
        "OL01 4:9 step `a` never starts: its `when` is always false",
    );
    let chain = "steps:\n- { id: r, do: { switch: [{ then: a }, { then: b }] } }\n- { id: a, do: { wait: 1s } }\n- { id: b, do: { wait: 1s } }\n- { id: c, after: b, do: { wait: 1s } }\n- { id: d, after: [a, c], do: { wait: 1s } }\n";
    assert_eq!(
        lints(chain),
        [
            "OL01 7:3 step `b` never starts: it is unreachable",
            "OL01 8:3 step `c` never starts: it is unreachable"
        ]
    );
}

#[test]
fn ol02_step_cannot_fail() {
    warns(
        "steps: [{ id: a, do: { command: x.A }, ok: Done }]",
        "OL02 4:9 step `a` has no timeout and no failure: without a result the saga never ends",
    );
    warns(
        "steps: [{ id: a, do: { event: Paid } }]",
        "OL02 4:9 step `a` has no timeout and no failure: without a result the saga never ends",
    );
    has_no_warnings("steps: [{ id: a, do: { command: x.A } }]");
    has_no_warnings("steps: [{ id: a, do: { command: x.A }, ok: Done, fail: No }]");
    has_no_warnings("steps: [{ id: a, do: { human: { title: T } }, timeout: 1d }]");
    has_no_warnings("timeout: 1d\nsteps: [{ id: a, do: { event: Paid } }]");
    warns(
        "timeout: 1d\nsteps: [{ id: p, pivot: true, do: { command: x.P } }, { id: a, do: { event: Paid } }]",
        "OL02 5:55 step `a` has no timeout and no failure: without a result the saga never ends",
    );
}

#[test]
fn ol03_missing_compensation() {
    let two = |first: &str, second: &str| {
        format!("steps:\n- {{ id: a, {first} }}\n- {{ id: b, {second} }}\n")
    };
    warns(
        &two("do: { effect: e.a }", "do: { effect: e.b }"),
        "OL03 5:3 step `a` has no `undo`: its change remains if `b` fails",
    );
    has_no_warnings(&two(
        "do: { effect: e.a }, undo: { effect: e.u }",
        "do: { effect: e.b }",
    ));
    has_no_warnings(&two("do: { effect: e.a }", "do: { wait: 1d }"));
    has_no_warnings(&two(
        "do: { event: Paid }, timeout: 1d",
        "do: { effect: e.b }",
    ));
    has_no_warnings(&two(
        "do: { effect: e.a }, pivot: true",
        "do: { effect: e.b }",
    ));
    warns(
        &two(
            "do: { effect: e.a }",
            "after: [], do: { event: P }, timeout: 1d",
        ),
        "OL03 5:3 step `a` has no `undo`: its change remains if `b` times out",
    );
    has_no_warnings(
        "steps:\n- { id: r, do: { switch: [{ when: vars.x, then: a }, { then: b }] } }\n- { id: a, do: { effect: e.a } }\n- { id: b, do: { effect: e.b } }\n",
    );
}

#[test]
fn ol04_name_is_escaped_in_subjects() {
    warns(
        "steps: [{ id: a, do: { command: my stock.Take } }]",
        "OL04 4:33 the aggregate `my stock` contains ' ', which must be escaped in subjects",
    );
    warns(
        "steps: [{ id: a, do: { command: stock.Take }, ok: [Taken, Fehlgeschlägt], timeout: 1s }]",
        "OL04 4:59 the event `Fehlgeschlägt` contains 'ä', which must be escaped in subjects",
    );
    warns(
        "steps: [{ id: a, do: { saga: my.kit } }]",
        "OL04 4:30 the saga `my.kit` contains '.', which must be escaped in subjects",
    );
    has_no_warnings("steps: [{ id: a-1, do: { effect: stock.v1.take_all } }]");
}

#[test]
fn ol05_switch_without_default() {
    let route = |last: &str| {
        format!(
            "steps:\n- {{ id: r, do: {{ switch: [{{ when: vars.x, then: a }}, {last}] }} }}\n- {{ id: a, do: {{ wait: 1s }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n"
        )
    };
    warns(
        &route("{ when: vars.y, then: b }"),
        "OL05 5:3 switch `r` has no default case; it fails with `no_matching_case` if no condition holds",
    );
    has_no_warnings(&route("{ then: b }"));
}

#[test]
fn ol06_step_follows_one_branch_only() {
    let join = |after: &str| {
        format!(
            "steps:\n- {{ id: r, do: {{ switch: [{{ when: vars.x, then: a }}, {{ then: b }}] }} }}\n- {{ id: a, do: {{ wait: 1s }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: c, {after} do: {{ wait: 1s }} }}\n"
        )
    };
    warns(
        &join(""),
        "OL06 8:3 step `c` follows only `b`: if `r` selects `a`, it is bypassed",
    );
    has_no_warnings(&join("after: [a, b],"));
    has_no_warnings(&join("after: [b],"));
}

#[test]
fn ol07_event_is_awaited_and_handled() {
    let on = |event: &str| {
        format!(
            "timeout: 1d\non: {{ event: {event}, then: cancel }}\nsteps: [{{ id: a, do: {{ event: Paid }} }}]"
        )
    };
    warns(
        &on("Paid"),
        "OL07 5:5 a step also awaits Paid; the handler consumes it first",
    );
    has_no_warnings(&on("Off"));
    has_no_warnings("on: { event: Done }\nsteps: [{ id: a, do: { effect: e.x }, ok: Done }]");
}

#[test]
fn ol08_step_timeout_exceeds_saga_timeout() {
    warns(
        "timeout: 1d\nsteps: [{ id: a, do: { event: Paid }, timeout: 2d }]",
        "OL08 5:9 step `a` may outlast the saga timeout, which expires first",
    );
    warns(
        "timeout: 1d\nsteps: [{ id: a, do: { wait: 24h } }]",
        "OL08 5:9 step `a` may outlast the saga timeout, which expires first",
    );
    has_no_warnings("timeout: 1d\nsteps: [{ id: a, do: { wait: 23h }, timeout: 1h }]");
    has_no_warnings(
        "timeout: 1d\nsteps: [{ id: p, pivot: true, do: { effect: e.p } }, { id: a, do: { wait: 2d } }]",
    );
}

#[test]
fn ol09_unused_variable() {
    warns(
        "vars: { x: =event.x }\nsteps: [{ id: a, do: { wait: 1s } }]",
        "OL09 4:9 `vars.x` is never read",
    );
    warns(
        "steps: [{ id: a, do: { effect: e.x }, save: { y: =event.y, z: =vars.y + vars.yy } }]",
        "OL09 4:60 `vars.z` is never read",
    );
    for reader in [
        "=vars.x",
        "=vars.?x.orValue(1)",
        "=vars['x']",
        "=size(vars)",
        "=has(vars.x) ? 1 : 2",
    ] {
        has_no_warnings(&format!(
            "vars: {{ x: =event.x }}\nsteps: [{{ id: a, do: {{ effect: e.x, data: {reader:?} }} }}]"
        ));
    }
    warns(
        "vars: { x: =event.x }\nsteps: [{ id: a, do: { effect: e.x, data: '=event.vars.x' } }]",
        "OL09 4:9 `vars.x` is never read",
    );
}

#[test]
fn ol10_concurrent_save() {
    let two = |after: &str| {
        format!(
            "reference: =vars.x\nsteps:\n- {{ id: a, do: {{ event: A }}, timeout: 1d, save: {{ x: =event.x }} }}\n- {{ id: b, {after} do: {{ event: B }}, timeout: 1d, save: {{ x: =event.x }} }}\n"
        )
    };
    warns(
        &two("after: [],"),
        "OL10 7:62 `a` and `b` run concurrently and both save `x`; the stored value depends on their order",
    );
    has_no_warnings(&two(""));
    has_no_warnings(
        "reference: =vars.x\nsteps:\n- { id: r, do: { switch: [{ when: vars.x, then: a }, { then: b }] } }\n- { id: a, do: { effect: e.a }, save: { x: 1 } }\n- { id: b, do: { effect: e.b }, save: { x: 2 } }\n",
    );
}

#[test]
fn ol11_pivot_is_the_last_step() {
    warns(
        "steps: [{ id: a, pivot: true, do: { effect: e.a } }]",
        "OL11 4:9 no step follows the pivot `a`, so it has no effect",
    );
    has_no_warnings(
        "steps: [{ id: a, pivot: true, do: { effect: e.a } }, { id: b, do: { effect: e.b } }]",
    );
}

#[test]
fn ol12_needless_compensation() {
    warns(
        "steps: [{ id: a, do: { wait: 1s }, undo: { effect: e.u } }]",
        "OL12 4:9 step `a` is a wait, which has no change to compensate",
    );
    has_no_warnings("steps: [{ id: a, do: { effect: e.a }, undo: { effect: e.u } }]");
}

#[test]
fn ol13_comment_suppresses_one_rule() {
    let steps = "- { id: a, do: { event: A } }\n- { id: b, do: { event: B } }\n";
    let comment = "# orlog: allow OL02 because the office always responds,\n# within a week\n";
    warns(
        &format!("steps:\n{comment}{steps}"),
        "OL02 8:3 step `b` has no timeout and no failure: without a result the saga never ends",
    );
    let one = "steps:\n# orlog: allow OL02\n- { id: a, do: { event: A } }\n";
    warns(one, "OL13 5:1 suppression of OL02 has no reason");
    let idle =
        "steps:\n# orlog: allow OL03 because\n# of an old step\n- { id: a, do: { wait: 1s } }\n";
    warns(idle, "OL13 5:1 suppression of OL03 has no reason");
    let idle =
        "steps:\n# orlog: allow OL03 because of an old step\n- { id: a, do: { wait: 1s } }\n";
    warns(
        idle,
        "OL13 5:1 suppression of OL03 has no effect on the next line",
    );
    let file = "# orlog: allow-file OL02 because the office always responds\n";
    has_no_warnings(&format!("{file}steps:\n{steps}"));
    let idle = format!("{file}steps:\n- {{ id: a, do: {{ wait: 1s }} }}\n");
    warns(
        &idle,
        "OL13 4:1 suppression of OL02 has no effect in this file",
    );
    let unknown = "steps:\n# orlog: allow OL77 because of a typo\n- { id: a, do: { wait: 1s } }\n";
    warns(unknown, "OL13 5:1 there is no rule `OL77`");
}

#[test]
fn ol14_text_names_a_variable() {
    let step = |action: &str| {
        format!(
            "index: orderId\nvars: {{ orderId: =event.orderId }}\nsteps: [{{ id: a, do: {{ {action} }} }}]"
        )
    };
    warns(
        &step("command: stock.Take, id: orderId"),
        "OL14 6:49 \"orderId\" is a literal text, not the value of `vars.orderId`",
    );
    warns(
        &step("effect: e.x, data: { n: [vars.orderId] }"),
        "OL14 6:49 \"vars.orderId\" is a literal text, not the value of `vars.orderId`",
    );
    warns(
        &step("effect: e.x, data: { text: 'order ${orderId} is late' }"),
        "OL14 6:51 the text contains `${orderId}`, which is not replaced by a value",
    );
    warns(
        &step("effect: e.x, data: { text: \"order vars.orderId.\" }"),
        "OL14 6:51 the text contains `vars.orderId`, which is not replaced by a value",
    );
    warns(
        &step("effect: e.x, data: key.correlation"),
        "OL14 6:43 \"key.correlation\" is a literal text, not the value of `key.correlation`",
    );
    for text in [
        "order",
        "OrderId",
        "vars.txt",
        "event.orderId",
        "${HOME}",
        "key.pem",
        "the orderId",
        "==vars.orderId",
    ] {
        has_no_warnings(&step(&format!("effect: e.x, data: {{ text: {text:?} }}")));
    }
    warns(
        "index: orderId\nvars: { orderId: orderId, currency: EUR }\nreference: =vars.currency\nsteps: [{ id: a, do: { wait: 1s } }]",
        "OL14 5:18 \"orderId\" is a literal text, not the value of `event.orderId`",
    );
    warns(
        "steps: [{ id: a, foreach: { in: '[1]', as: item }, do: { effect: e.x, data: { sku: item.sku } } }]",
        "OL14 4:84 \"item.sku\" is a literal text, not the value of `item.sku`",
    );
}

fn compiled(text: &str) -> CompiledDefinition {
    compile_yaml(text, "t").expect("the definition is valid")
}

/// Returns the diagnostics of all definitions: contradictions, then warnings.
fn checked(texts: &[&str]) -> Vec<String> {
    let programs: Vec<_> = texts.iter().map(|text| compiled(text)).collect();
    let member = |program| GroupMember { program, file: "t" };
    let group = DefinitionGroup::new(
        programs
            .iter()
            .map(|program| member(program as &dyn Program))
            .collect(),
    );
    let sagas = || programs.iter().map(|program| &program.definition().saga);
    let wrong = sagas()
        .flat_map(|saga| group.contradictions(saga))
        .map(|problem| problem.to_string());
    let warnings = sagas().flat_map(|saga| group.warnings(saga));
    let warnings = warnings.map(|w| format!("{} {}", w.code, w.diagnostic));
    wrong.chain(warnings).collect()
}

const VISA: &str = "saga: visa\nversion: 1\nstart: VisaNeeded\ncorrelate: visaId\nsteps: [{ id: grant, do: { effect: e.x } }]\n";

fn parent(child: &str) -> String {
    format!(
        "saga: trip\nversion: 1\nstart: TripBooked\nindex: visa\nvars: {{ visa: =event.visa }}\nsteps: [{{ id: visa, do: {{ {child} }} }}]\n"
    )
}

#[test]
fn ol15_child_saga_has_no_definition() {
    let trip = parent("saga: visas, data: {}");
    let expected = "OL15 t:6:33: steps[0].do.saga: no definition of the saga `visas` is present; did you mean `visa`?";
    assert_eq!(checked(&[&trip, VISA]), [expected]);
    assert_eq!(
        checked(&[&parent("saga: visa"), VISA]),
        Vec::<String>::new()
    );
}

#[test]
fn wrong_start_event_of_a_child_saga_is_a_contradiction() {
    let trip = parent("saga: visa, event: VisaNeded");
    let expected = "t:6:46: steps[0].do.event: VisaNeded is not a start event of the saga `visa`; did you mean `VisaNeeded`?";
    assert_eq!(checked(&[&trip, VISA]), [expected]);
}

#[test]
fn child_saga_with_another_id_than_its_correlate_is_a_contradiction() {
    let wrong = |child: &str, reason: &str| {
        let expected = format!(
            "t:6:25: steps[0].do: {reason}, but the saga `visa` finds its events by `visaId`, which is `=vars.visa`; \
             set `correlation: =vars.visa`"
        );
        assert_eq!(checked(&[&parent(child), VISA]), [expected], "{child}");
    };
    wrong(
        "saga: visa, data: { visaId: =vars.visa }",
        "without `correlation`, the id of the child is that of this instance and the step",
    );
    for child in [
        "saga: visa, correlation: =vars.visa, data: { visaId: =vars.visa }",
        "saga: visa, correlation: v-1, data: { visaId: v-1 }",
        "saga: visa, data: { other: =vars.visa }",
        "saga: visa, data: =vars.visa",
        "saga: visa, correlation: \"='' + vars.visa\", data: { visaId: =vars.visa }",
    ] {
        assert_eq!(
            checked(&[&parent(child), VISA]),
            Vec::<String>::new(),
            "{child}"
        );
    }
    let two = checked(&[
        &parent("saga: visa, correlation: v-1, data: { visaId: v-2 }"),
        VISA,
    ]);
    assert!(
        two[0].contains("the id of the child is `v-1`, but the saga `visa`"),
        "{two:?}"
    );
    let by_envelope = VISA.replace("correlate: visaId\n", "");
    assert_eq!(
        checked(&[
            &parent("saga: visa, data: { visaId: =vars.visa }"),
            &by_envelope
        ]),
        Vec::<String>::new()
    );
}

#[test]
fn ol16_event_resembles_another_one() {
    let pay = |event: &str| {
        format!(
            "saga: pay\nversion: 1\nstart: Go\nsteps: [{{ id: a, do: {{ event: {event} }}, timeout: 1d }}]\ncompleted: PaymentReceived\n"
        )
    };
    let ship = |event: &str| {
        format!(
            "saga: ship\nversion: 1\nstart: {event}\nsteps: [{{ id: a, do: {{ wait: 1d }} }}]\n"
        )
    };
    let expected = "OL16 t:3:8: start[0]: PaymentRecieved resembles the event PaymentReceived, and nothing else uses it; \
                    did you mean `PaymentReceived`?";
    assert_eq!(
        checked(&[&pay("Paid"), &ship("PaymentRecieved")]),
        [expected]
    );
    assert_eq!(
        checked(&[&pay("Paid"), &ship("PaymentReceived")]),
        Vec::<String>::new()
    );
}

#[test]
fn ol17_field_that_no_sample_has() {
    let order = "saga: order\nversion: 1\nstart: Placed\nvars: { id: =event.orderId, total: =event.totl }\nsteps:\n\
        - { id: pay, do: { effect: e.pay }, save: { receipt: =event.receipt.numbr, note: '=event.?note.orValue(1)' } }\n\
        - { id: ship, do: { command: x.Ship }, ok: [{ event: Sent, when: event.ok }], fail: Lost, save: { by: =event.carrier } }\n\
        completed: { fact: Done, data: { orderId: =vars.id } }\n";
    let report = "saga: report\nversion: 1\nstart: Done\nvars: { id: =event.orderId, total: =event.total }\n\
        steps: [{ id: a, do: { effect: e.a } }]\n";
    let compiled = [order, report].map(|text| compile_yaml(text, "t").unwrap());
    let [order, report] = &compiled;
    let kind = |name: &str| orlog_model::EventType::new(name).unwrap();
    let step = orlog_model::Name::new("pay").unwrap();
    let saga = &order.definition().saga;
    let mut samples = DataSamples::default();
    samples.add_event(
        &kind("Placed"),
        &serde_json::json!({ "orderId": "o-1", "total": 7 }),
    );
    samples.add_event(&kind("Placed"), &serde_json::json!({}));
    samples.add_result(
        saga,
        &step,
        None,
        &serde_json::json!({ "receipt": { "number": 1 } }),
    );
    let lines = |samples: DataSamples, of: &CompiledDefinition| {
        let members = compiled
            .iter()
            .map(|program| GroupMember { program, file: "t" })
            .collect();
        let group = DefinitionGroup::new(members).with_samples(samples);
        let of_17 = group
            .warnings(&of.definition().saga)
            .into_iter()
            .filter(|warning| warning.code == "OL17");
        of_17
            .map(|warning| warning.diagnostic.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        lines(samples.clone(), order),
        [
            "t:4:36: vars.total: `event.totl` is never set: no sample of Placed has the field `totl`; did you mean `total`?",
            "t:6:54: steps[0].save.receipt: `event.receipt.numbr` is never set: no sample of the result of step `pay` has \
             the field `numbr`; did you mean `number`?",
        ]
    );
    // The event of the command has no sample, so its fields are unknown. The fact of the other saga is a sample.
    assert_eq!(lines(DataSamples::default(), order), Vec::<String>::new());
    let [line] = &lines(DataSamples::default(), report)[..] else {
        panic!("one warning")
    };
    assert!(
        line.contains("no sample of Done has the field `total`"),
        "{line}"
    );
}

#[test]
fn ol18_condition_of_a_loop_does_not_change() {
    let poll = |save: &str, condition: &str| {
        format!(
            "vars: {{ n: =event.n }}\nsteps:\n- {{ id: a, do: {{ event: E }}, timeout: 1h, save: {{ {save} }} }}\n- {{ id: l, do: {{ repeat: a, {condition}, max: 2 }} }}\n"
        )
    };
    warns(
        &poll("", "while: vars.n > 1"),
        "OL18 7:36 no step of the loop `l` saves a variable that its `while` reads",
    );
    warns(
        &poll("", "until: vars.n > 1"),
        "OL18 7:36 no step of the loop `l` saves a variable that its `until` reads",
    );
    has_no_warnings(&poll("n: =event.m", "until: vars.n > 1"));
    has_no_warnings(&poll("", "while: vars.n > round"));
    let handled = "on: [{ event: F, save: { n: =event.n } }]\n";
    has_no_warnings(&format!("{handled}{}", poll("", "while: vars.n > 1")));
}

#[test]
fn ol19_handler_starts_the_same_child_for_each_event() {
    let order = |correlation: &str| {
        format!(
            "on: [{{ event: Line, do: {{ saga: ship{correlation} }} }}]\nvars: {{ id: =event.id }}\nsteps: [{{ id: a, do: {{ event: E }}, timeout: 1h }}]\nindex: id\n"
        )
    };
    let message =
        "`correlation` does not read the event, so only the first event starts a child saga";
    warns(
        &order(", correlation: =vars.id"),
        &format!("OL19 4:52 {message}"),
    );
    has_no_warnings(&order(", correlation: =event.line"));
    has_no_warnings(&order(""));
}

#[test]
fn ol02_saga_that_stays_active_is_ended_by_a_handler() {
    let steps = "steps: [{ id: a, do: { event: E } }]\n";
    assert_eq!(lints(steps).len(), 1);
    has_no_warnings(&format!(
        "keep_active: true\non: {{ event: Closed, then: complete }}\n{steps}"
    ));
}

#[test]
fn ol20_join_goes_on_after_a_wait() {
    let sign_up = |verified: &str| {
        format!(
            "steps:\n- {{ id: verified, after: [], do: {{ event: V }}{verified} }}\n- {{ id: day, after: [], do: {{ wait: 1d }} }}\n- {{ id: charge, after: {{ any: [verified, day] }}, do: {{ wait: 1s }} }}\ntimeout: 9d\n"
        )
    };
    warns(
        &sign_up(", timeout: 2h"),
        "OL20 7:24 step `charge` starts when the time of `day` has passed, also if `verified` has failed",
    );
    has_no_warnings(&sign_up(""));
    has_no_warnings(&sign_up(", timeout: 2h, on_timeout: continue"));
    // The saga fails, whatever the join.
    has_no_warnings(&sign_up(", timeout: 2h, on_timeout: fail"));
    // So it does if the join needs all of them.
    let all =
        sign_up(", timeout: 2h").replace("any: [verified, day]", "count: 2, of: [verified, day]");
    has_no_warnings(&all);
}

#[test]
fn ol20_wait_leads_to_the_join_through_other_steps() {
    let found = |remind: &str| {
        let race = format!(
            "{HEAD}steps:\n- {{ id: verified, after: [], do: {{ event: V }}, timeout: 2h }}\n- {{ id: day, after: [], do: {{ wait: 1d }} }}\n- {{ id: remind, after: [day], do: {{ effect: e.mail }}{remind} }}\n- {{ id: charge, after: {{ any: [verified, remind] }}, do: {{ wait: 1s }} }}\n"
        );
        warnings_of("OL20", &[&race])
    };
    let warnings = found("");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains(
            "step `charge` starts when the time of `day` has passed, also if `verified` has failed"
        ),
        "{warnings:?}"
    );
    // Another way to the goal after a time is no deadline.
    for fallback in [", undo: { effect: e.u }", ", save: { id: =event.id }"] {
        assert_eq!(found(fallback), Vec::<String>::new(), "{fallback}");
    }

    let count = "steps:\n- { id: a, after: [], do: { event: A }, timeout: 2h }\n- { id: b, after: [], do: { event: B }, timeout: 2h, on_timeout: fail }\n- { id: day, after: [], do: { wait: 1d } }\n- { id: c, after: { count: 2, of: [a, b, day] }, do: { wait: 1s } }\ntimeout: 9d\n";
    warns(
        count,
        "OL20 8:19 step `c` starts when the time of `day` has passed, also if `a` has failed",
    );
}

#[test]
fn ol01_step_follows_a_failure_and_the_completion() {
    let steps = |after: &str| {
        format!(
            "steps:\n- {{ id: a, do: {{ event: A }}, timeout: 1h, on_timeout: {{ then: late }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: late, {after} do: {{ wait: 1s }} }}\n"
        )
    };
    warns(
        &steps("after: [b],"),
        "OL01 7:3 step `late` never starts: it is unreachable",
    );
    has_no_warnings(&steps(""));
}

#[test]
fn ol10_handlers_save_concurrently() {
    let step = |id: &str| {
        format!(
            "- {{ id: {id}, after: [], do: {{ event: E{id} }}, timeout: 1h, on_timeout: {{ save: {{ why: =failure.code }} }} }}\n"
        )
    };
    let text = format!("reference: =vars.why\nsteps:\n{}{}", step("a"), step("b"));
    let found = lints(&text);
    assert!(found[0].contains("both save `why`"), "{found:?}");
}

#[test]
fn handled_failures_are_no_failures_of_the_saga() {
    let steps = |handler: &str| {
        format!(
            "steps:\n- {{ id: a, do: {{ effect: e.a }} }}\n- {{ id: b, do: {{ effect: e.b }}, timeout: 1h{handler} }}\n"
        )
    };
    let warning = "OL03 5:3 step `a` has no `undo`: its change remains if `b` fails";
    warns(&steps(""), warning);
    warns(&steps(", on_timeout: continue"), warning);
    warns(
        &steps(", on_failure: continue, on_timeout: fail"),
        "OL03 5:3 step `a` has no `undo`: its change remains if `b` times out",
    );
    has_no_warnings(&steps(", on_failure: continue"));
}

#[test]
fn ol06_nothing_follows_the_completion() {
    let steps = |after: &str| {
        format!(
            "steps:\n- {{ id: pay, do: {{ event: P }}, timeout: 1h, on_timeout: {{ then: late }} }}\n- {{ id: late, do: {{ wait: 1s }} }}\n- {{ id: ship, {after} do: {{ wait: 1s }} }}\n"
        )
    };
    warns(
        &steps(""),
        "OL06 7:3 step `ship` follows only `late`: if `pay` completes, it is bypassed",
    );
    has_no_warnings(&steps("after: [pay, late],"));
    has_no_warnings(&steps("after: [late],"));
}

#[test]
fn ol06_step_follows_a_failure_only() {
    let steps = |after: &str| {
        format!(
            "steps:\n- {{ id: pay, do: {{ event: P }}, timeout: 1h, on_timeout: {{ then: late }} }}\n- {{ id: ship, do: {{ wait: 1s }} }}\n- {{ id: late, do: {{ wait: 1s }} }}\n- {{ id: close, {after} do: {{ wait: 1s }} }}\n"
        )
    };
    warns(
        &steps(""),
        "OL06 8:3 step `close` follows only `late`: if `pay` continues with `ship`, it is bypassed",
    );
    has_no_warnings(&steps("after: [late],"));
    has_no_warnings(&steps("after: [late, ship],"));
}

#[test]
fn ol27_step_ends_before_its_first_reminder() {
    let step = |head: &str, step: &str| {
        format!(
            "{head}steps:\n- {{ id: paid, {step}, remind: {{ every: 2d, max: 3, do: {{ effect: mail.remind }} }} }}\n"
        )
    };
    let message = "step `paid` ends before its first reminder is due, so none is sent";
    warns(
        &step("", "do: { event: Paid }, timeout: 2d"),
        &format!("OL27 5:66 {message}"),
    );
    warns(
        &step("timeout: 1d\n", "do: { event: Paid }"),
        &format!("OL27 6:53 {message}"),
    );
    has_no_warnings(&step("", "do: { event: Paid }, timeout: 49h"));
    let retried = "do: { command: a.Bill }, ok: Paid, timeout: 1d, retry: { max_attempts: 5 }, undo: { command: a.Cancel }";
    has_no_warnings(&step("", retried));
}

#[test]
fn names_in_reminders_are_checked() {
    warns(
        "steps:\n- { id: paid, do: { event: Paid }, timeout: 9d, remind: { every: 2d, max: 3, do: { effect: 'mail remind' } } }\n",
        "OL04 5:92 the effect `mail remind` contains ' ', which must be escaped in subjects",
    );
}

/// Returns the warnings of one rule about the first of these definitions.
fn warnings_of(code: &str, texts: &[&str]) -> Vec<String> {
    let programs: Vec<_> = texts.iter().map(|text| compiled(text)).collect();
    let members = programs
        .iter()
        .map(|program| GroupMember { program, file: "t" });
    let group = DefinitionGroup::new(members.collect());
    let found = group.warnings(&programs[0].definition().saga).into_iter();
    found
        .filter(|warning| warning.code == code)
        .map(|warning| warning.diagnostic.to_string())
        .collect()
}

#[test]
fn ol21_condition_reads_a_field_that_may_be_absent() {
    let found = |step: &str| warnings_of("OL21", &[&format!("{HEAD}{step}")]);
    let remedy = |field: &str| {
        format!(
            "; write `has(event.{field}) && …`, or suppress the warning if the field is always \
             present"
        )
    };

    for (step, place, field, consequence) in [
        (
            "steps: [{ id: a, do: { event: [Paid, Waived], when: event.x > 1 } }]",
            "t:4:53: steps[0].do.when",
            "x",
            "Paid or Waived does not match, and step `a` waits on",
        ),
        (
            "steps: [{ id: a, do: { event: Paid }, fail: { event: No, when: =event.x.y } }]",
            "t:4:64: steps[0].fail[0].when",
            "x.y",
            "No does not match, and step `a` waits on",
        ),
        (
            "steps: [{ id: a, do: { event: Paid, until: =event.last } }]",
            "t:4:44: steps[0].do.until",
            "last",
            "step `a` fails with `expression_error`",
        ),
        (
            "steps: [{ id: a, do: { command: x.A }, ok: { event: D, when: event.n > 1 } }]",
            "t:4:62: steps[0].ok[0].when",
            "n",
            "step `a` fails with `expression_error`",
        ),
        (
            "steps: [{ id: a, do: { effect: e.a }, undo: { command: x.U, ok: { event: D, when: event.n > 1 } } }]",
            "t:4:83: steps[0].undo.ok[0].when",
            "n",
            "the compensation of step `a` fails",
        ),
        (
            "on: { event: Off, when: event.by == 'c', then: cancel }\nsteps: [{ id: a, do: { wait: 1s } }]",
            "t:4:25: on[0].when",
            "by",
            "Off becomes a dead letter",
        ),
    ] {
        let expected = format!(
            "{place}: without `event.{field}`, {consequence}{}",
            remedy(field)
        );
        assert_eq!(found(step), [expected], "{step}");
    }

    for tested in [
        "has(event.x) && event.x > 1",
        "event.?x.orValue(2) > 1",
        "vars == {}",
    ] {
        let step = format!("steps: [{{ id: a, do: {{ event: Paid, when: {tested:?} }} }}]");
        assert_eq!(found(&step), Vec::<String>::new(), "{tested}");
    }
    let element = "steps: [{ id: a, foreach: { in: '[1]', as: n }, do: { command: x.A }, ok: { event: D, when: event.n == n } }]";
    assert_eq!(found(element).len(), 1);
}

#[test]
fn ol21_field_of_a_fact_is_present() {
    let order = format!("{HEAD}steps: [{{ id: a, do: {{ event: Done, when: event.total > 1 }} }}]");
    let other = |data: &str| {
        format!(
            "saga: other\nversion: 1\nstart: Go\nsteps: [{{ id: b, do: {{ wait: 1s }} }}]\ncompleted: {{ fact: Done, data: {data} }}\n"
        )
    };
    let found = |data: &str| warnings_of("OL21", &[&order, &other(data)]).len();
    assert_eq!(found("{ total: 3 }"), 0);
    assert_eq!(found("{ sum: 3 }"), 1);
    assert_eq!(found("=vars"), 1);
}
