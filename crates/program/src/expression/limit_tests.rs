//! Each limit of an expression at its boundary: accepted at the limit, rejected above it.

use orlog_model::{CorrelationId, SagaName, TenantId};
use serde_json::{Value, json};

use super::*;
use crate::limits::{
    MAX_EVALUATION_COST, MAX_EXPRESSION_BYTES, MAX_JSON_DEPTH, MAX_PATTERN_BYTES, MAX_PAYLOAD_BYTES,
};
use crate::template::Template;

const ALL: Scope<'static> = Scope {
    roots: &Root::ALL,
    vars: None,
    element: None,
};
const TOO_MUCH: &str = "the expression processes too much data";

fn instance() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new("o1").unwrap(),
    }
}

fn evaluate(source: &str, event: &Value) -> Result<Value, String> {
    let expression =
        Expression::compile(source, &ALL).map_err(|errors| errors[0].message.clone())?;
    let key = instance();
    expression
        .evaluate(&Bindings::new(&key).event(EventData::of_result(event)))
        .map_err(|error| error.reason)
}

#[track_caller]
fn edge(valid: &str, invalid: &str, reason: &str) {
    let valid = evaluate(valid, &Value::Null);
    assert!(valid.is_ok(), "{valid:?}");
    assert_eq!(evaluate(invalid, &Value::Null), Err(reason.to_owned()));
}

fn list(length: usize) -> String {
    format!("[{}]", vec!["1"; length].join(","))
}

#[test]
fn expression_length_is_limited_to_4096_bytes() {
    let text = |length: usize| format!("'{}'", "x".repeat(length - 2));
    edge(
        &text(MAX_EXPRESSION_BYTES),
        &text(MAX_EXPRESSION_BYTES + 1),
        "the expression has 4097 bytes; the limit is 4096",
    );
}

#[test]
fn expression_nesting_is_limited_to_32() {
    let reason = "the expression exceeds 32 nesting levels";
    let calls = |depth: usize| format!("{}1{}", "int(".repeat(depth), ")".repeat(depth));
    edge(&calls(32), &calls(33), reason);
    let lists = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    edge(&lists(32), &lists(33), reason);
    let signs = |depth: usize| format!("{}true", "!".repeat(depth));
    edge(&signs(32), &signs(33), reason);
    let ternaries = |depth: usize| format!("{}1", "false ? 0 : ".repeat(depth));
    edge(&ternaries(32), &ternaries(33), reason);
}

#[test]
fn operator_chains_are_limited_to_100() {
    let reason = "the expression chains more than 100 operators or fields";
    let sum = |length: usize| format!("1{}", " + 1".repeat(length - 1));
    edge(&sum(100), &sum(101), reason);
    let calls = |length: usize| format!("'a'{}", ".trim()".repeat(length - 1));
    edge(&calls(100), &calls(101), reason);
    check_chain_rejected(&format!("event{}", ".a".repeat(500)), reason);
}

#[track_caller]
fn check_chain_rejected(source: &str, reason: &str) {
    assert_eq!(evaluate(source, &Value::Null), Err(reason.to_owned()));
}

#[test]
fn comprehension_nesting_is_limited_to_2() {
    edge(
        "[1].map(a, [1].map(b, b))",
        "[1].map(a, [1].map(b, [1].map(c, c)))",
        "map, filter, all and exists exceed 2 nesting levels",
    );
    edge(
        "[1].map(a, [1].map(b, cel.bind(c, b, c)))",
        "cel.bind(x, [1], x.map(a, x.map(b, x.map(c, c))))",
        "map, filter, all and exists exceed 2 nesting levels",
    );
}

#[test]
fn iteration_is_limited_to_100_000_elements() {
    let event = |length: usize| json!({ "many": vec![1; length] });
    let units = usize::try_from(MAX_EVALUATION_COST).unwrap();
    assert_eq!(
        evaluate("event.many.all(a, true)", &event(units)),
        Ok(json!(true))
    );
    assert_eq!(
        evaluate("event.many.all(a, true)", &event(units + 1)),
        Err(TOO_MUCH.to_owned())
    );
    let many = event(10_000);
    assert_eq!(
        evaluate("size(event.many.map(a, a + 1))", &many),
        Ok(json!(10_000))
    );
    assert_eq!(
        evaluate("event.many.map(a, event.many.map(b, a + b))", &many),
        Err(TOO_MUCH.to_owned())
    );
}

/// A comprehension over literals reads as many elements as the product of their lengths.
#[test]
fn literals_are_charged_like_data() {
    let nested = |n: usize| format!("size({}.map(x, {}.map(y, true)))", list(n), list(n));
    edge(&nested(250), &nested(350), TOO_MUCH);
    let built = |n: usize| format!("cel.bind(l, {}, size(l.map(x, l.map(y, true))))", list(n));
    edge(&built(200), &built(400), TOO_MUCH);
    let range = |n: usize| format!("size(lists.range({n}))");
    // `range` charges for each element that it creates, `size` for each element of its input.
    edge(&range(50_000), &range(50_001), TOO_MUCH);
    let distinct = |n: usize| format!("size(lists.range({n}).distinct())");
    edge(&distinct(1_000), &distinct(2_000), TOO_MUCH);
}

#[test]
fn text_is_limited_to_six_megabytes() {
    let units = usize::try_from(MAX_EVALUATION_COST).unwrap();
    let event = |length: usize| json!({ "long": "x".repeat(length) });
    assert_eq!(
        evaluate("event.long == ''", &event(64 * units - 1)),
        Ok(json!(false))
    );
    assert_eq!(
        evaluate("event.long == ''", &event(64 * units)),
        Err(TOO_MUCH.to_owned())
    );
    let long = event(100_000);
    for source in [
        "size(cel.bind(a, event.long, a + a + a + a + a + a + a + a + a + a))",
        "size(event.long.replace('', 'yy'))",
        "size([event.long, event.long].join('-'))",
    ] {
        assert!(evaluate(source, &long).is_ok(), "{source}");
    }
    let bound = |body: &str| {
        format!(
            "size({}.map(i, cel.bind(a, event.long, {body})))",
            list(100)
        )
    };
    for source in [
        bound("a + a"),
        bound("a"),
        bound("[a, a]"),
        bound("a.lowerAscii()"),
        "size([event.long + event.long].map(a, [1,2,3,4,5,6,7,8,9,0].map(i, a + a + a + a + a + a + a)))"
            .to_owned(),
        "size(event.long.replace('', event.long))".to_owned(),
        "size(event.long.split('').join(event.long))".to_owned(),
        "size('%.100f'.format([1.0]).replace('0', event.long))".to_owned(),
        format!("size({}.map(i, {:?}))", "lists.range(50000)", "x".repeat(2_000)),
        format!("size(lists.range(50000).map(i, '{}'.format([1.0])))", "%.99f".repeat(20)),
    ] {
        assert_eq!(evaluate(&source, &long), Err(TOO_MUCH.to_owned()), "{source}");
    }
}

#[test]
fn regex_size_is_limited() {
    let pattern = |length: usize| format!("'x'.matches('{}')", "x".repeat(length));
    edge(
        &pattern(MAX_PATTERN_BYTES),
        &pattern(MAX_PATTERN_BYTES + 1),
        "matches: the pattern has 513 bytes; the limit is 512",
    );
    edge(
        "'x'.matches('x{100}')",
        "'x'.matches('((x{100}){100}){100}')",
        "matches: the compiled pattern is too large",
    );
    let many = json!({ "many": vec![1; 2_000] });
    assert_eq!(
        evaluate(
            "event.many.all(n, 'x'.matches('x' + string(n)) || true)",
            &many
        ),
        Err(TOO_MUCH.to_owned())
    );
}

#[test]
fn value_size_is_limited_to_256_kib_and_64_levels() {
    let long = |length: usize| json!({ "long": "x".repeat(length) });
    assert!(evaluate("event.long + 'y'", &long(MAX_PAYLOAD_BYTES - 2)).is_ok());
    assert_eq!(
        evaluate("event.long + 'y'", &long(MAX_PAYLOAD_BYTES - 1)),
        Err("the value exceeds 262144 bytes".to_owned())
    );
    let deep =
        |depth: usize| json!({ "deep": (0..depth).fold(json!(1), |inner, _| json!([inner])) });
    assert!(evaluate("[event.deep]", &deep(MAX_JSON_DEPTH - 2)).is_ok());
    assert_eq!(
        evaluate("[event.deep]", &deep(MAX_JSON_DEPTH - 1)),
        Err("the value exceeds 64 nesting levels".to_owned())
    );
}

/// A template of several expressions has the same limit as one expression.
#[test]
fn template_shares_one_budget() {
    let key = instance();
    let run = |template: &Value, event: &Value| {
        let mut findings = Vec::new();
        let template = Template::compile(template, "data", &ALL, &mut findings);
        assert_eq!(findings, []);
        template
            .evaluate(&Bindings::new(&key).event(EventData::of_result(event)))
            .map_err(|error| error.reason)
    };
    let event = json!({ "long": "x".repeat(MAX_PAYLOAD_BYTES / 2 - 2), "many": vec![1; 50_000] });
    assert!(run(&json!(["=event.long", "=event.long"]), &event).is_ok());
    assert_eq!(
        run(
            &json!(["=event.long", "=event.long", "=event.long"]),
            &event
        ),
        Err("with this value, the template exceeds 262144 bytes".to_owned())
    );
    let through = "=event.many.all(a, true)";
    assert_eq!(
        run(&json!([through, through]), &event),
        Ok(json!([true, true]))
    );
    assert_eq!(
        run(&json!([through, through, through]), &event),
        Err(TOO_MUCH.to_owned())
    );
}
