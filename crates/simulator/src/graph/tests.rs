//! Tests of graphs of a definition with every feature.

use orlog_program::compile_yaml;
use serde_json::json;

use super::*;

/// Returns a definition with every element that a graph can contain.
fn trip() -> Definition {
    serde_json::from_str(include_str!("tests/trip.json")).unwrap()
}

fn definition(text: &str) -> Definition {
    let compiled =
        compile_yaml(text, "a.saga.yaml").unwrap_or_else(|problems| panic!("{problems:#?}"));
    compiled.definition().clone()
}

fn halfway() -> InstanceOverlay {
    InstanceOverlay::of(&json!({ "phase": "running", "steps": [
        { "id": "hotel", "state": "completed" },
        { "id": "flight-a", "state": "compensated" },
        { "id": "flight-b", "state": "completed" },
        { "id": "seat", "state": "completed" },
        { "id": "route", "state": "completed" },
        { "id": "manual", "state": "bypassed" },
        { "id": "auto", "state": "failed" },
        { "id": "pay", "state": "running" },
        { "id": "lines", "state": "pending" },
    ] }))
}

#[test]
fn renders_mermaid() {
    insta::assert_snapshot!("mermaid", mermaid(&trip(), None));
    insta::assert_snapshot!("mermaid_halfway", mermaid(&trip(), Some(&halfway())));
}

#[test]
fn renders_svg() {
    insta::assert_snapshot!("svg", svg(&trip(), None));
    insta::assert_snapshot!("svg_halfway", svg(&trip(), Some(&halfway())));
}

#[test]
fn loop_has_an_edge_to_its_first_step_and_shows_its_round() {
    let text = "saga: review\nversion: 1\nstart: Go\nsteps:\n  - { id: draft, do: { effect: e.draft }, save: { again: =event.again } }\n  - { id: review, do: { repeat: draft, while: vars.again, max: 5 } }\n  - { id: print, do: { effect: e.print } }\n";
    let overlay = InstanceOverlay::of(&json!({ "phase": "running", "steps": [
        { "id": "draft", "state": "running", "rounds": [{ "round": 1, "state": "completed" }, { "round": 2, "state": "running" }] },
        { "id": "review", "state": "pending", "round": 2 },
        { "id": "print", "state": "pending" },
    ] }));
    insta::assert_snapshot!("mermaid_loop", mermaid(&definition(text), Some(&overlay)));
    insta::assert_snapshot!("svg_loop", svg(&definition(text), Some(&overlay)));
}

#[test]
fn user_text_is_escaped() {
    let nasty = "saga: '<script>'\nversion: 1\nstart: 'A\"><script>alert(1)</script>'\nsteps:\n  - { id: 'a\"-->x<b>&', do: { effect: 'e<&>\"`#' } }\n";
    let drawn = svg(&definition(nasty), None);
    assert!(
        !drawn.contains("<script") && !drawn.contains("<b>"),
        "{drawn}"
    );
    let text = mermaid(&definition(nasty), None);
    assert!(
        !text.contains("<script") && !text.contains("\"-->x"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 6, "{text}");
}

#[test]
fn large_definition_is_rendered_in_bounded_time() {
    let steps: Vec<_> = (0..300)
        .map(|n| {
            format!(
                "  - {{ id: s{n}, after: [{}], do: {{ effect: e }} }}\n",
                if n < 20 {
                    String::new()
                } else {
                    format!("s{}", n - 20)
                }
            )
        })
        .collect();
    let text = format!(
        "saga: wide\nversion: 1\nstart: A\nsteps:\n{}",
        steps.concat()
    );
    let drawn = svg(&definition(&text), None);
    assert_eq!(drawn.matches("class=\"h\"").count(), 320);
}

#[test]
fn open_saga_shows_the_events_that_end_it() {
    let text = "saga: order\nversion: 1\nstart: Go\nkeep_active: true\non: [{ event: [Closed, Sold], then: complete }, { event: Lost, then: fail }]\n";
    insta::assert_snapshot!(mermaid(&definition(text), None), @r#"
    flowchart TD
      n0(["<b>Go</b>"])
      n1(["<b>completed</b>"])
      n0 -->|"Closed or Sold"| n1
    "#);
    let steps = "steps:\n  - { id: signed, do: { event: Signed, count: 2 }, timeout: '=vars.limit' }\n  - { id: paid, do: { event: Paid, until: '=size(events) > 2' } }\nvars: { limit: =event.limit }\n";
    let graph = mermaid(&definition(&format!("{text}{steps}")), None);
    for part in [
        "2 events",
        "until size(events)",
        "within vars.limit",
        "Closed or Sold",
    ] {
        assert!(graph.contains(part), "{part} is missing in\n{graph}");
    }
}

#[test]
fn failure_handler_has_an_edge_or_a_note() {
    let text = "saga: pay\nversion: 1\nstart: Go\nsteps:\n  - { id: pay, do: { effect: e.pay }, timeout: 1h, on_timeout: { then: late }, on_failure: continue }\n  - { id: ship, do: { effect: e.ship }, on_failure: { then: late } }\n  - { id: late, do: { effect: e.late } }\n";
    insta::assert_snapshot!(mermaid(&definition(text), None), @r#"
    flowchart TD
      n0(["<b>Go</b>"])
      n1["<b>pay</b><br/>effect e.pay<br/>within 1h<br/>on failure: continue"]
      n2["<b>ship</b><br/>effect e.ship"]
      n3["<b>late</b><br/>effect e.late"]
      n4(["<b>completed</b>"])
      n0 --> n1
      n1 --> n2
      n1 -->|"on timeout"| n3
      n2 -->|"on failure"| n3
      n2 --> n4
      n3 --> n4
    "#);
}

#[test]
fn reminders_are_a_note() {
    let text = "saga: pay\nversion: 1\nstart: Go\nsteps:\n  - { id: paid, do: { event: Paid }, timeout: 30d, remind: { every: 7d, max: 3, do: { effect: mail.remind } } }\n";
    insta::assert_snapshot!(mermaid(&definition(text), None), @r#"
    flowchart TD
      n0(["<b>Go</b>"])
      n1["<b>paid</b><br/>event Paid<br/>within 30d<br/>every 7d, at most 3 times: mail.remind"]
      n2(["<b>completed</b>"])
      n0 --> n1
      n1 --> n2
    "#);
}
