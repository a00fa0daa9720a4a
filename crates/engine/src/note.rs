//! Who told an instance what, and why: for its history.

use orlog_model::{Control, Input};

/// The longest note, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;

/// A note that is not too long: a program, an upstream and a person can each write much into it.
pub(crate) fn brief(mut note: String) -> String {
    if note.len() > MAX_NOTE_BYTES {
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        note.push('…');
    }
    note
}

/// What happened, and before it, where somebody gave an instruction and a name or a reason with it, who and why.
pub(crate) fn audited(input: &Input, note: String) -> String {
    brief(match input {
        Input::Control(control) if control.by.is_some() || control.reason.is_some() => {
            let told = signed(input.label(), control);
            if note == input.label() { told } else { format!("{told}; {note}") }
        }
        Input::Control(_)
        | Input::Event(_)
        | Input::Outcome(_)
        | Input::Timer(_)
        | Input::Workflow(_)
        | Input::Early(_) => note,
    })
}

/// `skip by alice: refunded by hand`.
pub(crate) fn signed(what: &str, control: &Control) -> String {
    let by = control.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = control.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{what}{by}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_letters_and_says_so() {
        assert_eq!(brief("short".to_owned()), "short");
        let cut = brief(format!("a{}", "ß".repeat(2_000)));
        assert!(cut.len() <= MAX_NOTE_BYTES + 3 && cut.ends_with("ß…"), "{}", cut.len());
    }
}
