//! Expressions as a definition meets them: equality over all of JSON, and reasons that are short and always the same.

use serde_json::json;

#[track_caller]
fn check(source: &str, expected: bool) {
    let bindings = json!({ "vars": { "n": 1, "none": null }, "event": { "a": [1], "b": {} } });
    let value = orlog_program::evaluate(source, bindings.as_object().expect("an object"));
    assert_eq!(value, Ok(json!(expected)), "{source}");
}

#[test]
fn a_list_or_a_map_is_unlike_anything_that_is_none() {
    for other in ["null", "1", "1.5", "'a'", "true", "vars.n", "vars.none"] {
        for value in ["event", "event.a", "event.b", "vars"] {
            check(&format!("{value} == {other}"), false);
            check(&format!("{other} != {value}"), true);
        }
    }
    check("event.a == event.b", false);
    check("event.a == [1]", true);
    check("event != {'a': [1], 'b': {}}", false);
    check("vars.none == null", true);
    check("null in [event, event.a]", false);
}

#[test]
fn a_reason_is_short_and_the_same_every_time() {
    let bindings = json!({ "event": { "long": "x".repeat(10_000) } });
    let of = |source| orlog_program::evaluate(source, bindings.as_object().expect("an object"));
    let why = of("{'a': 1}[event.long]").expect_err("there is no such key");
    assert!(why.len() < 1000, "{} bytes", why.len());
    let why = of("{'y': 1, 'z': 2} in {'a': 1}").expect_err("a map is no key");
    assert!(why.contains("cannot be a key"), "{why}");
}

#[test]
fn the_size_of_a_value_is_that_of_its_texts_in_json() {
    let bindings = json!({ "event": { "many": vec!["x".repeat(31); 6_000] } });
    let of = |source| orlog_program::evaluate(source, bindings.as_object().expect("an object"));
    assert!(of("event.many").is_ok(), "192,000 bytes of text");
    let why = of("event.many.map(i, bytes(i))").expect_err("as base64 it takes a third more");
    assert!(why.contains("more than 262144 bytes"), "{why}");
}
