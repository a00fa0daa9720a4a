//! Pictures of a definition, as Mermaid text and as SVG, with the place where an instance stands.
//!
//! Steps are boxes from top to bottom, each below what it waits for. Whatever comes from a definition is escaped; pictures
//! hold no script and load nothing.

mod flow;
mod icons;
mod layout;
mod mermaid;
mod svg;

use std::collections::BTreeMap;

use orlog_program::Definition;
use serde_json::Value;

pub use mermaid::mermaid;
pub use svg::svg;

/// Where an instance stands: the mark of each step, as its program shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    phase: Option<String>,
    marks: BTreeMap<String, String>,
}

impl Place {
    /// From what a program shows of a state: `phase` and `steps`, each with `id` and `state`.
    #[must_use]
    pub fn of(shown: &Value) -> Self {
        let steps = shown["steps"].as_array().into_iter().flatten();
        let mark = |step: &Value| Some((step["id"].as_str()?.to_owned(), step["state"].as_str()?.to_owned()));
        Self {
            phase: shown["phase"].as_str().map(ToOwned::to_owned),
            marks: steps.filter_map(mark).collect(),
        }
    }

    /// The mark of a step.
    fn mark(&self, step: &str) -> Option<&str> {
        self.marks.get(step).map(String::as_str)
    }
}

/// What a mark means for the eye: six looks for all marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Not begun.
    Pending,
    /// Under way.
    Open,
    /// Done.
    Done,
    /// Failed, given up, or a person must decide.
    Failed,
    /// Undone, or being undone.
    Undone,
    /// Left out.
    Skipped,
}

impl Look {
    fn of(mark: &str) -> Self {
        match mark {
            "running" | "pausing" | "asking" => Look::Open,
            "done" => Look::Done,
            "failed" | "given_up" | "undo_failed" | "blocked" | "asking_late" => Look::Failed,
            "undoing" | "undone" | "undo_pausing" | "lost" => Look::Undone,
            "skipped" | "bypassed" => Look::Skipped,
            _ => Look::Pending,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Look::Pending => "pending",
            Look::Open => "open",
            Look::Done => "done",
            Look::Failed => "failed",
            Look::Undone => "undone",
            Look::Skipped => "skipped",
        }
    }
}

/// A picture as SVG or Mermaid, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text that Mermaid draws.
    Mermaid,
    /// A drawing.
    Svg,
}

/// Draws a definition, and where an instance stands.
#[must_use]
pub fn draw(definition: &Definition, place: Option<&Place>, format: Format) -> String {
    match format {
        Format::Mermaid => mermaid(definition, place),
        Format::Svg => svg(definition, place),
    }
}

#[cfg(test)]
mod tests;
