//! Lints of values that may be null.

use super::{has_no_warnings, warnings_of};

/// Returns the messages of a rule about the definition with this text after its header.
fn found(code: &str, text: &str) -> Vec<String> {
    warnings_of(code, &[&format!("{}{text}", super::HEAD)])
}

/// Saga whose last step reads `vars.x` in its `undo`.
fn undo_reads_x(earlier: &str) -> String {
    format!(
        "steps:\n{earlier}- {{ id: last, do: {{ effect: e.last }}, undo: {{ effect: e.undo, data: =vars.x }} }}\n"
    )
}

#[test]
fn ol22_undo_reads_a_variable_of_a_step_that_need_not_have_completed() {
    let saving = "do: { effect: e.a }, undo: { effect: e.u }, save: { x: =event.x }";
    for earlier in [
        format!("- {{ id: a, when: event.y, {saving} }}\n").replace("event.y", "key.saga == 'u'"),
        format!(
            "- {{ id: r, do: {{ switch: [{{ when: key.saga == 'u', then: a }}, {{ then: b }}] }} }}\n- {{ id: a, {saving} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: c, after: [a, b], do: {{ wait: 1s }} }}\n"
        ),
        format!("- {{ id: a, {saving}, on_failure: continue }}\n"),
        format!(
            "- {{ id: a, {saving}, on_failure: {{ then: other }} }}\n- {{ id: other, do: {{ wait: 1s }} }}\n- {{ id: c, after: [a, other], do: {{ wait: 1s }} }}\n"
        ),
        format!(
            "- {{ id: a, after: [], {saving} }}\n- {{ id: b, after: [], do: {{ effect: e.b }} }}\n- {{ id: c, after: {{ any: [a, b] }}, do: {{ wait: 1s }} }}\n"
        ),
    ] {
        let warnings = found("OL22", &undo_reads_x(&earlier));
        assert_eq!(warnings.len(), 1, "{earlier}: {warnings:?}");
        assert!(
            warnings[0].contains(
                "the `undo` of step `last` reads `vars.x`, which is null if `a` has not completed; \
                 save it in `last`, or test it"
            ),
            "{warnings:?}"
        );
    }

    let later = "steps:\n- { id: a, do: { effect: e.a }, undo: { effect: e.u, data: =vars.x } }\n- { id: b, do: { effect: e.b }, save: { x: =event.x } }\n";
    assert_eq!(found("OL22", later).len(), 1);
}

#[test]
fn ol22_accepts_variables_that_are_set() {
    let saving = "do: { effect: e.a }, undo: { effect: e.u }, save: { x: =event.x }";
    for earlier in [
        format!("- {{ id: a, {saving} }}\n"),
        format!("- {{ id: a, {saving} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n"),
        format!("- {{ id: a, {saving}, on_failure: {{ save: {{ x: 1 }} }} }}\n"),
        format!(
            "- {{ id: a, {saving} }}\n- {{ id: r, do: {{ switch: [{{ when: key.saga == 'u', then: b }}, {{ then: c }}] }} }}\n- {{ id: b, do: {{ wait: 1s }} }}\n- {{ id: c, do: {{ wait: 1s }} }}\n- {{ id: d, after: [b, c], do: {{ wait: 1s }} }}\n"
        ),
        format!(
            "- {{ id: a, after: [], {saving} }}\n- {{ id: b, after: [], do: {{ wait: 1s }} }}\n- {{ id: c, after: [a, b], do: {{ wait: 1s }} }}\n"
        ),
    ] {
        let text = undo_reads_x(&earlier);
        let warnings = found("OL22", &text);
        assert!(warnings.is_empty(), "{text}: {warnings:?}");
    }

    let own = "steps: [{ id: a, do: { effect: e.a }, save: { x: =event.x }, undo: { effect: e.u, data: =vars.x } }]";
    assert_eq!(found("OL22", own), Vec::<String>::new());
    let of_start = "vars: { x: =event.x }\nsteps: [{ id: a, do: { effect: e.a }, undo: { effect: e.u, data: =vars.x } }, { id: b, do: { effect: e.b }, undo: { effect: e.u }, save: { x: =event.x } }]";
    has_no_warnings(of_start);
    let tested = undo_reads_x(
        "- { id: a, when: key.saga == 'u', do: { effect: e.a }, save: { x: =event.x } }\n",
    )
    .replace("=vars.x", "\"=vars.x == null ? '' : vars.x\"");
    assert_eq!(found("OL22", &tested), Vec::<String>::new());
}

#[test]
fn ol23_step_reads_what_a_failed_step_has_not_saved() {
    let charge = |handler: &str| {
        format!(
            "steps:\n- {{ id: charge, do: {{ effect: e.charge }}, save: {{ plan: =event.plan }}, {handler} }}\n- {{ id: mail, do: {{ effect: e.mail, data: {{ plan: =vars.plan }} }} }}\n"
        )
    };
    let expected = "t:6:51: steps[1].do.data.plan: step `mail` reads `vars.plan`, which is null if \
                    `charge` has failed; set it in the failure handler of `charge`, \
                    `save: { plan: … }`, or test it, for example \
                    `=vars.plan == null ? '' : vars.plan`";
    assert_eq!(found("OL23", &charge("on_failure: continue")), [expected]);
    for set in [
        "on_failure: { save: { plan: free } }",
        "on_failure: fail",
        "publish: false",
    ] {
        assert_eq!(found("OL23", &charge(set)), Vec::<String>::new(), "{set}");
    }

    let tested = charge("on_failure: continue").replace(
        "=vars.plan }",
        "\"=vars.plan == null ? 'free' : vars.plan\" }",
    );
    assert_eq!(found("OL23", &tested), Vec::<String>::new());
}

#[test]
fn ol22_test_of_presence_does_not_prevent_null() {
    let earlier = "- { id: a, when: key.saga == 'u', do: { effect: e.a }, undo: { effect: e.u }, save: { x: =event.x } }\n";
    for read in ["\"=has(vars.x) ? vars.x : ''\"", "\"=vars.?x.orValue('')\""] {
        let text = undo_reads_x(earlier).replace("=vars.x", read);
        assert_eq!(found("OL22", &text).len(), 1, "{text}");
    }
    for read in [
        "\"=vars.?x.?id.orValue('')\"",
        "\"=has(vars.x.id) ? vars.x.id : ''\"",
    ] {
        let text = undo_reads_x(earlier).replace("=vars.x", read);
        assert_eq!(found("OL22", &text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn condition_of_the_reading_step_prevents_null() {
    let earlier = "- { id: a, when: key.saga == 'u', do: { effect: e.a }, undo: { effect: e.u }, save: { x: =event.x } }\n";
    for (when, count) in [
        ("key.saga == 'v'", 1),
        ("key.saga == 'u'", 0),
        ("\"=key.saga == 'u'\"", 0),
        ("vars.x != null", 0),
    ] {
        let text = undo_reads_x(earlier).replace("id: last,", &format!("id: last, when: {when},"));
        assert_eq!(found("OL22", &text).len(), count, "{text}");
    }

    let failed = |when: &str| {
        format!(
            "steps:\n- {{ id: a, do: {{ effect: e.a }}, save: {{ x: =event.x }}, on_failure: continue }}\n- {{ id: b, {when}do: {{ effect: e.b, data: =vars.x }} }}\n"
        )
    };
    assert_eq!(found("OL23", &failed("")).len(), 1);
    let tested = failed("when: vars.x != null, ");
    assert_eq!(found("OL23", &tested), Vec::<String>::new());
}

#[test]
fn ol23_list_of_a_failed_foreach_is_null_despite_its_initial_value() {
    let text = |handler: &str| {
        format!(
            "vars: {{ items: =event.items, ids: [] }}\nsteps:\n- {{ id: pay, foreach: {{ in: =vars.items, as: item }}, do: {{ effect: e.pay }}, save: {{ ids: =event.id }}, {handler} }}\n- {{ id: next, do: {{ effect: e.next, data: =vars.ids }} }}\n"
        )
    };
    assert_eq!(found("OL23", &text("on_failure: continue")).len(), 1);
    for handler in ["on_failure: { save: { ids: [] } }", "publish: false"] {
        assert_eq!(found("OL23", &text(handler)), Vec::<String>::new());
    }
}

#[test]
fn ol28_undo_reads_what_its_own_step_saves() {
    let step = |kind: &str, save: &str, undo: &str| {
        format!(
            "steps: [{{ id: a, do: {{ {kind} }}, save: {{ x: {save} }}, undo: {{ effect: e.u, {undo} }} }}]"
        )
    };
    let warnings = found("OL28", &step("effect: e.a", "=event.x", "data: =vars.x"));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains(
            "steps[0].undo.data: the `undo` of step `a` reads `vars.x`, which is null if it times \
             out: the instance becomes stuck with `undo_without_value`; identify the change by a \
             value that is known before the step; write `allow_null: [x]` in the `undo` if its \
             upstream accepts null"
        ),
        "{warnings:?}"
    );

    let optional = found(
        "OL28",
        &step("event: E", "=event.?x.orValue(null)", "data: =vars.x"),
    );
    assert_eq!(optional.len(), 1, "{optional:?}");
    assert!(
        optional[0].contains("null if the result lacks it"),
        "{optional:?}"
    );

    for clean in [
        step("effect: e.a", "=event.x", "data: =vars.x, allow_null: [x]"),
        step(
            "effect: e.a",
            "=event.x",
            "data: \"=vars.x == null ? '' : vars.x\"",
        ),
        step("effect: e.a", "=event.x", "data: =key.correlation"),
        step("event: E", "=event.x", "data: =vars.x"),
    ] {
        assert_eq!(found("OL28", &clean), Vec::<String>::new(), "{clean}");
    }
}

#[test]
fn ol23_condition_of_several_events_is_reported_once() {
    let text = "steps:\n- { id: a, do: { effect: e.a }, save: { x: =event.x }, on_failure: continue }\n- { id: b, do: { event: [P, Q], when: vars.x > 1 }, timeout: 1h }\n";
    let warnings = found("OL23", text);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("t:6:39: steps[1].do.when: step `b` reads"),
        "{warnings:?}"
    );
}

#[test]
fn ol23_step_of_a_handler_reads_what_the_failed_step_saves() {
    let text = "steps:\n- { id: a, do: { effect: e.a }, save: { x: =event.x }, on_failure: { then: late } }\n- { id: b, do: { effect: e.b, data: =vars.x } }\n- { id: late, do: { effect: e.late, data: =vars.x } }\n";
    let warnings = found("OL23", text);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("step `late` reads `vars.x`"),
        "{warnings:?}"
    );
}

#[test]
fn ol23_job_reads_the_result_of_a_failed_job() {
    let jobs = |handler: &str, job: &str| {
        format!(
            "steps:\n- {{ id: probe, do: {{ job: {{ type: python, script: p }} }}{handler} }}\n- {{ id: next, do: {{ job: {{ type: python, script: n{job} }} }} }}\n"
        )
    };
    for job in [
        ", dependencies: [probe]",
        ", args: { n: =results.probe.n }, prerequisites: probe",
    ] {
        let warnings = found("OL23", &jobs(", on_failure: continue", job));
        assert_eq!(warnings.len(), 1, "{job}: {warnings:?}");
        assert!(
            warnings[0]
                .contains("step `next` reads `results.probe`, which is null if `probe` has failed"),
            "{warnings:?}"
        );
        assert_eq!(found("OL23", &jobs("", job)), Vec::<String>::new());
    }
}
