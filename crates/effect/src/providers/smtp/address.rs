//! Mailboxes of emails: an optional name and an address of RFC 5321.
//!
//! The domain of an address becomes ASCII (A-labels, RFC 5891). Every server accepts it then, and
//! the bytes of an email do not depend on the server. A name before the `@` that is not ASCII has
//! no such form: it requires a server with SMTPUTF8.

use std::net::{Ipv4Addr, Ipv6Addr};

use lettre::Address;
use lettre::message::{Mailbox, Mailboxes};

/// Maximum length of the part before the `@` (RFC 5321, 4.5.3.1.1), in bytes.
const MAX_LOCAL_PART_BYTES: usize = 64;

/// Tag of an IPv6 address in an address literal.
const IPV6_TAG: &str = "IPv6:";

/// Parses exactly one mailbox, `Ada <ada@example.org>`, on one line.
pub(super) fn mailbox(field: &str, text: &str) -> Result<Mailbox, String> {
    let text = line(field, text)?;
    let invalid = || {
        format!(
            "{field}: {text:?} is not a valid email address; example: Ada <ada@example.org>; one \
            address per string"
        )
    };

    // The parser of the library knows neither quoted local parts nor address literals.
    let parsed = text.parse().ok().or_else(|| parse_quoted_or_literal(text));
    let Mailbox { name, email } = parsed.ok_or_else(invalid)?;
    let email = with_ascii_domain(email).ok_or_else(invalid)?;
    Ok(Mailbox::new(name, email))
}

/// Parses the mailbox of a sender. The library parses the sender again when it builds an email.
pub(super) fn sender(text: &str) -> Result<Mailbox, String> {
    let mailbox = mailbox("from", text)?;
    if mailbox.to_string().parse::<Mailboxes>().is_err() {
        return Err(format!(
            "from: {text:?} has a quoted name before the @, or an address literal, which only \
             recipients can have; use an address such as shop@example.com"
        ));
    }
    Ok(mailbox)
}

/// Rejects control characters, so that a value cannot end its header.
pub(super) fn line<'a>(field: &str, text: &'a str) -> Result<&'a str, String> {
    if text.chars().any(char::is_control) {
        return Err(format!(
            "{field} contains a line break or another control character"
        ));
    }
    Ok(text)
}

/// Parses a mailbox with a quoted local part, `"a b"@example.org`, or an address literal,
/// `joe@[192.0.2.1]`.
fn parse_quoted_or_literal(text: &str) -> Option<Mailbox> {
    let text = text.trim();
    let Some(rest) = text.strip_suffix('>') else {
        return Some(Mailbox::new(None, parse_address(text)?));
    };

    let start = find_unquoted(rest, '<')?;
    let name = rest[..start].trim();
    let email = parse_address(&rest[start + 1..])?;
    if name.is_empty() {
        return Some(Mailbox::new(None, email));
    }

    // The library parses the name, before an address that it knows.
    let named: Mailbox = format!("{name} <name@example.org>").parse().ok()?;
    Some(Mailbox::new(named.name, email))
}

fn parse_address(text: &str) -> Option<Address> {
    let (local, domain) = text.rsplit_once('@')?;
    let is_valid_local = is_quoted_string(local) || Address::new(local, "example.org").is_ok();
    let is_valid_domain = is_literal(domain) || is_domain(domain);

    (is_valid_local && is_valid_domain).then(|| Address::new_dangerous(local, domain))
}

fn is_domain(text: &str) -> bool {
    !text.starts_with('[') && Address::new("name", text).is_ok()
}

/// Returns whether the text is an address literal of RFC 5321, 4.1.3.
fn is_literal(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let Some(inner) = inner else { return false };

    match inner.split_at_checked(IPV6_TAG.len()) {
        Some((tag, address)) if tag.eq_ignore_ascii_case(IPV6_TAG) => {
            address.parse::<Ipv6Addr>().is_ok()
        }
        _ => inner.parse::<Ipv4Addr>().is_ok(),
    }
}

/// Returns whether the text is a quoted string of RFC 5321, 4.1.2.
fn is_quoted_string(text: &str) -> bool {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner.filter(|_| text.len() <= MAX_LOCAL_PART_BYTES) else {
        return false;
    };

    let mut chars = inner.chars();
    while let Some(char) = chars.next() {
        let is_allowed = match char {
            '"' => false,
            '\\' => chars.next().is_some_and(|escaped| escaped.is_ascii()),
            _ => true,
        };
        if !is_allowed {
            return false;
        }
    }
    true
}

/// Returns the position of a character outside of quoted strings.
fn find_unquoted(text: &str, wanted: char) -> Option<usize> {
    let mut is_quoted = false;
    let mut chars = text.char_indices();
    while let Some((index, char)) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => {
                chars.next();
            }
            char if char == wanted && !is_quoted => return Some(index),
            _ => {}
        }
    }
    None
}

/// Converts the domain of an address to A-labels; `None` if it has no such form.
fn with_ascii_domain(email: Address) -> Option<Address> {
    // With another local part, the address requires SMTPUTF8 anyway, which allows both forms.
    if email.domain().is_ascii() || !email.user().is_ascii() {
        return Some(email);
    }
    let domain = idna::domain_to_ascii(email.domain()).ok()?;
    Some(Address::new_dangerous(email.user(), domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn accepted(text: &str, name: Option<&str>, address: &str) {
        let mailbox = mailbox("to", text).unwrap();
        assert_eq!(
            (mailbox.name.as_deref(), mailbox.email.to_string().as_str()),
            (name, address),
            "{text}"
        );
    }

    #[test]
    fn quoted_local_parts_and_address_literals_are_accepted() {
        accepted(r#""a b"@x.io"#, None, r#""a b"@x.io"#);
        accepted(r#"Ada <"a<b@c"@x.io>"#, Some("Ada"), r#""a<b@c"@x.io"#);
        accepted(r#""a\"b"@x.io"#, None, r#""a\"b"@x.io"#);
        accepted("joe@[192.0.2.1]", None, "joe@[192.0.2.1]");
        accepted(
            r#""Joe <1>" <joe@[IPv6:2001:db8::1]>"#,
            Some("Joe <1>"),
            "joe@[IPv6:2001:db8::1]",
        );
    }

    #[test]
    fn international_domain_becomes_ascii() {
        accepted(
            "Jo <joe@bücher.example>",
            Some("Jo"),
            "joe@xn--bcher-kva.example",
        );
        accepted(
            r#""a b"@bücher.example"#,
            None,
            r#""a b"@xn--bcher-kva.example"#,
        );
        accepted("jörg@bücher.example", None, "jörg@bücher.example");
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            r#""a"b"@x.io"#,
            r#""a\"@x.io"#,
            "a b@x.io",
            "joe@[192.0.2.256]",
            "joe@[2001:db8::1]",
            "joe@[x.io]",
            "joe@[192.0.2.1",
            "a@x.io> <eve@x.io",
            r#""a b"@x.io, eve@x.io"#,
            "joe@[192.0.2.1]> <eve@[192.0.2.2]>",
        ] {
            let error = mailbox("to", text).unwrap_err();
            assert!(error.starts_with("to: "), "{text}: {error}");
        }
    }

    #[test]
    fn sender_is_an_address_that_the_library_can_parse() {
        assert_eq!(
            sender("Shop <shop@bücher.example>").unwrap().to_string(),
            "Shop <shop@xn--bcher-kva.example>"
        );
        for text in [r#""a b"@x.io"#, "shop@[192.0.2.1]"] {
            assert!(sender(text).unwrap_err().contains("only recipients"));
        }
    }
}
