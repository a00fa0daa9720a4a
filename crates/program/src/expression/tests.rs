//! Tests of valid and invalid expressions.

use orlog_model::{CorrelationId, SagaName, TenantId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ALL: Scope<'static> = Scope {
    roots: &Root::ALL,
    vars: None,
    element: None,
};

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
    let expression =
        Expression::compile(source, &ALL).map_err(|errors| errors[0].message.clone())?;
    let (key, vars, event) = (instance(), vars(), json!({ "paid": [1, 2] }));
    let bindings = Bindings::new(&key)
        .vars(&vars)
        .event(EventData::of_result(&event));
    expression.evaluate(&bindings).map_err(|error| error.reason)
}

#[track_caller]
fn check(source: &str, expected: Value) {
    assert_eq!(evaluate(source), Ok(expected), "{source}");
}

#[track_caller]
fn check_error(source: &str, reason: &str) {
    assert_eq!(evaluate(source), Err(reason.to_owned()), "{source}");
}

#[test]
fn field_paths_bypass_cel() {
    let expression = Expression::compile("vars.customer.email", &ALL).unwrap();
    assert!(matches!(
        expression.kind,
        Kind::Path {
            root: Root::Vars,
            ..
        }
    ));
    check("vars.customer.email", json!("a@b"));
    check("vars.customer", json!({"name": "Ada", "email": "a@b"}));
    check("key.tenant", json!("acme"));
    check("vars.none", Value::Null);
    check_error("vars.customer.phone", "`phone` does not exist");
}

#[test]
fn computes_with_json_types() {
    check("vars.total * 2 + 1", json!(251));
    check("vars.ratio * 2.0", json!(1.0));
    check("double(vars.total) * vars.ratio", json!(62.5));
    check("vars.big", json!(18_446_744_073_709_551_615_u64));
    check("vars.big > 1u", json!(true));
    check("vars.none == null", json!(true));
    check("vars.status + '-' + key.correlation", json!("open-o1"));
    check(
        "vars.total > 100 && vars.status == 'open' ? 'yes' : 'no'",
        json!("yes"),
    );
    check("size(vars.items) + vars.items.size()", json!(4));
    check("vars.items[1].sku", json!("a"));
    check("vars.items.map(i, i.sku)", json!(["b", "a"]));
    check(
        "vars.items.filter(i, i.n > 1)",
        json!([{"sku": "b", "n": 2}]),
    );
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
fn iterates_maps_in_key_order() {
    for _ in 0..50 {
        check("vars.customer.map(k, k)", json!(["email", "name"]));
    }
    for _ in 0..50 {
        check(
            "{'b': 1, 'a': 2, 'd': 1, 'c': 0}.map(k, k)",
            json!(["a", "b", "c", "d"]),
        );
        check(
            "[{'b': 1, 'a': 2}].map(m, m.map(k, k))",
            json!([["a", "b"]]),
        );
    }
}

#[test]
fn values_without_json_form_are_errors() {
    check_error("{1: 'a', '1': 'b'}", "two keys of the map are `1` in JSON");
    check_error("1.0 / 0.0", "inf is not a JSON number");
    check_error(
        "vars.customer.?phone",
        "the value is an optional; end the expression with .orValue(…)",
    );
    check_error(
        "{'b': 1.0 / 0.0, 'a': -1.0 / 0.0}",
        "-inf is not a JSON number",
    );
}

#[test]
fn times_bytes_and_types_become_strings() {
    check(
        "timestamp('2026-11-21T06:30:00+01:00') + duration('1h30m')",
        json!("2026-11-21T07:00:00Z"),
    );
    check(
        "timestamp('2026-11-21T06:30:00Z') - timestamp('2026-11-21T06:29:58.5Z')",
        json!("1.5s"),
    );
    check(
        "timestamp('2026-11-21T23:30:00Z').getDate('Europe/Berlin')",
        json!(22),
    );
    // Without a zone, the parts are those of UTC, however the time was written.
    check(
        "[timestamp('2024-03-01T00:30:00+02:00'), timestamp('2024-02-29T22:30:00Z')].map(at, \
         [at.getHours(), at.getDate(), at.getMonth(), at.getDayOfWeek(), at.getDayOfYear()])",
        json!([[22, 29, 1, 4, 59], [22, 29, 1, 4, 59]]),
    );
    check(
        "(timestamp('2024-03-01T00:30:00+02:00') + duration('1h')).getHours() == 23 \
         && string(timestamp('2024-03-01T00:30:00+02:00')) == '2024-02-29T22:30:00Z'",
        json!(true),
    );
    // The usual "no end".
    check(
        "timestamp('9999-12-31T23:59:59Z')",
        json!("9999-12-31T23:59:59Z"),
    );
    check("b'abc'", json!("YWJj"));
    check(
        "base64.decode('YWJj') == b'abc' && string(base64.decode('YWJj')) == 'abc'",
        json!(true),
    );
    check(
        "type(vars.total) == int && type(vars.items) == list",
        json!(true),
    );
    check("type(vars.status)", json!("string"));
    check("{1: 'a', true: 'b'}", json!({"1": "a", "true": "b"}));
}

#[test]
fn string_number_and_list_functions_work() {
    check(
        "vars.customer.email.matches('^[a-z]+@[a-z]+$')",
        json!(true),
    );
    check(
        "vars.customer.name.lowerAscii().replace('a', 'o').split('d').join('-')",
        json!("o-o"),
    );
    check(
        "'%s owes %.2f'.format([vars.customer.name, vars.ratio])",
        json!("Ada owes 0.50"),
    );
    check("math.greatest(vars.numbers) + math.abs(-2)", json!(5));
    check("vars.items.sortBy(i, i.n).map(i, i.sku)", json!(["a", "b"]));
    check("cel.bind(n, vars.total, n * n)", json!(15_625));
    check(
        "vars.customer.?email.optMap(e, e + '!').orValue('')",
        json!("a@b!"),
    );
    check(
        "[3, 1] in [[3, 1], vars.numbers] && vars.items[1] in vars.items",
        json!(true),
    );
    check("event.`paid`[0]", json!(1));
    check_error("now()", "unknown function `now`");
    check_error(
        "'a'.matches('(')",
        "matches: invalid pattern: unclosed group",
    );
}

#[test]
fn runtime_errors_are_readable() {
    check_error("vars.items[9]", "the index is out of bounds");
    check_error("vars.total / 0", "division by zero");
    check_error(
        "vars.total + 'a'",
        "`add` does not support these types; int() and double() convert numbers",
    );
    check_error("9223372036854775807 + vars.total", "overflow in add");
}

#[test]
fn conditions_must_be_boolean() {
    let (key, vars) = (instance(), vars());
    let bindings = Bindings::new(&key).vars(&vars);
    let holds = |source: &str| Expression::compile(source, &ALL).unwrap().holds(&bindings);
    assert_eq!(holds("vars.total > 100"), Ok(true));
    assert_eq!(holds("vars.open"), Ok(true));
    let error = holds("vars.total").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`vars.total`: a condition must be true or false, but is a number"
    );
}

#[test]
fn whole_and_decimal_numbers_mix() {
    for (source, expected) in [
        ("1 + 1.5", json!(2.5)),
        ("10 - 2.5", json!(7.5)),
        ("3 * 0.5", json!(1.5)),
        ("5 / 2.0", json!(2.5)),
        ("5.5 % 2", json!(1.5)),
        ("1.5 < 2 && 2 <= 2.0", json!(true)),
        ("math.greatest(1, 2.5)", json!(2.5)),
        // A value beyond `int` is unsigned; JSON has it.
        ("18446744073709551614u + 1", json!(u64::MAX)),
        // Whole numbers stay whole and exact.
        ("7 / 2", json!(3)),
        ("9007199254740993 + 1", json!(9_007_199_254_740_994_i64)),
    ] {
        assert_eq!(evaluate(source), Ok(expected), "{source}");
    }
}

#[test]
fn decimal_numbers_are_computed_with_their_decimal_digits() {
    for (source, expected) in [
        ("0.1 + 0.2", json!(0.3)),
        ("1.1 * 3", json!(3.3)),
        ("100 - 99.99", json!(0.01)),
        ("0.1 + 0.2 == 0.3", json!(true)),
        ("[0.1, 0.2, 0.3].sum()", json!(0.6)),
        ("1.15 + 2.3 - 3.45", json!(0.0)),
        ("1.0 / 3", json!(0.333_333_333_333_333_3)),
        // Beyond the range of decimals, as doubles.
        ("1e300 * 10", json!(1e301)),
        ("1e-40 + 1", json!(1.0)),
        ("1e-15 * 1e-15", json!(1e-30)),
        ("1e-20 / 3e10", json!(1e-20 / 3e10)),
        (
            "1.2345678901234567e-10 * 1.2345678901234567e-10",
            json!(1.524_157_875_323_883_7e-20),
        ),
    ] {
        assert_eq!(evaluate(source), Ok(expected), "{source}");
    }
    let error = evaluate("1.0 / 0").unwrap_err();
    assert!(error.contains("not a JSON number"), "{error}");
}

/// Returns an amount of cents with two decimal places.
fn amount(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.abs();
    format!("{sign}{}.{:02}", cents / 100, cents % 100)
}

proptest! {
    /// The exact sum of amounts with two decimal places is the whole sum of their cents.
    #[test]
    fn sums_of_cents_are_exact(cents in prop::collection::vec(-10_000_000_i64..10_000_000, 1..20)) {
        let amounts: Vec<_> = cents.iter().copied().map(amount).collect();
        let expected: f64 = amount(cents.iter().sum()).parse().unwrap();
        let found = evaluate(&format!("[{}].sum()", amounts.join(", "))).unwrap();
        prop_assert_eq!(found.as_f64(), Some(expected));
    }
}

#[test]
fn sum_adds_numbers() {
    let of = evaluate;
    assert_eq!(of("[1, 2, 3].sum()"), Ok(json!(6)));
    assert_eq!(of("[1.5, 2.0].sum()"), Ok(json!(3.5)));
    assert_eq!(of("[10, 20.5].sum()"), Ok(json!(30.5)));
    assert_eq!(of("[].sum()"), Ok(json!(0)));
    for (source, expected) in [
        ("[9223372036854775807, 1].sum()", "exceeds 64 bits"),
        ("['a'].sum()", "int or double"),
    ] {
        let error = of(source).unwrap_err();
        assert!(error.contains(expected), "{source}: {error}");
    }
}
