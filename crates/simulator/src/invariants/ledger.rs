//! Ledger of one instance: completed steps, their order and their compensations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compact_str::{CompactString, ToCompactString as _};
use orlog_model::{
    Commit, ControlRequest, Input, Instance, Status, Work, WorkItem, WorkOutcome, WorkflowAction,
    WorkflowCommand,
};
use orlog_program::{Action, CompiledDefinition, Program};
use uuid::Uuid;

use super::idempotency_keys::IdempotencyKeys;
use super::in_doubt::check_in_doubt;
use super::invariant::{Invariant, Violation};
use super::step_states::{StepStates, is_compensation, is_in_doubt, is_in_progress, was_completed};
use super::transition::{
    check_all_or_nothing, check_no_new_work, check_success_recorded, check_timers,
    check_unknown_compensated, ignores_late_result, newly_irreversible,
};
use super::view::DecisionView;
use crate::responses::{WorkTag, step_of};
use crate::simulator::ObservedDecision;
use crate::state_key::KeyHasher;

/// Tag of work. A proof copies the ledger for each of its moves, and a short tag is copied without
/// an allocation.
type Tag = CompactString;

/// Recorded work of one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkLedger {
    /// Tags of requested work without a result, by work id. Unlike the pending work of the
    /// instance, an entry stays until the result arrives.
    requested_work: BTreeMap<Uuid, Tag>,
    /// Tags of completed work with a compensation, in the order of completion.
    completed: Vec<Tag>,
    /// Requested compensations.
    requested: BTreeSet<Tag>,
    /// Ended compensations.
    compensated: BTreeSet<Tag>,
    /// Work that is final since a pivot completed.
    pivoted: BTreeSet<Tag>,
    /// Whether a pivot completed while the saga ran forward.
    is_past_pivot: bool,
    /// Facts about the whole saga, by name.
    final_facts: BTreeMap<String, usize>,
    /// Steps without a compensation that completed while the saga ran forward and whose change must
    /// not remain.
    irreversible: BTreeSet<String>,
    /// State after the last transition and its steps, shared by the copies of a proof.
    last: Option<LastState>,
    /// Effects that may have been executed.
    keys: IdempotencyKeys,
    /// Whether an operator ended the instance or skipped a compensation.
    forced: bool,
    /// Whether an operator ended the instance: then no result changes it.
    force_completed: bool,
}

/// State after the last transition.
#[derive(Clone, Debug)]
struct LastState {
    instance: Arc<Instance>,
    step_states: Arc<StepStates>,
}

impl WorkLedger {
    pub(super) fn record(
        &mut self,
        seen: &ObservedDecision<'_>,
        commit: &Commit,
        after: &Arc<Instance>,
        violations: &mut Vec<Violation>,
    ) {
        let program = seen.context.program;
        // A restart replaces the run, so the records of the old one would contradict the new one.
        let same_run = seen
            .context
            .instance
            .filter(|before| before.run_id == after.run_id);
        if same_run.is_none() {
            // The steps of an earlier run are final.
            *self = Self::default();
        }

        let view = DecisionView {
            seen,
            definition: program.as_compiled().map(CompiledDefinition::definition),
            before: self.step_states(program, same_run),
            after: Arc::new(StepStates::of(program, Some(after))),
            status: after.status,
        };

        // Replaced after `before` was read: it is mostly the state that the previous transition
        // left.
        self.last = Some(LastState {
            instance: Arc::clone(after),
            step_states: Arc::clone(&view.after),
        });
        // Kept for the run: what an operator skipped is missing in all later transitions.
        self.forced |= is_forced(seen.input);
        self.force_completed |= is_action(seen.input, "force-complete");
        // Before the work of the input is removed from the record.
        let success = self.success_of(seen);
        let timed_out = self.timed_out(seen);

        self.record_requested(seen.input, &commit.work);
        // Before the compensations are checked: a step can complete and be compensated in one
        // transition.
        self.record_completed(&view);
        self.irreversible.extend(newly_irreversible(&view));
        self.check_compensations(&view, &commit.work, violations);
        self.record_compensated(&view, violations);

        // An operator who completes an instance by force accepts what remains.
        if !self.force_completed {
            check_success_recorded(&view, success.as_deref(), violations);
            check_unknown_compensated(&view, timed_out.as_deref(), violations);
            check_in_doubt(&view, commit, violations);
            self.keys.check(seen, &commit.work, violations);
        }

        // Compensations that were skipped by an operator, and those before a pivot, leave changes
        // on purpose.
        if !self.forced && !self.is_past_pivot {
            check_all_or_nothing(&view, &self.irreversible, violations);
        }

        check_no_new_work(&view, commit, violations);
        check_timers(&view, after, violations);
        self.check_facts_emitted_once(&view, commit, violations);
        self.check_nothing_open(&view, after, violations);
    }

    /// Returns the states of the steps; those of the last state are known.
    pub(super) fn step_states(
        &self,
        program: &dyn Program,
        instance: Option<&Instance>,
    ) -> Arc<StepStates> {
        let last = self
            .last
            .as_ref()
            .filter(|last| instance.is_some_and(|now| now.state == last.instance.state));
        last.map_or_else(
            || Arc::new(StepStates::of(program, instance)),
            |last| Arc::clone(&last.step_states),
        )
    }

    /// Returns whether the result of this work has not arrived.
    pub(super) fn awaits_result(&self, work_id: Uuid) -> bool {
        self.requested_work.contains_key(&work_id)
    }

    /// Returns whether an operator ended the instance or skipped a compensation.
    pub(super) fn was_forced(&self) -> bool {
        self.forced || self.force_completed
    }

    /// Returns the states of the steps after the last transition.
    pub(super) fn step_states_after(&self) -> Option<&StepStates> {
        self.last.as_ref().map(|last| &*last.step_states)
    }

    /// Hashes the record without the ids of work, which differ between equal runs. Of the order of
    /// completion, only the part that was not compensated counts. Work that nothing waits for, the
    /// keys of effects with an unknown outcome, and rules that operators can disable are optional:
    /// they can only cause violations.
    pub(super) fn hash_without_ids(&self, key: &mut KeyHasher, has_result: &dyn Fn(&str) -> bool) {
        let step_states = self.step_states_after();
        let mut open: Vec<_> = self
            .requested_work
            .values()
            .filter(|tag| has_result(tag))
            .collect();
        open.sort_unstable();

        for tag in open {
            let is_optional = step_states.is_some_and(|states| !states.awaits(tag));
            if is_optional {
                key.add_optional(("requested", tag));
            } else {
                key.add(("requested", tag));
            }
        }

        // The order of compensated steps is compared only without reductions (ADR 0072).
        key.add_omitted(&self.completed);

        let order: Vec<_> = self
            .completed
            .iter()
            .filter(|tag| !self.requested.contains(*tag) && !self.pivoted.contains(*tag))
            .collect();
        let completed: BTreeSet<_> = self.completed.iter().collect();

        key.add((
            order,
            completed,
            &self.requested,
            &self.compensated,
            &self.pivoted,
        ));

        // The key of a compensation that has ended is not used any more: it is never requested
        // again.
        let is_compensated = |tag: &&String| {
            tag.starts_with("compensate:") && step_states.is_some_and(|states| !states.awaits(tag))
        };
        self.keys
            .tags()
            .filter(|tag| !is_compensated(tag))
            .for_each(|tag| key.add_optional(("key", tag)));

        key.add((&self.irreversible, &self.final_facts, self.is_past_pivot));

        for (rule, is_checked) in [
            ("unforced", !self.forced),
            ("not ended", !self.force_completed),
        ] {
            if is_checked {
                key.add_optional(rule);
            }
        }
    }

    /// Checks a result that was ignored although it reports success.
    pub(super) fn check_ignored(
        &mut self,
        seen: &ObservedDecision<'_>,
        reason: &str,
        violations: &mut Vec<Violation>,
    ) {
        let step_states = self.step_states(seen.context.program, seen.context.instance);
        let success = self.success_of(seen);
        // The result has arrived, although it was ignored: a second one is not a late success.
        self.record_requested(seen.input, &[]);
        let Some(tag) = success else { return };

        let step = seen
            .context
            .program
            .as_compiled()
            .and_then(|c| step_of(c.definition(), WorkTag::parse(&tag).step));

        if step.is_some_and(|step| step.compensate.is_some())
            && matches!(
                step_states.get(&tag),
                "running" | "retrying" | "blocked" | "failed" | "abandoned" | "child_awaited"
            )
            && !step.is_some_and(ignores_late_result)
            && !self.forced
        {
            let message = format!(
                "the late success of {tag} was ignored ({reason}) and is never compensated"
            );
            violations.push(Violation {
                rule: Invariant::LateSuccessHandled,
                message,
            });
        }
    }

    /// Removes the work that the input completes and adds new work.
    fn record_requested(&mut self, input: &Input, work: &[WorkItem]) {
        if let Some(id) = input.completed_work_id() {
            self.requested_work.remove(&id);
        }

        let tagged = work
            .iter()
            .filter_map(|item| Some((item.id, item.work.tag()?.to_compact_string())));
        self.requested_work.extend(tagged);
    }

    /// Returns the tag of work without a result whose success depends on no further condition.
    fn success_of(&self, seen: &ObservedDecision<'_>) -> Option<Tag> {
        // Only the first result counts: later ones find no entry and are no successes to record.
        let tag = self.requested_work.get(&seen.input.completed_work_id()?)?;
        let definition = seen.context.program.as_compiled()?.definition();
        let step = step_of(definition, WorkTag::parse(tag).step)?;

        let is_success = match (seen.input, &step.action) {
            (Input::WorkResult(result), Action::Effect(_) | Action::Job(_) | Action::Saga(_)) => {
                matches!(result.outcome, WorkOutcome::Succeeded { event: None, .. })
            }
            (Input::WorkResult(result), Action::Command(_)) => {
                matches!(result.outcome, WorkOutcome::Accepted)
            }
            (
                Input::Workflow(WorkflowCommand {
                    action: WorkflowAction::ChildEnded(ended),
                    ..
                }),
                Action::Saga(_),
            ) => ended.failure.is_none(),
            (_, _) => false,
        };

        // With names in `ok`, a result without one need not be a success.
        (is_success && step.ok.is_empty() && !tag.starts_with("compensate:")).then(|| tag.clone())
    }

    /// Returns the tag of work without a result that may have been executed according to this
    /// input.
    fn timed_out(&self, seen: &ObservedDecision<'_>) -> Option<Tag> {
        let Input::WorkResult(result) = seen.input else {
            return None;
        };
        let WorkOutcome::TimedOut { .. } = &result.outcome else {
            return None;
        };

        self.requested_work
            .get(&result.work_id)
            .filter(|tag| !tag.starts_with("compensate:"))
            .cloned()
    }

    fn record_completed(&mut self, view: &DecisionView<'_>) {
        let mut newly_completed: Vec<_> = view
            .after
            .iter()
            .filter(|(tag, state)| {
                was_completed(state)
                    && !was_completed(view.before.get(tag))
                    && !view.after.has_elements(tag)
                    && view.has_compensation(tag)
            })
            .map(|(tag, _)| Tag::from(tag))
            .collect();

        // Early events can complete several steps in one transition, in their order.
        newly_completed.sort_by_key(|tag| view.position(tag));
        self.completed.extend(newly_completed);

        let pivots = view
            .definition
            .into_iter()
            .flat_map(|d| &d.steps)
            .filter(|step| step.pivot);

        // A late success of a pivot does not end the compensation.
        let mut passed_pivots = pivots.filter(|step| {
            let id = step.id.as_str();
            view.after.get(id) == "completed" && !was_completed(view.before.get(id))
        });

        if passed_pivots.next().is_some() {
            self.is_past_pivot = true;
            let open = self
                .completed
                .iter()
                .filter(|tag| !self.requested.contains(*tag));
            self.pivoted.extend(open.cloned().collect::<Vec<_>>());
        }
    }

    fn check_compensations(
        &mut self,
        view: &DecisionView<'_>,
        work: &[WorkItem],
        violations: &mut Vec<Violation>,
    ) {
        let mut now = BTreeSet::new();
        let compensated = work
            .iter()
            .filter_map(|item| item.work.tag())
            .filter_map(|tag| tag.as_str().strip_prefix("compensate:"))
            .map(Tag::from);

        for tag in compensated {
            let mut report = |rule, message| violations.push(Violation { rule, message });

            if !now.insert(tag.clone()) {
                report(
                    Invariant::CompensatedOnce,
                    format!("the compensation of {tag} was requested twice at once"),
                );
            } else if self.compensated.contains(&tag) {
                report(
                    Invariant::CompensatedOnce,
                    format!(
                        "{tag} was already compensated, and its compensation was requested again"
                    ),
                );
            } else if !self.completed.contains(&tag) {
                report(
                    Invariant::CompensatedOnce,
                    format!("the compensation of {tag} was requested, but {tag} never completed"),
                );
            } else if self.pivoted.contains(&tag) {
                report(
                    Invariant::PivotNotCompensated,
                    format!("{tag} is compensated after the pivot"),
                );
            // Only the first request has an order; a retry of the compensation repeats its tag.
            } else if self.requested.insert(tag.clone()) {
                self.check_reverse_order(&tag, view, violations);
            }
        }
    }

    /// Checks that a new compensation belongs to the last completed step and that no other
    /// compensation is in progress.
    fn check_reverse_order(
        &self,
        tag: &str,
        view: &DecisionView<'_>,
        violations: &mut Vec<Violation>,
    ) {
        let mut report = |message| {
            violations.push(Violation {
                rule: Invariant::CompensatedInReverse,
                message,
            });
        };

        let other = view.after.iter().find(|(other, state)| {
            // One that is requested later in the same transition is checked then.
            *other != tag
                && self.requested.contains(*other)
                && is_compensation(state)
                && !view.after.has_elements(other)
                && view.has_compensation(other)
        });
        if let Some((other, _)) = other {
            report(format!(
                "the compensation of {tag} was requested while {other} is compensating"
            ));
        }

        // While the saga runs forward, only discarded branches are compensated, whatever completed
        // after them.
        if view.status == Status::Running {
            return;
        }

        // Steps that completed later must be compensated before.
        let index = self
            .completed
            .iter()
            .position(|completed| completed == tag)
            .unwrap_or_default();

        let later = self.completed[index + 1..].iter().rev().find(|completed| {
            !self.requested.contains(*completed)
                && !self.pivoted.contains(*completed)
                && view.after.get(completed) != "compensated"
        });
        if let Some(later) = later {
            report(format!(
                "{tag} is compensated before {later}, which completed after it"
            ));
        }
    }

    fn record_compensated(&mut self, view: &DecisionView<'_>, violations: &mut Vec<Violation>) {
        for (tag, state) in view
            .after
            .iter()
            .filter(|(tag, _)| view.has_compensation(tag))
        {
            let before = view.before.get(tag);
            let elements = view.after.has_elements(tag);

            if elements || state == before {
                continue;
            }
            let is_requested = self.requested.contains(tag);

            if state == "compensating" && !is_requested {
                let message =
                    format!("{tag} is compensating, but its compensation was never requested");
                violations.push(Violation {
                    rule: Invariant::CompensationRequested,
                    message,
                });
            }

            if state == "compensated" && self.completed.iter().any(|completed| completed == tag) {
                // An operator can skip a compensation that was requested, or whose request failed.
                if !self.requested.contains(tag) && !self.forced {
                    let message =
                        format!("{tag} is compensated, but its compensation was never requested");
                    violations.push(Violation {
                        rule: Invariant::CompensationRequested,
                        message,
                    });
                }
                self.compensated.insert(Tag::from(tag));
            }
        }
    }

    fn check_facts_emitted_once(
        &mut self,
        view: &DecisionView<'_>,
        commit: &Commit,
        violations: &mut Vec<Violation>,
    ) {
        let final_facts: Vec<_> = view
            .definition
            .into_iter()
            .flat_map(|d| d.completed.iter().chain(&d.failed))
            .map(|fact| fact.fact.as_str())
            .collect();

        for item in &commit.work {
            let Work::Fact(fact) = &item.work else {
                continue;
            };
            if !final_facts.contains(&fact.kind.as_str()) {
                continue;
            }

            let count = self.final_facts.entry(fact.kind.to_string()).or_default();
            *count += 1;
            if *count > 1 {
                let message = format!("the fact {} was emitted {count} times", fact.kind);
                violations.push(Violation {
                    rule: Invariant::FinalFactEmittedOnce,
                    message,
                });
            }
        }
    }

    fn check_nothing_open(
        &self,
        view: &DecisionView<'_>,
        after: &Instance,
        violations: &mut Vec<Violation>,
    ) {
        if !view.status.is_final() || view.previous_state().is_some_and(Status::is_final) {
            return;
        }

        let mut report = |message| {
            violations.push(Violation {
                rule: Invariant::NothingLeftOpen,
                message,
            });
        };

        if let Some(timer) = after.timers.first() {
            report(format!(
                "the instance is {}, and the timer {} is still armed",
                view.status, timer.name
            ));
        }
        if let Some(wait) = after.waits.first() {
            report(format!(
                "the instance is {}, and still waits for {}",
                view.status, wait.name
            ));
        }

        // An operator may end an instance with open work.
        if self.forced {
            return;
        }

        let busy = view.after.iter().find(|(_, state)| is_busy(state));
        if let Some((tag, state)) = busy {
            report(format!(
                "the instance is {}, and {tag} is {state}",
                view.status
            ));
        }

        // A completed saga keeps the changes of its steps.
        if view.status != Status::Completed {
            let uncompensated = self
                .completed
                .iter()
                .find(|tag| !self.compensated.contains(*tag) && !self.pivoted.contains(*tag));
            if let Some(tag) = uncompensated {
                report(format!(
                    "the instance is {}, and {tag} completed but was not compensated",
                    view.status
                ));
            }
        }
    }
}

fn is_action(input: &Input, label: &str) -> bool {
    matches!(input, Input::Control(ControlRequest { action, .. }) if action.label() == label)
}

fn is_forced(input: &Input) -> bool {
    is_action(input, "skip") || is_action(input, "force-complete")
}

/// Returns whether a step of this state has work or a wait that has not ended.
fn is_busy(state: &str) -> bool {
    is_in_progress(state)
        || is_compensation(state)
        || is_in_doubt(state)
        || state == "compensation_pending"
}
