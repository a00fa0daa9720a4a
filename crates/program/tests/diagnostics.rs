//! Diagnostics of invalid definitions, and fast rejection of hostile ones.

use std::fmt::Write as _;

use orlog_program::{compile, compile_yaml};

fn problems(text: &str) -> String {
    let problems = compile_yaml(text, "t.saga.yaml").expect_err("the definition is invalid");
    problems.iter().fold(String::new(), |mut all, problem| {
        writeln!(all, "{problem}").expect("a String accepts all text");
        all
    })
}

const HEAD: &str = "saga: t\nversion: 1\nstart: Go\nvars: { orderId: =event.orderId }\n";

fn steps(steps: &str) -> String {
    problems(&format!("{HEAD}{steps}"))
}

#[test]
fn all_diagnostics_are_reported_with_locations() {
    let text = r"saga: order
versoin: 1
start: OrderPlaced
steps:
  - id: reserve
    do: { comand: inventory.Reserve }
    timeuot: 30m
  - id: reserve
    do: { command: Reserve }
    ok: Done
    timeout: 30 minutes
  - do: { effect: e.x, data: { a: =vars.orderId } }
    fail: [A, [B]]
";
    insta::assert_snapshot!(problems(text), @r#"
t.saga.yaml:1:1: `version` is missing
t.saga.yaml:2:1: versoin: unknown field `versoin`; did you mean `version`?
t.saga.yaml:6:9: steps[0].do: the action names no kind; name one of `command`, `effect`, `wait`, `human`, `saga`, `event`, `job`, `switch`, `repeat`, `restart_as_new`
t.saga.yaml:6:11: steps[0].do.comand: unknown field `comand`; did you mean `command`?
t.saga.yaml:7:5: steps[0].timeuot: unknown field `timeuot`; did you mean `timeout`?
t.saga.yaml:8:9: steps[1].id: step `reserve` already exists as steps[0]; use a unique id for each step
t.saga.yaml:9:20: steps[1].do.command: `Reserve` is not a command; write the aggregate and the command, as in inventory.ReserveStock
t.saga.yaml:11:14: steps[1].timeout: `30 minutes` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M
t.saga.yaml:12:5: steps[2]: `id` is missing
t.saga.yaml:12:40: steps[2].do.data.a: `vars.orderId` is never set; set it with `vars` or `save`
t.saga.yaml:13:15: steps[2].fail[1]: this must be a text, it is a list
"#);
}

#[test]
fn expression_errors_have_a_column() {
    let text = r#"steps:
  - id: a
    do: { effect: e.a, data: { x: =vars.orderID, y: "=vars.orderId +", z: =event.total } }
    when: vars.orderId = 1
    save: { p: =evnt.paymentId, q: =sizes(event.items), r: '=now() > 1' }
"#;
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:7:40: steps[0].do.data.x: `vars.orderID` is never set; did you mean `orderId`?
t.saga.yaml:7:69: steps[0].do.data.y: the expression ends too early
t.saga.yaml:7:76: steps[0].do.data.z: unknown name `event`; available: `vars` and `key`; save the required event data with `vars` or `save`
t.saga.yaml:8:24: steps[0].when: the expression is invalid; use `==` for equality
t.saga.yaml:9:17: steps[0].save.p: unknown name `evnt`; available: `vars`, `event` and `key`; did you mean `event`?
t.saga.yaml:9:42: steps[0].save.q: unknown function `sizes`; did you mean `size`?
t.saga.yaml:9:65: steps[0].save.r: unknown function `now`; expressions cannot read a clock; use the time of an event
"#);
}

#[test]
fn dependency_cycle_is_reported() {
    let text = r"steps:
  - { id: a, after: [c], do: { effect: e.a } }
  - { id: b, do: { effect: e.b } }
  - { id: c, do: { effect: e.c } }
  - { id: d, after: [aa, d], do: { effect: e.d } }
";
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:6:21: steps[0].after: the steps form a cycle: `a` after `c` after `b` after `a`; remove one of them from `after`
t.saga.yaml:9:22: steps[3].after[0]: there is no step `aa`; did you mean `a`?
"#);
}

#[test]
fn ambiguous_events_are_rejected() {
    let text = r"steps:
  - { id: a, do: { command: x.A }, ok: Done, fail: Done }
  - { id: b, after: [a], do: { command: x.B }, ok: Fine, fail: No }
  - { id: c, after: [a], do: { command: x.C }, ok: Fine, undo: { command: x.D, ok: No } }
";
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:6:52: steps[0].fail: Done means both success and failure
t.saga.yaml:8:52: steps[2].ok: Fine is ambiguous: success of `b` and success of `c`; use separate events, or order the steps with `after`
t.saga.yaml:8:84: steps[2].undo.ok: No is ambiguous: failure of `b` and compensation of `c`; use separate events, or order the steps with `after`
"#);
}

#[test]
fn unreachable_results_are_rejected() {
    let text = r"steps:
  - { id: a, do: { command: x.A }, fail: Failed, save: { v: =event.v } }
  - { id: b, do: { effect: e.b, id: 7 }, undo: { effect: e.c, ok: Released } }
  - { id: c, do: { command: x.C, effect: e.c } }
  - { id: 'saga', do: { } }
  - { id: 'a:b', do: { effect: e.c }, retry: { max_attempts: 0 }, timeout: 0s }
";
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:6:42: steps[0].fail: step `a` completes when its command is accepted, so Failed is never awaited; name the success event with `ok`
t.saga.yaml:6:56: steps[0].save: step `a` completes when its command is accepted, so no event is available for `save`; name the success event with `ok`
t.saga.yaml:7:33: steps[1].do.id: an effect has no aggregate id; put it into `data`
t.saga.yaml:7:48: steps[1].undo: an effect completes with its outcome, so no event can complete this compensation; remove `ok` and `fail`
t.saga.yaml:8:34: steps[2].do.effect: `command` is already present; an action has one kind
t.saga.yaml:9:11: steps[3].id: `saga` is reserved for the timer of the whole saga; choose another id
t.saga.yaml:9:23: steps[3].do: the action names no kind; name one of `command`, `effect`, `wait`, `human`, `saga`, `event`, `job`, `switch`, `repeat`, `restart_as_new`
t.saga.yaml:10:11: steps[4].id: a step id must not contain ':'; use letters, digits and `-`
t.saga.yaml:10:46: steps[4].retry: at least one attempt is required; set 1 or more
t.saga.yaml:10:76: steps[4].timeout: a timeout must be longer than zero
"#);
}

#[test]
fn yaml_aliases_are_rejected_with_location() {
    insta::assert_snapshot!(problems("a: [1, 2"), @r"t.saga.yaml:2:1: invalid YAML: while parsing a flow sequence, expected ',' or ']'");
    insta::assert_snapshot!(problems("saga: a\nsaga: b"), @r"t.saga.yaml:2:1: duplicate key `saga`, first in line 1");
    insta::assert_snapshot!(problems("- 1\n- 2"), @r#"
t.saga.yaml:1:1: steps: a saga must have 1 to 1000 steps; it has 0
t.saga.yaml:1:1: this must be a map, it is a list
"#);
    insta::assert_snapshot!(problems(""), @r"t.saga.yaml:1:1: the file is empty");
    insta::assert_snapshot!(problems("a: !!str b"), @r"t.saga.yaml:1:4: tags are not part of the language");
    insta::assert_snapshot!(problems("a: 1\n---\nb: 2"), @r"t.saga.yaml:3:1: a file contains one document, this is a second one");
}

#[test]
fn diagnostic_of_a_definition_without_text_names_the_saga_instead_of_a_line() {
    let text = "saga: t
version: 1
start: Go
vars: { y: 1 }
steps: [{ id: b, do: { effect: e.b, data: { x: =vars.y } } }]
";
    let valid = compile_yaml(text, "t.saga.yaml").expect("the definition is valid");
    let mut definition = valid.definition().clone();
    definition.vars.clear();

    let found = compile(definition).expect_err("the definition is invalid");
    assert_eq!(found.len(), 1);
    insta::assert_snapshot!(found[0].to_string(), @r"saga t: steps[0].do.data.x: `vars.y` is never set (at character 5); set it with `vars` or `save`");
}

#[test]
fn hostile_definitions_are_rejected() {
    let deep_flow = format!("a: {}", "[".repeat(200_000));
    let deep_block = (0..500).fold(String::new(), |text, n| text + &" ".repeat(n) + "a:\n");
    let dashes = "- ".repeat(300_000);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let refs = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(bomb, "a{n}: &a{n} [{refs}]").unwrap();
    }
    let huge = "x".repeat(1024 * 1024 + 1);
    let keys = (0..60_000).fold(String::new(), |text, n| text + &format!("k{n}: 1\n"));
    let many = (0..1500).fold(format!("{HEAD}steps:\n"), |text, n| {
        text + &format!("  - {{ id: s{n}, do: {{ effect: e.x }} }}\n")
    });
    let data = format!(
        "{HEAD}steps: [{{ id: a, do: {{ effect: e.x, data: {} }} }}]",
        "[".repeat(70) + &"]".repeat(70)
    );
    let expression = format!(
        "{HEAD}steps: [{{ id: a, do: {{ effect: e.x, data: '={}' }} }}]",
        "[1].map(a,".repeat(400)
    );
    for text in [
        deep_flow, deep_block, dashes, bomb, huge, keys, many, data, expression,
    ] {
        let problems = compile_yaml(&text, "hostile").expect_err("the definition is hostile");
        assert!(problems.len() <= 100, "{}", problems.len());
        println!("{}", problems[0]);
    }
}
