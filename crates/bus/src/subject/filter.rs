//! Validation of subjects and matching of filters: the rules of NATS, slightly stricter.

use crate::Error;

/// Maximum length of a subject or filter in bytes: three names of maximum length, each byte
/// percent-encoded.
pub const MAX_SUBJECT_BYTES: usize = 2048;

/// Subject filter: `*` matches one token, a final `>` matches one or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Box<str>);

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// If a token is empty or contains `*` or `>` beside other characters, if `>` is not last, or
    /// if a rule of [`check_subject`] about characters and length is violated.
    pub fn parse(filter: &str) -> Result<Self, Error> {
        let last = filter.split('.').count() - 1;
        check(filter, "subject filter", |index, token| match token {
            "*" => None,
            ">" if index == last => None,
            ">" => Some("> must be the last token".to_owned()),
            _ => wildcard(token),
        })?;
        Ok(Self(filter.into()))
    }

    /// Returns whether a subject matches.
    #[must_use]
    pub fn matches(&self, subject: &str) -> bool {
        let mut tokens = subject.split('.');
        for part in self.0.split('.') {
            match (part, tokens.next()) {
                // `>` requires a token, so a filter does not match its own prefix.
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (part, Some(token)) if part == token => {}
                (_, _) => return false,
            }
        }
        tokens.next().is_none()
    }

    /// Returns the text of the filter.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks a subject for publishing: non-empty tokens separated by dots, no wildcards, no space or
/// control character, no `$` at the start (reserved by NATS), at most [`MAX_SUBJECT_BYTES`].
///
/// # Errors
/// The violated rule.
pub fn check_subject(subject: &str) -> Result<(), Error> {
    check(subject, "subject", |_, token| wildcard(token))
}

fn wildcard(token: &str) -> Option<String> {
    let wildcard = token.contains(['*', '>']);
    wildcard.then(|| format!("the token {token:?} contains a wildcard; encode it as %2A or %3E"))
}

fn check(
    subject: &str,
    kind: &'static str,
    token_rule: impl Fn(usize, &str) -> Option<String>,
) -> Result<(), Error> {
    let broken = check_rule(subject).or_else(|| {
        subject
            .split('.')
            .enumerate()
            .find_map(|(index, token)| token_rule(index, token))
    });

    match broken {
        None => Ok(()),
        Some(reason) => Err(Error::InvalidSubject {
            // The text can be long and foreign. Errors are logged and returned to clients.
            subject: subject.chars().take(128).collect(),
            kind,
            reason,
        }),
    }
}

fn check_rule(subject: &str) -> Option<String> {
    if subject.len() > MAX_SUBJECT_BYTES {
        return Some(format!(
            "it is {} bytes long, the limit is {MAX_SUBJECT_BYTES}",
            subject.len()
        ));
    }

    if subject.starts_with('$') {
        return Some("subjects that start with $ are reserved for the bus".to_owned());
    }

    if let Some(invalid) = subject
        .chars()
        .find(|c| c.is_whitespace() || c.is_control())
    {
        return Some(format!("it contains {invalid:?}; encode it as %XX"));
    }

    subject
        .split('.')
        .any(str::is_empty)
        .then(|| "it has an empty token".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn matches_as_nats_does() {
        for (filter, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.b.c", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("*.b", "a.b", true),
            ("a.>", "a", false),
            ("a.>", "a.b", true),
            ("a.>", "a.b.c.d", true),
            (">", "a", true),
            (
                "tenant.*.aggregate.>",
                "tenant.acme.aggregate.order.1",
                true,
            ),
            ("tenant.*.aggregate.>", "tenant.acme.effect.order.1", false),
            ("ab", "a", false),
        ] {
            assert_eq!(
                Filter::parse(filter).unwrap().matches(subject),
                expected,
                "{filter} {subject}"
            );
        }
    }

    #[test]
    fn rejects_malformed_subjects_and_filters() {
        let long = "x".repeat(MAX_SUBJECT_BYTES + 1);
        for invalid in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a\tb",
            "a\0",
            "a\u{a0}b",
            "$JS.API.x",
            &long,
        ] {
            assert!(check_subject(invalid).is_err(), "{invalid}");
            assert!(Filter::parse(invalid).is_err(), "{invalid}");
        }
        for invalid in ["a.*", ">", "a.b*", "x>"] {
            assert!(check_subject(invalid).is_err(), "{invalid}");
        }
        for invalid in ["a.b*", ">.a", "a.>b"] {
            assert!(Filter::parse(invalid).is_err(), "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn matches_a_naive_matcher(
            filter in "(a|b|\\*)(\\.(a|b|\\*)){0,3}(\\.>)?", subject in "(a|b)(\\.(a|b)){0,4}",
        ) {
            let f: Vec<_> = filter.split('.').collect();
            let s: Vec<_> = subject.split('.').collect();
            let open = f.last() == Some(&">");
            let fixed = if open { &f[..f.len() - 1] } else { &f[..] };
            let long_enough = if open { s.len() > fixed.len() } else { s.len() == fixed.len() };
            let expected = long_enough && fixed.iter().zip(&s).all(|(f, s)| *f == "*" || f == s);
            prop_assert_eq!(Filter::parse(&filter).unwrap().matches(&subject), expected);
        }
    }
}
