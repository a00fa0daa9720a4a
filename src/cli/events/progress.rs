//! Progress display of a publish command on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress bar if the length is known, else a counter; hidden without a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        // Standard error: standard output may be a pipe that receives the result.
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }

        let (bar, template) = match bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{bar:32} {percent}% {msg} (ETA {eta})",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));

        Self(bar)
    }

    /// Adds bytes and sets the total number of events.
    pub(crate) fn advance(&self, bytes: usize, events: u64) {
        self.0.inc(bytes as u64);
        self.0.set_message(format!("{events} events"));
    }

    /// Shows that the node is unavailable.
    pub(crate) fn wait(&self, attempt: u32) {
        self.0
            .set_message(format!("waiting for the node (attempt {attempt})"));
    }

    /// Finishes the display.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
