//! Events: to whom they belong, what they answer, which versions are taken, what happens on them at any time.

use std::collections::BTreeMap;

use orlog_model::EventType;

use super::reader::{Reader, under};
use crate::definition::{Answer, Correlate, EventForm, Handler, Otherwise, Then};
use crate::diagnostic::Finding;
use crate::language_schema::{ANSWER, EVENT_FORM, HANDLER, OTHERWISE, THEN};
use crate::yaml::tree::{Content, Node};
use serde_json::Value;

impl Reader<'_> {
    pub(super) fn correlate(&mut self, node: &Node, path: &str) -> Option<Correlate> {
        let place = |r: &mut Self, node: &Node, path: &str| r.text(node, path).map(str::to_owned);
        match &node.content {
            Content::Map(_) => {
                self.by_name(node, path, "a map", EventType::new, place).map(Correlate::ByType)
            }
            Content::Scalar { .. } => place(self, node, path).map(Correlate::Field),
            Content::List(_) => self.wrong(path, "a path or a map of event types to paths", node),
        }
    }

    /// One, or a list, each a name or a map.
    pub(super) fn answers(&mut self, node: &Node, path: &str) -> Option<Vec<Answer>> {
        self.list(node, path, Self::answer)
    }

    fn answer(&mut self, node: &Node, path: &str) -> Option<Answer> {
        if !matches!(node.content, Content::Map(_)) {
            return self.event_type(node, path).map(Answer::from);
        }
        let fields = self.form(node, path, &ANSWER)?;
        let when = self.optional(&fields, "when", Self::condition);
        self.required(&fields, "event", Self::event_type).map(|event| Answer { event, when })
    }

    pub(super) fn event_forms(&mut self, node: &Node, path: &str) -> Option<BTreeMap<EventType, EventForm>> {
        self.by_name(node, path, "a map of event types to their versions", EventType::new, Self::event_form)
    }

    fn event_form(&mut self, node: &Node, path: &str) -> Option<EventForm> {
        let fields = self.form(node, path, &EVENT_FORM)?;
        let otherwise = [Otherwise::DeadLetter, Otherwise::Ignore, Otherwise::Compensate];
        Some(EventForm {
            accepts: self
                .required(&fields, "accepts", |r, node, path| r.list(node, path, Self::count))
                .unwrap_or_default(),
            upcast: self.optional(&fields, "upcast", Self::upcasts).unwrap_or_default(),
            otherwise: self
                .optional(&fields, "otherwise", |r, node, path| r.word(node, path, &OTHERWISE, &otherwise))
                .unwrap_or_default(),
        })
    }

    fn upcasts(&mut self, node: &Node, path: &str) -> Option<BTreeMap<u32, Value>> {
        let mut upcasts = BTreeMap::new();
        for (key, node) in self.entries(node, path, "a map of versions to templates")? {
            if let Ok(version) = key.text.parse::<u32>() {
                upcasts.insert(version, node.to_json());
            } else {
                let message = format!("`{}` is no version; a version is a whole number", key.text);
                self.note(Finding::new(under(path, &key.text), message).at_key());
            }
        }
        Some(upcasts)
    }

    pub(super) fn handler(&mut self, node: &Node, path: &str) -> Option<Handler> {
        let fields = self.form(node, path, &HANDLER)?;
        let then = [Then::Continue, Then::Cancel, Then::Fail, Then::Complete];
        Some(Handler {
            event: self.required(&fields, "event", Self::event_types).unwrap_or_default(),
            when: self.optional(&fields, "when", Self::condition),
            save: self.optional(&fields, "save", Self::templates).unwrap_or_default(),
            actions: self
                .optional(&fields, "do", |r, node, path| r.list(node, path, Self::action))
                .unwrap_or_default(),
            then: self
                .optional(&fields, "then", |r, node, path| r.word(node, path, &THEN, &then))
                .unwrap_or_default(),
        })
    }
}
