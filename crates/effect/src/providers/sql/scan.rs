//! Parser of configured statements with named parameters.
//!
//! `:sku` and `:item.sku` are parameters outside quotes and comments; `::`, `:=` and a colon before
//! a blank are not. The parser supports the quotes of each database: doubled quotes, backslashes,
//! `$tag$` quotes, nested comments, backticks, brackets.

use super::dialect::Dialect;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedStatement {
    parts: Vec<Part>,
    names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Param(usize),
}

impl ParsedStatement {
    /// Parses one statement.
    ///
    /// # Errors
    /// The reason, with a remedy.
    pub(crate) fn parse(text: &str, dialect: Dialect) -> Result<Self, String> {
        let text = text.trim();
        let text = text.strip_suffix(';').unwrap_or(text).trim_end();

        if text.is_empty() {
            return Err("it is empty".to_owned());
        }

        let first: String = text.chars().take_while(char::is_ascii_alphabetic).collect();
        if CONTROL
            .iter()
            .any(|ident| first.eq_ignore_ascii_case(ident))
        {
            return Err(format!(
                "{first} is not allowed in a statement: Orlog starts and ends the transaction"
            ));
        }

        Scanner {
            text,
            at: 0,
            dialect,
            plain: String::new(),
            parts: Vec::new(),
            names: Vec::new(),
        }
        .run()
    }

    /// Returns the distinct parameter names, in order of first use.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the index of the name for each use of a parameter.
    pub(crate) fn param_indexes(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter_map(|part| match part {
            Part::Param(index) => Some(*index),
            Part::Text(_) => None,
        })
    }

    pub(crate) fn render(&self, placeholder: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Param(index) => text.push_str(&placeholder(*index)),
            }
        }
        text
    }
}

const CONTROL: [&str; 7] = [
    "BEGIN",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT",
    "RELEASE",
    "START",
];

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
    plain: String,
    parts: Vec<Part>,
    names: Vec<String>,
}

impl Scanner<'_> {
    fn run(mut self) -> Result<ParsedStatement, String> {
        while let Some(next) = self.rest().chars().next() {
            // Quotes and comments first: a colon or a semicolon in them is text.
            let quoted = self.quoted(next)?;
            if quoted > 0 {
                self.copy(quoted);
                continue;
            }

            match next {
                ':' => self.colon(),
                ';' => {
                    return Err("it contains two statements; use a list of statements".to_owned());
                }
                '?' if self.dialect != Dialect::Postgres => return Err(bare("?")),
                '$' if self.dialect != Dialect::MySql && self.before().is_none() => {
                    return Err(bare("$"));
                }
                '@' if self.dialect == Dialect::Sqlite => return Err(bare("@")),
                other => self.copy(other.len_utf8()),
            }
        }

        if !self.plain.is_empty() {
            self.parts.push(Part::Text(std::mem::take(&mut self.plain)));
        }

        Ok(ParsedStatement {
            parts: self.parts,
            names: self.names,
        })
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn copy(&mut self, length: usize) {
        self.plain.push_str(&self.text[self.at..self.at + length]);
        self.at += length;
    }

    /// Returns the previous character if it belongs to a name.
    fn before(&self) -> Option<char> {
        self.text[..self.at]
            .chars()
            .next_back()
            .filter(|c| c.is_alphanumeric() || matches!(c, '_' | '$'))
    }

    fn colon(&mut self) {
        if self.rest().starts_with("::") {
            return self.copy(2);
        }

        // A colon without a name is no parameter.
        let length = name(&self.rest()[1..]);
        if length == 0 {
            return self.copy(1);
        }

        let name = self.rest()[1..=length].to_owned();
        self.at += length + 1;
        if !self.plain.is_empty() {
            self.parts.push(Part::Text(std::mem::take(&mut self.plain)));
        }

        // A name that occurs twice has one value, so it is one parameter.
        let known = self.names.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        self.parts.push(Part::Param(index));
    }

    /// Returns the length of the quote or comment that starts here; 0 if there is none.
    fn quoted(&self, next: char) -> Result<usize, String> {
        let rest = self.rest();
        let dialect = self.dialect;
        let escapes = dialect == Dialect::MySql;

        match next {
            '\'' => {
                let is_escape = dialect == Dialect::Postgres && self.is_escape_string();
                closed(rest, '\'', escapes || is_escape)
            }
            '"' => closed(rest, '"', escapes),
            '`' if dialect != Dialect::Postgres => closed(rest, '`', false),
            '[' if dialect == Dialect::Sqlite => rest
                .find(']')
                .map(|end| end + 1)
                .ok_or_else(|| "unclosed [".to_owned()),
            '$' if dialect == Dialect::Postgres && self.before().is_none() => dollars(rest),
            '#' if dialect == Dialect::MySql => Ok(line(rest)),
            '-' if rest.starts_with("--")
                && (dialect != Dialect::MySql || blank_after_dashes(rest)) =>
            {
                Ok(line(rest))
            }
            '/' if rest.starts_with("/*") => comment(rest, dialect == Dialect::Postgres),
            _ => Ok(0),
        }
    }

    /// Returns whether it is `E'…'`, not the end of a longer identifier.
    fn is_escape_string(&self) -> bool {
        let mut before = self.text[..self.at].chars().rev();
        matches!(before.next(), Some('e' | 'E'))
            && !before
                .next()
                .is_some_and(|c| c.is_alphanumeric() || c == '_')
    }
}

fn bare(sign: &str) -> String {
    format!("it contains a placeholder with {sign}; use :name for a parameter")
}

/// Returns the length of the leading dotted name.
fn name(text: &str) -> usize {
    let bytes = text.as_bytes();
    if !bytes
        .first()
        .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
    {
        return 0;
    }

    let is_name_byte = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
    };

    let mut end = 1;
    while is_name_byte(end) || (bytes.get(end) == Some(&b'.') && is_name_byte(end + 1)) {
        end += 1;
    }
    end
}

fn closed(text: &str, quote: char, escapes: bool) -> Result<usize, String> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if escapes => {
                chars.next();
            }
            c if c == quote && chars.peek().is_some_and(|(_, next)| *next == quote) => {
                chars.next();
            }
            c if c == quote => return Ok(at + 1),
            _ => {}
        }
    }
    Err(format!("unclosed {quote}"))
}

/// Returns the length of a `$tag$ … $tag$` quote; 0 if it is something else.
fn dollars(text: &str) -> Result<usize, String> {
    let Some(end) = text[1..].find('$') else {
        return Ok(0);
    };

    // The tag is an identifier. `$1` begins a parameter, not a quote.
    let tag = &text[..end + 2];
    let ident = &tag[1..=end];
    if ident.starts_with(|c: char| c.is_ascii_digit())
        || !ident.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        return Ok(0);
    }

    let close = text[tag.len()..].find(tag);
    close
        .map(|close| tag.len() * 2 + close)
        .ok_or_else(|| format!("unclosed {tag}"))
}

fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

fn blank_after_dashes(text: &str) -> bool {
    text[2..]
        .chars()
        .next()
        .is_none_or(|c| c.is_whitespace() || c.is_control())
}

fn comment(text: &str, nests: bool) -> Result<usize, String> {
    let mut depth = 0_usize;
    let mut at = 0;

    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") && (nests || depth == 0) {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Ok(at);
            }
        } else {
            at += 1;
        }
    }
    Err("unclosed /*".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, text: &str, expected: &str, names: &[&str]) {
        let statement = ParsedStatement::parse(text, dialect).unwrap();
        assert_eq!(statement.render(|index| format!("<{index}>")), expected);
        assert_eq!(statement.names(), names);
    }

    #[track_caller]
    fn check_rejected(dialect: Dialect, text: &str, expected: &str) {
        let error = ParsedStatement::parse(text, dialect).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn names_become_placeholders_but_casts_do_not() {
        check(
            Dialect::Postgres,
            "UPDATE s SET l = l - :qty WHERE k = :item.sku::text AND l >= :qty AND a[1 : 2] = b;",
            "UPDATE s SET l = l - <0> WHERE k = <1>::text AND l >= <0> AND a[1 : 2] = b",
            &["qty", "item.sku"],
        );
        check(
            Dialect::MySql,
            "SET @a := :a.0.b",
            "SET @a := <0>",
            &["a.0.b"],
        );
        check(Dialect::Sqlite, "SELECT :a.", "SELECT <0>.", &["a"]);
    }

    #[test]
    fn quotes_and_comments_are_not_scanned() {
        for text in [
            "SELECT ':a', \":b\", 'it''s :c' -- :d\n, 1 /* :e /* :f */ :g */",
            "SELECT E'\\':a', $$ :b ' $$, $x$ :c $$ $x$, a$b",
            "SELECT $1x$ :a".split_once('$').unwrap().0,
        ] {
            check(Dialect::Postgres, text, text.trim(), &[]);
        }
        let text = "SELECT 'a\\':b', `:c`, \"\\\":d\" # :e\n , 1 -- :f";
        check(Dialect::MySql, text, text, &[]);
        check(Dialect::MySql, "SELECT 1--:a", "SELECT 1--<0>", &["a"]);
        let text = "SELECT [:a], `:b`, '\\' /* :c */";
        check(Dialect::Sqlite, text, text, &[]);
        check(
            Dialect::Postgres,
            "SELECT 'é':a, '\\' || :b",
            "SELECT 'é'<0>, '\\' || <1>",
            &["a", "b"],
        );
    }

    #[test]
    fn unsupported_statement_is_rejected_with_a_remedy() {
        check_rejected(
            Dialect::Postgres,
            "SELECT 1; DELETE FROM s",
            "use a list of statements",
        );
        check_rejected(Dialect::Postgres, "SELECT $1", "use :name");
        check_rejected(Dialect::MySql, "SELECT ?", "use :name");
        check_rejected(Dialect::Sqlite, "SELECT @a", "use :name");
        check_rejected(Dialect::Sqlite, "SELECT 'a", "unclosed '");
        check_rejected(Dialect::Postgres, "SELECT $q$ a", "unclosed $q$");
        check_rejected(Dialect::Postgres, "SELECT /* /* */", "unclosed /*");
        check_rejected(Dialect::Postgres, " ; ", "it is empty");
        check_rejected(Dialect::Postgres, "commit", "Orlog starts and ends");
    }
}
