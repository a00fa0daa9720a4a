//! Time of a proof: which timers can fire next, and times at which a sequence of moves is possible.
//!
//! A result can arrive at any time, so a state has no time, only the order in which its timers were
//! armed and their delays. A timer cannot fire before another one that was armed earlier with at
//! most the same delay. This permits every order that a clock produces. It may permit others;
//! [`schedule`] finds these.

use std::time::Duration;

use orlog_model::{Name, Timestamp};

use super::state::{Move, ProofState};
use crate::simulator::{SimulatedTimer, Simulator};
use crate::step::SimulationStep;

/// Returns the timers that can fire next. A timer `is_absolute` if its due time does not depend on
/// the time at which it was armed.
pub(super) fn next_timers(simulator: &Simulator, is_absolute: impl Fn(&str) -> bool) -> Vec<Name> {
    let timers: Vec<_> = simulator.armed_timers().collect();
    let relative = |timer: &SimulatedTimer| !is_absolute(timer.name.as_str());
    let precedes = |at: usize, timer: &SimulatedTimer, other_at: usize, other: &SimulatedTimer| {
        if timer.commit == other.commit {
            // Both were armed at the same time: the shorter delay fires first, and equal ones in
            // their order.
            (timer.delay(), at) < (other.delay(), other_at)
        } else {
            timer.commit < other.commit && timer.delay() <= other.delay()
        }
    };

    let mut next = Vec::new();
    for (at, timer) in timers.iter().enumerate() {
        let is_preceded = timers.iter().enumerate().any(|(other_at, other)| {
            other_at != at
                // The due time of an absolute timer has no relation to those of others.
                && relative(timer)
                && relative(other)
                && precedes(other_at, other, at, timer)
        });
        if !is_preceded {
            next.push(timer.name.clone());
        }
    }
    next
}

/// Lower bound of the difference of two times: `to - from >= milliseconds`.
struct Bound {
    from: usize,
    to: usize,
    millis: i64,
}

/// Timer during a sequence of moves.
struct TimerSpan {
    name: Name,
    commit: u64,
    /// Number of the move that armed it; 0 is the start.
    armed: usize,
    delay: i64,
}

/// Converts moves to steps of a test file: times are chosen so that the timers fire in the order of
/// the moves. Returns `None` if no times have this order.
pub(super) fn schedule(
    start: &ProofState,
    moves: &[Move],
    is_absolute: impl Fn(&str) -> bool,
) -> Option<Vec<SimulationStep>> {
    let mut state = start.clone();
    let origin = state.runner.simulator.now();
    let mut spans: Vec<TimerSpan> = Vec::new();

    let mut bounds = Vec::new();
    for (index, proof_move) in moves.iter().enumerate() {
        let now = index + 1;
        // Moves have the order in which they were made; several can have the same time.
        bounds.push(Bound {
            from: index,
            to: now,
            millis: 0,
        });

        let fired = match proof_move {
            Move::Timer(name) => spans.iter().position(|span| span.name == *name),
            Move::Step(_) => None,
        };

        for (at, span) in spans.iter().enumerate() {
            match fired {
                // It fires exactly when it is due.
                Some(fired) if fired == at => {
                    bounds.push(Bound {
                        from: span.armed,
                        to: now,
                        millis: span.delay,
                    });
                    bounds.push(Bound {
                        from: now,
                        to: span.armed,
                        millis: -span.delay,
                    });
                }
                // Timers with the same due time fire in the order in which they were armed.
                Some(fired) if fired < at => {
                    bounds.push(Bound {
                        from: now,
                        to: span.armed,
                        millis: -span.delay,
                    });
                }

                // It is due later.
                Some(_) | None => bounds.push(Bound {
                    from: now,
                    to: span.armed,
                    millis: 1 - span.delay,
                }),
            }
        }

        if !state.apply(proof_move) {
            return None;
        }

        let armed: Vec<_> = state.runner.simulator.armed_timers().collect();
        // Timers that fired or were cancelled restrict no later move.
        spans.retain(|span| {
            armed
                .iter()
                .any(|timer| timer.name == span.name && timer.commit == span.commit)
        });

        for timer in &armed {
            if spans
                .iter()
                .any(|span| span.name == timer.name && span.commit == timer.commit)
            {
                continue;
            }

            let (armed, since) = if is_absolute(timer.name.as_str()) {
                (0, origin)
            } else {
                (now, timer.armed_at)
            };
            spans.push(TimerSpan {
                name: timer.name.clone(),
                commit: timer.commit,
                armed,
                delay: millis(timer.due, since),
            });
        }
    }

    let times = solve(&bounds, moves.len() + 1)?;
    Some(steps(moves, &times))
}

fn millis(due: Timestamp, since: Timestamp) -> i64 {
    due.as_millis().saturating_sub(since.as_millis())
}

/// Returns the earliest times that satisfy all bounds (Bellman-Ford); `None` if there are none.
fn solve(bounds: &[Bound], count: usize) -> Option<Vec<i64>> {
    let mut times = vec![0_i64; count];
    for _ in 0..=count {
        let mut changed = false;
        for Bound { from, to, millis } in bounds {
            let earliest = times[*from].saturating_add(*millis);
            if times[*to] < earliest {
                times[*to] = earliest;
                changed = true;
            }
        }
        if !changed {
            // The start is time 0: bounds that move it cannot be satisfied.
            return (times[0] == 0).then_some(times);
        }
    }

    None
}

/// Returns the steps at these times. A timer fires because the time advances.
fn steps(moves: &[Move], times: &[i64]) -> Vec<SimulationStep> {
    let mut steps = Vec::new();
    for (proof_move, time) in moves.iter().zip(times.windows(2)) {
        let elapsed = u64::try_from(time[1] - time[0]).unwrap_or_default();
        if elapsed > 0 {
            steps.push(SimulationStep::Advance(Duration::from_millis(elapsed)));
        }
        if let Move::Step(step) = proof_move {
            steps.push(step.clone());
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_times_satisfy_all_bounds() {
        let bound = |from, to, millis| Bound { from, to, millis };
        let fired = [
            bound(0, 1, 0),
            bound(1, 2, 0),
            bound(1, 2, 50),
            bound(2, 1, -50),
            bound(0, 1, 20),
        ];
        assert_eq!(solve(&fired, 3), Some(vec![0, 20, 70]));
        let too_late = [bound(0, 1, 10), bound(1, 0, -5)];
        assert_eq!(solve(&too_late, 2), None);
    }
}
