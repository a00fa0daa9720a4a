//! The next timers of a shard, in memory, in the order of the store.
//!
//! Guarantees: every stored timer up to the horizon that was not fired is in memory; timers beyond
//! the horizon are only in the store. Each row is read from the store at most once, unless the
//! memory is reset. A timer in memory is due when the wall clock reaches its due time, or when the
//! time has passed that remained when it came into memory, so that a clock that is set back does
//! not delay it.

use std::collections::{BTreeMap, BTreeSet};

use orlog_model::{Clock, InstanceKey, Name, SlotAssigner, SteadyTime, Timer, Timestamp};

/// Change of the stored timers by a durable commit.
pub(crate) enum TimerChange {
    /// The timer is armed.
    Arm(InstanceKey, Timer),
    /// The timer is deleted.
    Disarm(InstanceKey, Timer),
}

/// Timers in memory; see the module documentation.
pub(crate) struct ArmedTimers {
    slots: SlotAssigner,
    capacity: usize,
    /// Timers, with the time at which each is due at the latest.
    rows: BTreeMap<TimerRow, SteadyTime>,
    horizon: Horizon,
    /// Order of the timers that came into memory before the wall clock was set back; they may be
    /// due before later timers with an earlier due time. Contains deleted timers too.
    displaced: BTreeSet<(SteadyTime, TimerRow)>,
    /// Largest difference between the wall clock and the steady clock since the clock was set back.
    offset: i64,
}

/// Difference by which the wall clock counts as set back, in milliseconds.
const SET_BACK_MS: i64 = 50;

/// Reading of both clocks.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    wall: Timestamp,
    steady: SteadyTime,
}

impl Now {
    /// Reads both clocks.
    pub(crate) fn read(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.now(),
            steady: clock.steady(),
        }
    }

    fn offset(self) -> i64 {
        self.wall
            .as_millis()
            .saturating_sub(self.steady.as_millis())
    }

    fn steady_due(self, due: Timestamp) -> SteadyTime {
        self.steady.saturating_add(due.duration_since(self.wall))
    }
}

/// Timer in the order of the table `timer`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimerRow {
    due: Timestamp,
    slot: u16,
    key: InstanceKey,
    name: Name,
    token: u64,
}

/// Last timer that is certainly in memory.
enum Horizon {
    /// No timer was read yet.
    Start,
    /// This timer.
    At(TimerRow),
    /// All stored timers are in memory.
    End,
}

impl TimerRow {
    fn into_timer(self) -> (InstanceKey, Timer) {
        (
            self.key,
            Timer {
                due: self.due,
                name: self.name,
                token: self.token,
            },
        )
    }
}

impl ArmedTimers {
    /// Creates an empty memory for up to `capacity` timers; the store has to be read.
    pub(crate) fn new(slots: SlotAssigner, capacity: usize) -> Self {
        Self {
            slots,
            capacity,
            rows: BTreeMap::new(),
            horizon: Horizon::Start,
            displaced: BTreeSet::new(),
            offset: i64::MIN,
        }
    }

    /// Forgets all timers, because changes are missing; the store has to be read from the start.
    pub(crate) fn reset(&mut self) {
        self.rows.clear();
        self.displaced.clear();
        self.horizon = Horizon::Start;
    }

    /// Applies a change of the store.
    pub(crate) fn apply(&mut self, change: TimerChange, now: Now) {
        self.check_clock(now);

        match change {
            TimerChange::Arm(key, timer) => {
                let row = self.row(key, timer);
                // A timer beyond the horizon stays in the store and is read later.
                if self.contains_range(&row) {
                    let due = now.steady_due(row.due);
                    self.rows.insert(row, due);
                    self.shrink();
                }
            }
            TimerChange::Disarm(key, timer) => {
                let row = self.row(key, timer);
                self.rows.remove(&row);
            }
        }
    }

    /// Returns true if the store has to be read before the next timer is known.
    pub(crate) fn needs_page(&self) -> bool {
        self.rows.is_empty() && !matches!(self.horizon, Horizon::End)
    }

    /// Returns the timer after which the store has to be read; `None`: from the start.
    pub(crate) fn cursor(&self) -> Option<(InstanceKey, Timer)> {
        match &self.horizon {
            Horizon::At(row) => Some(row.clone().into_timer()),
            Horizon::Start | Horizon::End => None,
        }
    }

    /// Adds the timers that were read from the cursor; `is_last`: the store has no more.
    pub(crate) fn extend(&mut self, page: Vec<(InstanceKey, Timer)>, is_last: bool, now: Now) {
        self.check_clock(now);
        let last = page
            .last()
            .map(|(key, timer)| self.row(key.clone(), timer.clone()));

        for (key, timer) in page {
            let row = self.row(key, timer);
            let due = now.steady_due(row.due);
            // A timer in memory keeps its due time, which a clock that is set back must not delay.
            self.rows.entry(row).or_insert(due);
        }

        // A full page may be followed by others, and the memory ends at its last timer.
        self.horizon = match last {
            _ if is_last => Horizon::End,
            Some(last) => Horizon::At(last),
            None => Horizon::End,
        };
    }

    /// Returns the time at which the next timer is due at the latest, and the due time of the first
    /// one.
    pub(crate) fn next_due(&self) -> Option<(SteadyTime, Timestamp)> {
        let (row, steady) = self.rows.first_key_value()?;

        let displaced = self
            .displaced
            .first()
            .map_or(SteadyTime::MAX, |(due, _)| *due);
        Some((displaced.min(*steady), row.due))
    }

    /// Removes and returns the next timer that is due.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<(InstanceKey, Timer)> {
        self.check_clock(now);
        while let Some((due, _)) = self.displaced.first()
            && *due <= now.steady
        {
            let (_, row) = self.displaced.pop_first()?;
            // A timer that was deleted meanwhile is only in the order.
            if self.rows.remove(&row).is_some() {
                return Some(row.into_timer());
            }
        }

        // The wall clock first: the rows are in its order.
        let (row, steady) = self.rows.first_key_value()?;
        let is_due = row.due <= now.wall || *steady <= now.steady;
        is_due.then(|| self.rows.pop_first().map(|(row, _)| row.into_timer()))?
    }

    /// Detects that the wall clock was set back.
    fn check_clock(&mut self, now: Now) {
        let offset = now.offset();
        if offset < self.offset.saturating_sub(SET_BACK_MS) {
            // The rows are in the order of the wall clock. Until it catches up, the steady clock
            // decides.
            self.displaced = self
                .rows
                .iter()
                .map(|(row, due)| (*due, row.clone()))
                .collect();
            self.offset = offset;
        }
        self.offset = self.offset.max(offset);
    }

    fn contains_range(&self, row: &TimerRow) -> bool {
        match &self.horizon {
            Horizon::Start => false,
            Horizon::At(last) => row <= last,
            Horizon::End => true,
        }
    }

    /// Removes the latest timer beyond the capacity; it stays in the store.
    fn shrink(&mut self) {
        if self.rows.len() > self.capacity {
            self.rows.pop_last();
            let last = self.rows.last_key_value();
            self.horizon = last.map_or(Horizon::Start, |(last, _)| Horizon::At(last.clone()));
        }
    }

    fn row(&self, key: InstanceKey, timer: Timer) -> TimerRow {
        let slot = self.slots.slot_of(&key).0;
        TimerRow {
            due: timer.due,
            slot,
            key,
            name: timer.name,
            token: timer.token,
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{CorrelationId, SagaName, TenantId};
    use orlog_store::{Options, open_in_memory};
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new(format!("t{}", number % 3)).unwrap(),
            saga: SagaName::new("s").unwrap(),
            correlation: CorrelationId::new(format!("c{number}")).unwrap(),
        }
    }

    fn timer(due: i64, token: u64) -> Timer {
        Timer {
            due: Timestamp::from_millis(due),
            name: Name::new("t").unwrap(),
            token,
        }
    }

    fn at(millis: i64) -> Now {
        Now {
            wall: Timestamp::from_millis(millis),
            steady: SteadyTime::from_millis(millis),
        }
    }

    fn fill(armed: &mut ArmedTimers, reader: &orlog_store::Reader, page: usize) {
        while armed.needs_page() {
            let after = armed.cursor();
            let after = after.as_ref().map(|(key, timer)| (key, timer));
            let rows = reader.timers_after(after, page).unwrap();
            let is_last = rows.len() < page;
            armed.extend(rows, is_last, at(0));
        }
    }

    proptest! {
        /// Timers that are armed and disarmed while others fire: memory of any size, with pages of any size,
        /// fires each timer once, in the order of the store.
        #[test]
        fn every_timer_fires_once_in_order(
            capacity in 1usize..9, page in 1usize..9,
            steps in prop::collection::vec((0u8..9, 0i64..40, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let (mut writer, reader) = open_in_memory(Options::default());
            let mut armed = ArmedTimers::new(Options::default().slots, capacity);
            let (mut expected, mut fired) = (std::collections::BTreeSet::new(), Vec::new());
            for (token, (number, due, disarm, fire)) in steps.into_iter().enumerate() {
                let (key, timer) = (key(number), timer(due, token as u64));
                let mut commit = orlog_model::Commit::empty(key.clone(), timer.due);
                commit.arm = vec![timer.clone()];
                let mut changes = vec![TimerChange::Arm(key.clone(), timer.clone())];
                if disarm && let Some(first) = expected.pop_first() {
                    let (_, _, other): &(Timestamp, u16, (InstanceKey, u64)) = &first;
                    let deleted = Timer { due: first.0, name: timer.name.clone(), token: other.1 };
                    let mut removal = orlog_model::Commit::empty(other.0.clone(), timer.due);
                    removal.disarm = vec![deleted.clone()];
                    writer.commit(&[orlog_model::Change::Apply(Box::new(removal))], timer.due).unwrap();
                    changes.push(TimerChange::Disarm(other.0.clone(), deleted));
                }
                writer.commit(&[orlog_model::Change::Apply(Box::new(commit))], timer.due).unwrap();
                expected.insert((timer.due, Options::default().slots.slot_of(&key).0, (key, timer.token)));
                for change in changes {
                    armed.apply(change, at(0));
                }
                prop_assert!(armed.rows.len() <= capacity.max(page));
                if fire {
                    fill(&mut armed, &reader, page);
                    if let Some((key, timer)) = armed.pop_due(at(1_000)) {
                        let slot = Options::default().slots.slot_of(&key).0;
                        let first = expected.pop_first().expect("a timer is armed");
                        prop_assert_eq!(&first, &(timer.due, slot, (key.clone(), timer.token)));
                        fired.push(first);
                        let mut removal = orlog_model::Commit::empty(key, timer.due);
                        removal.disarm = vec![timer];
                        writer
                            .commit(&[orlog_model::Change::Apply(Box::new(removal))], Timestamp::from_millis(0))
                            .unwrap();
                    } else {
                        prop_assert!(expected.is_empty());
                    }
                }
            }
            fill(&mut armed, &reader, page);
            while let Some((_, timer)) = armed.pop_due(at(1_000)) {
                let first = expected.pop_first().expect("a timer is armed");
                prop_assert_eq!(first.2.1, timer.token);
                fill(&mut armed, &reader, page);
            }
            prop_assert!(expected.is_empty());
        }
    }

    #[test]
    fn clock_set_back_delays_no_timer_and_later_timers_follow_the_new_time() {
        let mut armed = ArmedTimers::new(SlotAssigner::default(), 9);
        armed.extend(Vec::new(), true, at(0));
        armed.apply(TimerChange::Arm(key(1), timer(3_000, 1)), at(0));
        armed.apply(TimerChange::Arm(key(2), timer(9_000, 2)), at(0));
        // One hour back after one second.
        let now = |steady: i64| Now {
            wall: Timestamp::from_millis(steady - 3_600_000),
            steady: SteadyTime::from_millis(steady),
        };
        armed.apply(
            TimerChange::Arm(key(3), timer(5_000 - 3_600_000, 3)),
            now(1_000),
        );
        armed.apply(TimerChange::Disarm(key(2), timer(9_000, 2)), now(1_000));
        let mut fired = |steady| armed.pop_due(now(steady)).map(|(_, timer)| timer.token);
        assert_eq!(
            (fired(2_999), fired(3_000), fired(4_999)),
            (None, Some(1), None)
        );
        assert_eq!((fired(5_000), fired(20_000)), (Some(3), None));
    }
}
