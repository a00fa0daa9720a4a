//! Invariants are checked against the definition, and evaluated at their times.

use super::*;
use crate::yaml::compile_yaml;

fn diagnostics(invariants: &str) -> Vec<String> {
    let text = format!(
        "saga: t\nversion: 1\nstart: Go\nvars: {{ total: =event.total }}\ninvariants:\n{invariants}\nsteps: [{{ id: charge, do: {{ effect: e.charge }} }}]\n"
    );
    match compile_yaml(&text, "t") {
        Ok(_) => Vec::new(),
        Err(found) => found.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn invariants_name_known_steps_properties_and_variables() {
    for (invariant, expected) in [
        (
            "never: steps.chrge.started",
            "t:6:23: invariants[0].never: there is no step `chrge`; did you mean `charge`?",
        ),
        (
            "never: \"steps['charge'].begun\"",
            "t:6:23: invariants[0].never: `begun` is no property of a step; the properties of a step are \
             `started`, `completed`, `failed`, `compensated`, `skipped`, `state`",
        ),
        (
            "never: steps.?chrge.started == true",
            "t:6:23: invariants[0].never: there is no step `chrge`; did you mean `charge`?",
        ),
        (
            "always: status == 'complete'",
            "t:6:24: invariants[0].always: `complete` is no status; did you mean `completed`?",
        ),
        (
            "never: \"status in ['failed', 'stuk']\"",
            "t:6:23: invariants[0].never: `stuk` is no status; did you mean `stuck`?",
        ),
        (
            "never: steps.charge.state != 'runing'",
            "t:6:23: invariants[0].never: `runing` is no state of a step; did you mean `running`?",
        ),
        (
            "always: vars.totl > 1",
            "t:6:24: invariants[0].always: `vars.totl` is never set; did you mean `total`?",
        ),
        (
            "always: event.total > 1",
            "t:6:24: invariants[0].always: unknown name `event`; available: `steps`, `status` and \
             `vars`",
        ),
        (
            "when: true",
            "t:6:5: invariants[0]: an invariant has either `never` or `always`; for example never: \
             steps.charge.started && !steps.verified.completed",
        ),
    ] {
        let found = diagnostics(&format!("  - {{ name: n, {invariant} }}"));
        assert!(
            found.iter().any(|line| line == expected),
            "{expected} is missing in {found:#?}"
        );
    }
    let twice =
        "  - { name: n, never: steps.charge.failed }\n  - { name: n, always: status != 'stuck' }";
    assert_eq!(
        diagnostics(twice),
        ["t:7:13: invariants[1].name: the invariant `n` is stated twice"]
    );
    assert!(
        diagnostics("  - { name: n, never: vars.total > 100 && steps.charge.state == 'failed' }")
            .is_empty()
    );
}

#[test]
fn rules_are_checked_at_their_times() {
    let text = "saga: t\nversion: 1\nstart: Go\nsteps: [{ id: a, do: { effect: e.a } }]\ninvariants:\n  - { name: n, never: steps.a.failed }\n  - { name: e, always: steps.a.completed }\n";
    let compiled = compile_yaml(text, "t").unwrap();
    let view = |holding: &[StepProperty]| {
        let mut view = RunView::new("running", Value::Object(Map::new()));
        view.add_step("a", "running", |property| holding.contains(&property));
        view
    };
    let violations = |holding: &[StepProperty], is_end| {
        let all = compiled.invariants().iter();
        all.filter_map(|invariant| invariant.violation(&view(holding), is_end))
            .collect::<Vec<_>>()
    };
    assert!(violations(&[StepProperty::Started], false).is_empty());
    assert_eq!(
        violations(&[StepProperty::Failed], false),
        ["n: never steps.a.failed"]
    );
    assert_eq!(violations(&[], true), ["e: always steps.a.completed"]);
    assert!(violations(&[StepProperty::Completed], true).is_empty());
}
