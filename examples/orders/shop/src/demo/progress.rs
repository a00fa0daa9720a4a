//! Progress output: one updated line on a terminal, one line per second elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

const BAR: usize = 30;

/// Printed progress.
pub(super) struct Progress {
    orders: usize,
    live: bool,
    down: bool,
    last: Option<u64>,
}

impl Progress {
    pub(super) fn new(orders: usize) -> Self {
        Self {
            orders,
            live: stdout().is_terminal(),
            down: false,
            last: None,
        }
    }

    /// Prints the start or end of an outage of the payment service.
    pub(super) fn outage(&mut self, down: bool) {
        if self.down != down {
            self.down = down;
            self.print_line(if down {
                "payment service down"
            } else {
                "payment service up"
            });
        }
    }

    /// Prints a permanent line.
    pub(super) fn print_line(&self, text: &str) {
        let clear = if self.live { "\r\x1b[K" } else { "" };
        println!("{clear}  ! {text}");
    }

    /// Prints the counts; returns the number of ended sagas.
    pub(super) fn show(&mut self, now: Duration, counts: &BTreeMap<String, usize>) -> usize {
        let count = |status| counts.get(status).copied().unwrap_or_default();
        let (completed, failed) = (count("completed"), count("failed"));
        let ended = completed + failed;
        let line = format!(
            "{:>3}s [{}] {ended}/{} ended: {completed} completed, {failed} compensated, {} running, {} compensating",
            now.as_secs(),
            bar(ended, self.orders),
            self.orders,
            count("running"),
            count("compensating"),
        );
        if self.live {
            print!("\r\x1b[K{line}");
            // A closed terminal does not stop the demo.
            drop(stdout().flush());
        } else if self.last != Some(now.as_secs()) {
            self.last = Some(now.as_secs());
            println!("{line}");
        }
        ended
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.live {
            println!();
        }
    }
}

fn bar(done: usize, all: usize) -> String {
    let full = done.min(all) * BAR / all.max(1);
    format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
}
