//! How far things are: one line that changes on a terminal, one line a second elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

const BAR: usize = 30;

/// What was shown.
pub(super) struct Progress {
    orders: usize,
    live: bool,
    down: bool,
    last: Option<u64>,
}

impl Progress {
    pub(super) fn new(orders: usize) -> Self {
        Self { orders, live: stdout().is_terminal(), down: false, last: None }
    }

    /// Says that the payment service has gone or come back.
    pub(super) fn outage(&mut self, down: bool) {
        if self.down != down {
            self.down = down;
            self.say(if down { "the payment service goes down" } else { "the payment service is back" });
        }
    }

    /// Says something that stays.
    pub(super) fn say(&self, what: &str) {
        let clear = if self.live { "\r\x1b[K" } else { "" };
        println!("{clear}  ! {what}");
    }

    /// Shows the counts; returns how many sagas have ended.
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
            // A terminal that is gone is no reason to stop.
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
