//! Decoder of events: correlation, result matchers, payload versions, event handlers.

use std::collections::BTreeMap;

use orlog_model::EventType;

use super::reader::{Decoder, join_path};
use crate::definition::{
    AfterHandler, CorrelationSpec, EventVersionSpec, HandlerSpec, ResultMatcher, UnsupportedVersionPolicy,
};
use crate::diagnostic::RawDiagnostic;
use crate::language_schema::{EVENT_VERSIONS, HANDLER, ON_UNSUPPORTED, RESULT_MATCHER, THEN};
use crate::yaml::tree::{Content, Node};
use serde_json::Value;

impl Decoder<'_> {
    pub(super) fn correlate(&mut self, node: &Node, path: &str) -> Option<CorrelationSpec> {
        let read_text = |r: &mut Self, node: &Node, path: &str| r.text(node, path).map(str::to_owned);
        match &node.content {
            Content::Map(_) => {
                self.by_name(node, path, "a map", EventType::new, read_text).map(CorrelationSpec::ByType)
            }
            Content::Scalar { .. } => read_text(self, node, path).map(CorrelationSpec::Field),
            Content::List(_) => self.type_error(path, "a path or a map of event types to paths", node),
        }
    }

    /// Decodes one matcher or a list, each a name or a map.
    pub(super) fn result_matchers(&mut self, node: &Node, path: &str) -> Option<Vec<ResultMatcher>> {
        self.list(node, path, Self::result_matcher)
    }

    fn result_matcher(&mut self, node: &Node, path: &str) -> Option<ResultMatcher> {
        if !matches!(node.content, Content::Map(_)) {
            return self.event_type(node, path).map(ResultMatcher::from);
        }
        let fields = self.map(node, path, &RESULT_MATCHER)?;
        let when = self.optional(&fields, "when", Self::condition);
        self.required(&fields, "event", Self::event_type).map(|event| ResultMatcher { event, when })
    }

    pub(super) fn event_versions(
        &mut self,
        node: &Node,
        path: &str,
    ) -> Option<BTreeMap<EventType, EventVersionSpec>> {
        self.by_name(
            node,
            path,
            "a map of event types to their versions",
            EventType::new,
            Self::event_version_spec,
        )
    }

    fn event_version_spec(&mut self, node: &Node, path: &str) -> Option<EventVersionSpec> {
        let fields = self.map(node, path, &EVENT_VERSIONS)?;
        let policies = [
            UnsupportedVersionPolicy::DeadLetter,
            UnsupportedVersionPolicy::Ignore,
            UnsupportedVersionPolicy::Compensate,
        ];
        Some(EventVersionSpec {
            accepts: self
                .required(&fields, "accepts", |r, node, path| r.list(node, path, Self::count))
                .unwrap_or_default(),
            upcast: self.optional(&fields, "upcast", Self::upcasts).unwrap_or_default(),
            on_unsupported: self
                .optional(&fields, "on_unsupported", |r, node, path| {
                    r.enum_value(node, path, &ON_UNSUPPORTED, &policies)
                })
                .unwrap_or_default(),
        })
    }

    fn upcasts(&mut self, node: &Node, path: &str) -> Option<BTreeMap<u32, Value>> {
        let mut upcasts = BTreeMap::new();
        for (key, node) in self.entries(node, path, "a map of versions to templates")? {
            if let Ok(version) = key.text.parse::<u32>() {
                upcasts.insert(version, node.to_json());
            } else {
                let message = format!("`{}` is not a version; a version is a whole number", key.text);
                self.report(RawDiagnostic::new(join_path(path, &key.text), message).at_key());
            }
        }
        Some(upcasts)
    }

    pub(super) fn handler(&mut self, node: &Node, path: &str) -> Option<HandlerSpec> {
        let fields = self.map(node, path, &HANDLER)?;
        let then = [AfterHandler::Continue, AfterHandler::Cancel, AfterHandler::Fail, AfterHandler::Complete];
        Some(HandlerSpec {
            event: self.required(&fields, "event", Self::event_types).unwrap_or_default(),
            when: self.optional(&fields, "when", Self::condition),
            save: self.optional(&fields, "save", Self::templates).unwrap_or_default(),
            actions: self
                .optional(&fields, "do", |r, node, path| r.list(node, path, Self::action))
                .unwrap_or_default(),
            then: self
                .optional(&fields, "then", |r, node, path| r.enum_value(node, path, &THEN, &then))
                .unwrap_or_default(),
        })
    }
}
