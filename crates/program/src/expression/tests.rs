//! Expressions, evaluated and refused.

use orlog_model::{CorrelationId, SagaName, TenantId};
use serde_json::{Value, json};

use super::*;

const ALL: Scope<'static> = Scope { roots: &Root::ALL, vars: None };

fn instance() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new("o1").unwrap(),
    }
}

fn vars() -> Map<String, Value> {
    let vars = json!({
        "total": 125, "ratio": 0.5, "big": 18_446_744_073_709_551_615_u64, "open": true, "none": null,
        "status": "open", "items": [{"sku": "b", "n": 2}, {"sku": "a", "n": 1}], "numbers": [3, 1, 2],
        "customer": {"name": "Ada", "email": "a@b"},
    });
    match vars {
        Value::Object(vars) => vars,
        other => panic!("{other}"),
    }
}

fn evaluate(source: &str) -> Result<Value, String> {
    let expression = Expression::compile(source, &ALL).map_err(|refused| refused[0].message.clone())?;
    let (key, vars, event) = (instance(), vars(), json!({ "paid": [1, 2] }));
    let bindings = Bindings::new(&key).vars(&vars).event(&event);
    expression.evaluate(&bindings).map_err(|error| error.reason)
}

#[track_caller]
fn check(source: &str, expected: Value) {
    assert_eq!(evaluate(source), Ok(expected), "{source}");
}

#[track_caller]
fn refuse(source: &str, reason: &str) {
    assert_eq!(evaluate(source), Err(reason.to_owned()), "{source}");
}

#[test]
fn chains_of_fields_need_no_cel() {
    let expression = Expression::compile("vars.customer.email", &ALL).unwrap();
    assert!(matches!(expression.kind, Kind::Path { root: Root::Vars, .. }));
    check("vars.customer.email", json!("a@b"));
    check("vars.customer", json!({"name": "Ada", "email": "a@b"}));
    check("key.tenant", json!("acme"));
    check("vars.none", Value::Null);
    refuse("vars.customer.phone", "there is no `phone`");
}

#[test]
fn computes_with_what_json_has() {
    check("vars.total * 2 + 1", json!(251));
    check("vars.ratio * 2.0", json!(1.0));
    check("double(vars.total) * vars.ratio", json!(62.5));
    check("vars.big", json!(18_446_744_073_709_551_615_u64));
    check("vars.big > 1u", json!(true));
    check("vars.none == null", json!(true));
    check("vars.status + '-' + key.correlation", json!("open-o1"));
    check("vars.total > 100 && vars.status == 'open' ? 'yes' : 'no'", json!("yes"));
    check("size(vars.items) + vars.items.size()", json!(4));
    check("vars.items[1].sku", json!("a"));
    check("vars.items.map(i, i.sku)", json!(["b", "a"]));
    check("vars.items.filter(i, i.n > 1)", json!([{"sku": "b", "n": 2}]));
    check("vars.items.exists(i, i.sku == 'a')", json!(true));
    check(
        "{'id': key.correlation, 'skus': vars.items.map(i, i.sku)}",
        json!({"id": "o1", "skus": ["b", "a"]}),
    );
    check("has(vars.customer.phone)", json!(false));
    check("vars.customer.?phone.orValue('none')", json!("none"));
    check("vars.numbers + [4] + event.paid", json!([3, 1, 2, 4, 1, 2]));
    check("'email' in vars.customer && 2 in vars.numbers", json!(true));
}

#[test]
fn lists_and_maps_are_equal_on_either_side() {
    for source in [
        "vars.numbers == [3, 1, 2]",
        "[3, 1, 2] == vars.numbers",
        "vars.customer == {'email': 'a@b', 'name': 'Ada'}",
        "{'email': 'a@b', 'name': 'Ada'} == vars.customer",
        "[{'n': 2, 'sku': 'b'}] == vars.items.filter(i, i.n == 2)",
        "vars.customer == vars.customer",
        "vars.numbers != [3, 1]",
        "{'a': vars.numbers} == {'a': [3, 1, 2]}",
    ] {
        check(source, json!(true));
    }
    check("[3, 1] == vars.numbers", json!(false));
}

#[test]
fn goes_through_maps_in_the_order_of_their_keys() {
    for _ in 0..50 {
        check("vars.customer.map(k, k)", json!(["email", "name"]));
    }
    refuse("{'b': 1, 'a': 2}.map(k, k)", "a map literal has no order, so nothing may go through it");
}

#[test]
fn what_json_cannot_say_is_an_error() {
    refuse("{1: 'a'}", "a key of its map is of type int, JSON has only texts");
    refuse("1.0 / 0.0", "inf is no JSON number");
    refuse("type(1)", "there is no function `type`");
    refuse("vars.customer.?phone", "its value is an optional; end it with .orValue(…)");
    refuse("b'abc'", "its value is bytes, which JSON does not have; use string()");
}

#[test]
fn faults_at_run_time_are_sentences() {
    refuse("vars.items[9]", "the index is outside the list");
    refuse("vars.total / 0", "division by zero");
    refuse("vars.total + 1.5", "`add` does not take these types; int() and double() convert numbers");
    refuse("9223372036854775807 + vars.total", "overflow in add");
}

#[test]
fn conditions_are_true_or_false() {
    let (key, vars) = (instance(), vars());
    let bindings = Bindings::new(&key).vars(&vars);
    let holds = |source: &str| Expression::compile(source, &ALL).unwrap().holds(&bindings);
    assert_eq!(holds("vars.total > 100"), Ok(true));
    assert_eq!(holds("vars.open"), Ok(true));
    let error = holds("vars.total").unwrap_err();
    assert_eq!(error.to_string(), "`vars.total`: a condition must be true or false, this is a number");
}

#[test]
fn what_costs_too_much_is_refused_before_it_runs() {
    refuse(&"x".repeat(5000), "the expression is 5000 bytes long, the limit is 4096");
    refuse(&format!("{}1{}", "(".repeat(40), ")".repeat(40)), "the expression nests deeper than 32 levels");
    refuse(&"!".repeat(100), "the expression nests deeper than 32 levels");
    refuse(&format!("1{}", " + 1".repeat(500)), "the expression chains more than 100 operators or fields");
    refuse(&format!("vars{}", ".a".repeat(500)), "the expression chains more than 100 operators or fields");
    refuse("[1].map(a, [1].map(b, [1].map(c, c)))", "map, filter, all and exists stand more than 2 deep");
}

#[test]
fn what_costs_too_much_while_it_runs_is_stopped() {
    let many: Vec<_> = (0..10_000).collect();
    let (key, event) = (instance(), json!({ "many": many, "long": "x".repeat(100_000) }));
    let bindings = Bindings::new(&key).event(&event);
    let run = |source: &str| Expression::compile(source, &ALL).unwrap().evaluate(&bindings);
    assert_eq!(run("size(event.many.map(a, a + 1))"), Ok(json!(10_000)));
    for source in ["event.many.map(a, event.many.map(b, a + b))", "size(event.many.map(a, event.long + 'x'))"]
    {
        assert_eq!(run(source).unwrap_err().reason, "it goes through too much data", "{source}");
    }
}
