//! Steps: what they wait for, what they do, what undoes them.

use orlog_model::{EffectName, InDoubt, Name, Retry};
use serde_json::Value;

use super::reader::Reader;
use crate::definition::{Action, After, Case, Foreach, Join, Step, Undo};
use crate::diagnostic::Finding;
use crate::language_schema::{AFTER, CASE, FOREACH, IN_DOUBT, RETRY, STEP, UNDO};
use crate::yaml::tree::{Content, Node};

impl Reader<'_> {
    pub(super) fn steps(&mut self, node: &Node, path: &str) -> Option<Vec<Step>> {
        let Content::List(items) = &node.content else {
            return self.wrong(path, "a list of steps", node);
        };
        Some(items.iter().enumerate().map(|(i, item)| self.step(item, i)).collect())
    }

    fn step(&mut self, node: &Node, index: usize) -> Step {
        let fields = self.fields(node, &format!("steps[{index}]"), &STEP);
        let id = self.required(&fields, "id", |r, node, path| r.id(node, path, Name::new));
        let stand_in = || Name::new(format!("step-{index}-unread")).expect("a short word");
        Step {
            id: id.unwrap_or_else(stand_in),
            after: self.optional(&fields, "after", Self::after),
            when: self.optional(&fields, "when", Self::condition),
            foreach: self.optional(&fields, "foreach", Self::foreach),
            action: self.required(&fields, "do", Self::action).unwrap_or_else(unread_action),
            ok: self.optional(&fields, "ok", Self::answers).unwrap_or_default(),
            fail: self.optional(&fields, "fail", Self::answers).unwrap_or_default(),
            undo: self.optional(&fields, "undo", Self::undo),
            pivot: self.optional(&fields, "pivot", Self::flag).unwrap_or_default(),
            timeout: self.optional(&fields, "timeout", Self::duration),
            save: self.optional(&fields, "save", Self::templates).unwrap_or_default(),
            retry: self.optional(&fields, "retry", Self::retry),
            in_doubt: self.optional(&fields, "in_doubt", Self::in_doubt),
        }
    }

    fn undo(&mut self, node: &Node, path: &str) -> Option<Undo> {
        let (action, fields) = self.action_beside(node, path, &UNDO);
        fields.is_map.then(|| Undo {
            action: action.unwrap_or_else(unread_action),
            ok: self.optional(&fields, "ok", Self::answers).unwrap_or_default(),
            fail: self.optional(&fields, "fail", Self::answers).unwrap_or_default(),
            timeout: self.optional(&fields, "timeout", Self::duration),
            retry: self.optional(&fields, "retry", Self::retry),
            in_doubt: self.optional(&fields, "in_doubt", Self::in_doubt),
        })
    }

    fn after(&mut self, node: &Node, path: &str) -> Option<After> {
        if !matches!(node.content, Content::Map(_)) {
            return Some(After { steps: self.step_ids(node, path)?, join: Join::All });
        }
        let fields = self.form(node, path, &AFTER)?;
        let listed = |name: &str| fields.get(name).is_some();
        match (listed("all"), listed("any"), listed("count") || listed("of")) {
            (true, false, false) => {
                let steps = self.required(&fields, "all", Self::step_ids)?;
                Some(After { steps, join: Join::All })
            }
            (false, true, false) => {
                let steps = self.required(&fields, "any", Self::step_ids)?;
                Some(After { steps, join: Join::AtLeast(1) })
            }
            (false, false, true) => {
                let count = self.required(&fields, "count", Self::count);
                let steps = self.required(&fields, "of", Self::step_ids);
                Some(After { steps: steps?, join: Join::AtLeast(count?) })
            }
            (_, _, _) => {
                let finding = Finding::new(path, "it must say one thing: `all`, `any`, or `count` with `of`");
                self.note(finding.suggest("for example { any: [a, b] } or { count: 2, of: [a, b, c] }"));
                None
            }
        }
    }

    pub(super) fn step_ids(&mut self, node: &Node, path: &str) -> Option<Vec<Name>> {
        self.list(node, path, |r, node, path| r.id(node, path, Name::new))
    }

    fn foreach(&mut self, node: &Node, path: &str) -> Option<Foreach> {
        let fields = self.form(node, path, &FOREACH)?;
        let list = self.required(&fields, "in", Self::condition);
        let name = self.required(&fields, "as", |r, node, path| r.text(node, path).map(str::to_owned));
        let limit = self.optional(&fields, "limit", Self::count);
        Some(Foreach { list: list?, name: name?, limit })
    }

    pub(super) fn cases(&mut self, node: &Node, path: &str) -> Option<Vec<Case>> {
        let Content::List(items) = &node.content else {
            return self.wrong(path, "a list of ways such as { when: …, then: step }", node);
        };
        Some(self.each(items, path, Self::case))
    }

    fn case(&mut self, node: &Node, path: &str) -> Option<Case> {
        let fields = self.form(node, path, &CASE)?;
        let when = self.optional(&fields, "when", Self::condition);
        let then = self.required(&fields, "then", Self::step_ids)?;
        Some(Case { when, then })
    }

    fn in_doubt(&mut self, node: &Node, path: &str) -> Option<InDoubt> {
        self.word(node, path, &IN_DOUBT, &[InDoubt::Retry, InDoubt::Fail, InDoubt::Ask])
    }

    fn retry(&mut self, node: &Node, path: &str) -> Option<Retry> {
        let fields = self.form(node, path, &RETRY)?;
        Some(Retry {
            attempts: self.optional(&fields, "attempts", Self::count),
            backoff: self.optional(&fields, "backoff", Self::duration),
        })
    }
}

/// Stands in for what could not be read.
fn unread_action() -> Action {
    Action::Effect { name: EffectName::new("unread").expect("a short word"), data: Value::Null }
}
