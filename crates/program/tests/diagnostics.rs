//! What people read when a definition is wrong, and that hostile ones are refused quickly.

use std::fmt::Write as _;

use orlog_program::{Definition, Do, compile_yaml};
use serde_json::json;

fn problems(text: &str) -> String {
    let problems = compile_yaml(text, "t.saga.yaml").expect_err("the definition is wrong");
    problems.iter().fold(String::new(), |mut all, problem| {
        writeln!(all, "{problem}").expect("a String takes everything");
        all
    })
}

const HEAD: &str = "saga: t\nversion: 1\nstart: Go\nvars: { orderId: =event.orderId }\n";

fn steps(steps: &str) -> String {
    problems(&format!("{HEAD}{steps}"))
}

#[test]
fn every_mistake_is_reported_at_once_with_its_place() {
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
t.saga.yaml:2:1: versoin: there is no field `versoin`; did you mean `version`?
t.saga.yaml:6:9: steps[0].do: it says nothing to do; name one of `command`, `effect`, `wait`, `human`, `saga`, `event`, `job`, `switch`
t.saga.yaml:6:11: steps[0].do.comand: there is no field `comand`; did you mean `command`?
t.saga.yaml:7:5: steps[0].timeuot: there is no field `timeuot`; did you mean `timeout`?
t.saga.yaml:8:9: steps[1].id: step `reserve` is there already, as steps[0]; give each step its own id
t.saga.yaml:9:20: steps[1].do.command: `Reserve` is no command; write the aggregate and the command, as in inventory.ReserveStock
t.saga.yaml:11:14: steps[1].timeout: `30 minutes` is no duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 as in PT30M
t.saga.yaml:12:5: steps[2]: `id` is missing
t.saga.yaml:12:40: steps[2].do.data.a: nothing sets `vars.orderId`; set it with `vars` or `save`
t.saga.yaml:13:15: steps[2].fail[1]: this must be a text, it is a list
"#);
}

#[test]
fn mistakes_in_expressions_are_found_at_their_character() {
    let text = r#"steps:
  - id: a
    do: { effect: e.a, data: { x: =vars.orderID, y: "=vars.orderId +", z: =event.total } }
    when: vars.orderId = 1
    save: { p: =evnt.paymentId, q: =sizes(event.items), r: '=now() > 1' }
"#;
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:7:40: steps[0].do.data.x: nothing sets `vars.orderID`; did you mean `orderId`?
t.saga.yaml:7:69: steps[0].do.data.y: the expression ends too early
t.saga.yaml:7:76: steps[0].do.data.z: `event` is not known here; there is `vars` and `key`; keep what you need of an event with `vars` or `save`
t.saga.yaml:8:24: steps[0].when: the expression does not parse; equality is `==`
t.saga.yaml:9:17: steps[0].save.p: `evnt` is not known here; there is `vars`, `event` and `key`; did you mean `event`?
t.saga.yaml:9:42: steps[0].save.q: there is no function `sizes`; did you mean `size`?
t.saga.yaml:9:65: steps[0].save.r: there is no function `now`; an expression reads no clock; use the time that an event carries
"#);
}

#[test]
fn steps_that_wait_for_each_other_are_named() {
    let text = r"steps:
  - { id: a, after: [c], do: { effect: e.a } }
  - { id: b, do: { effect: e.b } }
  - { id: c, do: { effect: e.c } }
  - { id: d, after: [aa, d], do: { effect: e.d } }
";
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:6:21: steps[0].after: the steps wait for each other: `a` after `c` after `b` after `a`; remove one of these from `after`
t.saga.yaml:9:22: steps[3].after[0]: there is no step `aa`; did you mean `a`?
"#);
}

#[test]
fn events_that_could_mean_two_things_are_refused() {
    let text = r"steps:
  - { id: a, do: { command: x.A }, ok: Done, fail: Done }
  - { id: b, after: [a], do: { command: x.B }, ok: Fine, fail: No }
  - { id: c, after: [a], do: { command: x.C }, ok: Fine, undo: { command: x.D, ok: No } }
  - { id: d, do: { command: x.E }, ok: Go }
";
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:6:52: steps[0].fail: Done means both success and failure
t.saga.yaml:8:52: steps[2].ok: Fine could mean two things: success of `b` and success of `c`; give them events of their own, or put one step after the other
t.saga.yaml:8:84: steps[2].undo.ok: No could mean two things: failure of `b` and `c` undone; give them events of their own, or put one step after the other
t.saga.yaml:9:40: steps[3].ok: Go starts the saga, so it cannot answer step `d` too
"#);
}

#[test]
fn answers_that_nothing_awaits_or_delivers_are_refused() {
    let text = r"steps:
  - { id: a, do: { command: x.A }, fail: Failed, save: { v: =event.v } }
  - { id: b, do: { effect: e.b, id: 7 }, undo: { effect: e.c, ok: Undone } }
  - { id: c, do: { command: x.C, effect: e.c } }
  - { id: 'saga', do: { } }
  - { id: 'a:b', do: { effect: e.c }, retry: { attempts: 0 }, timeout: 0s }
";
    insta::assert_snapshot!(steps(text), @r#"
t.saga.yaml:6:42: steps[0].fail: step `a` is done when its command is accepted, so nothing waits for Failed; name the event of success with `ok`
t.saga.yaml:6:56: steps[0].save: step `a` is done when its command is accepted, so there is no event to save from; name the event of success with `ok`
t.saga.yaml:7:33: steps[1].do.id: an effect has no aggregate id; put it into `data`
t.saga.yaml:7:48: steps[1].undo: an effect is answered by its outcome, so nothing could deliver an event for this undo; remove `ok` and `fail`
t.saga.yaml:8:34: steps[2].do.effect: `command` is there already; one of the two
t.saga.yaml:9:11: steps[3].id: `saga` is taken: the timer of the whole saga goes by that name; choose another id
t.saga.yaml:9:23: steps[3].do: it says nothing to do; name one of `command`, `effect`, `wait`, `human`, `saga`, `event`, `job`, `switch`
t.saga.yaml:10:11: steps[4].id: a step id holds no ':'; use letters, digits and `-`
t.saga.yaml:10:46: steps[4].retry: at least one attempt is made; 1 or more
t.saga.yaml:10:72: steps[4].timeout: a timeout must be longer than nothing
"#);
}

#[test]
fn what_is_no_tree_is_refused_at_its_place() {
    insta::assert_snapshot!(problems("a: [1, 2"), @r"t.saga.yaml:2:1: this is not YAML: while parsing a flow sequence, expected ',' or ']'");
    insta::assert_snapshot!(problems("saga: a\nsaga: b"), @r"t.saga.yaml:2:1: `saga` stands here twice, first in line 1");
    insta::assert_snapshot!(problems("- 1\n- 2"), @r#"
t.saga.yaml:1:1: steps: a saga has 1 to 1000 steps, this has 0
t.saga.yaml:1:1: this must be a map, it is a list
"#);
    insta::assert_snapshot!(problems(""), @r"t.saga.yaml:1:1: the file is empty");
    insta::assert_snapshot!(problems("a: !!str b"), @r"t.saga.yaml:1:4: tags are not part of the language");
    insta::assert_snapshot!(problems("a: 1\n---\nb: 2"), @r"t.saga.yaml:3:1: a file holds one document, this is a second");
}

#[test]
fn the_builder_says_the_same_without_lines() {
    let built = Definition::builder("t")
        .start("Go")
        .step("a", Do::command("NoDot"))
        .step("b", Do::effect("e.b").data(json!({ "x": "=vars.y" })))
        .build();
    let text: Vec<_> = built.expect_err("it is wrong").iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(text.join("\n"), @r"saga t: steps[0].do: `NoDot` is no command; write the aggregate and the command, as in inventory.ReserveStock");
    let built =
        Definition::builder("t").start("Go").step("b", Do::effect("e.b").data(json!({ "x": "=vars.y" })));
    insta::assert_snapshot!(built.build().expect_err("it is wrong")[0].to_string(), @r"saga t: steps[0].do.data.x: nothing sets `vars.y` (at character 5); set it with `vars` or `save`");
}

#[test]
fn hostile_definitions_are_refused() {
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
    let expression =
        format!("{HEAD}steps: [{{ id: a, do: {{ effect: e.x, data: '={}' }} }}]", "[1].map(a,".repeat(400));
    for text in [deep_flow, deep_block, dashes, bomb, huge, keys, many, data, expression] {
        let problems = compile_yaml(&text, "hostile").expect_err("it is hostile");
        assert!(problems.len() <= 100, "{}", problems.len());
        println!("{}", problems[0]);
    }
}
