//! What is in doubt: a person is asked, and what the person says counts.

use orlog_model::{Action, Commit, Control, IN_DOUBT, Input, Name, TaskOrder, Verdict};
use orlog_program::doubt::{DONE, NOT_DONE};

use super::invariant::{Broken, Rule};
use super::step_states::is_asking;
use super::view::View;
use crate::responses::asks_in_doubt;

/// Nobody does again what may have been done: before the answer nothing is asked for, and after it only if it was not done.
/// What was done after all is kept, or undone.
pub(super) fn doubt_asked(view: &View<'_>, commit: &Commit, broken: &mut Vec<Broken>) {
    let said = said(view);
    let mut wrong = |message| broken.push(Broken { rule: Rule::DoubtAsked, message });
    for tag in commit.work.iter().filter_map(|item| item.work.tag()).map(Name::as_str) {
        let asking = is_asking(view.before.get(tag)) || is_asking(view.after.get(tag));
        if asking && said.as_ref() != Some(&(tag.to_owned(), NOT_DONE.to_owned())) {
            wrong(format!("{tag} was asked for again, and nobody said that it was not done"));
        }
    }
    if let Some(tag) = doubted(view).filter(|tag| matches!(view.before.get(tag), "running" | "given_up"))
        && !view.after.get(&tag).starts_with("asking")
    {
        wrong(format!("{tag} is in doubt, and nobody is asked"));
    }
    let Some((tag, _)) = said.filter(|(tag, word)| word == DONE && is_asking(view.before.get(tag))) else {
        return;
    };
    // An answer whose values cannot be remembered, or that means failure, says so.
    let after = view.after.get(&tag);
    if view.has_undo(&tag) && matches!(after, "asking" | "asking_late" | "running" | "pending") {
        wrong(format!("{tag} was done, says a person, and is {after} as if it had not been"));
    }
}

/// What a person says, and about which tag.
fn said(view: &View<'_>) -> Option<(String, String)> {
    let Input::Control(Control { action: Action::Task { id, order, .. }, .. }) = view.seen.input else {
        return None;
    };
    let TaskOrder::Complete { outcome: Some(word), .. } = order else { return None };
    let task = view.seen.subject.instance?.tasks.iter().find(|task| task.id == *id)?;
    Some((task.form.tag.to_string(), word.to_string()))
}

/// The tag of the work that the provider leaves in doubt, where a person is to be asked.
fn doubted(view: &View<'_>) -> Option<String> {
    let Input::Outcome(outcome) = view.seen.input else { return None };
    let Verdict::TimedOut { failure } = &outcome.verdict else { return None };
    let open = view.seen.subject.instance?.open.iter().find(|open| open.id == outcome.work_id)?;
    let asks = failure.code == IN_DOUBT && asks_in_doubt(view.definition?, open.tag.as_str());
    asks.then(|| open.tag.to_string())
}
