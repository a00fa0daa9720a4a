//! Cost of every function of the language: the charged units grow with the size of the inputs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::names::NAMES;
use super::{cost, evaluate};

const TOO_MUCH: &str = "the expression processes too much data";

/// Functions whose inputs have a size, each applied to the computed text `T` or the computed list `L`.
/// A computed value is not charged when it is read, so the function itself must charge for it.
const SIZED: [(&str, &str); 46] = [
    ("all", "L.all(x, true)"),
    ("bool", "bool(T)"),
    ("bytes", "bytes(T)"),
    ("charAt", "T.charAt(1)"),
    ("contains", "T.contains('z')"),
    ("decode", "base64.decode(T)"),
    ("distinct", "L.distinct()"),
    ("double", "double(T)"),
    ("duration", "duration(T)"),
    ("dyn", "dyn(T)"),
    ("encode", "base64.encode(bytes(T))"),
    ("endsWith", "T.endsWith('z')"),
    ("exists", "L.exists(x, false)"),
    ("existsOne", "L.existsOne(x, false)"),
    ("exists_one", "L.exists_one(x, false)"),
    ("filter", "L.filter(x, false)"),
    ("flatten", "L.flatten()"),
    ("format", "T.format([])"),
    ("greatest", "math.greatest(L)"),
    ("indexOf", "T.indexOf('z')"),
    ("int", "int(T)"),
    ("join", "L.join('-')"),
    ("lastIndexOf", "T.lastIndexOf('z')"),
    ("least", "math.least(L)"),
    ("lowerAscii", "T.lowerAscii()"),
    ("map", "L.map(x, 1)"),
    ("matches", "T.matches('z')"),
    ("quote", "strings.quote(T)"),
    ("replace", "T.replace('z', 'y')"),
    ("reverse", "T.reverse()"),
    ("size", "size(T)"),
    ("slice", "L.slice(0, 1)"),
    ("sort", "L.sort()"),
    ("sortBy", "L.sortBy(x, x)"),
    ("split", "T.split('z')"),
    ("startsWith", "T.startsWith('z')"),
    ("string", "string(T)"),
    ("substring", "T.substring(1)"),
    ("sum", "L.sum()"),
    ("timestamp", "timestamp(T)"),
    ("transformList", "L.transformList(i, x, 1)"),
    ("transformMap", "L.transformMap(i, x, 1)"),
    ("transformMapEntry", "L.transformMapEntry(i, x, {i: 1})"),
    ("trim", "T.trim()"),
    ("uint", "uint(T)"),
    ("upperAscii", "T.upperAscii()"),
];

/// Functions of a number, a time or an optional value: their cost does not depend on a size. `range`
/// charges for its result (see `limit_tests`).
const CONSTANT: [&str; 45] = [
    "abs",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "ceil",
    "first",
    "floor",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "has",
    "hasValue",
    "isFinite",
    "isInf",
    "isNaN",
    "last",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "optional_none",
    "optional_of",
    "or",
    "orValue",
    "range",
    "round",
    "sign",
    "sqrt",
    "transform",
    "trunc",
    "type",
    "unwrap",
    "unwrapOpt",
    "value",
];

#[test]
fn every_function_has_a_cost_class() {
    let classified: BTreeSet<_> = SIZED
        .iter()
        .map(|(name, _)| *name)
        .chain(CONSTANT)
        .collect();
    assert_eq!(
        classified,
        NAMES.into_iter().collect(),
        "add each function to SIZED or CONSTANT"
    );
}

fn inputs(size: usize) -> Map<String, Value> {
    let words: Vec<_> = (0..size / 64).map(|n| n.to_string()).collect();
    Map::from_iter([
        ("text".to_owned(), json!("x".repeat(size))),
        ("words".to_owned(), json!(words)),
    ])
}

fn units(source: &str, size: usize) -> u32 {
    let source = source
        .replace("T.", "(text + '').")
        .replace("T)", "(text + ''))");
    let source = source
        .replace("L.", "(words + []).")
        .replace("L)", "(words + []))");
    // Some functions reject the value after they read it; the units count.
    drop(evaluate(&source, &inputs(size)));
    cost::spent_units()
}

#[test]
fn every_function_charges_for_the_size_of_a_computed_input() {
    let size = 64 * 1_000;
    for (name, sample) in SIZED {
        let input = if sample.contains('T') { "T.x" } else { "L.x" };
        let read = units(&input.replace(".x", ".size() == 0"), 0) + 1_000;
        let charged = units(sample, size);
        assert!(
            charged >= read + 900,
            "{name}: {sample} costs {charged} units; reading its input costs {read}"
        );
    }
}

/// A search in a text takes time linear in it, and a chain of functions costs each function.
#[test]
fn nested_searches_over_computed_text_exceed_the_budget() {
    let inputs = inputs(64 * 1_000);
    let long = "(text + text + text + text)";
    let nested = (0..30).fold(long.to_owned(), |inner, _| format!("{inner}.reverse()"));
    for function in ["indexOf", "lastIndexOf"] {
        let search = format!("{long}.{function}({long} + 'y') < 0");
        let searches = vec![search.as_str(); 25].join(" && ");
        assert_eq!(
            evaluate(&searches, &inputs),
            Err(TOO_MUCH.to_owned()),
            "{function}"
        );
    }
    assert_eq!(
        evaluate(&format!("size({nested})"), &inputs),
        Err(TOO_MUCH.to_owned())
    );
}

/// The filter of the audit: a short text with quadratic searches.
#[test]
fn short_filter_with_quadratic_searches_exceeds_the_budget() {
    let text = "x".repeat(1_500);
    let grown = format!("lists.range(400).map(i, '{text}').join()");
    let search = format!(
        "cel.bind(a, {grown}, lists.range(200).all(i, a.indexOf(a + 'y') < 0 && a.lastIndexOf('y' + a) < 0))"
    );
    assert_eq!(evaluate(&search, &Map::new()), Err(TOO_MUCH.to_owned()));
}

#[test]
fn pattern_with_repetitions_costs_its_expansion() {
    let plain = units("T.matches('x')", 6_400);
    let repeated = units("T.matches('(x?){400}y')", 6_400);
    assert!(repeated > 4 * plain, "{repeated} and {plain}");
}

#[test]
fn searches_return_positions_in_code_points() {
    for (source, expected) in [
        ("'hello mellow'.indexOf('')", json!(0)),
        ("'hello mellow'.indexOf('ello')", json!(1)),
        ("'hello mellow'.indexOf('jello')", json!(-1)),
        ("'ta©o©αT'.indexOf('©', 3)", json!(4)),
        ("'ta©o©αT'.indexOf('©α', 5)", json!(-1)),
        ("'abc'.indexOf('', 20)", json!(3)),
        ("'hello mellow'.lastIndexOf('')", json!(12)),
        ("'hello mellow'.lastIndexOf('ello')", json!(7)),
        ("''.lastIndexOf('@@')", json!(-1)),
        ("'hello mellow'.lastIndexOf('ello', 6)", json!(1)),
        ("'ta©o©αT'.lastIndexOf('©', 3)", json!(2)),
        ("'a©α'.lastIndexOf('aa', 1)", json!(-1)),
        ("'bananananana'.lastIndexOf('nana', 7)", json!(6)),
        ("'abc'.lastIndexOf('', 3)", json!(3)),
    ] {
        assert_eq!(evaluate(source, &Map::new()), Ok(expected), "{source}");
    }
    for source in [
        "'abc'.indexOf('b', 20)",
        "'abc'.indexOf('b', -1)",
        "'abc'.lastIndexOf('b', 3)",
    ] {
        let reason = evaluate(source, &Map::new()).expect_err("the position is outside the text");
        assert!(reason.contains("index out of range"), "{source}: {reason}");
    }
}
