//! An answer of the export: lines, and where to go on.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::Stop;
use crate::cli::exit::{Exit, Failure};

/// One answer.
pub(super) struct Page {
    /// The lines as they came, the last one among them.
    pub(super) text: String,
    /// Those that say something.
    pub(super) lines: Vec<Value>,
    /// Where to go on.
    pub(super) cursor: String,
    /// There is more at once.
    pub(super) more: bool,
    /// The first pass goes on.
    pub(super) scanning: bool,
}

impl Page {
    /// Reads an answer; one without its last line was cut off.
    pub(super) fn read(text: &str) -> Result<Self, Stop> {
        let cut = |why: String| Stop::Passing(Failure::new(Exit::Unavailable, why));
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        let mut lines =
            lines.map_err(|error| cut(format!("the node's answer is no lines of JSON: {error}")))?;
        let last = lines.pop().filter(|last| last["kind"] == "cursor");
        let cursor = last.as_ref().and_then(|last| last["cursor"].as_str()).map(str::to_owned);
        let (Some(last), Some(cursor)) = (last, cursor) else {
            return Err(cut("the node's answer was cut off".to_owned()));
        };
        let is = |field: &str| last[field] == json!(true);
        Ok(Self { text: text.to_owned(), lines, cursor, more: is("more"), scanning: is("scanning") })
    }

    /// The last word about each thing of a kind, those that are there and those that are gone.
    pub(super) fn of(&self, kind: &str) -> (Vec<&Value>, Vec<&Value>) {
        let of_kind = self.lines.iter().filter(|line| line["kind"] == kind);
        let last: BTreeMap<String, &Value> =
            of_kind.map(|line| (format!("{} {}", line["tenant"], line["key"]), line)).collect();
        last.into_values().partition(|line| line["op"] == "put")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: &str = r#"{"kind":"cursor","cursor":"c","more":true,"scanning":false}"#;

    #[test]
    fn the_last_word_holds_and_a_cut_answer_is_none() {
        let put =
            |n: u8, op: &str| format!(r#"{{"kind":"task","op":"{op}","tenant":"","key":{{"id":{n}}}}}"#);
        let text = [put(1, "put"), put(2, "put"), put(1, "delete"), LAST.to_owned()].join("\n");
        let page = Page::read(&text).ok().unwrap();
        let (there, gone) = page.of("task");
        assert_eq!((there.len(), gone.len(), page.of("instance").0.len()), (1, 1, 0));
        assert_eq!((page.cursor.as_str(), page.more, page.scanning), ("c", true, false));
        for cut in ["", &put(1, "put"), &text[..text.len() - 3]] {
            assert!(Page::read(cut).is_err(), "{cut}");
        }
    }
}
