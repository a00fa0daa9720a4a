//! Undispatched work items of a shard: the next ones of each destination in memory, the others in
//! the store.
//!
//! Guarantees: the items of a destination are taken in the order of their sequences, each once.
//! Tenants with items and capacity take turns at an upstream (deficit round robin with a cost of
//! one), so that no tenant waits for the items of another tenant. Within its turn, the priorities
//! of the tenant take turns ([`PriorityTurns`]), each with a window of its own: a backlog of a low
//! priority takes no place of a higher one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use orlog_model::{Destination, Priority, PriorityTurns};
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
    shares: BTreeMap<WindowKey, Share>,
    /// Shares with items and probably capacity, in the order of their turns.
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
    /// The destination is in the queue of its window.
    is_queued: bool,
}

/// Share of a tenant in the items of the relay for an upstream.
struct Share {
    weight: usize,
    windows: BTreeMap<Priority, WindowQueue>,
    turns: PriorityTurns,
    /// Remaining items of the turn; 0 before it starts.
    turn: usize,
    is_in_round: bool,
}

/// Destinations of a window that may have items.
struct WindowQueue {
    window: Arc<Window>,
    destinations: VecDeque<Destination>,
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
            shares: BTreeMap::new(),
            round: VecDeque::new(),
        }
    }

    /// Reads the undispatched items from the store again, because items are missing in memory.
    pub(crate) fn rescan(&mut self, assign: AssignWindow<'_>) -> Result<(), Error> {
        // Destinations that the store no longer lists keep their position: a later commit may add
        // to them.
        self.destinations
            .values_mut()
            .for_each(DestinationQueue::reset);

        for destination in self.reader.outbox_destinations()? {
            self.destinations
                .entry(destination.clone())
                .or_default()
                .reset();
            self.queue(&destination, assign);
        }
        Ok(())
    }

    /// Adds an item of a durable commit.
    pub(crate) fn offer(&mut self, work: StoredWork, assign: AssignWindow<'_>) {
        let destination = work.key.destination.clone();
        // The entry needs a copy of the destination, and most destinations exist.
        match self.destinations.get_mut(&destination) {
            Some(queue) => queue.offer(work),
            None => self
                .destinations
                .entry(destination.clone())
                .or_default()
                .offer(work),
        }
        self.queue(&destination, assign);
    }

    /// Returns the window of a destination.
    pub(crate) fn window(
        &mut self,
        destination: &Destination,
        assign: AssignWindow<'_>,
    ) -> Arc<Window> {
        let (key, weight) = assign(destination);
        let share = share(&mut self.shares, &key, weight);
        Arc::clone(&share.window_queue(&key, destination.priority).window)
    }

    /// Lets a window that has capacity again take its turn.
    pub(crate) fn resume(&mut self, window: &Window) {
        if let Some(share) = self.shares.get_mut(&window.key) {
            share.join_round(&window.key, &mut self.round);
        }
    }

    /// Takes the next items; `None`: no window has items and capacity.
    pub(crate) fn next_turn(&mut self) -> Result<Option<Turn>, Error> {
        while let Some(key) = self.round.front() {
            let share = self
                .shares
                .get_mut(key)
                .expect("a share in the round exists");
            let Some((priority, limit)) = share.next_priority(self.window_size) else {
                share.leave_round(&mut self.round);
                continue;
            };

            let queue = share
                .windows
                .get_mut(&priority)
                .expect("the priority has a window");
            let destination = queue
                .destinations
                .front()
                .expect("the window has a destination")
                .clone();

            let source = self
                .destinations
                .get_mut(&destination)
                .expect("a queued destination exists");
            source.fill(&destination, &self.reader)?;
            if source.items.is_empty() {
                // A later item adds the destination to the window again.
                source.is_queued = false;
                queue.destinations.pop_front();
                continue;
            }

            // The destinations of a window take turns too.
            let window = Arc::clone(&queue.window);
            queue.destinations.rotate_left(1);
            let items = source.take(limit);

            share.turn -= items.len();
            share.turns.take(priority, items.len());

            if share.turn == 0 {
                self.round.rotate_left(1);
            }
            return Ok(Some(Turn {
                window,
                destination,
                items,
            }));
        }
        Ok(None)
    }

    /// Adds a destination to the queue of its window.
    fn queue(&mut self, destination: &Destination, assign: AssignWindow<'_>) {
        let source = self
            .destinations
            .get_mut(destination)
            .expect("the destination exists");
        if std::mem::replace(&mut source.is_queued, true) {
            return;
        }

        let (key, weight) = assign(destination);
        let share = share(&mut self.shares, &key, weight);
        share
            .window_queue(&key, destination.priority)
            .destinations
            .push_back(destination.clone());
        share.join_round(&key, &mut self.round);
    }
}

/// Returns the share of this key with this weight; creates it if it is new.
fn share<'a>(
    shares: &'a mut BTreeMap<WindowKey, Share>,
    key: &WindowKey,
    weight: usize,
) -> &'a mut Share {
    let share = shares.entry(key.clone()).or_insert_with(|| Share {
        weight,
        windows: BTreeMap::new(),
        turns: PriorityTurns::default(),
        turn: 0,
        is_in_round: false,
    });

    // Set each time: a reload can have changed it.
    share.weight = weight;
    share
}

impl Share {
    fn window_queue(&mut self, key: &WindowKey, priority: Priority) -> &mut WindowQueue {
        self.windows.entry(priority).or_insert_with(|| WindowQueue {
            window: Window::new(key.clone()),
            destinations: VecDeque::new(),
        })
    }

    /// Returns the next priority with destinations and capacity, and the number of its items to
    /// take.
    fn next_priority(&mut self, window_size: usize) -> Option<(Priority, usize)> {
        let capacities = Priority::ALL.map(|priority| match self.windows.get(&priority) {
            Some(queue) if !queue.destinations.is_empty() => queue.window.capacity(window_size),
            _ => 0,
        });
        let (priority, limit) = self
            .turns
            .next(|priority| capacities[priority as usize] > 0)?;

        if self.turn == 0 {
            self.turn = self.weight.saturating_mul(TURN);
        }
        Some((
            priority,
            limit.min(self.turn).min(capacities[priority as usize]),
        ))
    }

    fn join_round(&mut self, key: &WindowKey, round: &mut VecDeque<WindowKey>) {
        if !std::mem::replace(&mut self.is_in_round, true) {
            round.push_back(key.clone());
        }
    }

    fn leave_round(&mut self, round: &mut VecDeque<WindowKey>) {
        self.is_in_round = false;
        self.turn = 0;
        round.pop_front();
    }
}

impl DestinationQueue {
    /// Adds an item of a durable commit. An item that the store has already returned is ignored; an
    /// item that does not fit is read from the store later.
    fn offer(&mut self, work: StoredWork) {
        let last = self
            .items
            .back()
            .map_or(self.after, |last| last.key.sequence);
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
            let page = reader.outbox(destination, self.after, PAGE)?;
            self.items.extend(
                page.into_iter()
                    .map(|(key, item)| OutboxRow::boxed(key, item)),
            );

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
        Change, Commit, CorrelationId, EventId, Fact, InstanceKey, OutboxKey, SagaName, TenantId,
        Timestamp, Work, WorkItem,
    };
    use orlog_store::{Options, Writer, open_in_memory};
    use uuid::Uuid;

    use super::*;

    fn commit(writer: &mut Writer, tenant: &str, id: u128) -> StoredWork {
        commit_with(writer, tenant, Priority::Normal, id)
    }

    fn commit_with(writer: &mut Writer, tenant: &str, priority: Priority, id: u128) -> StoredWork {
        let instance = InstanceKey {
            tenant: TenantId::new(tenant).unwrap(),
            saga: SagaName::new("s").unwrap(),
            correlation: CorrelationId::new("c").unwrap(),
        };
        let item = WorkItem {
            id: Uuid::from_u128(id),
            instance: instance.clone(),
            work: Work::Fact(Fact::new(
                orlog_model::EventType::new("F").unwrap(),
                serde_json::Value::Null,
            )),
            deadline: None,
            causation: EventId::new("e").unwrap(),
            trace: None,
            created_at: Timestamp::from_millis(0),
            priority,
        };
        let commit = Commit {
            work: vec![item.clone()],
            ..Commit::empty(instance, Timestamp::from_millis(0))
        };
        writer
            .commit(
                &[Change::Apply(Box::new(commit))],
                Timestamp::from_millis(0),
            )
            .unwrap();
        OutboxRow::boxed(
            OutboxKey {
                destination: item.destination(),
                sequence: writer.work_sequences()[0],
            },
            item,
        )
    }

    fn assign(destination: &Destination) -> (WindowKey, usize) {
        let weight = if destination.tenant.as_str() == "b" {
            3
        } else {
            1
        };
        ((destination.tenant.clone(), "".into()), weight)
    }

    fn turns(queues: &mut OutboxQueues) -> Vec<(String, usize)> {
        let next = || queues.next_turn().unwrap();
        std::iter::from_fn(next)
            .map(|t| (t.destination.tenant.to_string(), t.items.len()))
            .collect()
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
        let expected = [
            ("a", TURN),
            ("b", 3 * TURN),
            ("c", 1),
            ("a", TURN),
            ("b", TURN),
            ("a", TURN),
        ];
        assert_eq!(
            turns(&mut queues),
            expected.map(|(tenant, count)| (tenant.to_owned(), count))
        );
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

    /// Takes all items with windows of this size; returns the priorities in order.
    fn taken(queues: &mut OutboxQueues) -> Vec<Priority> {
        let mut taken = Vec::new();
        while let Some(turn) = queues.next_turn().unwrap() {
            taken.extend(turn.items.iter().map(|work| work.item.priority));
        }
        taken
    }

    #[test]
    fn high_items_pass_a_backlog_in_the_store_and_no_priority_starves() {
        let (mut writer, reader) = open_in_memory(Options::default());
        for id in 0..5 * PAGE as u128 {
            commit_with(&mut writer, "a", Priority::Low, id);
        }
        for id in 0..40 {
            commit_with(&mut writer, "a", Priority::High, 10_000 + id);
        }
        // After a restart, all items are in the store only.
        let mut queues = OutboxQueues::new(reader, 100_000);
        queues.rescan(&assign).unwrap();
        let order = taken(&mut queues);
        assert_eq!(order.len(), 5 * PAGE + 40);
        let last_high = order
            .iter()
            .rposition(|priority| *priority == Priority::High);
        assert_eq!(
            last_high,
            Some(41),
            "two low items have their turns between 40 high ones"
        );
        assert_eq!(order[16], Priority::Low);
    }

    #[test]
    fn full_window_of_low_items_leaves_room_for_high_ones() {
        let (mut writer, reader) = open_in_memory(Options::default());
        let mut queues = OutboxQueues::new(reader, TURN);
        let low: Vec<_> = (0..2 * TURN as u128)
            .map(|id| commit_with(&mut writer, "a", Priority::Low, id))
            .collect();
        for work in low {
            queues.offer(work, &assign);
        }
        let Some(Turn { window, items, .. }) = queues.next_turn().unwrap() else {
            panic!("there is a turn")
        };
        assert_eq!(items.len(), TURN);
        window.fill(TURN);
        assert!(queues.next_turn().unwrap().is_none(), "the window is full");
        queues.offer(
            commit_with(&mut writer, "a", Priority::High, 1_000),
            &assign,
        );
        assert_eq!(taken(&mut queues), [Priority::High]);
        window.fill(0);
        queues.resume(&window);
        assert_eq!(taken(&mut queues), [Priority::Low; TURN]);
    }
}
