//! The `paused` flag: set and cleared by a person, and set where a program broke down.

use orlog_model::{Commit, Failure, Input, Instance, Origin, Record};

use crate::commit_builder::{brief, signed};
use crate::context::Subject;

/// The code of the failure that a program leaves behind that broke down.
const BROKEN: &str = "program_broken";

/// Pauses the instance, if there is one, with the same commit that sets the input aside. Its state, timers and open work
/// stay as they are.
pub(crate) fn park(subject: &Subject<'_>, input: &Input, message: &str, commit: &mut Commit) {
    let failure = Failure { code: BROKEN.to_owned(), message: message.to_owned() };
    let parked = subject.instance.map(|instance| touched(subject, instance, true));
    commit.instance = parked.map(|instance| Instance { last_error: Some(failure), ..instance });
    commit.history = flag_record(subject, input, commit, format!("paused: {message}"));
}

/// Sets or clears the `paused` flag; the program is not asked.
pub(crate) fn flag(subject: &Subject<'_>, input: &Input, paused: bool) -> Commit {
    let mut commit = Commit::empty(subject.key.clone(), subject.now);
    let flagged = subject.instance.map(|instance| touched(subject, instance, paused));
    commit.instance = flagged.map(|instance| Instance { last_input: input.id(), ..instance });
    commit.applied = Some(input.id());
    commit.history = flag_record(subject, input, &commit, flag_note(input, paused));
    commit
}

/// The snapshot's next version, the same but for the flag.
fn touched(subject: &Subject<'_>, instance: &Instance, paused: bool) -> Instance {
    Instance {
        version: instance.version + 1,
        paused,
        updated_at: subject.now,
        node: subject.node.to_owned(),
        ..instance.clone()
    }
}

fn flag_record(subject: &Subject<'_>, input: &Input, commit: &Commit, note: String) -> Option<Record> {
    let instance = commit.instance.as_ref()?;
    Some(Record {
        version: instance.version,
        at: subject.now,
        input: input.id(),
        label: input.label().to_owned(),
        note: brief(note),
        status: instance.status,
        work: Vec::new(),
        origin: Origin::of(input, subject.node, subject.now),
    })
}

fn flag_note(input: &Input, paused: bool) -> String {
    let word = if paused { "paused" } else { "resumed" };
    match input {
        Input::Control(control) => signed(word, control),
        Input::Event(_) | Input::Outcome(_) | Input::Timer(_) | Input::Workflow(_) | Input::Early(_) => {
            word.to_owned()
        }
    }
}
