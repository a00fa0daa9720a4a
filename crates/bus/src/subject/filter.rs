//! Which subjects are well-formed, and which of them a filter matches: the rules of NATS, a little stricter.

use crate::Error;

/// The longest subject and filter in bytes: room for three names of the greatest length, each byte percent-encoded.
pub const MAX_SUBJECT_BYTES: usize = 2048;

/// A subject filter: `*` stands for one token, a last `>` for one or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Box<str>);

impl Filter {
    /// Takes a well-formed filter.
    ///
    /// # Errors
    /// Where a token is empty, holds `*` or `>` beside other characters, `>` is not last, or a rule of
    /// [`check_subject`] about characters and length is broken.
    pub fn parse(filter: &str) -> Result<Self, Error> {
        let last = filter.split('.').count() - 1;
        check(filter, "subject filter", |place, token| match token {
            "*" => None,
            ">" if place == last => None,
            ">" => Some("> stands before the last token".to_owned()),
            _ => wildcard(token),
        })?;
        Ok(Self(filter.into()))
    }

    /// Whether a subject matches.
    #[must_use]
    pub fn matches(&self, subject: &str) -> bool {
        let mut tokens = subject.split('.');
        for part in self.0.split('.') {
            match (part, tokens.next()) {
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (part, Some(token)) if part == token => {}
                (_, _) => return false,
            }
        }
        tokens.next().is_none()
    }

    /// The text of the filter.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks a subject to publish under: tokens separated by dots, none of them empty, no wildcards, no space or control
/// character, no `$` at the beginning (NATS keeps those for itself), at most [`MAX_SUBJECT_BYTES`].
///
/// # Errors
/// Names the rule that is broken.
pub fn check_subject(subject: &str) -> Result<(), Error> {
    check(subject, "subject", |_, token| wildcard(token))
}

fn wildcard(token: &str) -> Option<String> {
    let wildcard = token.contains(['*', '>']);
    wildcard.then(|| format!("the token {token:?} holds a wildcard; encode it as %2A or %3E"))
}

fn check(
    subject: &str,
    what: &'static str,
    token_rule: impl Fn(usize, &str) -> Option<String>,
) -> Result<(), Error> {
    let broken = whole_rule(subject)
        .or_else(|| subject.split('.').enumerate().find_map(|(place, token)| token_rule(place, token)));
    match broken {
        None => Ok(()),
        Some(reason) => Err(Error::Subject { subject: subject.chars().take(128).collect(), what, reason }),
    }
}

fn whole_rule(subject: &str) -> Option<String> {
    if subject.len() > MAX_SUBJECT_BYTES {
        return Some(format!("it is {} bytes long, the limit is {MAX_SUBJECT_BYTES}", subject.len()));
    }
    if subject.starts_with('$') {
        return Some("subjects that begin with $ belong to the bus itself".to_owned());
    }
    if let Some(bad) = subject.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Some(format!("it holds {bad:?}; encode it as %XX"));
    }
    subject.split('.').any(str::is_empty).then(|| "it has an empty token".to_owned())
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
            ("tenant.*.aggregate.>", "tenant.acme.aggregate.order.1", true),
            ("tenant.*.aggregate.>", "tenant.acme.effect.order.1", false),
            ("ab", "a", false),
        ] {
            assert_eq!(Filter::parse(filter).unwrap().matches(subject), expected, "{filter} {subject}");
        }
    }

    #[test]
    fn refuses_malformed_subjects_and_filters() {
        let long = "x".repeat(MAX_SUBJECT_BYTES + 1);
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\0", "a\u{a0}b", "$JS.API.x", &long] {
            assert!(check_subject(bad).is_err(), "{bad}");
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
        for bad in ["a.*", ">", "a.b*", "x>"] {
            assert!(check_subject(bad).is_err(), "{bad}");
        }
        for bad in ["a.b*", ">.a", "a.>b"] {
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_matcher(
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
