//! Diagnostics of definitions: location, message and suggestion.

use std::fmt;

/// One error in a definition. The compiler reports all errors at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File name as passed to the front-end.
    pub file: String,
    /// Line, from 1; 0 if the definition has no text.
    pub line: usize,
    /// Column in characters, from 1; 0 if the definition has no text.
    pub column: usize,
    /// Path in the definition, for example `steps[1].do.data.amount`.
    pub path: String,
    /// Description of the error.
    pub message: String,
    /// Suggested replacement or remedy.
    pub suggestion: Option<String>,
}

impl Diagnostic {
    /// Creates a diagnostic of a whole file.
    #[must_use]
    pub fn of_file(file: impl Into<String>, message: String) -> Self {
        Self {
            file: file.into(),
            line: 0,
            column: 0,
            path: String::new(),
            message,
            suggestion: None,
        }
    }

    /// Returns the file with line, column and path, as far as they are known: `order.saga.yaml:4:3
    /// steps[1].id`.
    #[must_use]
    pub fn location(&self) -> String {
        let Self {
            file,
            line,
            column,
            path,
            ..
        } = self;
        let place = if *line > 0 {
            format!("{file}:{line}:{column} {path}")
        } else {
            format!("{file} {path}")
        };
        place.trim_end().to_owned()
    }
}

impl fmt::Display for Diagnostic {
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

/// Diagnostic without a position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawDiagnostic {
    /// Path in the definition.
    pub(crate) path: String,
    /// Line and column within the expression at this path, from 1.
    pub(crate) within: Option<(usize, usize)>,
    /// Whether the diagnostic concerns the field name and not its value.
    pub(crate) at_key: bool,
    /// Description of the error.
    pub(crate) message: String,
    /// Suggested replacement or remedy.
    pub(crate) suggestion: Option<String>,
}

/// Diagnostics collected so far.
pub(crate) type RawDiagnostics = Vec<RawDiagnostic>;

impl RawDiagnostic {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            within: None,
            at_key: false,
            message: message.into(),
            suggestion: None,
        }
    }

    pub(crate) fn with_suggestion(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    pub(crate) fn with_optional_suggestion(mut self, suggestion: Option<String>) -> Self {
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

    /// Converts to a diagnostic of a definition that has no text.
    pub(crate) fn without_text(self, file: &str) -> Diagnostic {
        let message = match self.within {
            Some((_, column)) => format!("{} (at character {column})", self.message),
            None => self.message,
        };

        Diagnostic {
            file: file.to_owned(),
            line: 0,
            column: 0,
            path: self.path,
            message,
            suggestion: self.suggestion,
        }
    }
}

/// Returns the name in `known` that is most similar to `found`, if one is similar enough.
pub(crate) fn nearest<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distance =
        |name: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &name.to_lowercase());
    known
        .into_iter()
        .filter(|name| found.len() <= 64 && name.len() <= 64)
        // Skips names of very different length, because a hostile text causes thousands of lookups.
        .filter(|name| found.len().abs_diff(name.len()) <= 4 + name.len() / 2)
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        // Of names with the same distance, always the same one, so that messages are stable.
        .min()
        .map(|(_, name)| name)
}

/// Returns `did you mean …?` if a known name is similar.
#[must_use]
pub fn did_you_mean<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(found, known).map(|name| format!("did you mean `{name}`?"))
}
