//! Decoder of steps: joins, actions, compensations.

use orlog_model::{EffectName, InDoubtPolicy, Name, RetryPolicy};
use serde_json::Value;

use super::reader::Decoder;
use crate::definition::{Action, CompensationSpec, Foreach, Join, Step, StepDependencies, SwitchCase};
use crate::diagnostic::RawDiagnostic;
use crate::language_schema::{AFTER, CASE, COMPENSATION, FOREACH, IN_DOUBT, RETRY, STEP};
use crate::yaml::tree::{Content, Node};

impl Decoder<'_> {
    pub(super) fn steps(&mut self, node: &Node, path: &str) -> Option<Vec<Step>> {
        let Content::List(items) = &node.content else {
            return self.type_error(path, "a list of steps", node);
        };
        Some(items.iter().enumerate().map(|(i, item)| self.step(item, i)).collect())
    }

    fn step(&mut self, node: &Node, index: usize) -> Step {
        let fields = self.fields(node, &format!("steps[{index}]"), &STEP);
        let id = self.required(&fields, "id", |r, node, path| r.id(node, path, Name::new));
        let placeholder =
            || Name::new(format!("step-{index}-unread")).expect("the placeholder is a valid name");
        Step {
            id: id.unwrap_or_else(placeholder),
            after: self.optional(&fields, "after", Self::after),
            when: self.optional(&fields, "when", Self::condition),
            foreach: self.optional(&fields, "foreach", Self::foreach),
            action: self.required(&fields, "do", Self::action).unwrap_or_else(unread_action),
            ok: self.optional(&fields, "ok", Self::result_matchers).unwrap_or_default(),
            fail: self.optional(&fields, "fail", Self::result_matchers).unwrap_or_default(),
            compensate: self.optional(&fields, "undo", Self::compensation),
            pivot: self.optional(&fields, "pivot", Self::bool).unwrap_or_default(),
            timeout: self.optional(&fields, "timeout", Self::duration),
            save: self.optional(&fields, "save", Self::templates).unwrap_or_default(),
            retry: self.optional(&fields, "retry", Self::retry),
            in_doubt: self.optional(&fields, "in_doubt", Self::in_doubt),
        }
    }

    fn compensation(&mut self, node: &Node, path: &str) -> Option<CompensationSpec> {
        let (action, fields) = self.action_beside(node, path, &COMPENSATION);
        fields.is_map.then(|| CompensationSpec {
            action: action.unwrap_or_else(unread_action),
            ok: self.optional(&fields, "ok", Self::result_matchers).unwrap_or_default(),
            fail: self.optional(&fields, "fail", Self::result_matchers).unwrap_or_default(),
            timeout: self.optional(&fields, "timeout", Self::duration),
            retry: self.optional(&fields, "retry", Self::retry),
            in_doubt: self.optional(&fields, "in_doubt", Self::in_doubt),
        })
    }

    fn after(&mut self, node: &Node, path: &str) -> Option<StepDependencies> {
        if !matches!(node.content, Content::Map(_)) {
            return Some(StepDependencies { steps: self.step_ids(node, path)?, join: Join::All });
        }
        let fields = self.map(node, path, &AFTER)?;
        let listed = |name: &str| fields.get(name).is_some();
        match (listed("all"), listed("any"), listed("count") || listed("of")) {
            (true, false, false) => {
                let steps = self.required(&fields, "all", Self::step_ids)?;
                Some(StepDependencies { steps, join: Join::All })
            }
            (false, true, false) => {
                let steps = self.required(&fields, "any", Self::step_ids)?;
                Some(StepDependencies { steps, join: Join::AtLeast(1) })
            }
            (false, false, true) => {
                let count = self.required(&fields, "count", Self::count);
                let steps = self.required(&fields, "of", Self::step_ids);
                Some(StepDependencies { steps: steps?, join: Join::AtLeast(count?) })
            }
            (_, _, _) => {
                let finding = RawDiagnostic::new(
                    path,
                    "it must have exactly one of `all`, `any`, and `count` with `of`",
                );
                self.report(
                    finding.with_suggestion("for example { any: [a, b] } or { count: 2, of: [a, b, c] }"),
                );
                None
            }
        }
    }

    pub(super) fn step_ids(&mut self, node: &Node, path: &str) -> Option<Vec<Name>> {
        self.list(node, path, |r, node, path| r.id(node, path, Name::new))
    }

    fn foreach(&mut self, node: &Node, path: &str) -> Option<Foreach> {
        let fields = self.map(node, path, &FOREACH)?;
        let list = self.required(&fields, "in", Self::condition);
        let name = self.required(&fields, "as", |r, node, path| r.text(node, path).map(str::to_owned));
        let max_concurrency = self.optional(&fields, "max_concurrency", Self::count);
        Some(Foreach { list: list?, name: name?, max_concurrency })
    }

    pub(super) fn cases(&mut self, node: &Node, path: &str) -> Option<Vec<SwitchCase>> {
        let Content::List(items) = &node.content else {
            return self.type_error(path, "a list of cases such as { when: …, then: step }", node);
        };
        Some(self.each(items, path, Self::case))
    }

    fn case(&mut self, node: &Node, path: &str) -> Option<SwitchCase> {
        let fields = self.map(node, path, &CASE)?;
        let when = self.optional(&fields, "when", Self::condition);
        let then = self.required(&fields, "then", Self::step_ids)?;
        Some(SwitchCase { when, then })
    }

    fn in_doubt(&mut self, node: &Node, path: &str) -> Option<InDoubtPolicy> {
        self.enum_value(
            node,
            path,
            &IN_DOUBT,
            &[InDoubtPolicy::Retry, InDoubtPolicy::Fail, InDoubtPolicy::Ask],
        )
    }

    fn retry(&mut self, node: &Node, path: &str) -> Option<RetryPolicy> {
        let fields = self.map(node, path, &RETRY)?;
        Some(RetryPolicy {
            max_attempts: self.optional(&fields, "max_attempts", Self::count),
            initial_backoff: self.optional(&fields, "initial_backoff", Self::duration),
        })
    }
}

/// Returns the placeholder of an action that cannot be decoded.
fn unread_action() -> Action {
    Action::Effect {
        name: EffectName::new("unread").expect("the placeholder is a valid name"),
        data: Value::Null,
    }
}
