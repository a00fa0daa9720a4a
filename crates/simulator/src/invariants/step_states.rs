//! Where the steps of an instance stand, as its program shows them.

use std::collections::BTreeMap;

use orlog_model::Instance;
use orlog_program::Program;
use serde_json::Value;

/// By tag: a step, or an element of a step for each element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    phase: String,
    by_tag: BTreeMap<String, String>,
}

impl Marks {
    /// Of an instance; empty where it has not begun or its program has no words for it.
    pub(crate) fn of(program: &dyn Program, instance: Option<&Instance>) -> Self {
        let shown = instance.and_then(|instance| program.show(&instance.state)).unwrap_or(Value::Null);
        let mut by_tag = BTreeMap::new();
        for step in shown["steps"].as_array().into_iter().flatten() {
            let (Some(id), Some(state)) = (step["id"].as_str(), step["state"].as_str()) else { continue };
            by_tag.insert(id.to_owned(), state.to_owned());
            for (index, element) in step["elements"].as_array().into_iter().flatten().enumerate() {
                let state = element["state"].as_str().unwrap_or_default();
                by_tag.insert(format!("{id}[{index}]"), state.to_owned());
            }
        }
        Self { phase: shown["phase"].as_str().unwrap_or_default().to_owned(), by_tag }
    }

    /// The word for a tag; empty where there is none.
    pub(crate) fn get(&self, tag: &str) -> &str {
        self.by_tag.get(tag).map_or("", String::as_str)
    }

    /// All of them, in the order of tags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_tag.iter().map(|(tag, mark)| (tag.as_str(), mark.as_str()))
    }

    /// Without what differs between instances: what an exploration counts.
    pub(crate) fn signature(&self) -> String {
        let marks: Vec<_> = self.by_tag.iter().map(|(tag, mark)| format!("{tag}={mark}")).collect();
        format!("{} {}", self.phase, marks.join(" "))
    }

    /// Whether the step for each element of this tag has elements: then these count, not the step itself.
    pub(crate) fn has_elements(&self, tag: &str) -> bool {
        self.by_tag.contains_key(&format!("{tag}[0]"))
    }
}

/// It was done at some time.
pub(crate) fn was_done(mark: &str) -> bool {
    matches!(mark, "done" | "undoing" | "undone" | "undo_failed" | "undo_pausing" | "lost")
}

/// A person is asked whether it was done.
pub(crate) fn is_asking(mark: &str) -> bool {
    matches!(mark, "asking" | "asking_late")
}

/// Its undo is asked for, or will be again.
pub(crate) fn is_undo(mark: &str) -> bool {
    matches!(mark, "undoing" | "undo_failed" | "undo_pausing")
}

/// It is asked for, or will be again.
pub(crate) fn is_under_way(mark: &str) -> bool {
    matches!(mark, "running" | "pausing")
}
