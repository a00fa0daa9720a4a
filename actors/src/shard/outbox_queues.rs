//! Undispatched work items of a shard: the next ones of each destination in memory, the others in the
//! store.
//!
//! Guarantees: the items of a destination are taken in the order of their sequences, each once. Windows
//! with items and capacity take turns (deficit round robin with a cost of one), so that no tenant waits
//! for the items of another tenant.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use orlog_model::Destination;
use orlog_store::{Error, Reader};

use crate::effects::work_dispatch::{Window, WindowKey};
use crate::shard::fresh_queue::{OutboxRow, StoredWork};

/// Maximum number of items of a destination in memory, and number of items read per page.
pub(crate) const PAGE: usize = 256;
/// Number of items that a window of weight 1 dispatches per turn.
const TURN: usize = 32;

/// Queues of a shard; see the module documentation.
pub(crate) struct OutboxQueues {
    reader: Reader,
    window_size: usize,
    destinations: BTreeMap<Destination, DestinationQueue>,
    windows: BTreeMap<WindowKey, WindowQueue>,
    /// Windows with items and probably capacity, in the order of their turns.
    round: VecDeque<WindowKey>,
}

/// Queue of a destination.
#[derive(Default)]
struct DestinationQueue {
    /// Sequence of the last item that was taken.
    after: u64,
    /// Next items, in order.
    items: VecDeque<StoredWork>,
    /// The store may have items behind those in memory.
    is_behind: bool,
    /// The destination is in the queue of a window.
    is_queued: bool,
}

/// Destinations of a window that may have items.
struct WindowQueue {
    window: Arc<Window>,
    weight: usize,
    destinations: VecDeque<Destination>,
    /// Remaining items of the turn; 0 before it starts.
    turn: usize,
    is_in_round: bool,
}

/// Items of one destination to dispatch.
pub(crate) struct Turn {
    pub(crate) window: Arc<Window>,
    pub(crate) destination: Destination,
    pub(crate) items: Vec<StoredWork>,
}

/// Returns the window of a destination and its weight.
pub(crate) type AssignWindow<'a> = &'a dyn Fn(&Destination) -> (WindowKey, usize);

impl OutboxQueues {
    /// Creates empty queues with windows of this size.
    pub(crate) fn new(reader: Reader, window_size: usize) -> Self {
        Self {
            reader,
            window_size,
            destinations: BTreeMap::new(),
            windows: BTreeMap::new(),
            round: VecDeque::new(),
        }
    }

    /// Reads the undispatched items from the store again, because items are missing in memory.
    pub(crate) fn rescan(&mut self, assign: AssignWindow<'_>) -> Result<(), Error> {
        self.destinations.values_mut().for_each(DestinationQueue::reset);
        for destination in self.reader.outbox_destinations()? {
            self.destinations.entry(destination.clone()).or_default().reset();
            self.queue(&destination, assign);
        }
        Ok(())
    }

    /// Adds an item of a durable commit.
    pub(crate) fn offer(&mut self, work: StoredWork, assign: AssignWindow<'_>) {
        let destination = work.key.destination.clone();
        match self.destinations.get_mut(&destination) {
            Some(queue) => queue.offer(work),
            None => self.destinations.entry(destination.clone()).or_default().offer(work),
        }
        self.queue(&destination, assign);
    }

    /// Returns the window of a destination.
    pub(crate) fn window(&mut self, destination: &Destination, assign: AssignWindow<'_>) -> Arc<Window> {
        let (key, weight) = assign(destination);
        Arc::clone(&self.window_queue(key, weight).window)
    }

    /// Lets a window that has capacity again take its turn.
    pub(crate) fn resume(&mut self, window: &Window) {
        if let Some(queue) = self.windows.get_mut(&window.key) {
            queue.join_round(&mut self.round);
        }
    }

    /// Takes the next items; `None`: no window has items and capacity.
    pub(crate) fn next_turn(&mut self) -> Result<Option<Turn>, Error> {
        while let Some(key) = self.round.front() {
            let queue = self.windows.get_mut(key).expect("a window in the round exists");
            let capacity = queue.window.capacity(self.window_size);
            let Some(destination) = queue.destinations.front().filter(|_| capacity > 0).cloned() else {
                queue.leave_round(&mut self.round);
                continue;
            };
            let source = self.destinations.get_mut(&destination).expect("a queued destination exists");
            source.fill(&destination, &self.reader)?;
            if source.items.is_empty() {
                source.is_queued = false;
                queue.destinations.pop_front();
                continue;
            }
            if queue.turn == 0 {
                queue.turn = queue.weight.saturating_mul(TURN);
            }
            let items = source.take(capacity.min(queue.turn));
            queue.turn -= items.len();
            queue.destinations.rotate_left(1);
            let window = Arc::clone(&queue.window);
            if queue.turn == 0 {
                self.round.rotate_left(1);
            }
            return Ok(Some(Turn { window, destination, items }));
        }
        Ok(None)
    }

    /// Adds a destination to the queue of its window.
    fn queue(&mut self, destination: &Destination, assign: AssignWindow<'_>) {
        let source = self.destinations.get_mut(destination).expect("the destination exists");
        if std::mem::replace(&mut source.is_queued, true) {
            return;
        }
        let (key, weight) = assign(destination);
        let queue = self.window_queue(key, weight);
        queue.destinations.push_back(destination.clone());
        let key = queue.window.key.clone();
        if let Some(queue) = self.windows.get_mut(&key) {
            queue.join_round(&mut self.round);
        }
    }

    fn window_queue(&mut self, key: WindowKey, weight: usize) -> &mut WindowQueue {
        let queue = self.windows.entry(key).or_insert_with_key(|key| WindowQueue {
            window: Window::new(key.clone()),
            weight,
            destinations: VecDeque::new(),
            turn: 0,
            is_in_round: false,
        });
        queue.weight = weight;
        queue
    }
}

impl WindowQueue {
    fn join_round(&mut self, round: &mut VecDeque<WindowKey>) {
        if !std::mem::replace(&mut self.is_in_round, true) {
            round.push_back(self.window.key.clone());
        }
    }

    fn leave_round(&mut self, round: &mut VecDeque<WindowKey>) {
        (self.is_in_round, self.turn) = (false, 0);
        round.pop_front();
    }
}

impl DestinationQueue {
    /// Adds an item of a durable commit. An item that the store has already returned is ignored; an item
    /// that does not fit is read from the store later.
    fn offer(&mut self, work: StoredWork) {
        let last = self.items.back().map_or(self.after, |last| last.key.sequence);
        if self.is_behind || work.key.sequence <= last {
            return;
        }
        if self.items.len() < PAGE {
            self.items.push_back(work);
        } else {
            self.is_behind = true;
        }
    }

    /// Drops the items in memory; they are read from the store again.
    fn reset(&mut self) {
        self.items.clear();
        self.is_behind = true;
    }

    /// Reads the next page from the store if no item is in memory and the store may have more.
    fn fill(&mut self, destination: &Destination, reader: &Reader) -> Result<(), Error> {
        if self.items.is_empty() && self.is_behind {
            self.items
                .extend(reader.outbox(destination, self.after, PAGE)?.into_iter().map(OutboxRow::boxed));
            // Later commits are handed over in memory.
            self.is_behind = self.items.len() == PAGE;
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Vec<StoredWork> {
        let count = count.min(self.items.len());
        let taken: Vec<_> = self.items.drain(..count).collect();
        if let Some(last) = taken.last() {
            self.after = last.key.sequence;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        Change, Commit, CorrelationId, EventId, Fact, InstanceKey, OutboxKey, SagaName, TenantId, Timestamp,
        Work, WorkItem,
    };
    use orlog_store::{Options, Writer, open_in_memory};
    use uuid::Uuid;

    use super::*;

    fn commit(writer: &mut Writer, tenant: &str, id: u128) -> StoredWork {
        let instance = InstanceKey {
            tenant: TenantId::new(tenant).unwrap(),
            saga: SagaName::new("s").unwrap(),
            correlation: CorrelationId::new("c").unwrap(),
        };
        let item = WorkItem {
            id: Uuid::from_u128(id),
            instance: instance.clone(),
            work: Work::Fact(Fact {
                kind: orlog_model::EventType::new("F").unwrap(),
                data: serde_json::Value::Null,
                key: None,
            }),
            deadline: None,
            causation: EventId::new("e").unwrap(),
            trace: None,
            created_at: Timestamp::from_millis(0),
        };
        let commit =
            Commit { work: vec![item.clone()], ..Commit::empty(instance, Timestamp::from_millis(0)) };
        writer.commit(&[Change::Apply(Box::new(commit))], Timestamp::from_millis(0)).unwrap();
        OutboxRow::boxed((
            OutboxKey { destination: item.destination(), sequence: writer.work_sequences()[0] },
            item,
        ))
    }

    fn assign(destination: &Destination) -> (WindowKey, usize) {
        let weight = if destination.tenant.as_str() == "b" { 3 } else { 1 };
        ((destination.tenant.clone(), "".into()), weight)
    }

    fn turns(queues: &mut OutboxQueues) -> Vec<(String, usize)> {
        let next = || queues.next_turn().unwrap();
        std::iter::from_fn(next).map(|t| (t.destination.tenant.to_string(), t.items.len())).collect()
    }

    #[test]
    fn windows_take_turns_by_weight() {
        let (mut writer, reader) = open_in_memory(Options::default());
        let mut queues = OutboxQueues::new(reader, 10_000);
        for (tenant, count) in [("a", 3 * TURN), ("b", 4 * TURN), ("c", 1)] {
            for id in 0..count {
                queues.offer(commit(&mut writer, tenant, id as u128), &assign);
            }
        }
        let expected = [("a", TURN), ("b", 3 * TURN), ("c", 1), ("a", TURN), ("b", TURN), ("a", TURN)];
        assert_eq!(turns(&mut queues), expected.map(|(tenant, count)| (tenant.to_owned(), count)));
    }

    #[test]
    fn items_are_taken_once_in_order_from_memory_and_store() {
        let (mut writer, reader) = open_in_memory(Options::default());
        let mut queues = OutboxQueues::new(reader, 10_000);
        let before: Vec<_> = (0..10).map(|id| commit(&mut writer, "a", id)).collect();
        queues.rescan(&assign).unwrap();
        // The store has already returned these items when the committer hands them over.
        let mut taken = queues.next_turn().unwrap().unwrap().items;
        for row in before {
            queues.offer(row, &assign);
        }
        // More than the memory holds.
        for id in 10..10 + 3 * PAGE as u128 {
            queues.offer(commit(&mut writer, "a", id), &assign);
        }
        queues.rescan(&assign).unwrap();
        while let Some(turn) = queues.next_turn().unwrap() {
            taken.extend(turn.items);
        }
        let ids: Vec<_> = taken.iter().map(|work| work.item.id.as_u128()).collect();
        assert_eq!(ids, (0..10 + 3 * PAGE as u128).collect::<Vec<_>>());
    }
}
