//! Queues of waiting messages, one for each tenant, served in turn.

use std::collections::{HashMap, VecDeque};

use compact_str::CompactString;

use crate::subject;

/// Messages for which an unused queue keeps its memory: most tenants have few messages at a time.
const KEPT_CAPACITY: usize = 16;

/// Waiting messages by tenant. A tenant whose in-flight messages have reached the limit is passed
/// over.
#[derive(Debug)]
pub(crate) struct TenantQueues {
    queues: Vec<TenantQueue>,
    /// Queue of a tenant.
    by_tenant: HashMap<CompactString, usize>,
    /// Unused queues.
    free: Vec<usize>,
    /// Queues with waiting messages and less than the limit in flight, in turn.
    ready: VecDeque<usize>,
    max_in_flight: Option<usize>,
}

#[derive(Debug, Default)]
struct TenantQueue {
    tenant: CompactString,
    waiting: VecDeque<u64>,
    in_flight: usize,
    is_ready: bool,
}

impl TenantQueues {
    /// Creates empty queues with a limit of in-flight messages for each tenant. Without a limit,
    /// all tenants share a queue.
    pub(crate) fn new(max_in_flight: Option<usize>) -> Self {
        Self {
            queues: Vec::new(),
            by_tenant: HashMap::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            max_in_flight: max_in_flight.map(|max| max.max(1)),
        }
    }

    /// Adds a message to the queue of its tenant, and returns the queue.
    pub(crate) fn push(&mut self, subject: &str, sequence: u64) -> usize {
        // Without a limit, one queue for all tenants keeps the order of the stream.
        let tenant = self
            .max_in_flight
            .map_or("", |_| subject::tenant_token(subject));
        let index = match self.by_tenant.get(tenant) {
            Some(index) => *index,
            None => self.add(tenant),
        };

        self.queues[index].waiting.push_back(sequence);
        self.update(index);
        index
    }

    fn add(&mut self, tenant: &str) -> usize {
        // The list never shrinks, because the slots in flight contain the index of their queue.
        let index = self.free.pop().unwrap_or(self.queues.len());
        if index == self.queues.len() {
            self.queues.push(TenantQueue::default());
        }

        let tenant = CompactString::from(tenant);
        self.queues[index].tenant.clone_from(&tenant);
        self.by_tenant.insert(tenant, index);
        index
    }

    /// Takes the next message of the next tenant; it is in flight until [`TenantQueues::complete`].
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let index = self.ready.pop_front()?;
        let queue = &mut self.queues[index];
        queue.is_ready = false;
        queue.in_flight += 1;
        let sequence = queue.waiting.pop_front();

        // The tenant takes its next turn behind the others, if it has more messages and is below
        // its limit.
        self.update(index);
        sequence
    }

    /// Records that an in-flight message of this queue is done.
    pub(crate) fn complete(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        queue.in_flight -= 1;
        if queue.in_flight == 0 && queue.waiting.is_empty() {
            // The queue is used again: with thousands of tenants, most queues are empty at any
            // time.
            let tenant = std::mem::take(&mut queue.tenant);
            queue.waiting.shrink_to(KEPT_CAPACITY);
            self.by_tenant.remove(&tenant);
            self.free.push(index);
        } else {
            self.update(index);
        }
    }

    fn update(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let is_limited = self.max_in_flight.is_some_and(|max| queue.in_flight >= max);
        // A queue is in `ready` at most once, so that each tenant receives one message a turn.
        if !queue.is_ready && !queue.waiting.is_empty() && !is_limited {
            queue.is_ready = true;
            self.ready.push_back(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queues: &mut TenantQueues, tenant: &str, sequences: std::ops::Range<u64>) -> usize {
        let subject = format!("tenant.{tenant}.aggregate.order.1");
        sequences
            .map(|sequence| queues.push(&subject, sequence))
            .last()
            .unwrap()
    }

    #[test]
    fn tenants_are_served_in_turn_and_in_order() {
        let mut queues = TenantQueues::new(Some(100));
        push(&mut queues, "loud", 1..6);
        push(&mut queues, "quiet", 6..8);
        let order: Vec<u64> = std::iter::from_fn(|| queues.pop()).collect();
        assert_eq!(order, [1, 6, 2, 7, 3, 4, 5]);
    }

    #[test]
    fn tenant_at_its_limit_is_passed_over_until_a_message_is_done() {
        let mut queues = TenantQueues::new(Some(2));
        let loud = push(&mut queues, "loud", 1..6);
        let quiet = push(&mut queues, "quiet", 6..7);
        let order: Vec<u64> = std::iter::from_fn(|| queues.pop()).collect();
        assert_eq!(order, [1, 6, 2]);
        queues.complete(loud);
        assert_eq!((queues.pop(), queues.pop()), (Some(3), None));
        queues.complete(quiet);
        assert_eq!(
            queues.by_tenant.len(),
            1,
            "a tenant without messages needs no queue"
        );
        assert_eq!(push(&mut queues, "third", 7..8), quiet);
        assert_eq!(queues.pop(), Some(7));
    }

    #[test]
    fn tenants_share_a_queue_without_a_limit() {
        let mut queues = TenantQueues::new(None);
        push(&mut queues, "loud", 1..3);
        push(&mut queues, "quiet", 3..5);
        let order: Vec<u64> = std::iter::from_fn(|| queues.pop()).collect();
        assert_eq!(order, [1, 2, 3, 4]);
    }

    #[test]
    fn messages_without_a_tenant_share_a_queue() {
        let mut queues = TenantQueues::new(Some(1));
        assert_eq!(
            queues.push("aggregate.order.1", 1),
            queues.push("workflow_event.x", 2)
        );
    }
}
