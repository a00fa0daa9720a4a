//! Priority of work: three classes, and the weighted turns in which they are served.
//!
//! Weighted round robin: of 21 items, 16 are of the class `high`, 4 `normal` and 1 `low`, if each
//! class has waiting items. A class without items leaves its turns to the others, so that no turn
//! is unused and no class starves. The queues of Asynq and Sidekiq are served in the same way.

use std::collections::VecDeque;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Priority class of a work item.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Priority {
    /// Before the others.
    High,
    /// Default.
    #[default]
    Normal,
    /// After the others.
    Low,
}

impl Priority {
    /// All classes, highest first.
    pub const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

    /// Returns the name: `high`, `normal` or `low`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether it is the default. Values omit the default.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        *self == Priority::Normal
    }

    /// Returns the number of turns of the class in each round.
    const fn weight(self) -> usize {
        match self {
            Priority::High => 16,
            Priority::Normal => 4,
            Priority::Low => 1,
        }
    }
}

/// Error of a name that is no priority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a priority; priorities: high, normal, low")]
pub struct PriorityError(String);

impl FromStr for Priority {
    type Err = PriorityError;

    fn from_str(name: &str) -> Result<Self, PriorityError> {
        let found = Self::ALL
            .into_iter()
            .find(|priority| priority.as_str() == name);
        found.ok_or_else(|| PriorityError(name.to_owned()))
    }
}

/// Weighted turns of the classes; see the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct PriorityTurns {
    /// Remaining turns of the round, by class.
    left: [usize; 3],
}

impl PriorityTurns {
    /// Returns the next class, one that has items, and the maximum number of its items to take in a
    /// row. Call [`PriorityTurns::take`] with the number that was taken.
    pub fn next(&mut self, has_items: impl Fn(Priority) -> bool) -> Option<(Priority, usize)> {
        let waiting = Priority::ALL.map(&has_items);
        // A class without items leaves its turns to the others, also if it has turns left in the
        // round.
        let priority = self.first(waiting).or_else(|| {
            self.left = Priority::ALL.map(Priority::weight);
            self.first(waiting)
        })?;

        // A class that waits alone delays no other one: its items need no turns.
        let is_alone = waiting.into_iter().filter(|waits| *waits).count() == 1;
        let limit = if is_alone {
            usize::MAX
        } else {
            self.left[priority as usize]
        };
        Some((priority, limit))
    }

    /// Uses turns of a class.
    pub fn take(&mut self, priority: Priority, count: usize) {
        let left = &mut self.left[priority as usize];
        *left = left.saturating_sub(count);
    }

    fn first(&self, waiting: [bool; 3]) -> Option<Priority> {
        Priority::ALL
            .into_iter()
            .find(|class| waiting[*class as usize] && self.left[*class as usize] > 0)
    }
}

/// Queue whose classes take turns. The items of one class keep their order.
#[derive(Debug)]
pub struct PriorityQueue<T> {
    classes: [VecDeque<T>; 3],
    turns: PriorityTurns,
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self {
            classes: Default::default(),
            turns: PriorityTurns::default(),
        }
    }
}

impl<T> PriorityQueue<T> {
    /// Appends an item to its class.
    pub fn push(&mut self, priority: Priority, item: T) {
        self.classes[priority as usize].push_back(item);
    }

    /// Returns the next item.
    pub fn pop(&mut self) -> Option<T> {
        let classes = &mut self.classes;
        let (priority, _) = self
            .turns
            .next(|class| !classes[class as usize].is_empty())?;

        self.turns.take(priority, 1);
        classes[priority as usize].pop_front()
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.classes.iter().map(VecDeque::len).sum()
    }

    /// Returns whether there are no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(counts: [usize; 3]) -> PriorityQueue<(Priority, usize)> {
        let mut queue = PriorityQueue::default();
        for (priority, count) in Priority::ALL.into_iter().zip(counts) {
            (0..count).for_each(|n| queue.push(priority, (priority, n)));
        }
        queue
    }

    fn classes(queue: &mut PriorityQueue<(Priority, usize)>, count: usize) -> [usize; 3] {
        let mut taken = [0; 3];
        for _ in 0..count {
            let (priority, n) = queue.pop().expect("there are items");
            assert_eq!(n, taken[priority as usize], "{priority:?} keeps its order");
            taken[priority as usize] += 1;
        }
        taken
    }

    #[test]
    fn classes_are_served_by_weight() {
        assert_eq!(classes(&mut queue([100; 3]), 21), [16, 4, 1]);
        assert_eq!(classes(&mut queue([100; 3]), 63), [48, 12, 3]);
    }

    #[test]
    fn class_without_items_leaves_its_turns_to_the_others() {
        assert_eq!(classes(&mut queue([0, 9, 9]), 10), [0, 8, 2]);
        let mut rest = queue([1, 0, 50]);
        assert_eq!(
            (classes(&mut rest, 51), rest.pop(), rest.is_empty()),
            ([1, 0, 50], None, true)
        );
    }

    #[test]
    fn high_item_that_arrives_at_a_backlog_is_next() {
        let mut queue = queue([0, 0, 100]);
        for _ in 0..50 {
            queue.pop();
        }
        queue.push(Priority::High, (Priority::High, 0));
        assert_eq!(queue.pop(), Some((Priority::High, 0)));
    }

    #[test]
    fn only_class_with_items_takes_any_number() {
        let mut turns = PriorityTurns::default();
        assert_eq!(
            turns.next(|class| class == Priority::Low),
            Some((Priority::Low, usize::MAX))
        );
        assert_eq!(
            turns.next(|class| class != Priority::High),
            Some((Priority::Normal, 4))
        );
        turns.take(Priority::Normal, 4);
        assert_eq!(
            turns.next(|class| class != Priority::High),
            Some((Priority::Low, 1))
        );
        assert_eq!(turns.next(|_| false), None);
    }

    #[test]
    fn names_are_parsed() {
        assert_eq!(
            Priority::ALL.map(|priority| priority.as_str().parse()),
            Priority::ALL.map(Ok)
        );
        let error = "urgent".parse::<Priority>().unwrap_err().to_string();
        assert_eq!(
            error,
            r#""urgent" is not a priority; priorities: high, normal, low"#
        );
    }
}
