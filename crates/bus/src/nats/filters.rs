//! Filters for JetStream consumers, which must not overlap.

/// Returns filters that do not overlap and match at least the same messages; empty: everything.
pub(super) fn merge_overlapping<'a>(filters: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut merged: Vec<&str> = Vec::new();
    for filter in filters {
        if merged.iter().any(|wider| covers(wider, filter)) {
            continue;
        }
        merged.retain(|narrower| !covers(filter, narrower));
        merged.push(filter);
    }

    let is_overlapping = merged
        .iter()
        .enumerate()
        .any(|(at, a)| merged[at + 1..].iter().any(|b| overlaps(a, b)));
    // The servers reject overlapping filters; the matcher of the subscription selects then.
    if merged == [">"] || is_overlapping {
        return Vec::new();
    }
    merged.into_iter().map(str::to_owned).collect()
}

/// Returns whether everything that matches `narrow` matches `wide`.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    let mut wide = wide.split('.');
    let mut narrow = narrow.split('.');
    loop {
        match (wide.next(), narrow.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            // `>` matches several tokens, but `*` only one.
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(w), Some(n)) if w == n => {}
            (_, _) => return false,
        }
    }
}

/// Returns whether a subject could match both.
pub(super) fn overlaps(a: &str, b: &str) -> bool {
    let mut a = a.split('.');
    let mut b = b.split('.');
    loop {
        match (a.next(), b.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            (_, _) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::subject::Filter;

    #[track_caller]
    fn check(filters: &[&str], expected: &[&str]) {
        assert_eq!(
            merge_overlapping(filters.iter().copied()),
            expected,
            "{filters:?}"
        );
    }

    #[test]
    fn overlapping_filters_are_merged() {
        check(
            &["tenant.*.workflow.>", "workflow.>"],
            &["tenant.*.workflow.>", "workflow.>"],
        );
        check(&["a.*", "a.b"], &["a.*"]);
        check(&["a.b", "a.b", "a.>"], &["a.>"]);
        check(&["a.*.c", "a.b.*"], &[]);
        check(&["a", ">"], &[]);
        check(&["a.>", "a.>.b"], &["a.>"]);
    }

    const FILTER: &str = "(a|b|\\*)(\\.(a|b|\\*)){0,2}(\\.>)?";

    proptest! {
        #[test]
        fn merged_filters_are_complete_and_disjoint(
            filters in proptest::collection::vec(FILTER, 1..5), subject in "(a|b)(\\.(a|b)){0,3}",
        ) {
            let reduced = merge_overlapping(filters.iter().map(String::as_str));
            let matches = |f: &String| Filter::parse(f).unwrap().matches(&subject);
            prop_assert!(!filters.iter().any(matches) || reduced.is_empty() || reduced.iter().any(matches));
            for (at, a) in reduced.iter().enumerate() {
                prop_assert!(reduced[at + 1..].iter().all(|b| !overlaps(a, b)));
            }
        }

        #[test]
        fn covering_filter_matches_subjects_of_covered_filter(wide in FILTER, narrow in FILTER, subject in "(a|b)(\\.(a|b)){0,3}") {
            let matches = |f: &str| Filter::parse(f).unwrap().matches(&subject);
            if covers(&wide, &narrow) && matches(&narrow) {
                prop_assert!(matches(&wide));
            }
            if matches(&wide) && matches(&narrow) {
                prop_assert!(overlaps(&wide, &narrow));
            }
        }
    }
}
