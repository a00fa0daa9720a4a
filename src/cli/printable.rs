//! Texts that are safe to print.
//!
//! Texts of a node can contain texts of its callers. Control characters of terminals and
//! bidirectional controls are printed as escapes, so that no text changes the terminal or the
//! display of other texts.

use std::borrow::Cow;

use orlog_model::is_direction_control;

/// Returns the text with escapes, such as `\u{1b}`, for control characters and bidirectional
/// controls. Line feeds and tabs stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| !matches!(c, '\n' | '\t') && is_hidden(c),
        |c| c.escape_default().to_string(),
    )
}

/// Returns the text like [`printable`], also with escapes for line feeds and tabs.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_hidden, |c| c.escape_default().to_string())
}

/// Returns JSON with JSON escapes for the characters that [`printable`] escapes: an equal document.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    // All of them are below U+10000.
    escaped(
        json,
        |c| !matches!(c, '\n' | '\t') && is_hidden(c),
        |c| format!("\\u{:04x}", u32::from(c)),
    )
}

fn is_hidden(character: char) -> bool {
    character.is_control() || is_direction_control(character)
}

fn escaped(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    // Almost all texts contain nothing to escape, and are printed without a copy.
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }

    let mut result = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            result.push_str(&escape(character));
        } else {
            result.push(character);
        }
    }

    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Escape sequences of 7 and 8 bits, backspace, and a reversed text.
    const HOSTILE: &str = "a\u{1b}[2Jb\u{9b}31mc\u{8}d\u{7f}\u{202e}e";

    #[test]
    fn printed_texts_contain_no_terminal_controls() {
        let expected = "a\\u{1b}[2Jb\\u{9b}31mc\\u{8}d\\u{7f}\\u{202e}e";
        assert_eq!(printable(HOSTILE), expected);
        assert_eq!(one_line(HOSTILE), expected);
        assert_eq!(printable("two\nlines\tü שלום"), "two\nlines\tü שלום");
        assert_eq!(one_line("forged\nline\r"), "forged\\nline\\r");
    }

    #[test]
    fn printed_json_is_an_equal_document_without_terminal_controls() {
        let value = json!({ HOSTILE: [HOSTILE, "ü\n"] });
        let (text, printed) = (
            format!("{value:#}"),
            printable_json(&format!("{value:#}")).into_owned(),
        );
        assert!(text.contains('\u{9b}'), "serde escapes only some of them");
        assert!(
            printed.chars().all(|c| matches!(c, '\n' | ' '..='~' | 'ü')),
            "{printed}"
        );
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), value);
    }
}
