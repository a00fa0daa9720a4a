//! Queue between producers of spans or log records and the collector: batches that never block the
//! producer, and a thread that sends them. Records that exceed the queue or that the collector rejects
//! are counted.
//!
//! The thread sleeps until a batch is full or one second old: a wake-up per record would cost more than
//! the record.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

/// Maximum number of records per batch.
const BATCH: usize = 2048;
/// Size in bytes above which a batch accepts no more records; collectors reject large requests.
const BATCH_BYTES: usize = 1024 * 1024;
/// Maximum time that a record waits for its batch.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Counters of sent and dropped records.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueCounts {
    pub(super) sent: Counter,
    pub(super) dropped: Counter,
}

/// Encoded records in sequence.
pub(super) struct Batch {
    /// Reserved bytes for the header, then the records.
    pub(super) bytes: Vec<u8>,
    count: usize,
    started: Instant,
}

/// Queue of record batches.
pub(super) struct BatchQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// Maximum number of queued records.
    room: usize,
    /// Number of bytes that a batch reserves before its first record.
    header_size: usize,
    counts: QueueCounts,
    sender: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct QueueState {
    /// Batches; all but the last are full.
    batches: VecDeque<Batch>,
    count: usize,
    /// Size of the last full batch, used as the capacity of the next one.
    usual: usize,
    stopped: bool,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.count >= BATCH || self.bytes.len() >= BATCH_BYTES
    }
}

impl Debug for BatchQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl BatchQueue {
    /// Starts a thread that sends the queued records with `send`, which returns the number of rejected
    /// records of a batch.
    ///
    /// # Errors
    /// Fails if no thread can be created.
    pub(super) fn start(
        label: &'static str,
        (room, header_size): (usize, usize),
        send: impl FnMut(Batch) -> Result<u64, String> + Send + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let queue = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            room,
            header_size,
            counts: QueueCounts::default(),
            sender: Mutex::default(),
        });
        let courier = BatchSender { label, queue: Arc::clone(&queue), send, is_away: false };
        let thread = std::thread::Builder::new().name(format!("orlog-{label}")).spawn(|| courier.run())?;
        *queue.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(queue)
    }

    /// Queues a record, or drops it if the queue is full.
    pub(super) fn put(&self, record: &[u8]) {
        let mut lying = self.lock();
        if lying.stopped || lying.count >= self.room {
            drop(lying);
            self.counts.dropped.inc();
            return;
        }
        let wakes = lying.put(record, self.header_size);
        drop(lying);
        if wakes {
            self.changed.notify_one();
        }
    }

    pub(super) fn counts(&self) -> &QueueCounts {
        &self.counts
    }

    /// Sends the queued records and stops the thread. Blocks until then.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
        let thread = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // An error is a panic of the thread; then there is nothing to wait for.
            thread.join().ok();
        }
    }

    /// Waits for a batch that is full or old enough; `None` after the stop.
    fn next(&self) -> Option<Batch> {
        let mut lying = self.lock();
        loop {
            let age = match lying.batches.front() {
                Some(first) if lying.stopped || first.is_full() => break,
                Some(first) => first.started.elapsed(),
                None if lying.stopped => return None,
                None => {
                    lying = self.changed.wait(lying).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            let Some(remaining) = FLUSH_INTERVAL.checked_sub(age) else { break };
            lying = self.changed.wait_timeout(lying, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
        let batch = lying.batches.pop_front()?;
        lying.count -= batch.count;
        Some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No panic can occur between dependent updates, so the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Returns whether the sender must wake up: to time a new batch, or to send a full one.
    fn put(&mut self, record: &[u8], header_size: usize) -> bool {
        self.count += 1;
        match self.batches.back_mut() {
            Some(last) if !last.is_full() => {
                last.bytes.extend_from_slice(record);
                last.count += 1;
                let is_full = last.is_full();
                if is_full {
                    self.usual = last.bytes.len();
                }
                is_full
            }
            _ => {
                let mut bytes = Vec::with_capacity(self.usual + self.usual / 8);
                bytes.resize(header_size, 0);
                bytes.extend_from_slice(record);
                self.batches.push_back(Batch { bytes, count: 1, started: Instant::now() });
                true
            }
        }
    }
}

struct BatchSender<F> {
    label: &'static str,
    queue: Arc<BatchQueue>,
    send: F,
    /// Whether the collector rejected the last batch.
    is_away: bool,
}

impl<F: FnMut(Batch) -> Result<u64, String>> BatchSender<F> {
    fn run(mut self) {
        while let Some(batch) = self.queue.next() {
            self.deliver(batch);
        }
    }

    fn deliver(&mut self, batch: Batch) {
        let (label, count) = (self.label, u64::try_from(batch.count).unwrap_or(u64::MAX));
        let QueueCounts { sent, dropped } = self.queue.counts();
        match (self.send)(batch) {
            Ok(rejected) => {
                let rejected = rejected.min(count);
                sent.inc_by(count - rejected);
                dropped.inc_by(rejected);
                if std::mem::take(&mut self.is_away) {
                    tracing::info!("collector accepts {label} again");
                }
            }
            Err(error) => {
                dropped.inc_by(count);
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(error, "collector rejects {label}; dropping");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes reserved before the records, as a request needs them.
    const HEADER_SIZE: usize = 3;

    #[test]
    fn queue_is_flushed_on_shutdown() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&received);
        let queue = BatchQueue::start("numbers", (1_000_000, HEADER_SIZE), move |batch: Batch| {
            assert!(batch.count <= BATCH && batch.bytes[..HEADER_SIZE] == [0; HEADER_SIZE]);
            sink.lock().unwrap().extend_from_slice(&batch.bytes[HEADER_SIZE..]);
            Ok(1)
        });
        let queue = queue.unwrap();
        let all: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        all.chunks(4).for_each(|number| queue.put(number));
        queue.stop();
        assert_eq!(*received.lock().unwrap(), all);
        // The collector rejected one record of each batch.
        let (sent, dropped) = (queue.counts.sent.get(), queue.counts.dropped.get());
        assert_eq!(sent + dropped, 20_000);
        assert!(dropped >= 20_000 / 2048, "{dropped}");
        queue.put(&[1]);
        assert_eq!(queue.counts.dropped.get(), dropped + 1);
    }

    #[test]
    fn partial_batch_is_flushed_after_the_interval() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let queue = BatchQueue::start("numbers", (8, HEADER_SIZE), move |batch: Batch| {
            sender.send(batch.count).map_err(|error| error.to_string())?;
            Ok(0)
        });
        let queue = queue.unwrap();
        queue.put(&[7]);
        assert_eq!(receiver.recv_timeout(Duration::from_mins(1)), Ok(1));
        queue.stop();
    }

    #[test]
    fn dropped_records_are_counted_without_blocking() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let queue = BatchQueue::start("numbers", (4, HEADER_SIZE), move |_: Batch| {
            gate.recv().ok();
            Err("away".to_owned())
        });
        let queue = queue.unwrap();
        // More than one batch in flight and a full queue: the producer continues without blocking.
        (0..10_000).for_each(|_| queue.put(&[1]));
        assert!(queue.counts.dropped.get() > 0);
        drop(open);
        queue.stop();
        assert_eq!((queue.counts.sent.get(), queue.counts.dropped.get()), (0, 10_000));
    }
}
