//! Moves an instance to another version of its saga: marks by the author's mapping, or every reason why not.
//!
//! | old step | its new step | |
//! |---|---|---|
//! | any | the mapped one, or the one of the same id | takes over the mark |
//! | under way, or its undo is | of another kind, or dropped | blocked |
//! | in doubt, a person is asked | does not ask | blocked |
//! | done, can be undone | dropped | blocked |
//! | otherwise | dropped | forgotten |
//! | not mapped | no step has its id | blocked |
//! | begun | goes through elements, or does not, unlike the old | blocked |

use std::collections::BTreeMap;

use orlog_model::{Name, TimerChange};
use serde_json::Value;

use super::compiled::{Call, ESCALATE, Migrates, Saga, Step};
use super::execution::{Run, saga_timer};
use super::state::{At, Flags, Slot, State};
use super::step_state::{Mark, Phase};
use super::timers::prefixed;
use crate::contract::{Context, Migration};
use crate::expression::Bindings;

/// Where an instance comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) saga: &'a Saga,
    pub(crate) version: u32,
    pub(crate) state: &'a [u8],
}

/// Moves the state of an instance from one saga to another, which has that version.
pub(crate) fn migrate(
    to: &Saga,
    version: u32,
    from: Source<'_>,
    context: &Context<'_>,
) -> Result<Migration, Vec<String>> {
    let old = State::decode(from.state, from.saga.steps.len()).map_err(|fault| vec![fault.to_string()])?;
    if old.phase.status().is_final() {
        return Err(vec![format!("it has ended: {}", old.phase.status())]);
    }
    let plan = to.migrates.iter().find(|plan| plan.from.contains(&from.version));
    let mut mover = Mover { from: from.saga, to, plan, old: &old, targets: Vec::new(), blocked: Vec::new() };
    mover.find_targets();
    mover.check();
    let state = mover.state(context);
    if !mover.blocked.is_empty() {
        return Err(mover.blocked);
    }
    let mapped = mover.is_mapped();
    let tags = mover.tags();
    let mut run = Run::new(to, context, state);
    let before = Run::new(from.saga, context, old.clone());
    run.timers = mover.timers(&before, &run);
    run.say(&format!("migrated from version {} to {version}", from.version));
    let transition = run.into_transition().map_err(|fault| vec![fault.to_string()])?;
    Ok(Migration { transition, tags, mapped })
}

struct Mover<'a> {
    from: &'a Saga,
    to: &'a Saga,
    plan: Option<&'a Migrates>,
    old: &'a State,
    /// By old step, the new one.
    targets: Vec<Option<usize>>,
    blocked: Vec<String>,
}

impl Mover<'_> {
    fn find_targets(&mut self) {
        let mut taken: BTreeMap<usize, &Name> = BTreeMap::new();
        for step in &self.from.steps {
            let said = self.plan.and_then(|plan| plan.steps.get(&step.id));
            let target = match said {
                Some(None) => None,
                Some(Some(id)) => self.to.find(id.as_str()),
                None => self.to.find(step.id.as_str()),
            };
            if said.is_none() && target.is_none() {
                self.blocked.push(format!("nothing says what becomes of step `{}`", step.id));
            }
            if let Some(first) = target.and_then(|target| taken.insert(target, &step.id)) {
                self.blocked.push(format!("steps `{first}` and `{}` would become one", step.id));
            }
            self.targets.push(target);
        }
    }

    fn check(&mut self) {
        let mut blocked = Vec::new();
        for (index, old) in self.from.steps.iter().enumerate() {
            let active = self.is_active(index);
            let undoable = old.undo.is_some() && self.old.done.iter().any(|at| at.step == index);
            match self.targets[index].map(|target| &self.to.steps[target]) {
                None if active => blocked.push(format!("step `{}` is under way and has no place", old.id)),
                None if undoable => {
                    blocked.push(format!("step `{}` is done, and nothing could undo it", old.id));
                }
                None => {}
                Some(new) => self.compare(index, old, new, active, &mut blocked),
            }
        }
        let past = self.old.flags.has(Flags::PIVOTED) && !self.keeps_pivot();
        if past {
            blocked.push("it is past a point of no return that is not there any more".to_owned());
        }
        self.blocked.extend(blocked);
    }

    fn compare(&self, index: usize, old: &Step, new: &Step, active: bool, blocked: &mut Vec<String>) {
        let same = std::mem::discriminant(&old.task.call) == std::mem::discriminant(&new.task.call);
        if active && !same {
            blocked.push(format!("step `{}` is under way, and `{}` does something else", old.id, new.id));
        }
        if self.slots(index).any(|slot| slot.mark.is_asking()) && !new.task.asks_in_doubt() {
            blocked.push(format!(
                "a person is asked whether `{}` was done, and `{}` asks nobody",
                old.id, new.id
            ));
        }
        let undoing = self.old.undo.is_some_and(|at| at.step == index);
        let undos = |step: &Step| step.undo.as_ref().map(|undo| std::mem::discriminant(&undo.call));
        if undoing && undos(old) != undos(new) {
            blocked.push(format!(
                "step `{}` is being undone, and `{}` is undone in another way",
                old.id, new.id
            ));
        }
        let begun = self.old.mark(index) != Mark::Waiting;
        if begun && old.foreach.is_some() != new.foreach.is_some() {
            blocked
                .push(format!("step `{}` has begun, and `{}` goes through other elements", old.id, new.id));
        }
        let undoable = old.undo.is_some() && self.old.done.iter().any(|at| at.step == index);
        if undoable && new.undo.is_none() {
            blocked.push(format!("step `{}` is done, and nothing would undo `{}`", old.id, new.id));
        }
        let decided = self.old.mark(index) == Mark::Done && matches!(old.task.call, Call::Switch(_));
        if decided && self.way(index, old, new).is_none() {
            blocked.push(format!("the way that `{}` took is not there any more", old.id));
        }
    }

    /// The case of a new switch that leads where the old one led.
    fn way(&self, index: usize, old: &Step, new: &Step) -> Option<u32> {
        let (Call::Switch(cases), Call::Switch(others)) = (&old.task.call, &new.task.call) else {
            return None;
        };
        let taken = cases.get(usize::try_from(self.old.steps[index].again).ok()?)?;
        let wanted: Option<Vec<_>> = taken.then.iter().map(|step| self.targets[*step]).collect();
        let wanted = wanted?;
        let case = others.iter().position(|case| case.then == wanted)?;
        u32::try_from(case).ok()
    }

    fn keeps_pivot(&self) -> bool {
        let pivots = self.from.steps.iter().enumerate();
        let mut passed = pivots.filter(|(index, step)| step.pivot && self.old.mark(*index) == Mark::Done);
        passed.any(|(index, _)| self.targets[index].is_some_and(|target| self.to.steps[target].pivot))
    }

    fn slots(&self, step: usize) -> impl Iterator<Item = Slot> + '_ {
        let elements =
            self.old.elements(step).into_iter().flat_map(|elements| elements.slots.iter().copied());
        std::iter::once(self.old.steps[step]).chain(elements)
    }

    fn is_active(&self, step: usize) -> bool {
        self.slots(step).any(|slot| {
            let mark = slot.mark;
            let kept = matches!(mark, Mark::Blocked | Mark::Doomed | Mark::AskingLate);
            kept || mark.is_under_way() || mark.is_undo()
        })
    }

    fn at(&self, at: At) -> Option<At> {
        self.targets[at.step].map(|step| At { step, ..at })
    }

    /// The new state, as far as nothing stands against it.
    fn state(&mut self, context: &Context<'_>) -> State {
        let old = self.old;
        let mut new = State::new(self.to.steps.len());
        new.phase = old.phase;
        new.cause.clone_from(&old.cause);
        new.flags = old.flags;
        new.undo = old.undo.and_then(|at| self.at(at));
        new.done = old.done.iter().filter_map(|at| self.at(*at)).collect();
        for (index, target) in self.targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            let (from, to) = (&self.from.steps[index], &self.to.steps[target]);
            new.steps[target] = old.steps[index];
            if let Some(again) = self.way(index, from, to) {
                new.steps[target].again = again;
            }
            self.move_extra(index, target, &mut new);
        }
        let goes_forward = old.phase == Phase::Running && !old.flags.has(Flags::PIVOTED);
        let timeout = self.to.timeout.filter(|_| goes_forward || old.until.is_some());
        new.until = timeout.map(|timeout| old.until.unwrap_or_else(|| context.now.after(timeout)));
        self.move_vars(&mut new, context);
        new
    }

    fn move_extra(&self, index: usize, target: usize, new: &mut State) {
        let Some(extra) = &self.old.extra else { return };
        let (from, to) = (&self.from.steps[index].id, &self.to.steps[target].id);
        if let Some(elements) = self.old.elements(index) {
            new.set_elements(target, elements.list.clone());
            for (place, slot) in elements.slots.iter().enumerate() {
                *new.slot_mut(At::element(target, place)) = *slot;
            }
        }
        if let Some(result) = extra.results.get(from.as_str()) {
            new.extra_mut().results.insert(to.to_string(), result.clone());
        }
        for (tag, child) in &extra.children {
            if let Some(tag) = renamed(tag, from, to) {
                new.extra_mut().children.push((tag, child.clone()));
            }
        }
        for (tag, due) in &extra.escalations {
            if let Some(tag) = renamed(tag, from, to) {
                new.extra_mut().escalations.push((tag, *due));
            }
        }
    }

    fn move_vars(&mut self, new: &mut State, context: &Context<'_>) {
        new.vars.clone_from(&self.old.vars);
        for (name, template) in self.plan.into_iter().flat_map(|plan| &plan.vars) {
            let bindings = Bindings::new(context.key).vars(&self.old.vars).results(self.old.results());
            match template.evaluate(&bindings) {
                Ok(value) => drop(new.vars.insert(name.clone(), value)),
                Err(error) => self.blocked.push(format!("cannot set vars.{name}: {error}")),
            }
        }
        let known: Vec<_> =
            self.to.vars.iter().map(|(name, _)| name).chain(self.to.saved()).cloned().collect();
        for name in known {
            new.vars.entry(name).or_insert(Value::Null);
        }
    }

    fn is_mapped(&self) -> bool {
        let kept = self.from.steps.iter().zip(&self.targets);
        let mut renamed =
            kept.map(|(step, target)| target.is_none_or(|target| self.to.steps[target].id != step.id));
        renamed.any(|renamed| renamed) || self.plan.is_some_and(|plan| !plan.vars.is_empty())
    }

    /// The new tags of everything whose step goes by another name.
    fn tags(&self) -> Vec<(Name, Name)> {
        let mut tags = Vec::new();
        for (index, target) in self.targets.iter().enumerate() {
            let Some(target) = *target else { continue };
            let (from, to) = (&self.from.steps[index], &self.to.steps[target]);
            if from.id == to.id {
                continue;
            }
            let count = self.old.elements(index).map_or(0, |elements| elements.slots.len());
            let places = std::iter::once(String::new()).chain((0..count).map(|n| format!("[{n}]")));
            for place in places {
                for prefix in ["", super::compiled::UNDO] {
                    let tag = |id: &Name| Name::new(format!("{prefix}{id}{place}")).expect("ids leave room");
                    tags.push((tag(&from.id), tag(&to.id)));
                }
            }
        }
        tags
    }

    /// All timers: those of steps are due when they were, under their new names; the time of the whole saga is kept, begins or
    /// ends. Nothing is armed while a person must decide.
    fn timers(&self, before: &Run<'_>, after: &Run<'_>) -> Vec<TimerChange> {
        if self.old.phase == Phase::Stuck {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut rename = |old: Name, new: Name, due| {
            if old != new {
                changes.push(TimerChange::Cancel { name: old });
            }
            changes.push(TimerChange::Arm { name: new, due });
        };
        for at in (0..self.from.steps.len()).flat_map(|step| before.places(step)) {
            let slot = self.old.slot(at);
            if let (Some(due), Some(to)) = (slot.until, self.at(at)) {
                rename(before.timer(at, slot.mark), after.timer(to, slot.mark), due);
            }
        }
        for (tag, due) in self.old.extra.iter().flat_map(|extra| &extra.escalations) {
            let steps = before.place(tag.as_str()).and_then(|(at, undo)| Some((self.at(at)?, undo)));
            if let Some((to, undo)) = steps {
                rename(prefixed(ESCALATE, tag), prefixed(ESCALATE, &after.tag(to, undo)), *due);
            }
        }
        match (self.old.until, after.state.until) {
            (_, Some(due)) => changes.push(TimerChange::Arm { name: saga_timer(), due }),
            (Some(_), None) => changes.push(TimerChange::Cancel { name: saga_timer() }),
            (None, None) => {}
        }
        changes
    }
}

/// The tag of a step, of an element or of an undo, with the step's new name.
fn renamed(tag: &Name, from: &Name, to: &Name) -> Option<Name> {
    let text = tag.as_str();
    let (prefix, rest) =
        text.strip_prefix(super::compiled::UNDO).map_or(("", text), |rest| (super::compiled::UNDO, rest));
    let place = rest.strip_prefix(from.as_str())?;
    let whole = place.is_empty() || place.starts_with('[');
    whole.then(|| Name::new(format!("{prefix}{to}{place}")).expect("ids leave room"))
}
