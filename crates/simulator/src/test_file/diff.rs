//! Diff of two lists: missing and unexpected items.

/// Returns the lines of `expected` and `actual` in one list: ` ` both, `-` only expected, `+` only
/// actual. `same` compares items.
pub(super) fn diff<E, A>(
    expected: &[E],
    actual: &[A],
    same: impl Fn(&E, &A) -> bool,
    show_expected: impl Fn(&E) -> String,
    show_actual: impl Fn(&A) -> String,
) -> Vec<String> {
    let longest = longest_common(expected, actual, same);
    let mut e = 0;
    let mut a = 0;
    let mut lines = Vec::new();

    // The ends of both lists close the last gap, after the last common line.
    for (next_e, next_a) in longest.into_iter().chain([(expected.len(), actual.len())]) {
        lines.extend(
            expected[e..next_e]
                .iter()
                .map(|item| format!("- {}", show_expected(item))),
        );
        lines.extend(
            actual[a..next_a]
                .iter()
                .map(|item| format!("+ {}", show_actual(item))),
        );
        if let Some(item) = actual.get(next_a) {
            lines.push(format!("  {}", show_actual(item)));
        }
        e = next_e + 1;
        a = next_a + 1;
    }
    lines
}

/// Returns the positions of a longest common subsequence.
fn longest_common<E, A>(
    expected: &[E],
    actual: &[A],
    same: impl Fn(&E, &A) -> bool,
) -> Vec<(usize, usize)> {
    let mut lengths = vec![vec![0_usize; actual.len() + 1]; expected.len() + 1];
    for (e, row) in expected.iter().enumerate().rev() {
        for (a, item) in actual.iter().enumerate().rev() {
            lengths[e][a] = if same(row, item) {
                lengths[e + 1][a + 1] + 1
            } else {
                lengths[e + 1][a].max(lengths[e][a + 1])
            };
        }
    }

    let mut e = 0;
    let mut a = 0;
    let mut found = Vec::new();

    while e < expected.len() && a < actual.len() {
        if same(&expected[e], &actual[a]) {
            found.push((e, a));
            e += 1;
            a += 1;
        } else if lengths[e + 1][a] >= lengths[e][a + 1] {
            e += 1;
        } else {
            a += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expected: &str, actual: &str, lines: &[&str]) {
        let (expected, actual): (Vec<_>, Vec<_>) =
            (expected.chars().collect(), actual.chars().collect());
        let found = diff(
            &expected,
            &actual,
            |e, a| e == a,
            char::to_string,
            char::to_string,
        );
        assert_eq!(found, lines);
    }

    #[test]
    fn diff_lists_missing_and_unexpected_values() {
        check("abc", "abc", &["  a", "  b", "  c"]);
        check("abc", "ac", &["  a", "- b", "  c"]);
        check("ac", "abcd", &["  a", "+ b", "  c", "+ d"]);
        check("ab", "ba", &["- a", "  b", "+ a"]);
        check("", "", &[]);
    }
}
