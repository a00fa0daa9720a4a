//! The account of one instance: what was done, in which order, and what became of it.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{Action, Commit, Control, Input, Instance, Status, Verdict, Work, WorkItem};
use orlog_program::{Action as Asks, Compiled};

use super::in_doubt::doubt_asked;
use super::invariant::{Broken, Rule};
use super::step_states::{Marks, is_asking, is_under_way, is_undo, was_done};
use super::view::View;
use crate::responses::{Tag, step_of};
use crate::simulator::Seen;

/// What is known of one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Tags of what was done and has an undo, in the order of completion.
    done: Vec<String>,
    /// Undos that were asked for.
    asked: BTreeSet<String>,
    /// Undos that are over.
    undone: BTreeSet<String>,
    /// What is final since a point of no return.
    kept: BTreeSet<String>,
    /// Facts about the whole saga, by name.
    told: BTreeMap<String, usize>,
    /// A person ended it or left something out.
    forced: bool,
}

impl Ledger {
    pub(super) fn take(
        &mut self,
        seen: &Seen<'_>,
        commit: &Commit,
        after: &Instance,
        broken: &mut Vec<Broken>,
    ) {
        let program = seen.subject.program;
        let view = View {
            seen,
            definition: program.compiled().map(Compiled::definition),
            before: Marks::of(program, seen.subject.instance),
            after: Marks::of(program, Some(after)),
            status: after.status,
        };
        self.forced |= is_forced(seen.input);
        self.note_done(&view);
        self.judge_undos(&view, &commit.work, broken);
        self.note_undone(&view, broken);
        success_kept(&view, broken);
        doubt_asked(&view, commit, broken);
        nothing_new(&view, commit, broken);
        timers_matter(&view, after, broken);
        self.told_once(&view, commit, broken);
        self.nothing_left(&view, after, broken);
    }

    /// An outcome that was ignored although it says that something was done.
    pub(super) fn ignored(&self, seen: &Seen<'_>, why: &str, broken: &mut Vec<Broken>) {
        let marks = Marks::of(seen.subject.program, seen.subject.instance);
        let Some(tag) = done_for_sure(seen) else { return };
        let step =
            seen.subject.program.compiled().and_then(|c| step_of(c.definition(), Tag::parse(&tag).step));
        if step.is_some_and(|step| step.undo.is_some())
            && matches!(marks.get(&tag), "failed" | "given_up")
            && !self.forced
        {
            let message =
                format!("the late success of {tag} was ignored ({why}), so that it is never undone");
            broken.push(Broken { rule: Rule::SuccessKept, message });
        }
    }

    fn note_done(&mut self, view: &View<'_>) {
        let fresh = view.after.iter().filter(|(tag, mark)| {
            was_done(mark)
                && !was_done(view.before.get(tag))
                && !view.after.has_elements(tag)
                && view.has_undo(tag)
        });
        let fresh: Vec<_> = fresh.map(|(tag, _)| tag.to_owned()).collect();
        self.done.extend(fresh);
        let pivots = view.definition.into_iter().flat_map(|d| &d.steps).filter(|step| step.pivot);
        let mut passed = pivots.filter(|step| {
            let id = step.id.as_str();
            was_done(view.after.get(id)) && !was_done(view.before.get(id))
        });
        if passed.next().is_some() {
            let open = self.done.iter().filter(|tag| !self.asked.contains(*tag));
            self.kept.extend(open.cloned().collect::<Vec<_>>());
        }
    }

    fn judge_undos(&mut self, view: &View<'_>, work: &[WorkItem], broken: &mut Vec<Broken>) {
        let mut now = BTreeSet::new();
        let tags = work.iter().filter_map(|item| item.work.tag()).map(ToString::to_string);
        for tag in tags.filter_map(|tag| tag.strip_prefix("undo:").map(ToOwned::to_owned)) {
            let mut wrong = |rule, message| broken.push(Broken { rule, message });
            if !now.insert(tag.clone()) {
                wrong(Rule::UndoneOnce, format!("the undo of {tag} was asked for twice at once"));
            } else if self.undone.contains(&tag) {
                wrong(
                    Rule::UndoneOnce,
                    format!("{tag} was undone already, and its undo was asked for again"),
                );
            } else if !self.done.contains(&tag) {
                wrong(Rule::UndoneOnce, format!("the undo of {tag} was asked for, but {tag} was never done"));
            } else if self.kept.contains(&tag) {
                wrong(Rule::PivotHolds, format!("{tag} is undone after the point of no return"));
            } else if self.asked.insert(tag.clone()) {
                self.in_reverse(&tag, view, broken);
            }
        }
    }

    /// A first undo: of the last that was done, when no other is under way.
    fn in_reverse(&self, tag: &str, view: &View<'_>, broken: &mut Vec<Broken>) {
        let mut wrong = |message| broken.push(Broken { rule: Rule::UndoneInReverse, message });
        let other = view.after.iter().find(|(other, mark)| {
            *other != tag && is_undo(mark) && !view.after.has_elements(other) && view.has_undo(other)
        });
        if let Some((other, _)) = other {
            wrong(format!("the undo of {tag} was asked for while {other} is being undone"));
        }
        if view.status == Status::Running {
            return;
        }
        let place = self.done.iter().position(|done| done == tag).unwrap_or_default();
        let later = self.done[place + 1..].iter();
        let open = |done: &&String| {
            !self.asked.contains(*done) && !self.kept.contains(*done) && view.after.get(done) != "undone"
        };
        if let Some(later) = later.rev().find(open) {
            wrong(format!("{tag} is undone before {later}, which was done after it"));
        }
    }

    fn note_undone(&mut self, view: &View<'_>, broken: &mut Vec<Broken>) {
        for (tag, mark) in view.after.iter().filter(|(tag, _)| view.has_undo(tag)) {
            let before = view.before.get(tag);
            let elements = view.after.has_elements(tag);
            if elements || mark == before {
                continue;
            }
            let asked = self.asked.contains(tag);
            if mark == "undoing" && !asked {
                let message = format!("{tag} is being undone, but its undo was never asked for");
                broken.push(Broken { rule: Rule::UndoAsked, message });
            }
            if mark == "undone" && self.done.iter().any(|done| done == tag) {
                if !self.asked.contains(tag) && !self.forced {
                    let message = format!("{tag} counts as undone, but its undo was never asked for");
                    broken.push(Broken { rule: Rule::UndoAsked, message });
                }
                self.undone.insert(tag.to_owned());
            }
        }
    }

    fn told_once(&mut self, view: &View<'_>, commit: &Commit, broken: &mut Vec<Broken>) {
        let ends = view.definition.into_iter().flat_map(|d| d.completed.iter().chain(&d.failed));
        let ends: Vec<_> = ends.map(|fact| fact.fact.as_str()).collect();
        for item in &commit.work {
            let Work::Fact(fact) = &item.work else { continue };
            let count = self.told.entry(fact.kind.to_string()).or_default();
            *count += 1;
            if *count > 1 && ends.contains(&fact.kind.as_str()) {
                let message = format!("the fact {} was told {count} times", fact.kind);
                broken.push(Broken { rule: Rule::ToldOnce, message });
            }
        }
    }

    fn nothing_left(&self, view: &View<'_>, after: &Instance, broken: &mut Vec<Broken>) {
        if !view.status.is_final() || view.was().is_some_and(Status::is_final) {
            return;
        }
        let mut wrong = |message| broken.push(Broken { rule: Rule::NothingLeft, message });
        if let Some(timer) = after.timers.first() {
            wrong(format!("it is {}, and the timer {} is still armed", view.status, timer.name));
        }
        if let Some(wait) = after.waits.first() {
            wrong(format!("it is {}, and still waits for {}", view.status, wait.name));
        }
        if self.forced {
            return;
        }
        let is_busy = |mark: &str| is_under_way(mark) || is_undo(mark) || is_asking(mark) || mark == "lost";
        let busy = view.after.iter().find(|(_, mark)| is_busy(mark));
        if let Some((tag, mark)) = busy {
            wrong(format!("it is {}, and {tag} is {mark}", view.status));
        }
        if view.status != Status::Completed {
            let left = self.done.iter().find(|tag| !self.undone.contains(*tag) && !self.kept.contains(*tag));
            if let Some(tag) = left {
                wrong(format!("it is {}, and {tag}, which was done, was not undone", view.status));
            }
        }
    }
}

fn is_forced(input: &Input) -> bool {
    match input {
        Input::Control(Control { action, .. }) => matches!(action.label(), "skip" | "force-complete"),
        Input::Event(_) | Input::Outcome(_) | Input::Timer(_) | Input::Workflow(_) | Input::Early(_) => false,
    }
}

/// The tag whose success needs no further condition.
fn done_for_sure(seen: &Seen<'_>) -> Option<String> {
    let Input::Outcome(outcome) = seen.input else { return None };
    let Verdict::Succeeded { event: None, .. } = &outcome.verdict else { return None };
    let open = seen.subject.instance?.open.iter().find(|open| open.id == outcome.work_id)?;
    let definition = seen.subject.program.compiled()?.definition();
    let step = step_of(definition, Tag::parse(open.tag.as_str()).step)?;
    let plain = matches!(step.action, Asks::Effect { .. } | Asks::Job(_) | Asks::Saga { .. })
        && step.ok.is_empty()
        && !open.tag.as_str().starts_with("undo:");
    plain.then(|| open.tag.to_string())
}

fn success_kept(view: &View<'_>, broken: &mut Vec<Broken>) {
    let Some(tag) = done_for_sure(view.seen) else { return };
    let (before, after) = (view.before.get(&tag), view.after.get(&tag));
    // A success whose values cannot be remembered fails its step, and says so.
    let waited = matches!(before, "running" | "pausing" | "failed" | "given_up");
    if waited && view.has_undo(&tag) && matches!(after, "running" | "pending" | "given_up") {
        let message = format!("{tag} succeeded, and is {after} as if it had not");
        broken.push(Broken { rule: Rule::SuccessKept, message });
    }
}

/// Nothing but undos once it does not go forward any more.
fn nothing_new(view: &View<'_>, commit: &Commit, broken: &mut Vec<Broken>) {
    let turned = view.was().is_some_and(|status| status != Status::Running) && view.status != Status::Running;
    if !turned {
        return;
    }
    let tags = commit.work.iter().filter_map(|item| item.work.tag());
    for tag in tags.filter(|tag| !tag.as_str().starts_with("undo:")) {
        let retried = view.was() == Some(Status::Stuck) && is_retry(view.seen.input);
        if !retried {
            let message = format!("{tag} was asked for although the saga is {}", view.status);
            broken.push(Broken { rule: Rule::NothingNew, message });
        }
    }
}

fn is_retry(input: &Input) -> bool {
    matches!(input, Input::Control(Control { action: Action::Retry, .. }))
}

fn timers_matter(view: &View<'_>, after: &Instance, broken: &mut Vec<Broken>) {
    for timer in &after.timers {
        let name = timer.name.as_str();
        let name = name.strip_prefix("retry:").or_else(|| name.strip_prefix("escalate:")).unwrap_or(name);
        let (tag, undo) = name.strip_prefix("undo:").map_or((name, false), |tag| (tag, true));
        let mark = view.after.get(tag);
        let matters = if undo { is_undo(mark) } else { is_under_way(mark) };
        if !mark.is_empty() && !matters {
            let message = format!("the timer {} is armed although {tag} is {mark}", timer.name);
            broken.push(Broken { rule: Rule::TimersMatter, message });
        }
    }
}
