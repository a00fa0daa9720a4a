//! Migration of an instance to another version of its saga: maps step states, or returns all
//! obstacles.
//!
//! | old step | its new step | result |
//! |---|---|---|
//! | any | the mapped one, or the one of the same id | keeps the step state |
//! | in progress, or its compensation is | of another kind, or dropped | blocked |
//! | in doubt, decision pending | has no in-doubt decision | blocked |
//! | completed, with compensation | dropped | blocked |
//! | otherwise | dropped | removed |
//! | not mapped | no step has its id | blocked |
//! | started | iterates over elements, unlike the old one, or the reverse | blocked |
//! | started | belongs to another loop or to none, unlike the old one | blocked |
//! | failed, and a handler led on | has no such handler, or one that leads elsewhere | blocked |
//! | failed, and a join tolerated it | a join of all requires it | blocked |

mod extra;

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{Name, PendingWork, TimerChange};
use serde_json::Value;

use super::compiled::{
    COMPENSATE, CompiledAfterFailure, CompiledMigration, CompiledSaga, CompiledStep, ESCALATE,
    REMIND, prefixed_name, reminder_timer,
};
use super::edge::handler_of;
use super::execution::{Execution, saga_timer};
use super::output::into_transition;
use super::remind::migrate_reminders;
use super::state::{FailureReaction, Flags, State, StepEntry, StepIndex};
use super::step_state::{Phase, StepState};
use crate::contract::{Context, Migration};
use crate::definition::Join;
use crate::expression::Bindings;

/// Source of a migration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigrationSource<'a> {
    pub(crate) saga: &'a CompiledSaga,
    pub(crate) version: u32,
    pub(crate) state: &'a [u8],
}

/// Migrates the state of an instance to another saga version.
pub(crate) fn migrate(
    to: &CompiledSaga,
    version: u32,
    from: MigrationSource<'_>,
    context: &Context<'_>,
) -> Result<Migration, Vec<String>> {
    let old = State::decode(from.state, from.saga.steps.len())
        .map_err(|error| vec![error.to_string()])?;
    if old.phase.status().is_final() {
        return Err(vec![format!(
            "the instance has ended: {}",
            old.phase.status()
        )]);
    }

    let plan = to
        .migrations
        .iter()
        .find(|plan| plan.from.contains(&from.version));

    let mut migrator = StateMigrator {
        from: from.saga,
        to,
        plan,
        old: &old,
        targets: Vec::new(),
        blocked: Vec::new(),
    };
    migrator.find_targets();
    migrator.check();
    let state = migrator.state(context);

    if !migrator.blocked.is_empty() {
        return Err(migrator.blocked);
    }

    let is_mapped = migrator.is_mapped();
    let tags = migrator.tags(context.pending_work);

    let mut run = Execution::new(to, context, state);
    migrate_reminders(&mut run);
    extra::migrate_escalations(&mut run);
    let before = Execution::new(from.saga, context, old.clone());
    // Each definition computes its own names, because they contain the ids of the steps.
    run.timers = migrator.timers(&before, &run);
    run.add_note(&format!(
        "migrated from version {} to {version}",
        from.version
    ));

    let transition = into_transition(run).map_err(|error| vec![error.to_string()])?;
    Ok(Migration {
        transition,
        tags,
        is_mapped,
    })
}

struct StateMigrator<'a> {
    from: &'a CompiledSaga,
    to: &'a CompiledSaga,
    plan: Option<&'a CompiledMigration>,
    old: &'a State,
    /// New step by old step.
    targets: Vec<Option<usize>>,
    blocked: Vec<String>,
}

impl StateMigrator<'_> {
    fn find_targets(&mut self) {
        let mut selected: BTreeMap<usize, &Name> = BTreeMap::new();
        for step in &self.from.steps {
            let mapping = self.plan.and_then(|plan| plan.steps.get(&step.id));
            let target = match mapping {
                // An explicit null drops the step; `check` rejects that if its state is still
                // needed.
                Some(None) => None,
                Some(Some(id)) => self.to.find(id.as_str()),
                None => self.to.find(step.id.as_str()),
            };

            if mapping.is_none() && target.is_none() {
                self.blocked
                    .push(format!("step `{}` has no mapping", step.id));
            }

            // Two states cannot become one.
            if let Some(first) = target.and_then(|target| selected.insert(target, &step.id)) {
                self.blocked.push(format!(
                    "steps `{first}` and `{}` map to the same step",
                    step.id
                ));
            }

            self.targets.push(target);
        }
    }

    fn check(&mut self) {
        let mut blocked = Vec::new();
        for (index, old) in self.from.steps.iter().enumerate() {
            let active = self.is_active(index);
            let must_compensate =
                old.compensation.is_some() && self.old.done.iter().any(|at| at.step == index);

            match self.targets[index].map(|target| &self.to.steps[target]) {
                None if active => {
                    blocked.push(format!("step `{}` is in progress and dropped", old.id));
                }
                None if must_compensate => {
                    blocked.push(format!(
                        "step `{}` is completed and its compensation is dropped",
                        old.id
                    ));
                }
                None => {}
                Some(new) => self.compare(index, old, new, active, &mut blocked),
            }
        }

        let pivot_lost = self.old.flags.has(Flags::PIVOTED) && !self.retains_pivot();
        if pivot_lost {
            blocked.push("the pivot that the instance passed does not exist any more".to_owned());
        }

        // Such an instance would complete with its next input, although no handler ended it.
        let idle =
            self.from.keep_active && self.old.steps.iter().all(|entry| entry.state.is_finished());
        if idle && !self.to.keep_active {
            blocked.push(
                "the steps have finished, and the new version has no `keep_active`".to_owned(),
            );
        }

        self.blocked.extend(blocked);
    }

    fn compare(
        &self,
        index: usize,
        old: &CompiledStep,
        new: &CompiledStep,
        active: bool,
        blocked: &mut Vec<String>,
    ) {
        // The outstanding result has the form of its kind, which another kind could not read.
        let same =
            std::mem::discriminant(&old.action.kind) == std::mem::discriminant(&new.action.kind);

        if active && !same {
            blocked.push(format!(
                "step `{}` is in progress, and `{}` has another action",
                old.id, new.id
            ));
        }

        // The task is open already; a step without the policy `ask` would ignore its decision.
        if self.entries(index).any(|entry| entry.state.is_in_doubt()) && !new.action.asks_operator()
        {
            blocked.push(format!(
                "`{}` is in doubt and waits for a decision, and `{}` has no in-doubt decision",
                old.id, new.id
            ));
        }

        let compensating = self
            .old
            .compensating_step
            .is_some_and(|at| at.step == index);

        // A compensation in progress receives the result of the request of its old kind.
        let compensation_kind = |step: &CompiledStep| {
            step.compensation
                .as_ref()
                .map(|compensation| std::mem::discriminant(&compensation.kind))
        };
        if compensating && compensation_kind(old) != compensation_kind(new) {
            blocked.push(format!(
                "step `{}` is compensating, and `{}` has another compensation",
                old.id, new.id
            ));
        }

        let started = self.old.step_state(index) != StepState::Pending;
        if started && old.foreach.is_some() != new.foreach.is_some() {
            blocked.push(format!(
                "step `{}` has started, and `{}` iterates over other elements",
                old.id, new.id
            ));
        }

        // The round is part of all tags of the step, so it must have the same loop afterwards.
        let in_other_loop = old.in_loop.map(|end| self.targets[end]) != new.in_loop.map(Some);
        if (started || self.is_repeated(old)) && in_other_loop {
            blocked.push(format!(
                "step `{}` has started, and `{}` belongs to another loop",
                old.id, new.id
            ));
        }

        let must_compensate =
            old.compensation.is_some() && self.old.done.iter().any(|at| at.step == index);
        if must_compensate && new.compensation.is_none() {
            blocked.push(format!(
                "step `{}` is completed, and `{}` has no compensation",
                old.id, new.id
            ));
        }

        let decided =
            self.old.step_state(index) == StepState::Completed && old.action.kind.cases().is_some();
        if decided && self.matching_case(index, old, new).is_none() {
            blocked.push(format!(
                "the case that `{}` selected does not exist any more",
                old.id
            ));
        }

        blocked.extend(self.failure_obstacle(index, new));
    }

    /// Returns why the instance could not run on after the failure of a step: the steps that follow
    /// would wait for ever, or others would start too.
    fn failure_obstacle(&self, index: usize, new: &CompiledStep) -> Option<String> {
        let old = &self.from.steps[index];
        let (handler, field) = match self.old.failure(index)?.handled_by {
            FailureReaction::OnTimeout => (&new.on_timeout, "on_timeout"),
            FailureReaction::OnFailure => (&new.on_failure, "on_failure"),
            FailureReaction::Join => return self.join_obstacle(index),
        };
        let taken = handler_of(self.from, self.old, index)?;

        let Some(handler) = handler else {
            return Some(format!(
                "`{field}` of step `{}` handled its failure, and `{}` has no `{field}`",
                old.id, new.id
            ));
        };
        let leads_elsewhere = match (&taken.then, &handler.then) {
            (CompiledAfterFailure::Steps(steps), CompiledAfterFailure::Steps(others)) => {
                let expected: Option<BTreeSet<_>> =
                    steps.iter().map(|step| self.targets[*step]).collect();
                expected != Some(others.iter().copied().collect())
            }
            (before, after) => before != after,
        };

        leads_elsewhere.then(|| {
            format!(
                "`{field}` of step `{}` handled its failure, and that of `{}` leads to other steps",
                old.id, new.id
            )
        })
    }

    fn join_obstacle(&self, index: usize) -> Option<String> {
        let target = self.targets[index]?;
        let started: BTreeSet<_> = (0..self.from.steps.len())
            .filter(|step| self.old.step_state(*step) != StepState::Pending)
            .filter_map(|step| self.targets[step])
            .collect();

        let mut steps = self.to.steps.iter().enumerate();
        let (_, join) = steps.find(|(step, join)| {
            join.join == Join::All && join.before.contains(&target) && !started.contains(step)
        })?;
        Some(format!(
            "a join tolerated the failure of step `{}`, and `{}` requires all steps before it",
            self.from.steps[index].id, join.id
        ))
    }

    /// Returns whether the step belongs to a loop that is not in its first round.
    fn is_repeated(&self, step: &CompiledStep) -> bool {
        step.in_loop
            .is_some_and(|end| self.old.run.loop_round(end) > 0)
    }

    /// Returns the case of a new switch that selects the steps of the old case.
    fn matching_case(&self, index: usize, old: &CompiledStep, new: &CompiledStep) -> Option<u32> {
        let cases = old.action.kind.cases()?;
        let others = new.action.kind.cases()?;
        let selected = cases.get(usize::try_from(self.old.steps[index].retries).ok()?)?;
        let expected: Option<Vec<_>> = selected
            .then
            .iter()
            .map(|step| self.targets[*step])
            .collect();
        let expected = expected?;

        // The numbers of cases can change, so the steps of a case identify it.
        let case = others.iter().position(|case| case.then == expected)?;
        u32::try_from(case).ok()
    }

    fn retains_pivot(&self) -> bool {
        let pivots = self.from.steps.iter().enumerate();
        let mut passed = pivots.filter(|(index, step)| {
            step.pivot && self.old.step_state(*index) == StepState::Completed
        });
        passed
            .any(|(index, _)| self.targets[index].is_some_and(|target| self.to.steps[target].pivot))
    }

    fn entries(&self, step: usize) -> impl Iterator<Item = StepEntry> + '_ {
        let elements = self
            .old
            .elements(step)
            .into_iter()
            .flat_map(|elements| elements.entries.iter().copied());

        let past = self
            .past_rounds(step)
            .filter_map(move |round| self.old.run.past_entry(step, round));

        std::iter::once(self.old.steps[step])
            .chain(elements)
            .chain(past)
    }

    fn past_rounds(&self, step: usize) -> impl Iterator<Item = usize> + use<> {
        let in_loop = self.from.steps[step].in_loop;
        in_loop
            .map_or_else(Vec::new, |end| self.old.run.past_rounds_of(end, step))
            .into_iter()
    }

    fn is_active(&self, step: usize) -> bool {
        self.entries(step).any(|entry| {
            let step_state = entry.state;
            let retained = matches!(
                step_state,
                StepState::Blocked
                    | StepState::CompensationPending
                    | StepState::InDoubtAbandoned
                    | StepState::ChildAwaited
            );
            retained || step_state.is_in_progress() || step_state.is_compensation()
        })
    }

    fn at(&self, at: StepIndex) -> Option<StepIndex> {
        self.targets[at.step].map(|step| StepIndex { step, ..at })
    }

    /// Returns the new state, unless there are obstacles.
    fn state(&mut self, context: &Context<'_>) -> State {
        let old = self.old;
        let mut new = State::new(self.to.steps.len());
        new.phase = old.phase;
        new.cause.clone_from(&old.cause);
        new.flags = old.flags;
        new.compensating_step = old.compensating_step.and_then(|at| self.at(at));
        new.done = old.done.iter().filter_map(|at| self.at(*at)).collect();

        new.run.migrate_run(
            &old.run,
            |step| self.targets[step],
            |id| self.renamed_id(id),
        );

        for (index, target) in self.targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            let from = &self.from.steps[index];
            let to = &self.to.steps[target];
            new.steps[target] = old.steps[index];

            // A switch stores the number of its case, which can differ in the new version.
            if let Some(case) = self.matching_case(index, from, to) {
                new.steps[target].retries = case;
            }
            extra::migrate_extra(old, &from.id, &to.id, index, target, &mut new);
        }

        if let Some(extra) = &old.extra
            && !extra.early.is_empty()
        {
            new.extra_mut().early.clone_from(&extra.early);
        }

        self.migrate_vars(&mut new, context);
        // Past the pivot and after the start of compensation, the timeout of the saga does not
        // apply.
        let runs_forward = old.phase == Phase::Running && !old.flags.has(Flags::PIVOTED);
        if runs_forward || old.until.is_some() {
            self.migrate_timeout(&mut new, context);
        }

        new
    }

    /// Returns the new id of an old step, if the step remains.
    fn renamed_id(&self, id: &str) -> Option<String> {
        let target = self.targets[self.from.find(id)?]?;
        Some(self.to.steps[target].id.to_string())
    }

    /// Keeps the end of the saga timeout if the new version has one.
    fn migrate_timeout(&mut self, new: &mut State, context: &Context<'_>) {
        if let Some(until) = self.old.until {
            new.until = self.to.timeout.as_ref().map(|_| until);
            return;
        }

        // A timeout that the old version lacks begins now.
        let bindings = Bindings::new(context.key).vars(&new.vars);
        match self.to.deadline(context.now, &bindings) {
            Ok(until) => new.until = until,
            Err(error) => self.blocked.push(error.to_string()),
        }
    }

    fn migrate_vars(&mut self, new: &mut State, context: &Context<'_>) {
        new.vars.clone_from(&self.old.vars);
        for (name, template) in self.plan.into_iter().flat_map(|plan| &plan.vars) {
            let bindings = Bindings::new(context.key)
                .vars(&self.old.vars)
                .results(self.old.results());
            // All templates read the old variables, so that their order has no effect.
            match template.evaluate(&bindings) {
                Ok(value) => drop(new.vars.insert(name.clone(), value)),
                Err(error) => self
                    .blocked
                    .push(format!("cannot set vars.{name}: {error}")),
            }
        }

        // Variables are null until their step completes.
        let known: Vec<_> = self
            .to
            .vars
            .iter()
            .map(|(name, _)| name)
            .chain(self.to.saved())
            .cloned()
            .collect();
        for name in known {
            new.vars.entry(name).or_insert(Value::Null);
        }
    }

    fn is_mapped(&self) -> bool {
        let retained = self.from.steps.iter().zip(&self.targets);
        let mut renamed = retained
            .map(|(step, target)| target.is_none_or(|target| self.to.steps[target].id != step.id));
        renamed.any(|renamed| renamed) || self.plan.is_some_and(|plan| !plan.vars.is_empty())
    }

    /// Returns the new tags of all renamed steps, also those of their pending reminders.
    fn tags(&self, pending: &[PendingWork]) -> Vec<(Name, Name)> {
        let mut tags = Vec::new();
        for (index, target) in self.targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            let from = &self.from.steps[index];
            let to = &self.to.steps[target];
            if from.id == to.id {
                continue;
            }

            let count = self
                .old
                .elements(index)
                .map_or(0, |elements| elements.entries.len());
            let round = from.in_loop.map(|end| self.old.run.loop_round(end));
            let numbers = (0..count).chain(self.past_rounds(index)).chain(round);
            // Late results of elements and past rounds have tags of their own, which the pending
            // work lists.
            let places = std::iter::once(String::new()).chain(numbers.map(|n| format!("[{n}]")));

            for element in places {
                for prefix in ["", COMPENSATE] {
                    let tag = |id: &Name| {
                        Name::new(format!("{prefix}{id}{element}"))
                            .expect("step ids reserve space for the prefix and the number")
                    };
                    tags.push((tag(&from.id), tag(&to.id)));
                }
            }

            let reminders = pending.iter().map(|work| &work.tag);
            for tag in reminders.filter(|tag| tag.as_str().starts_with(REMIND)) {
                let new = extra::renamed(tag, &from.id, &to.id);
                tags.extend(new.map(|new| (tag.clone(), new)));
            }
        }
        tags
    }

    /// Returns all timer changes. Step timers keep their due times under new names; the saga timer
    /// is kept, armed or cancelled.
    fn timers(&self, before: &Execution<'_>, after: &Execution<'_>) -> Vec<TimerChange> {
        // No timer is armed while the instance is stuck.
        if self.old.phase == Phase::Stuck {
            return Vec::new();
        }

        // All cancellations come first: a step can take the name of another one.
        let mut changes = Vec::new();
        let mut armed = Vec::new();
        let mut rename = |old: Name, new: Name, due| {
            if old != new {
                changes.push(TimerChange::Cancel { name: old });
            }
            armed.push(TimerChange::Arm { name: new, due });
        };

        for at in (0..self.from.steps.len()).flat_map(|step| before.step_and_elements(step)) {
            let entry = self.old.entry(at);
            if let (Some(due), Some(to)) = (entry.deadline, self.at(at)) {
                rename(
                    before.timer_name(at, entry.state),
                    after.timer_name(to, entry.state),
                    due,
                );
            }
        }

        // The escalations and the reminders of the new state are already those of the new version.
        for (tag, _) in self.old.extra.iter().flat_map(|extra| &extra.escalations) {
            let name = prefixed_name(ESCALATE, tag);
            changes.push(TimerChange::Cancel { name });
        }
        for (tag, due) in after
            .state
            .extra
            .iter()
            .flat_map(|extra| &extra.escalations)
        {
            let name = prefixed_name(ESCALATE, tag);
            armed.push(TimerChange::Arm { name, due: *due });
        }
        for reminders in &self.old.run.events.reminders {
            let name = reminder_timer(&reminders.tag);
            changes.extend(reminders.due.map(|_| TimerChange::Cancel { name }));
        }
        for reminders in &after.state.run.events.reminders {
            let name = reminder_timer(&reminders.tag);
            armed.extend(reminders.due.map(|due| TimerChange::Arm { name, due }));
        }

        match (self.old.until, after.state.until) {
            (_, Some(due)) => armed.push(TimerChange::Arm {
                name: saga_timer(),
                due,
            }),
            (Some(_), None) => changes.push(TimerChange::Cancel { name: saga_timer() }),
            (None, None) => {}
        }
        changes.append(&mut armed);
        changes
    }
}
