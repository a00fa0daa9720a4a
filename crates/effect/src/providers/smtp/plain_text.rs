//! Plain text that is written from the elements of a document.

/// Maximum number of levels by which an item of a list is indented. Without a limit, a line of
/// nested lists would have a result of quadratic size.
const MAX_INDENTATION: usize = 8;

/// Plain text: lines, gaps between blocks, items of lists, and links with their addresses.
#[derive(Default)]
pub(super) struct PlainText(String);

impl PlainText {
    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a text as it is.
    pub(super) fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Appends words; spaces and line breaks between them are one space.
    pub(super) fn words(&mut self, text: &str) {
        let mut separate = text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            if separate {
                self.space();
            }
            self.0.push_str(word);
            separate = true;
        }
        if separate && text.ends_with(char::is_whitespace) {
            self.space();
        }
    }

    fn space(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with([' ', '\n']) {
            self.0.push(' ');
        }
    }

    /// Separates a cell of a table from the one before it.
    pub(super) fn cell(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with('\n') {
            self.0.push_str("  ");
        }
    }

    /// Ends the line, if it has a text.
    pub(super) fn line(&mut self) {
        self.0.truncate(self.0.trim_end_matches(' ').len());
        if !self.0.is_empty() && !self.0.ends_with('\n') {
            self.0.push('\n');
        }
    }

    /// Ends the line, and adds an empty one.
    pub(super) fn gap(&mut self) {
        self.line();
        if !self.0.is_empty() && !self.0.ends_with("\n\n") {
            self.0.push('\n');
        }
    }

    /// Starts an item of the innermost list. A numbered list has the number of its next item.
    pub(super) fn item(&mut self, lists: &mut [Option<u64>]) {
        self.line();
        let levels = lists.len().saturating_sub(1).min(MAX_INDENTATION);
        self.0.push_str(&"  ".repeat(levels));
        match lists.last_mut() {
            Some(Some(number)) => {
                self.0.extend([number.to_string().as_str(), ". "]);
                *number += 1;
            }
            Some(None) | None => self.0.push_str("- "),
        }
    }

    /// Ends a link whose text starts at a position: appends the address, unless it is the text.
    pub(super) fn end_link(&mut self, url: &str, start: usize) {
        if !url.is_empty() && self.0.get(start..) != Some(url) {
            self.0.extend([" (", url, ")"]);
        }
    }

    /// Returns the text with one line break at its end.
    pub(super) fn finish(self) -> String {
        let mut text = self.0.trim().to_owned();
        text.push('\n');
        text
    }
}
