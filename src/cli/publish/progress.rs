//! How far a publication has come, for whoever watches a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar where the length is known, a counter where not, nothing where nobody watches.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(bytes: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let (bar, template) = match bytes {
            Some(bytes) => (ProgressBar::new(bytes), "{bar:32} {percent}% {msg} (ready in {eta})"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        Self(bar)
    }

    /// So many bytes more, so many events in all.
    pub(super) fn advance(&self, bytes: usize, events: u64) {
        self.0.inc(bytes as u64);
        self.0.set_message(format!("{events} events"));
    }

    /// The node does not take it now.
    pub(super) fn wait(&self, attempt: u32) {
        self.0.set_message(format!("waiting for the node (try {attempt})"));
    }

    /// It is done.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
