//! HTML of other people: reduced to harmless elements, and as plain text.
//!
//! The result is written from the tokens of the input: only listed elements, no attribute except
//! the address of a link, and escaped text. Nothing of the input is copied, so that the result has
//! no scripts, styles, forms, images, frames or comments.
//!
//! # Cost
//!
//! The cost is linear in the size of the input: no token searches the open elements, and at most
//! [`MAX_OPEN_ELEMENTS`] are open. A parser that builds the tree of the document, as the crate
//! `ammonia` does, searches the open elements at each start tag. Its cost is quadratic for unclosed
//! elements, so only the tokenizer of that parser is used.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind::{Rawtext, Rcdata, ScriptData};
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use super::markdown::is_safe_link;
use super::plain_text::PlainText;

/// Elements that the result contains.
const ELEMENTS: [&str; 31] = [
    "a",
    "b",
    "blockquote",
    "br",
    "code",
    "del",
    "div",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
];
/// Elements without content.
const VOID: [&str; 2] = ["br", "hr"];
/// Elements whose content is removed, too. Of other elements, only the tags are removed.
const REMOVED: [&str; 13] = [
    "applet", "audio", "canvas", "math", "noscript", "object", "select", "svg", "template",
    "title", "video", "script", "style",
];

/// Maximum number of elements of the result that are open at the same time. Deeper elements are
/// removed, their texts remain. Browsers have a similar limit.
const MAX_OPEN_ELEMENTS: usize = 256;

/// Harmless HTML, and the same content as plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CleanHtml {
    pub(crate) html: String,
    pub(crate) text: String,
}

/// Reduces HTML to harmless elements, and converts it to plain text. A link in the text is followed
/// by its address.
pub(crate) fn clean(html: &str) -> CleanHtml {
    let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(html));

    // The sink asks for no script, at which the tokenizer would stop.
    let _finished = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish()
}

#[derive(Default)]
struct Sink(RefCell<Writer>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut writer = self.0.borrow_mut();
        match token {
            // First: inside a removed element, only its own tags count.
            Token::TagToken(tag) if writer.removed.is_some() => writer.leave(&tag),
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => {
                writer.start(&tag);
                return raw(&tag);
            }
            Token::TagToken(tag) => writer.end(&tag.name),
            Token::CharacterTokens(text) => writer.text(&text),
            Token::CommentToken(_)
            | Token::DoctypeToken(_)
            | Token::NullCharacterToken
            | Token::EOFToken
            | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

/// Returns how the content of an element is read: as text, up to its end tag.
fn raw(tag: &Tag) -> TokenSinkResult<()> {
    match &*tag.name {
        "script" => TokenSinkResult::RawData(ScriptData),
        "style" | "xmp" | "iframe" | "noembed" | "noframes" => TokenSinkResult::RawData(Rawtext),
        "textarea" | "title" => TokenSinkResult::RawData(Rcdata),
        "plaintext" => TokenSinkResult::Plaintext,
        _ => TokenSinkResult::Continue,
    }
}

/// Element that is removed with its content, and the number of open elements of this name.
struct Removed {
    name: String,
    depth: usize,
}

/// Number of elements by their position in [`ELEMENTS`].
type ElementCounts = [usize; ELEMENTS.len()];

/// Open elements of the result, as positions in [`ELEMENTS`].
#[derive(Default)]
struct OpenElements {
    stack: Vec<usize>,
    /// Elements on the stack. A search of the stack at each token would be quadratic.
    counts: ElementCounts,
    /// Open elements that are too deep for the result. They are inside all elements of the stack.
    too_deep: ElementCounts,
}

impl OpenElements {
    fn contains(&self, name: &str) -> bool {
        position(name).is_some_and(|element| self.counts[element] > 0)
    }

    /// Opens an element; returns false if the result must not contain it.
    fn open(&mut self, element: usize) -> bool {
        if self.stack.len() >= MAX_OPEN_ELEMENTS {
            // Counted, so that its end tag does not close an element of the result with the same
            // name.
            self.too_deep[element] += 1;
            return false;
        }
        self.stack.push(element);
        self.counts[element] += 1;
        true
    }

    /// Returns whether an end tag closes an element of the result.
    fn is_closed_by(&mut self, element: usize) -> bool {
        if self.too_deep[element] > 0 {
            self.too_deep[element] -= 1;
            return false;
        }
        self.counts[element] > 0
    }

    /// Closes the innermost element of the result.
    fn close_last(&mut self) -> Option<usize> {
        let last = self.stack.pop()?;
        self.counts[last] -= 1;
        // The closed element contained all of them, so they are closed too.
        self.too_deep = ElementCounts::default();
        Some(last)
    }
}

/// Returns the position of an element in [`ELEMENTS`].
fn position(name: &str) -> Option<usize> {
    ELEMENTS.iter().position(|element| *element == name)
}

#[derive(Default)]
struct Writer {
    html: String,
    plain: PlainText,
    open: OpenElements,
    /// Open lists, with the number of the next item of a numbered list.
    lists: Vec<Option<u64>>,
    /// Addresses of the open links, and the starts of their texts.
    links: Vec<(String, usize)>,
    removed: Option<Removed>,
}

impl Writer {
    fn start(&mut self, tag: &Tag) {
        let name = &*tag.name;

        // Their content is no text of the message, so it is removed too.
        if REMOVED.contains(&name) {
            if !tag.self_closing {
                self.removed = Some(Removed {
                    name: name.to_owned(),
                    depth: 1,
                });
            }
            return;
        }

        let Some(element) = position(name) else {
            return;
        };
        if !VOID.contains(&name) && !self.open.open(element) {
            return;
        }

        self.html.extend(["<", name]);
        if name == "a" {
            let href = tag
                .attrs
                .iter()
                .find(|attribute| &*attribute.name.local == "href");
            // A link without a safe address keeps its text.
            let url = href
                .map(|href| href.value.trim().to_owned())
                .filter(|url| is_safe_link(url));
            if let Some(url) = &url {
                self.html.extend([
                    " href=\"",
                    &escaped(url),
                    "\" rel=\"noopener noreferrer nofollow\"",
                ]);
            }
            self.links.push((url.unwrap_or_default(), self.plain.len()));
        }
        self.html.push('>');
        self.start_plain(name);
    }

    fn start_plain(&mut self, name: &str) {
        match name {
            "br" => self.plain.push("\n"),
            "hr" => {
                self.plain.gap();
                self.plain.push("---");
                self.plain.gap();
            }
            "ul" | "ol" => {
                self.plain.line();
                self.lists.push((name == "ol").then_some(1));
            }
            "li" => self.plain.item(&mut self.lists),
            "tr" | "div" => self.plain.line(),
            "td" | "th" => self.plain.cell(),
            "p" | "blockquote" | "pre" | "table" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6"
                if self.lists.is_empty() =>
            {
                self.plain.gap();
            }
            _ => {}
        }
    }

    /// Closes an element, and those that are open in it.
    fn end(&mut self, name: &str) {
        let Some(element) = position(name) else {
            return;
        };

        if !self.open.is_closed_by(element) {
            return;
        }
        while self.end_last().is_some_and(|last| last != element) {}
    }

    /// Closes the innermost element.
    fn end_last(&mut self) -> Option<usize> {
        let last = self.open.close_last()?;
        let name = ELEMENTS[last];
        self.html.extend(["</", name, ">"]);
        self.end_plain(name);
        Some(last)
    }

    fn end_plain(&mut self, name: &str) {
        match name {
            "a" => {
                if let Some((url, start)) = self.links.pop() {
                    self.plain.end_link(&url, start);
                }
            }
            "ul" | "ol" => {
                self.lists.pop();
                self.plain.gap();
            }
            "li" | "tr" | "div" => self.plain.line(),
            "p" | "blockquote" | "pre" | "table" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                if self.lists.is_empty() {
                    self.plain.gap();
                } else {
                    self.plain.line();
                }
            }
            _ => {}
        }
    }

    /// Ends the removal of an element at its end tag.
    fn leave(&mut self, tag: &Tag) {
        let Some(removed) = &mut self.removed else {
            return;
        };

        // Tags of other names cannot end the removal, whatever their nesting.
        if *removed.name != *tag.name {
            return;
        }
        match tag.kind {
            TagKind::StartTag if tag.self_closing => {}
            TagKind::StartTag => removed.depth += 1,
            TagKind::EndTag => removed.depth -= 1,
        }

        if removed.depth == 0 {
            self.removed = None;
        }
    }

    fn text(&mut self, text: &str) {
        if self.removed.is_some() {
            return;
        }

        self.html.push_str(&escaped(text));
        if self.open.contains("pre") {
            self.plain.push(text);
        } else {
            self.plain.words(text);
        }
    }

    fn finish(mut self) -> CleanHtml {
        // Elements without an end tag must not continue in the text after this one.
        while self.end_last().is_some() {}
        CleanHtml {
            html: self.html,
            text: self.plain.finish(),
        }
    }
}

/// Escapes a text in HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn harmless_elements_remain_without_their_attributes() {
        let cleaned = clean(
            "<!doctype html><html><head><title>x</title></head><body class=a><h1 onclick=x>Hi &amp; <i>you</i></h1>\
             <p style='color:red'>Go <a href=\"https://y.io?a=1&amp;b=2\" target=_top>here</a>.<br>Now</p></body></html>",
        );
        assert_eq!(
            cleaned.html,
            "<h1>Hi &amp; <i>you</i></h1><p>Go <a href=\"https://y.io?a=1&amp;b=2\" rel=\"noopener noreferrer \
             nofollow\">here</a>.<br>Now</p>"
        );
        assert_eq!(
            cleaned.text,
            "Hi & you\n\nGo here (https://y.io?a=1&b=2).\nNow\n"
        );
    }

    #[test]
    fn active_content_is_removed() {
        for (html, expected) in [
            ("a<script>alert('<b>')</script>b", "ab"),
            (
                "a<style>p{}</style>b<svg><script>x</script><a href=x>y</a></svg>c",
                "abc",
            ),
            (
                "<math><mtext></math>a<object><object></object>x</object>b",
                "ab",
            ),
            (
                "<img src=x onerror=alert(1)>a<iframe src=x></iframe><form action=x><input name=p>b</form>",
                "ab",
            ),
            ("<a href=' javascript:alert(1)'>a</a>", "<a>a</a>"),
            (
                "<a href='java\tscript:alert(1)'>a</a><a href='//evil.io'>b</a>",
                "<a>a</a><a>b</a>",
            ),
            (
                "<p title='--><script>x</script>'>a<!-- <script>x</script> -->b",
                "<p>ab</p>",
            ),
            (
                "a<noscript><p title=\"</noscript><script>x</script>\">b</noscript>c",
                "ac",
            ),
            ("<script>never closed <p>a</p>", ""),
            (
                "<textarea><b>a</b></textarea><xmp><b></xmp>",
                "&lt;b&gt;a&lt;/b&gt;&lt;b&gt;",
            ),
            ("<svg/><b>a", "<b>a</b>"),
            ("</p></script>&lt;script&gt;", "&lt;script&gt;"),
            ("<SCRIPT\n>x</SCRIPT\t>a<ScRiPt/src=x>y", "a"),
        ] {
            assert_eq!(clean(html).html, expected, "{html}");
        }
    }

    #[test]
    fn plain_text_has_lists_tables_and_code() {
        let text = clean(
            "<p>Dear\n  Ada,</p><ul><li>one</li><li><p>two</p><ol><li>deep</ol></ul>\
             <table><tr><td>a<td>b</tr></table><pre>x\n  y</pre><a href='https://y.io'>https://y.io</a>",
        );
        assert_eq!(
            text.text,
            "Dear Ada,\n\n- one\n- two\n  1. deep\n\na  b\n\nx\n  y\n\nhttps://y.io\n"
        );
    }

    #[test]
    fn elements_are_balanced() {
        assert_eq!(
            clean("<b><i>x</b>y</i><p>z").html,
            "<b><i>x</i></b>y<p>z</p>"
        );
    }

    #[test]
    fn unclosed_elements_have_a_maximum_depth() {
        let depth = MAX_OPEN_ELEMENTS;
        let cleaned = clean(&"<div>a".repeat(20_000)).html;
        assert_eq!(cleaned.matches("<div>").count(), depth);
        assert_eq!(cleaned.matches("</div>").count(), depth);
        assert_eq!(cleaned.matches('a').count(), 20_000);
        assert!(cleaned.len() < 22_000 + depth * 11, "{}", cleaned.len());
    }

    #[test]
    fn end_tags_of_elements_that_are_too_deep_close_no_other_element() {
        let outer = "<p>".repeat(MAX_OPEN_ELEMENTS);
        let cleaned = clean(&format!("{outer}<b>a<p>b</p>c</b>d</p>e")).html;
        let inner = cleaned.strip_prefix(&outer).unwrap();
        assert!(inner.starts_with("abcd</p>e</p>"), "{inner}");
        assert_eq!(clean(&cleaned).html, cleaned);
    }

    #[test]
    fn items_of_deep_lists_have_a_maximum_indentation() {
        let items = 2_000;
        let html = format!("{}{}", "<ul>".repeat(200), "<li>a</li>".repeat(items));
        let text = clean(&html).text;
        assert_eq!(text.matches("- a").count(), items);
        assert!(text.len() < items * 32, "{}", text.len());
    }

    proptest! {
        /// The result is a fixed point: cleaning it again changes nothing, so that it contains only
        /// what the rules permit.
        #[test]
        fn cleaned_html_stays_equal(html in "(<|>|/|a|b|p|li|svg|script|style|textarea| |=|\"|'|&|;|!--|href|x|\n|\\PC){0,60}") {
            let cleaned = clean(&html).html;
            prop_assert_eq!(clean(&cleaned).html, cleaned.clone());
            let lower = cleaned.to_ascii_lowercase();
            for forbidden in ["<script", "<style", "<svg", "<textarea", "<!--"] {
                prop_assert!(!lower.contains(forbidden), "{}", cleaned);
            }
        }
    }
}
