//! Who told an instance what, and why: for its history.

use orlog_model::{Control, Input};

/// What happened, and before it, where somebody gave an instruction and a name or a reason with it, who and why.
pub(crate) fn audited(input: &Input, note: String) -> String {
    match input {
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
    }
}

/// `skip by alice: refunded by hand`.
pub(crate) fn signed(what: &str, control: &Control) -> String {
    let by = control.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = control.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{what}{by}{reason}")
}
