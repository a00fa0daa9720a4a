//! Progress of a proof, on standard error: one line that changes on a terminal, otherwise a line from
//! time to time. A short proof shows nothing.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use orlog_simulator::prove::{ProofObserver, ProofPhase, ProofProgress};

use crate::cli::console::note;

/// Time before the first display.
const QUIET: Duration = Duration::from_secs(2);
/// Interval on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Display of the progress of one proof.
pub(super) struct ProgressDisplay {
    saga: String,
    start: Instant,
    schedule: Schedule,
    bar: Option<ProgressBar>,
}

impl ProgressDisplay {
    /// Begins the display of a proof.
    pub(super) fn new(saga: &str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}");
        // Standard output contains the result, which can be JSON.
        let bar = std::io::stderr()
            .is_terminal()
            .then(|| ProgressBar::new_spinner().with_style(style.expect("the template is valid")));
        let interval = if bar.is_some() {
            TERMINAL_INTERVAL
        } else {
            LOG_INTERVAL
        };

        Self {
            saga: saga.to_owned(),
            start: Instant::now(),
            schedule: Schedule::new(interval),
            bar,
        }
    }

    /// Ends the display, and returns the duration of the proof.
    pub(super) fn finish(self) -> Duration {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.start.elapsed()
    }
}

impl ProofObserver for ProgressDisplay {
    fn on_progress(&mut self, progress: &ProofProgress) {
        let elapsed = self.start.elapsed();
        let Some(rate) = self.schedule.rate_if_due(elapsed, progress.states) else {
            return;
        };

        let line = line(&self.saga, progress, rate, elapsed);
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None => note(&line),
        }
    }
}

/// Times of the displays.
struct Schedule {
    interval: Duration,
    next: Duration,
    /// Time and number of states of the last display.
    last_time: Duration,
    last_states: usize,
}

impl Schedule {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            next: QUIET,
            last_time: Duration::ZERO,
            last_states: 0,
        }
    }

    /// Returns the number of states per second since the last display, if the next one is due.
    fn rate_if_due(&mut self, elapsed: Duration, states: usize) -> Option<f64> {
        if elapsed < self.next {
            return None;
        }

        let added = u32::try_from(states.saturating_sub(self.last_states)).unwrap_or(u32::MAX);
        let seconds = elapsed.saturating_sub(self.last_time).as_secs_f64();
        self.next = elapsed + self.interval;
        self.last_time = elapsed;
        self.last_states = states;
        Some(f64::from(added) / seconds)
    }
}

fn line(saga: &str, progress: &ProofProgress, rate: f64, elapsed: Duration) -> String {
    let ProofProgress {
        states,
        queued,
        depth,
        phase,
    } = progress;
    let seconds = elapsed.as_secs();

    match phase {
        ProofPhase::Search => format!(
            "{saga}: {states} states, {queued} queued, {rate:.0} states/s, up to {depth} inputs, \
             {seconds}s"
        ),
        ProofPhase::DeadEnds { examined, total } => {
            format!("{saga}: {states} states, {examined} of {total} dead ends examined, {seconds}s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn short_proof_shows_nothing_and_a_long_one_keeps_the_interval() {
        let mut schedule = Schedule::new(seconds(10));
        let due: Vec<_> = (0..40)
            .filter(|second| schedule.rate_if_due(seconds(*second), 7).is_some())
            .collect();
        assert_eq!(due, [2, 12, 22, 32]);
    }

    #[test]
    fn rate_is_that_since_the_last_line() {
        let mut schedule = Schedule::new(seconds(1));
        let rates: Vec<_> = [(2, 1000), (4, 1100), (5, 1400)]
            .into_iter()
            .filter_map(|(second, states)| schedule.rate_if_due(seconds(second), states))
            .map(|rate| format!("{rate:.0}"))
            .collect();
        assert_eq!(rates, ["500", "50", "300"]);
    }

    #[test]
    fn line_names_the_phase() {
        let progress = |phase| ProofProgress {
            states: 12_800,
            queued: 3_412,
            depth: 14,
            phase,
        };
        assert_eq!(
            line("trip", &progress(ProofPhase::Search), 5_119.6, seconds(3)),
            "trip: 12800 states, 3412 queued, 5120 states/s, up to 14 inputs, 3s"
        );
        let dead_ends = ProofPhase::DeadEnds {
            examined: 3,
            total: 64,
        };
        assert_eq!(
            line("trip", &progress(dead_ends), 0.0, seconds(90)),
            "trip: 12800 states, 3 of 64 dead ends examined, 90s"
        );
    }
}
