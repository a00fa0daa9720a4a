//! Hostile definitions: each is rejected with positions and bounded work, whatever its size, depth or
//! number of values.
//!
//! Work is measured as allocations, which do not depend on the load of the machine. Times are only
//! printed.

#![expect(
    unsafe_code,
    reason = "an allocator that counts implements `GlobalAlloc`, which is unsafe"
)]
#![expect(clippy::disallowed_methods, reason = "times are only printed")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use orlog_program::{Diagnostic, MAX_SOURCE_BYTES, compile_yaml};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// System allocator that counts allocations.
struct CountingAllocator;

// SAFETY: every call is forwarded to the system allocator unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Maximum number of bytes allocated at once while a definition of at most 1 MiB is rejected.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// Maximum number of allocations while a definition is rejected.
const MAX_CALLS: usize = 20_000_000;
/// Maximum number of diagnostics in a report, including the line that counts the omitted ones.
const MAX_REPORTED: usize = 101;
/// Maximum length of a line of a report.
const LONGEST_PROBLEM: usize = 2_000;

const HEAD: &str = "saga: s\nversion: 1\nstart: Go\n";
const STEP: &str = "steps:\n  - { id: a, do: { effect: e } }\n";

/// Returns `before` and `after` with `part` repeated between them up to the length limit.
fn filled(before: &str, part: &str, after: &str) -> String {
    let space = MAX_SOURCE_BYTES - before.len() - after.len();
    format!("{before}{}{after}", part.repeat(space / part.len()))
}

fn numbered(before: &str, limit: usize, part: impl Fn(usize) -> String) -> String {
    let mut text = before.to_owned();
    for n in 0..limit {
        let next = part(n);
        if text.len() + next.len() > MAX_SOURCE_BYTES {
            break;
        }
        text.push_str(&next);
    }
    text
}

fn nested_aliases() -> String {
    let first = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
    numbered(first, 30, |n| {
        format!(
            "a{}: &a{} [{}]\n",
            n + 1,
            n + 1,
            vec![format!("*a{n}"); 9].join(", ")
        )
    })
}

fn sizes() -> Vec<(&'static str, String)> {
    vec![
        (
            "one byte more than 1 MiB",
            format!("{HEAD}{STEP}{}", " ".repeat(MAX_SOURCE_BYTES)),
        ),
        ("an empty file", String::new()),
        ("1 MiB of a comment", filled("# ", "x", "")),
        ("1 MiB of one name", filled("", "x", "")),
        ("1 MiB of one key", filled(HEAD, "x", ": 1")),
        ("1 MiB of short lines", filled(HEAD, "a\n", "")),
        ("1 MiB of documents", filled("", "---\n", "")),
        (
            "a million values",
            filled(&format!("{HEAD}{STEP}reference: ["), "1,", "]"),
        ),
        ("aliases that multiply", nested_aliases()),
        ("an alias to itself", format!("{HEAD}vars: &a [*a]\n")),
        (
            "many aliases",
            filled(
                &format!("{HEAD}{STEP}vars: {{a: &a [1,2,3,4,5,6,7,8], b: ["),
                "*a,",
                "]}",
            ),
        ),
        (
            "many anchors",
            numbered(&format!("{HEAD}reference:\n"), 100_000, |n| {
                format!("  - &a{n} 1\n")
            }),
        ),
        (
            "100,000 steps",
            numbered(&format!("{HEAD}steps:\n"), 100_000, |n| {
                format!(" - {{id: s{n}}}\n")
            }),
        ),
        (
            "12,000 valid steps",
            numbered(&format!("{HEAD}steps:\n"), 12_000, |n| {
                format!(" - {{id: s{n}, do: {{effect: e}}}}\n")
            }),
        ),
        (
            "1000 steps with 40 predecessors",
            numbered(&format!("{HEAD}steps:\n"), 1_000, |n| {
                let all: Vec<_> = (0..40).map(|k| format!("s{}", (n + k) % 1_000)).collect();
                format!(
                    " - {{id: s{n}, after: [{}], do: {{effect: e}}}}\n",
                    all.join(",")
                )
            }),
        ),
    ]
}

fn depths() -> Vec<(&'static str, String)> {
    vec![
        ("brackets", filled(HEAD, "[", "")),
        (
            "closed brackets",
            format!(
                "{HEAD}reference: {}{}\n",
                "[".repeat(500_000),
                "]".repeat(500_000)
            ),
        ),
        ("braces", filled(HEAD, "{a: ", "")),
        ("dashes", filled(HEAD, "- ", "")),
        ("question marks", filled(HEAD, "? ", "")),
        (
            "indentation",
            numbered("", 1_400, |n| format!("{}a:\n", " ".repeat(n))),
        ),
        ("colons", filled(HEAD, ": ", "")),
        ("quotes", filled(HEAD, "\"", "")),
        ("ampersands", filled(HEAD, "&a ", "")),
        ("exclamation marks", filled(HEAD, "!!a ", "")),
        ("percent signs", filled("", "%YAML 1.2\n", "")),
        ("bars", filled(HEAD, "a: |\n", "")),
    ]
}

fn expressions() -> Vec<(&'static str, String)> {
    let when = |expression: &str| {
        format!("{HEAD}steps:\n  - {{ id: a, do: {{ effect: e }}, when: '{expression}' }}\n")
    };
    let several = |limit: usize, part: &dyn Fn(usize) -> String| {
        numbered(&format!("{HEAD}{STEP}vars:\n"), limit, |n| {
            format!("  v{n}: '{}'\n", part(n))
        })
    };
    let many = |part: &dyn Fn(usize) -> String| several(6_000, part);
    vec![
        (
            "an expression of 1 MB",
            when(&filled("", "1 + ", "1")[..1_000_000]),
        ),
        ("an expression of 4096 brackets", when(&"(".repeat(4_096))),
        ("an expression of 4096 signs", when(&"!".repeat(4_096))),
        (
            "an expression of 4096 conditions",
            when(&"a ? ".repeat(1_024)),
        ),
        ("an expression of 2048 sums", when(&"1+".repeat(2_047))),
        ("an expression of unknown names", when(&"a+".repeat(2_047))),
        (
            "an expression of commas",
            when(&format!("[{}]", ",".repeat(4_000))),
        ),
        ("an expression of dots", when(&"vars.a".repeat(600))),
        ("an expression of quotes", when(&"\"".repeat(4_001))),
        (
            "an expression of backslashes",
            when(&format!("\"{}\"", "\\q".repeat(1_999))),
        ),
        (
            "comprehensions in each other",
            when(&format!("{}1{}", "[1].map(x, ".repeat(30), ")".repeat(30))),
        ),
        (
            "unknown names in thousands of expressions",
            many(&|n| format!("=name{n}")),
        ),
        (
            "thousands of invalid expressions",
            many(&|_| "=1 +".to_owned()),
        ),
        (
            "32 expressions of 4 KiB",
            several(32, &|_| format!("=a{}", "+a".repeat(2_000))),
        ),
        (
            "thousands of patterns",
            many(&|n| format!("={n}.matches(event)(")),
        ),
    ]
}

fn fields() -> Vec<(&'static str, String)> {
    vec![
        (
            "thousands of unknown fields",
            numbered(HEAD, 6_000, |n| format!("timeou{n}: 1\n")),
        ),
        (
            "thousands of long unknown fields",
            numbered(HEAD, 6_000, |n| {
                format!("timeoutimeoutimeoutimeout{n}: 1\n")
            }),
        ),
        (
            "one field thousands of times",
            filled(HEAD, "timeout: 1s\n", ""),
        ),
        (
            "unknown fields in each step",
            numbered(&format!("{HEAD}steps:\n"), 900, |n| {
                format!(
                    "  - {{id: s{n}, {}do: {{effect: e}}}}\n",
                    numbered("", 20, |k| format!("retr{k}: 1, "))
                )
            }),
        ),
        (
            "a step id of 500 KB",
            format!(
                "{HEAD}steps:\n  - {{ id: {}, do: {{ effect: e }} }}\n",
                "x".repeat(500_000)
            ),
        ),
        (
            "a thousand long step ids",
            numbered(&format!("{HEAD}steps:\n"), 1_000, |n| {
                format!(
                    "  - {{ id: {}{n}, do: {{ effect: e }} }}\n",
                    "x".repeat(900)
                )
            }),
        ),
        (
            "a saga name of 500 KB",
            format!(
                "saga: {}\nversion: 1\nstart: Go\n{STEP}",
                "y".repeat(500_000)
            ),
        ),
        (
            "a version of 10,000 digits",
            format!(
                "saga: s\nversion: {}\nstart: Go\n{STEP}",
                "9".repeat(10_000)
            ),
        ),
        (
            "a version of 1e999999999",
            format!("saga: s\nversion: 1e999999999\nstart: Go\n{STEP}"),
        ),
        (
            "a negative version",
            format!("saga: s\nversion: -1\nstart: Go\n{STEP}"),
        ),
        (
            "a timeout of 500 KB",
            format!("{HEAD}timeout: {}d\n{STEP}", "9".repeat(500_000)),
        ),
        ("a NUL", format!("{HEAD}\0{STEP}")),
        (
            "a NUL in a name",
            format!("saga: \"a\\0b\"\nversion: 1\nstart: Go\n{STEP}"),
        ),
        (
            "terminal control characters",
            format!("{HEAD}{STEP}\"\\e[2J\\e[31m\": 1\n"),
        ),
        (
            "text from right to left",
            format!("{HEAD}{STEP}\"\u{202e}gnorw\": 1\n"),
        ),
        (
            "characters that are not text",
            "\u{fffe}\u{ffff}\u{1}\u{2}".repeat(10_000),
        ),
    ]
}

#[test]
fn hostile_definitions_are_rejected_in_bounded_time() {
    for (name, source) in sizes()
        .into_iter()
        .chain(depths())
        .chain(expressions())
        .chain(fields())
    {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        CALLS.store(0, Ordering::Relaxed);
        let start = Instant::now();
        let problems = compile_yaml(&source, "hostile.saga.yaml").expect_err(name);
        let (millis, calls) = (start.elapsed().as_millis(), CALLS.load(Ordering::Relaxed));
        let peak = PEAK.load(Ordering::Relaxed) - before;
        println!(
            "{name:<44} {:>8} B  {millis:>6} ms  {:>6} KiB  {calls:>9} allocations  {:>3} problems: {}",
            source.len(),
            peak / 1024,
            problems.len(),
            problems[0],
        );
        check(name, &problems);
        assert!(peak < MAX_BYTES, "{name}: {peak} bytes");
        assert!(calls < MAX_CALLS, "{name}: {calls} allocations");
    }
}

#[track_caller]
fn check(name: &str, problems: &[Diagnostic]) {
    assert!(
        !problems.is_empty() && problems.len() <= MAX_REPORTED,
        "{name}: {}",
        problems.len()
    );
    for problem in problems {
        let text = problem.to_string();
        assert!(
            problem.line > 0 && problem.column > 0,
            "{name}: no position in {text}"
        );
        assert!(
            text.len() <= LONGEST_PROBLEM,
            "{name}: {} bytes",
            text.len()
        );
        assert!(!text.chars().any(char::is_control), "{name}: {text:?}");
    }
}
