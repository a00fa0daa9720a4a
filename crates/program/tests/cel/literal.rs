//! Parser of JavaScript object literals, the format of the test data.

use serde_json::{Map, Value};

/// Parses the value that starts at the first `{` after `exports.tests =`.
///
/// # Errors
/// The position at which the text is not a literal.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let start = text
        .find("exports.tests = {")
        .ok_or("there is no `exports.tests = {`")?;
    let mut reader = Reader {
        text,
        at: start + "exports.tests = ".len(),
    };
    reader.value()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Value, String> {
        match self.next_sign() {
            Some('{') => self.object(),
            Some('[') => self.list(),
            Some('"' | '\'' | '`') => Ok(Value::String(self.string()?)),
            Some(_) => self.scalar(),
            None => Err(self.missing_error("a value")),
        }
    }

    fn object(&mut self) -> Result<Value, String> {
        self.at += 1;
        let mut fields = Map::new();
        while self.next_sign() != Some('}') {
            let key = match self.next_sign() {
                Some('"' | '\'') => self.string()?,
                _ => self.bare(),
            };
            if self.next_sign() != Some(':') {
                return Err(self.missing_error("`:`"));
            }
            self.at += 1;
            let value = self.value()?;
            fields.insert(key, value);
            self.comma();
        }
        self.at += 1;
        Ok(Value::Object(fields))
    }

    fn list(&mut self) -> Result<Value, String> {
        self.at += 1;
        let mut items = Vec::new();
        while self.next_sign() != Some(']') {
            items.push(self.value()?);
            self.comma();
        }
        self.at += 1;
        Ok(Value::Array(items))
    }

    fn comma(&mut self) {
        if self.next_sign() == Some(',') {
            self.at += 1;
        }
    }

    fn scalar(&mut self) -> Result<Value, String> {
        let scalar = self.bare();
        // The nearest double; `serde_json` can differ in the last place.
        let double = scalar
            .parse::<f64>()
            .ok()
            .filter(|_| scalar.contains(['.', 'e']));
        match double {
            Some(double) => Ok(Value::from(double)),
            None => serde_json::from_str(&scalar)
                .map_err(|_| self.missing_error("a number, true, false or null")),
        }
    }

    /// Reads a name or a number.
    fn bare(&mut self) -> String {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || "_$.+-".contains(c)))
            .unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.take().expect("the caller has checked it");
        let mut out = String::new();
        loop {
            match self.take() {
                Some(c) if c == quote => return Ok(out),
                Some('\\') => self.escape(&mut out)?,
                Some(c) => out.push(c),
                None => return Err(self.missing_error("the end of a text")),
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), String> {
        match self.take() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('v') => out.push('\u{b}'),
            Some('0') => out.push('\0'),
            Some('x') => out.push(self.hex(2)?),
            Some('u') => out.push(self.unicode()?),
            Some('\n') => {}
            Some(other) => out.push(other),
            None => return Err(self.missing_error("an escape")),
        }
        Ok(())
    }

    fn unicode(&mut self) -> Result<char, String> {
        if self.text[self.at..].starts_with('{') {
            let end = self.text[self.at..]
                .find('}')
                .ok_or_else(|| self.missing_error("`}`"))?;
            self.at += 1;
            let found = self.hex(end - 1);
            self.at += 1;
            return found;
        }
        let at = self.at;
        self.hex(4).or_else(|_| {
            // The surrogate pair of a character above U+FFFF.
            let half =
                |start: usize| u16::from_str_radix(self.text.get(start..start + 4)?, 16).ok();
            let pair = half(at)
                .zip(half(at + 6))
                .ok_or_else(|| self.missing_error("a character"))?;
            self.at = at + 10;
            char::decode_utf16([pair.0, pair.1])
                .next()
                .and_then(Result::ok)
                .ok_or_else(|| self.missing_error("a character"))
        })
    }

    fn hex(&mut self, digits: usize) -> Result<char, String> {
        let code = self
            .text
            .get(self.at..self.at + digits)
            .and_then(|t| u32::from_str_radix(t, 16).ok());
        let found = code
            .and_then(char::from_u32)
            .ok_or_else(|| self.missing_error("a character"))?;
        self.at += digits;
        Ok(found)
    }

    fn take(&mut self) -> Option<char> {
        let next = self.text[self.at..].chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Returns the next character that is neither whitespace nor part of a comment.
    fn next_sign(&mut self) -> Option<char> {
        loop {
            let remaining = &self.text[self.at..];
            let trimmed = remaining.trim_start();
            self.at += remaining.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return trimmed.chars().next();
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn missing_error(&self, expected: &str) -> String {
        let line = self.text[..self.at].matches('\n').count() + 1;
        format!("line {line}: {expected} is missing")
    }
}
