//! Expressions in definitions: equality over all JSON values, and short, deterministic error messages.

use serde_json::json;

#[track_caller]
fn check(source: &str, expected: bool) {
    let bindings = json!({ "vars": { "n": 1, "none": null }, "event": { "a": [1], "b": {} } });
    let value = orlog_program::evaluate(source, bindings.as_object().expect("an object"));
    assert_eq!(value, Ok(json!(expected)), "{source}");
}

#[test]
fn list_or_map_differs_from_any_scalar() {
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
fn error_reason_is_short_and_deterministic() {
    let bindings = json!({ "event": { "long": "x".repeat(10_000) } });
    let of = |source| orlog_program::evaluate(source, bindings.as_object().expect("an object"));
    let reason = of("{'a': 1}[event.long]").expect_err("the key does not exist");
    assert!(reason.len() < 1000, "{} bytes", reason.len());
    let reason = of("{'y': 1, 'z': 2} in {'a': 1}").expect_err("a map is not a key");
    assert!(reason.contains("cannot be a map key"), "{reason}");
}

#[test]
fn value_size_is_its_json_size() {
    let bindings = json!({ "event": { "many": vec!["x".repeat(31); 6_000] } });
    let of = |source| orlog_program::evaluate(source, bindings.as_object().expect("an object"));
    assert!(of("event.many").is_ok(), "192,000 bytes of text");
    let reason = of("event.many.map(i, bytes(i))").expect_err("base64 is a third longer");
    assert!(reason.contains("exceeds 262144 bytes"), "{reason}");
}
