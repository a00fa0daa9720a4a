//! The circuit breaker: stops asking an upstream that is ill, and tries it with one question now and then.
//!
//! A plain state machine, time is an argument. One is shared by all effects of an upstream.
//!
//! | state | admit | answer well | answer ill | answer lost to the asker |
//! |---|---|---|---|---|
//! | closed | go | count | count; at a limit → open | – |
//! | open | until `open_for` is over: refused; then → half-open | – | – | – |
//! | half-open, nobody asks | go, alone | – | – | – |
//! | half-open, one asks | refused | → closed | → open | nobody asks |
//!
//! An answer to a question from before the last change of state says nothing about the present and is not counted.

use std::collections::VecDeque;
use std::time::Duration;

use orlog_model::Timestamp;

/// When it opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Opens after this many ill answers in a row; at least 1.
    pub failures: u32,
    /// Opens also at this share of ill answers.
    pub rate: Option<Rate>,
    /// How long it refuses before it tries one.
    pub open_for: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { failures: 10, rate: None, open_for: Duration::from_secs(5) }
    }
}

/// A share of the latest answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Ill answers in a hundred.
    pub percent: u8,
    /// How many of the latest answers are looked at; nothing is said before there are so many.
    pub window: u32,
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Admits.
    Closed,
    /// Refuses.
    Open,
    /// Tries one.
    HalfOpen,
}

impl State {
    /// The word people and metrics see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open => "open",
            State::HalfOpen => "half_open",
        }
    }
}

/// What an answer says about the upstream, whatever it says about the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works, even if it refused.
    Well,
    /// It could not be reached, it failed, or it did not answer in time.
    Ill,
    /// The asker went away before there was an answer.
    Unknown,
}

/// Whether a question may be asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may; hand the ticket back with the answer's health.
    Go(Ticket),
    /// Not before this time; `None`: not before the state changes.
    Wait(Option<Timestamp>),
}

/// Belongs to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    generation: u64,
}

/// See the table above.
#[derive(Clone, Debug)]
pub struct Breaker {
    options: Options,
    phase: Phase,
    /// Grows with each change of state; tells answers of the past.
    generation: u64,
    opened: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    Closed(Window),
    Open { until: Timestamp },
    HalfOpen { asked: bool },
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, phase: Phase::Closed(Window::default()), generation: 0, opened: 0 }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed(_) => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// How often it has opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Asks for admission at `now`.
    pub fn admit(&mut self, now: Timestamp) -> Admission {
        match &mut self.phase {
            Phase::Closed(_) => self.go(),
            Phase::Open { until } if now < *until => Admission::Wait(Some(*until)),
            Phase::Open { .. } => {
                self.change(Phase::HalfOpen { asked: true });
                self.go()
            }
            Phase::HalfOpen { asked: true } => Admission::Wait(None),
            Phase::HalfOpen { asked } => {
                *asked = true;
                self.go()
            }
        }
    }

    /// Takes what an answer at `now` says.
    pub fn record(&mut self, ticket: Ticket, health: Health, now: Timestamp) {
        if ticket.generation != self.generation {
            return;
        }
        match (&mut self.phase, health) {
            (Phase::Closed(window), Health::Well | Health::Ill) => {
                if window.count(health == Health::Ill, &self.options) {
                    self.open(now);
                }
            }
            (Phase::HalfOpen { .. }, Health::Well) => self.change(Phase::Closed(Window::default())),
            (Phase::HalfOpen { .. }, Health::Ill) => self.open(now),
            (Phase::HalfOpen { asked }, Health::Unknown) => *asked = false,
            (Phase::Closed(_), Health::Unknown) | (Phase::Open { .. }, _) => {}
        }
    }

    fn go(&self) -> Admission {
        Admission::Go(Ticket { generation: self.generation })
    }

    fn open(&mut self, now: Timestamp) {
        self.opened += 1;
        self.change(Phase::Open { until: now.after(self.options.open_for) });
    }

    fn change(&mut self, phase: Phase) {
        self.generation += 1;
        self.phase = phase;
    }
}

/// The latest answers while closed.
#[derive(Clone, Debug, Default)]
struct Window {
    in_a_row: u32,
    latest: VecDeque<bool>,
    ill: u32,
}

impl Window {
    /// Counts an answer; `true` when a limit is reached.
    fn count(&mut self, ill: bool, options: &Options) -> bool {
        self.in_a_row = if ill { self.in_a_row + 1 } else { 0 };
        self.in_a_row >= options.failures.max(1) || options.rate.is_some_and(|rate| self.share(ill, rate))
    }

    fn share(&mut self, ill: bool, rate: Rate) -> bool {
        let window = rate.window.max(1) as usize;
        self.latest.push_back(ill);
        self.ill += u32::from(ill);
        if self.latest.len() > window && self.latest.pop_front() == Some(true) {
            self.ill -= 1;
        }
        self.latest.len() == window
            && u64::from(self.ill) * 100 >= u64::from(rate.percent.max(1)) * window as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_millis(0);
    const OPEN_FOR: Duration = Duration::from_secs(5);

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(Options { failures, rate: None, open_for: OPEN_FOR })
    }

    #[track_caller]
    fn go(breaker: &mut Breaker, now: Timestamp) -> Ticket {
        match breaker.admit(now) {
            Admission::Go(ticket) => ticket,
            Admission::Wait(until) => panic!("refused until {until:?}"),
        }
    }

    fn answer(breaker: &mut Breaker, health: Health, now: Timestamp) {
        let ticket = go(breaker, now);
        breaker.record(ticket, health, now);
    }

    #[test]
    fn opens_after_so_many_failures_in_a_row_and_refuses_until_its_time_is_over() {
        let mut breaker = breaker(3);
        for health in [Health::Ill, Health::Ill, Health::Well, Health::Ill, Health::Ill] {
            answer(&mut breaker, health, START);
        }
        assert_eq!(breaker.state(), State::Closed);
        answer(&mut breaker, Health::Ill, START);
        assert_eq!((breaker.state(), breaker.opened()), (State::Open, 1));
        assert_eq!(breaker.admit(START), Admission::Wait(Some(START.after(OPEN_FOR))));
    }

    #[test]
    fn half_open_tries_one_and_closes_when_it_is_well() {
        let mut breaker = breaker(1);
        answer(&mut breaker, Health::Ill, START);
        let later = START.after(OPEN_FOR);
        let trial = go(&mut breaker, later);
        assert_eq!((breaker.state(), breaker.admit(later)), (State::HalfOpen, Admission::Wait(None)));
        breaker.record(trial, Health::Well, later);
        assert_eq!(breaker.state(), State::Closed);
    }

    #[test]
    fn half_open_opens_again_when_the_trial_is_ill() {
        let mut breaker = breaker(1);
        answer(&mut breaker, Health::Ill, START);
        answer(&mut breaker, Health::Ill, START.after(OPEN_FOR));
        assert_eq!((breaker.state(), breaker.opened()), (State::Open, 2));
    }

    #[test]
    fn half_open_tries_another_when_the_first_asker_went_away() {
        let mut breaker = breaker(1);
        answer(&mut breaker, Health::Ill, START);
        answer(&mut breaker, Health::Unknown, START.after(OPEN_FOR));
        assert_eq!(breaker.state(), State::HalfOpen);
        answer(&mut breaker, Health::Well, START.after(OPEN_FOR));
        assert_eq!(breaker.state(), State::Closed);
    }

    #[test]
    fn answers_to_questions_of_the_past_do_not_count() {
        let mut breaker = breaker(1);
        let (first, second) = (go(&mut breaker, START), go(&mut breaker, START));
        breaker.record(first, Health::Ill, START);
        let later = START.after(OPEN_FOR);
        let _trial = go(&mut breaker, later);
        breaker.record(second, Health::Well, later);
        assert_eq!((breaker.state(), breaker.admit(later)), (State::HalfOpen, Admission::Wait(None)));
    }

    #[test]
    fn opens_at_a_share_of_failures_once_the_window_is_full() {
        let rate = Rate { percent: 50, window: 4 };
        let mut breaker = Breaker::new(Options { failures: 100, rate: Some(rate), open_for: OPEN_FOR });
        for health in [Health::Ill, Health::Ill, Health::Well] {
            answer(&mut breaker, health, START);
            assert_eq!(breaker.state(), State::Closed);
        }
        answer(&mut breaker, Health::Well, START);
        assert_eq!(breaker.state(), State::Open);
    }

    proptest! {
        #[test]
        fn never_asks_twice_at_once_while_half_open_and_always_comes_back(
            steps in proptest::collection::vec((0u8..4, 0u64..4_000), 1..200),
        ) {
            let mut breaker = breaker(2);
            let (mut now, mut asked) = (START, Vec::new());
            for (step, wait) in steps {
                now = now.after(Duration::from_millis(wait));
                if step == 0 {
                    let before = breaker.state();
                    if let Admission::Go(ticket) = breaker.admit(now) {
                        let trials = asked.iter().filter(|t: &&Ticket| t.generation == ticket.generation).count();
                        prop_assert!(before == State::Closed || trials == 0);
                        asked.push(ticket);
                    }
                } else if let Some(ticket) = asked.pop() {
                    let health = [Health::Well, Health::Ill, Health::Unknown][usize::from(step) - 1];
                    breaker.record(ticket, health, now);
                }
            }
            while let Some(ticket) = asked.pop() {
                breaker.record(ticket, Health::Unknown, now);
            }
            let later = now.after(OPEN_FOR);
            prop_assert!(matches!(breaker.admit(later), Admission::Go(_)));
        }
    }
}
