//! Reads a JavaScript object literal as JSON: what the test data is written in.

use serde_json::{Map, Value};

/// The value that begins at the first `{` after `exports.tests =`.
///
/// # Errors
/// Where the text is no literal.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let start = text.find("exports.tests = {").ok_or("there is no `exports.tests = {`")?;
    let mut reader = Reader { text, at: start + "exports.tests = ".len() };
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
            Some(_) => self.word(),
            None => Err(self.wrong("a value")),
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
                return Err(self.wrong("`:`"));
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

    fn word(&mut self) -> Result<Value, String> {
        let word = self.bare();
        // The nearest double; `serde_json` may be one off in the last place.
        let double = word.parse::<f64>().ok().filter(|_| word.contains(['.', 'e']));
        match double {
            Some(double) => Ok(Value::from(double)),
            None => serde_json::from_str(&word).map_err(|_| self.wrong("a number, true, false or null")),
        }
    }

    /// A name or a number.
    fn bare(&mut self) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "_$.+-".contains(c))).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.take().expect("the caller saw it");
        let mut out = String::new();
        loop {
            match self.take() {
                Some(c) if c == quote => return Ok(out),
                Some('\\') => self.escape(&mut out)?,
                Some(c) => out.push(c),
                None => return Err(self.wrong("the end of a text")),
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
            None => return Err(self.wrong("an escape")),
        }
        Ok(())
    }

    fn unicode(&mut self) -> Result<char, String> {
        if self.text[self.at..].starts_with('{') {
            let end = self.text[self.at..].find('}').ok_or_else(|| self.wrong("`}`"))?;
            self.at += 1;
            let found = self.hex(end - 1);
            self.at += 1;
            return found;
        }
        let at = self.at;
        self.hex(4).or_else(|_| {
            // The two halves of a character beyond the first 65,536.
            let half = |start: usize| u16::from_str_radix(self.text.get(start..start + 4)?, 16).ok();
            let pair = half(at).zip(half(at + 6)).ok_or_else(|| self.wrong("a character"))?;
            self.at = at + 10;
            char::decode_utf16([pair.0, pair.1])
                .next()
                .and_then(Result::ok)
                .ok_or_else(|| self.wrong("a character"))
        })
    }

    fn hex(&mut self, digits: usize) -> Result<char, String> {
        let code = self.text.get(self.at..self.at + digits).and_then(|t| u32::from_str_radix(t, 16).ok());
        let found = code.and_then(char::from_u32).ok_or_else(|| self.wrong("a character"))?;
        self.at += digits;
        Ok(found)
    }

    fn take(&mut self) -> Option<char> {
        let next = self.text[self.at..].chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// The next sign that is neither space nor comment.
    fn next_sign(&mut self) -> Option<char> {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return trimmed.chars().next();
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn wrong(&self, wanted: &str) -> String {
        let line = self.text[..self.at].matches('\n').count() + 1;
        format!("line {line}: {wanted} is missing")
    }
}
