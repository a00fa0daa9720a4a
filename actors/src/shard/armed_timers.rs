//! The next timers of a shard, in memory, in the order of the store.
//!
//! Guarantees: every stored timer up to the horizon that was not fired is in memory; timers beyond the
//! horizon are only in the store. Each row is read from the store at most once, unless the memory is
//! reset.

use std::collections::BTreeSet;

use orlog_model::{InstanceKey, Name, SlotAssigner, Timer, Timestamp};

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
    rows: BTreeSet<TimerRow>,
    horizon: Horizon,
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
        (self.key, Timer { due: self.due, name: self.name, token: self.token })
    }
}

impl ArmedTimers {
    /// Creates an empty memory for up to `capacity` timers; the store has to be read.
    pub(crate) fn new(slots: SlotAssigner, capacity: usize) -> Self {
        Self { slots, capacity, rows: BTreeSet::new(), horizon: Horizon::Start }
    }

    /// Forgets all timers, because changes are missing; the store has to be read from the start.
    pub(crate) fn reset(&mut self) {
        self.rows.clear();
        self.horizon = Horizon::Start;
    }

    /// Applies a change of the store.
    pub(crate) fn apply(&mut self, change: TimerChange) {
        match change {
            TimerChange::Arm(key, timer) => {
                let row = self.row(key, timer);
                if self.contains_range(&row) {
                    self.rows.insert(row);
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
    pub(crate) fn extend(&mut self, page: Vec<(InstanceKey, Timer)>, is_last: bool) {
        let last = page.last().map(|(key, timer)| self.row(key.clone(), timer.clone()));
        for (key, timer) in page {
            let row = self.row(key, timer);
            self.rows.insert(row);
        }
        self.horizon = match last {
            _ if is_last => Horizon::End,
            Some(last) => Horizon::At(last),
            None => Horizon::End,
        };
    }

    /// Returns the due time of the next timer in memory.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.rows.first().map(|row| row.due)
    }

    /// Removes and returns the next timer if it is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<(InstanceKey, Timer)> {
        self.next_due().filter(|due| *due <= now)?;
        self.rows.pop_first().map(TimerRow::into_timer)
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
            self.horizon = self.rows.last().map_or(Horizon::Start, |last| Horizon::At(last.clone()));
        }
    }

    fn row(&self, key: InstanceKey, timer: Timer) -> TimerRow {
        let slot = self.slots.slot_of(&key).0;
        TimerRow { due: timer.due, slot, key, name: timer.name, token: timer.token }
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
        Timer { due: Timestamp::from_millis(due), name: Name::new("t").unwrap(), token }
    }

    fn fill(armed: &mut ArmedTimers, reader: &orlog_store::Reader, page: usize) {
        while armed.needs_page() {
            let after = armed.cursor();
            let after = after.as_ref().map(|(key, timer)| (key, timer));
            let rows = reader.timers_after(after, page).unwrap();
            let is_last = rows.len() < page;
            armed.extend(rows, is_last);
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
    armed.apply(change);
    }
                   prop_assert!(armed.rows.len() <= capacity.max(page));
                   if fire {
                       fill(&mut armed, &reader, page);
                       let now = Timestamp::from_millis(i64::MAX);
                       if let Some((key, timer)) = armed.pop_due(now) {
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
               while let Some((_, timer)) = armed.pop_due(Timestamp::MAX) {
                   let first = expected.pop_first().expect("a timer is armed");
                   prop_assert_eq!(first.2.1, timer.token);
                   fill(&mut armed, &reader, page);
               }
               prop_assert!(expected.is_empty());
           }
       }
}
