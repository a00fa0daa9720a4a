//! Filters as a consumer on the servers takes them: none of which may overlap another.

/// The same messages and perhaps more, by filters that do not overlap; empty: everything.
pub(super) fn reduced<'a>(filters: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut kept: Vec<&str> = Vec::new();
    for filter in filters {
        if kept.iter().any(|wider| covers(wider, filter)) {
            continue;
        }
        kept.retain(|narrower| !covers(filter, narrower));
        kept.push(filter);
    }
    let overlap = |(at, a): (usize, &&str)| kept[at + 1..].iter().any(|b| meet(a, b));
    if kept == [">"] || kept.iter().enumerate().any(overlap) {
        return Vec::new();
    }
    kept.into_iter().map(str::to_owned).collect()
}

/// Whether everything that matches `narrow` matches `wide`.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('.'), narrow.split('.'));
    loop {
        match (wide.next(), narrow.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(w), Some(n)) if w == n => {}
            (_, _) => return false,
        }
    }
}

/// Whether a subject could match both.
pub(super) fn meet(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
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
        assert_eq!(reduced(filters.iter().copied()), expected, "{filters:?}");
    }

    #[test]
    fn filters_that_overlap_become_fewer() {
        check(&["tenant.*.workflow.>", "workflow.>"], &["tenant.*.workflow.>", "workflow.>"]);
        check(&["a.*", "a.b"], &["a.*"]);
        check(&["a.b", "a.b", "a.>"], &["a.>"]);
        check(&["a.*.c", "a.b.*"], &[]);
        check(&["a", ">"], &[]);
        check(&["a.>", "a.>.b"], &["a.>"]);
    }

    const FILTER: &str = "(a|b|\\*)(\\.(a|b|\\*)){0,2}(\\.>)?";

    proptest! {
        #[test]
        fn no_message_is_left_out_and_none_overlap(
            filters in proptest::collection::vec(FILTER, 1..5), subject in "(a|b)(\\.(a|b)){0,3}",
        ) {
            let reduced = reduced(filters.iter().map(String::as_str));
            let matches = |f: &String| Filter::parse(f).unwrap().matches(&subject);
            prop_assert!(!filters.iter().any(matches) || reduced.is_empty() || reduced.iter().any(matches));
            for (at, a) in reduced.iter().enumerate() {
                prop_assert!(reduced[at + 1..].iter().all(|b| !meet(a, b)));
            }
        }

        #[test]
        fn what_one_filter_covers_the_other_matches(wide in FILTER, narrow in FILTER, subject in "(a|b)(\\.(a|b)){0,3}") {
            let matches = |f: &str| Filter::parse(f).unwrap().matches(&subject);
            if covers(&wide, &narrow) && matches(&narrow) {
                prop_assert!(matches(&wide));
            }
            if matches(&wide) && matches(&narrow) {
                prop_assert!(meet(&wide, &narrow));
            }
        }
    }
}
