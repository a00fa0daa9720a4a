//! Expressions: generated from the grammar with mostly matching types, then corrupted.

use orlog_program::{MAX_PAYLOAD_BYTES, check_payload, evaluate};
use orlog_testkit::fuzz::Random;
use serde_json::{Map, Value, json};

const TOKENS: [&str; 28] = [
    "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "+", "-", "*", "/", "%", "!", "==", "in",
    "&&", "||", "'", "\"", "\\", "0x", "1e", "u", "`", "\u{0}",
];

pub(super) fn make(random: &mut Random) -> String {
    let depth = 1 + random.below(6);
    let mut source = any(random, depth);
    if random.once_in(3) {
        for _ in 0..=random.below(3) {
            source = damage(random, &source);
        }
    }
    source
}

fn damage(random: &mut Random, source: &str) -> String {
    let at = source.floor_char_boundary(random.below(source.len() + 1));
    let to = source.floor_char_boundary((at + random.below(12)).min(source.len()));
    match random.below(4) {
        0 => format!("{}{}", &source[..at], &source[to..]),
        1 => format!("{}{}{}", &source[..at], random.pick(&TOKENS), &source[at..]),
        2 => format!(
            "{}{}{}",
            &source[..at],
            &source[at..to].repeat(1 + random.below(40)),
            &source[to..]
        ),
        _ => format!("{}{}{}", &source[..at], random.pick(&TOKENS), &source[to..]),
    }
}

fn any(random: &mut Random, depth: usize) -> String {
    match random.below(7) {
        0 => number(random, depth),
        1 => text(random, depth),
        2 => truth(random, depth),
        3 => list(random, depth),
        4 => map(random, depth),
        5 => other(random, depth),
        _ => {
            format!(
                "({} ? {} : {})",
                truth(random, depth - 1),
                any_of(random, depth),
                any_of(random, depth)
            )
        }
    }
}

fn any_of(random: &mut Random, depth: usize) -> String {
    if depth <= 1 {
        random
            .pick(&["x", "1", "'a'", "vars.n", "event", "null", "i"])
            .to_owned()
    } else {
        any(random, depth - 1)
    }
}

fn number(random: &mut Random, depth: usize) -> String {
    const LEAVES: [&str; 14] = [
        "0",
        "1",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615u",
        "1.5",
        "1e308",
        "0.1",
        "vars.n",
        "vars.d",
        "event.items.size()",
        "vars.big",
        "lists.range(5)[2]",
    ];
    if depth <= 1 {
        return random.pick(&LEAVES).to_owned();
    }
    let (a, b) = (number(random, depth - 1), number(random, depth - 1));
    match random.below(7) {
        0..=2 => format!("({a} {} {b})", random.pick(&["+", "-", "*", "/", "%"])),
        3 => format!(
            "{}({a})",
            random.pick(&[
                "int",
                "uint",
                "double",
                "-",
                "math.abs",
                "math.sqrt",
                "math.ceil"
            ])
        ),
        4 => format!("size({})", list(random, depth - 1)),
        5 => format!(
            "math.{}({a}, {b})",
            random.pick(&["greatest", "least", "bitAnd", "bitShiftLeft"])
        ),
        _ => format!("cel.bind(v, {a}, v + {b})"),
    }
}

fn text(random: &mut Random, depth: usize) -> String {
    const LEAVES: [&str; 9] = [
        "''",
        "'a'",
        "\"é😀\"",
        "vars.t",
        "event.long",
        "r'\\d+'",
        "'a,b,,c'",
        "'2026-11-21T06:30:00Z'",
        "key",
    ];
    if depth <= 1 {
        return random.pick(&LEAVES).to_owned();
    }
    let (a, b) = (text(random, depth - 1), text(random, depth - 1));
    match random.below(8) {
        0 | 1 => format!("({a} + {b})"),
        2 => format!(
            "{a}.{}()",
            random.pick(&["lowerAscii", "upperAscii", "trim", "reverse"])
        ),
        3 => format!("{a}.replace({b}, {})", text(random, depth - 1)),
        4 => format!("{}.join({a})", list(random, depth - 1)),
        5 => format!("string({})", any_of(random, depth)),
        6 => format!("{a}.substring({})", number(random, depth - 1)),
        _ => format!("'%s %d %.3f %x'.format({})", list(random, depth - 1)),
    }
}

fn truth(random: &mut Random, depth: usize) -> String {
    if depth <= 1 {
        return random
            .pick(&[
                "true",
                "false",
                "vars.yes",
                "has(vars.n)",
                "has(event.none)",
            ])
            .to_owned();
    }
    match random.below(7) {
        0 => format!(
            "({} {} {})",
            truth(random, depth - 1),
            random.pick(&["&&", "||"]),
            truth(random, depth - 1)
        ),
        1 => format!("!{}", truth(random, depth - 1)),
        2 => {
            let sign = random.pick(&["==", "!=", "<", ">=", "in"]);
            format!(
                "({} {sign} {})",
                any_of(random, depth),
                any_of(random, depth)
            )
        }
        3 => format!(
            "{}.matches({})",
            text(random, depth - 1),
            text(random, depth - 1)
        ),
        4 => format!(
            "{}.{}(i, {})",
            list(random, depth - 1),
            random.pick(&["all", "exists", "exists_one"]),
            truth(random, depth - 1)
        ),
        5 => format!("{}.all(k, v, k == v)", map(random, depth - 1)),
        _ => format!(
            "{}.{}({})",
            text(random, depth - 1),
            random.pick(&["contains", "startsWith", "endsWith"]),
            text(random, depth - 1)
        ),
    }
}

fn list(random: &mut Random, depth: usize) -> String {
    if depth <= 1 {
        return random
            .pick(&[
                "[]",
                "[1, 2, 3]",
                "event.items",
                "vars.l",
                "['b', 'a']",
                "[1, 'a', null]",
            ])
            .to_owned();
    }
    match random.below(8) {
        0 => format!("[{}, {}]", any_of(random, depth), any_of(random, depth)),
        1 | 2 => format!(
            "{}.map(i, {})",
            list(random, depth - 1),
            any_of(random, depth)
        ),
        3 => format!(
            "{}.filter(i, {})",
            any_of(random, depth),
            truth(random, depth - 1)
        ),
        4 => format!(
            "({} + {})",
            list(random, depth - 1),
            list(random, depth - 1)
        ),
        5 => format!(
            "{}.{}()",
            list(random, depth - 1),
            random.pick(&["sort", "distinct", "flatten", "reverse"])
        ),
        6 => format!(
            "{}.split({})",
            text(random, depth - 1),
            text(random, depth - 1)
        ),
        _ => format!("{}.transformList(k, v, [k, v])", map(random, depth - 1)),
    }
}

fn map(random: &mut Random, depth: usize) -> String {
    if depth <= 1 {
        return random
            .pick(&[
                "{}",
                "vars",
                "event",
                "{'b': 1, 'a': 2, 'd': 3, 'c': 4}",
                "{1: 2, true: 3u}",
            ])
            .to_owned();
    }
    match random.below(3) {
        0 => format!(
            "{{{}: {}, 'z': {}}}",
            text(random, depth - 1),
            any_of(random, depth),
            any_of(random, depth)
        ),
        1 => format!(
            "{}.transformMap(k, v, {})",
            map(random, depth - 1),
            any_of(random, depth)
        ),
        _ => format!(
            "{{'a': {}, ?'b': vars.?{}}}",
            any_of(random, depth),
            random.pick(&["n", "none"])
        ),
    }
}

fn other(random: &mut Random, depth: usize) -> String {
    match random.below(7) {
        0 => format!("timestamp({})", text(random, depth - 1)),
        1 => "timestamp('2026-11-21T06:30:00Z') - duration('1h')".to_owned(),
        2 => format!("type({})", any_of(random, depth)),
        3 => format!("bytes({})", text(random, depth - 1)),
        4 => format!(
            "vars.?{}.orValue({})",
            random.pick(&["n", "none"]),
            any_of(random, depth)
        ),
        5 => format!("{}[{}]", any_of(random, depth), any_of(random, depth)),
        _ => format!("{}.?a.?b", any_of(random, depth)),
    }
}

fn variables() -> Map<String, Value> {
    let variables = json!({
        "vars": { "n": 7, "d": 0.5, "big": u64::MAX, "t": "text", "yes": true, "l": [3, 1, 2], "a": { "b": null } },
        "event": { "items": [{ "a": 1 }, { "a": 2 }], "long": "long ".repeat(2_000), "many": vec![1; 300] },
        "key": "acme",
        "x": null,
        "i": { "a": { "b": [1] } },
    });
    match variables {
        Value::Object(variables) => variables,
        other => panic!("{other}"),
    }
}

/// Evaluates the expression twice. Returns whether it has a value.
pub(super) fn run(source: &str) -> bool {
    let variables = variables();
    let value = evaluate(source, &variables);
    assert_eq!(
        value,
        evaluate(source, &variables),
        "the second evaluation differs"
    );
    match value {
        Ok(value) => {
            assert_eq!(
                check_payload(&value),
                Ok(()),
                "more than {MAX_PAYLOAD_BYTES} bytes"
            );
            true
        }
        Err(reason) => {
            assert!(
                !reason.is_empty() && reason.len() < 10_000,
                "{} bytes of reason",
                reason.len()
            );
            false
        }
    }
}
