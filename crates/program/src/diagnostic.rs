//! What is wrong with a definition: where, what, and what was probably meant.

use std::fmt;

/// One thing wrong with a definition. All that are found are reported at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named to the front-end.
    pub file: String,
    /// The line, from 1; 0 where there is no text, as in the builder.
    pub line: usize,
    /// The column in characters, from 1; 0 where there is no text.
    pub column: usize,
    /// The place in the definition, for example `steps[1].do.data.amount`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What was probably meant, or what would do.
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        f.write_str(": ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

/// A problem before its place in a file is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The place in the definition.
    pub(crate) path: String,
    /// Line and column within the expression that stands there, from 1.
    pub(crate) within: Option<(usize, usize)>,
    /// It is about the name of the field, not about its value.
    pub(crate) at_key: bool,
    /// What is wrong.
    pub(crate) message: String,
    /// What was probably meant.
    pub(crate) suggestion: Option<String>,
}

/// What is wrong, as far as it is found.
pub(crate) type Findings = Vec<Finding>;

impl Finding {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), within: None, at_key: false, message: message.into(), suggestion: None }
    }

    pub(crate) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    pub(crate) fn maybe_suggest(mut self, suggestion: Option<String>) -> Self {
        self.suggestion = suggestion;
        self
    }

    pub(crate) fn within(mut self, at: Option<(usize, usize)>) -> Self {
        self.within = at;
        self
    }

    pub(crate) fn at_key(mut self) -> Self {
        self.at_key = true;
        self
    }

    /// As a problem of a definition that has no text.
    pub(crate) fn without_text(self, file: &str) -> Problem {
        let message = match self.within {
            Some((_, column)) => format!("{} (at character {column})", self.message),
            None => self.message,
        };
        Problem {
            file: file.to_owned(),
            line: 0,
            column: 0,
            path: self.path,
            message,
            suggestion: self.suggestion,
        }
    }
}

/// The name among `known` that `found` probably stands for.
pub(crate) fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &name.to_lowercase());
    known
        .into_iter()
        .filter(|name| found.len() <= 64 && name.len() <= 64)
        // Names of such different length are never near; a hostile text asks thousands of times.
        .filter(|name| found.len().abs_diff(name.len()) <= 4 + name.len() / 2)
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min()
        .map(|(_, name)| name)
}

/// `did you mean …?`, where something known is near.
pub(crate) fn did_you_mean<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(found, known).map(|name| format!("did you mean `{name}`?"))
}
