//! Builder of steps: settings apply to the last step.

use orlog_model::{InDoubtPolicy, Name};
use serde_json::{Map, Value};

use super::action::StepAction;
use super::definition::DefinitionBuilder;
use super::names::{matcher, parse_name, steps};
use crate::definition::{CompensationSpec, Join, Step, StepDependencies};
use crate::diagnostic::RawDiagnostic;
use crate::steps::{Action, Foreach, RetrySpec, TimeLimit};

impl DefinitionBuilder {
    /// Adds the next step.
    #[must_use]
    pub fn step(self, id: &str, action: StepAction) -> Self {
        self.change(|definition, findings| {
            let path = format!("steps[{}]", definition.steps.len());
            let id = parse_name(Name::new(id), &format!("{path}.id"), findings);
            let (step_action, action) = action.placed(&format!("{path}.do"), findings);

            if let (Some(id), Some(step_action)) = (id, step_action) {
                let StepAction {
                    ok,
                    fail,
                    timeout,
                    retry,
                    in_doubt,
                    priority,
                    ..
                } = action;
                definition.steps.push(Step {
                    ok,
                    fail,
                    timeout,
                    retry,
                    in_doubt,
                    priority,
                    ..new_step(id, step_action)
                });
            }
        })
    }

    /// Sets the steps that must be finished first. Default: the previous step, or the switch that
    /// selects this step. An empty list starts the step immediately.
    #[must_use]
    pub fn after(self, ids: &[&str]) -> Self {
        self.join(ids, Join::All)
    }

    /// Requires that one of these steps completes first; the other branches are discarded and
    /// compensated.
    #[must_use]
    pub fn after_any(self, ids: &[&str]) -> Self {
        self.join(ids, Join::AtLeast(1))
    }

    /// Requires that this number of these steps completes first.
    #[must_use]
    pub fn after_count(self, count: u32, ids: &[&str]) -> Self {
        self.join(ids, Join::AtLeast(count))
    }

    fn join(self, ids: &[&str], join: Join) -> Self {
        self.on_step("after", |step, path, findings| {
            step.after = Some(StepDependencies {
                steps: steps(ids, path, findings),
                join,
            });
        })
    }

    /// Sets the condition of the step; it is skipped if the expression is false.
    #[must_use]
    pub fn when(self, condition: &str) -> Self {
        self.on_step("when", |step, _, _| step.when = Some(condition.to_owned()))
    }

    /// Executes the step for each element of the list that an expression returns; `name` is the
    /// element, `index` its position.
    #[must_use]
    pub fn foreach(self, list: &str, name: &str) -> Self {
        self.on_step("foreach", |step, _, _| {
            step.foreach = Some(Foreach::new(list, name));
        })
    }

    /// Sets the maximum number of elements in progress at the same time.
    #[must_use]
    pub fn max_concurrency(self, limit: u32) -> Self {
        self.on_step(
            "foreach.max_concurrency",
            |step, path, findings| match &mut step.foreach {
                Some(foreach) => foreach.max_concurrency = Some(limit),
                None => {
                    findings.push(RawDiagnostic::new(
                        path,
                        "`max_concurrency` requires a step with `foreach`",
                    ));
                }
            },
        )
    }

    /// Adds an event that means success.
    #[must_use]
    pub fn ok(self, event: &str) -> Self {
        self.on_step("ok", |step, path, findings| {
            step.ok.extend(matcher(event, None, path, findings));
        })
    }

    /// Adds an event that means success if the condition holds.
    #[must_use]
    pub fn ok_when(self, event: &str, condition: &str) -> Self {
        self.on_step("ok", |step, path, findings| {
            step.ok
                .extend(matcher(event, Some(condition), path, findings));
        })
    }

    /// Adds an event that means failure.
    #[must_use]
    pub fn fail(self, event: &str) -> Self {
        self.on_step("fail", |step, path, findings| {
            step.fail.extend(matcher(event, None, path, findings));
        })
    }

    /// Adds an event that means failure if the condition holds.
    #[must_use]
    pub fn fail_when(self, event: &str, condition: &str) -> Self {
        self.on_step("fail", |step, path, findings| {
            step.fail
                .extend(matcher(event, Some(condition), path, findings));
        })
    }

    /// Sets the compensation of the step.
    #[must_use]
    pub fn undo(self, action: StepAction) -> Self {
        self.on_step("undo", |step, path, findings| {
            let (step_action, action) = action.placed(path, findings);
            let StepAction {
                ok,
                fail,
                timeout,
                retry,
                in_doubt,
                priority,
                ..
            } = action;
            step.compensate = step_action.map(|action| CompensationSpec {
                action,
                ok,
                fail,
                timeout,
                retry,
                in_doubt,
                priority,
            });
        })
    }

    /// Makes the step the pivot: after it completes, earlier steps are not compensated.
    #[must_use]
    pub fn pivot(self) -> Self {
        self.on_step("pivot", |step, _, _| step.pivot = true)
    }

    /// Sets the timeout for the result of the step: a duration, or an expression such as
    /// `"=vars.limit"`.
    #[must_use]
    pub fn timeout(self, timeout: impl Into<TimeLimit>) -> Self {
        self.on_step("timeout", |step, _, _| step.timeout = Some(timeout.into()))
    }

    /// Adds a variable: a template over the result of the step, whose value the instance stores.
    #[must_use]
    pub fn save(self, name: &str, template: Value) -> Self {
        self.on_step("save", |step, _, _| {
            drop(step.save.insert(name.to_owned(), template));
        })
    }

    /// Sets the retry policy of a command; for effects and jobs, hints for attempts.
    #[must_use]
    pub fn retry(self, retry: impl Into<RetrySpec>) -> Self {
        self.on_step("retry", |step, _, _| step.retry = Some(retry.into()))
    }

    /// Sets the policy for an unknown outcome of an effect or a job. Default: the policy of the
    /// upstream.
    #[must_use]
    pub fn in_doubt(self, in_doubt: InDoubtPolicy) -> Self {
        self.on_step("in_doubt", |step, _, _| step.in_doubt = Some(in_doubt))
    }

    /// Sets the priority of the command, effect or job: `high`, `normal`, `low`, or an expression
    /// that starts with `=`.
    #[must_use]
    pub fn priority(self, priority: &str) -> Self {
        self.on_step("priority", |step, _, _| {
            step.priority = Some(priority.to_owned());
        })
    }

    fn on_step(
        self,
        field: &str,
        change: impl FnOnce(&mut Step, &str, &mut Vec<RawDiagnostic>),
    ) -> Self {
        self.change(|definition, findings| {
            let index = definition.steps.len().saturating_sub(1);
            let path = format!("steps[{index}].{field}");
            match definition.steps.last_mut() {
                Some(step) => change(step, &path, findings),
                None => {
                    findings.push(RawDiagnostic::new(
                        path,
                        format!("`{field}` is set before the first step"),
                    ));
                }
            }
        })
    }
}

fn new_step(id: Name, action: Action) -> Step {
    Step {
        id,
        after: None,
        when: None,
        foreach: None,
        pivot: false,
        action,
        ok: Vec::new(),
        fail: Vec::new(),
        compensate: None,
        timeout: None,
        save: Map::new(),
        retry: None,
        in_doubt: None,
        publish: None,
        priority: None,
    }
}
