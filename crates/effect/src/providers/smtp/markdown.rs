//! Conversion of Markdown to HTML without raw HTML of the author, and to plain text.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use super::plain_text::PlainText;

fn events(markdown: &str) -> Parser<'_> {
    Parser::new_ext(
        markdown,
        Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES,
    )
}

/// Converts to HTML. Raw HTML is escaped, and links may only have web or mail addresses.
pub(crate) fn html(markdown: &str) -> String {
    let safe_events = events(markdown).map(|event| match event {
        // As text, the renderer escapes it.
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => Event::Start(Tag::Link {
            link_type,
            dest_url: safe(dest_url),
            title,
            id,
        }),
        Event::Start(Tag::Image {
            link_type,
            dest_url,
            title,
            id,
        }) => Event::Start(Tag::Image {
            link_type,
            dest_url: safe(dest_url),
            title,
            id,
        }),
        other => other,
    });

    let mut page = String::new();
    html::push_html(&mut page, safe_events);
    page
}

/// Returns whether a link may lead there: web and mail addresses.
pub(super) fn is_safe_link(url: &str) -> bool {
    let lower = url.to_ascii_lowercase();
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme))
}

fn safe(url: CowStr<'_>) -> CowStr<'_> {
    if is_safe_link(&url) { url } else { "#".into() }
}

/// Converts to plain text; a link is followed by its address.
pub(crate) fn text(markdown: &str) -> String {
    let mut writer = PlainTextWriter::default();
    events(markdown).for_each(|event| writer.take(event));
    writer.text.finish()
}

#[derive(Default)]
struct PlainTextWriter {
    text: PlainText,
    /// Open lists, with the number of the next item of a numbered list.
    lists: Vec<Option<u64>>,
    /// Open links, and the start of their texts.
    links: Vec<(String, usize)>,
}

impl PlainTextWriter {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.text.push(&text);
            }
            Event::SoftBreak | Event::HardBreak => self.text.push("\n"),
            Event::Rule => self.text.push("\n---\n\n"),
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::List(first) => {
                self.text.line();
                self.lists.push(first);
            }
            Tag::Item => self.text.item(&mut self.lists),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.text.len()));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Link | TagEnd::Image => {
                if let Some((url, start)) = self.links.pop() {
                    self.text.end_link(&url, start);
                }
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.text.gap();
            }
            TagEnd::Item | TagEnd::TableRow | TagEnd::TableHead => self.text.line(),
            TagEnd::TableCell => self.text.push("  "),
            TagEnd::Paragraph
            | TagEnd::Heading(_)
            | TagEnd::CodeBlock
            | TagEnd::BlockQuote(_)
            | TagEnd::Table => {
                if self.lists.is_empty() {
                    self.text.gap();
                } else {
                    self.text.line();
                }
            }
            _ => {}
        }
    }
}

/// Escapes all Markdown in a text.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // A line break would start a list, a heading or a code block.
            '\r' | '\n' => escaped.push(' '),
            c if c.is_ascii_punctuation() => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_html_is_escaped() {
        let page = html(
            "# Hi *you*\n\n<script>alert(1)</script>\n\na <b>c</b> [x](javascript:alert) [y](https://y.io)",
        );
        assert!(page.contains("<h1>Hi <em>you</em></h1>"), "{page}");
        assert!(
            !page.contains("<script") && !page.contains("<b>") && !page.contains("javascript"),
            "{page}"
        );
        assert!(
            page.contains("&lt;script&gt;") && page.contains(r##"<a href="#">x</a>"##),
            "{page}"
        );
        assert!(page.contains(r#"<a href="https://y.io">y</a>"#), "{page}");
    }

    #[test]
    fn plain_text_keeps_the_content() {
        let rendered = text(
            "# Hi *you*\n\nGo [here](https://y.io).\nNow.\n\n- one\n- two\n  1. deep\n\nEnd <b>x</b> `c`",
        );
        assert_eq!(
            rendered,
            "Hi you\n\nGo here (https://y.io).\nNow.\n\n- one\n- two\n  1. deep\n\nEnd <b>x</b> c\n"
        );
    }

    #[test]
    fn text_of_nested_lists_has_a_linear_size() {
        let levels = 1_000;
        let rendered = text(&format!("{}x", "- ".repeat(levels)));
        assert!(rendered.len() < levels * 32, "{}", rendered.len());
    }

    #[test]
    fn filled_values_are_not_markdown() {
        let name = escaped("[Ada](https://evil.io) *x*\n# y <b>");
        let page = html(&format!("Dear {name},"));
        assert!(
            !page.contains("<a ") && !page.contains("<em>") && !page.contains("<h1>"),
            "{page}"
        );
        assert_eq!(
            text(&format!("Dear {name},")),
            "Dear [Ada](https://evil.io) *x* # y <b>,\n"
        );
    }
}
