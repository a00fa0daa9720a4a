//! Between those who make spans and log lines and the collector: batches that fill up without holding anybody up, and a thread
//! that sends them. What finds no room, or what the collector does not take, is counted.
//!
//! The thread sleeps until a batch is full or a second old: waking it for each record would cost more than the record.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

/// Records that are sent at once, at most.
const BATCH: usize = 2048;
/// Bytes beyond which a batch takes no more; collectors refuse requests that are too large.
const BATCH_BYTES: usize = 1024 * 1024;
/// The longest that one waits for others to go with.
const PAUSE: Duration = Duration::from_secs(1);

/// How many were sent, and how many were not.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: Counter,
    pub(super) dropped: Counter,
}

/// Records, one behind the other.
pub(super) struct Batch {
    /// Room for what is to stand before them, and then they.
    pub(super) bytes: Vec<u8>,
    count: usize,
    begun: Instant,
}

/// See the top of this file.
pub(super) struct Queue {
    lying: Mutex<Lying>,
    changed: Condvar,
    /// Records that may lie there.
    room: usize,
    /// Bytes that a batch leaves free before its first record.
    head: usize,
    counts: Counts,
    sender: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Lying {
    /// All but the last are full.
    batches: VecDeque<Batch>,
    count: usize,
    /// How large the last full batch became: the next one will be as large.
    usual: usize,
    stopped: bool,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.count >= BATCH || self.bytes.len() >= BATCH_BYTES
    }
}

impl Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Queue {
    /// Begins to send what is put in with `send`, on a thread of its own. `send` answers how many records of a batch were refused.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(super) fn start(
        what: &'static str,
        (room, head): (usize, usize),
        send: impl FnMut(Batch) -> Result<u64, String> + Send + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let queue = Arc::new(Self {
            lying: Mutex::default(),
            changed: Condvar::new(),
            room,
            head,
            counts: Counts::default(),
            sender: Mutex::default(),
        });
        let courier = Courier { what, queue: Arc::clone(&queue), send, is_away: false };
        let thread = std::thread::Builder::new().name(format!("orlog-{what}")).spawn(|| courier.run())?;
        *queue.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(queue)
    }

    /// Puts a record in, or drops it where there is no room.
    pub(super) fn put(&self, record: &[u8]) {
        let mut lying = self.lock();
        if lying.stopped || lying.count >= self.room {
            drop(lying);
            self.counts.dropped.inc();
            return;
        }
        let wakes = lying.put(record, self.head);
        drop(lying);
        if wakes {
            self.changed.notify_one();
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sends what lies there, and ends. Blocks until then.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
        let thread = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // An error means that it panicked, and then there is nothing to wait for.
            thread.join().ok();
        }
    }

    /// Waits for a batch that is full or old enough; `None` at the end.
    fn next(&self) -> Option<Batch> {
        let mut lying = self.lock();
        loop {
            let age = match lying.batches.front() {
                Some(first) if lying.stopped || first.is_full() => break,
                Some(first) => first.begun.elapsed(),
                None if lying.stopped => return None,
                None => {
                    lying = self.changed.wait(lying).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            let Some(left) = PAUSE.checked_sub(age) else { break };
            lying = self.changed.wait_timeout(lying, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let batch = lying.batches.pop_front()?;
        lying.count -= batch.count;
        Some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, Lying> {
        // Whole between any two statements that can panic.
        self.lying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lying {
    /// Whether the courier has something to do now: a batch to count the time of, or to send.
    fn put(&mut self, record: &[u8], head: usize) -> bool {
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
                bytes.resize(head, 0);
                bytes.extend_from_slice(record);
                self.batches.push_back(Batch { bytes, count: 1, begun: Instant::now() });
                true
            }
        }
    }
}

struct Courier<F> {
    what: &'static str,
    queue: Arc<Queue>,
    send: F,
    /// The collector did not take the last batch.
    is_away: bool,
}

impl<F: FnMut(Batch) -> Result<u64, String>> Courier<F> {
    fn run(mut self) {
        while let Some(batch) = self.queue.next() {
            self.deliver(batch);
        }
    }

    fn deliver(&mut self, batch: Batch) {
        let (what, count) = (self.what, u64::try_from(batch.count).unwrap_or(u64::MAX));
        let Counts { sent, dropped } = self.queue.counts();
        match (self.send)(batch) {
            Ok(refused) => {
                let refused = refused.min(count);
                sent.inc_by(count - refused);
                dropped.inc_by(refused);
                if std::mem::take(&mut self.is_away) {
                    tracing::info!("the collector takes {what} again");
                }
            }
            Err(error) => {
                dropped.inc_by(count);
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(error, "the collector does not take {what}; they are dropped and counted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room before the records, as a request needs it.
    const HEAD: usize = 3;

    #[test]
    fn everything_is_sent_before_the_end() {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&taken);
        let queue = Queue::start("numbers", (1_000_000, HEAD), move |batch: Batch| {
            assert!(batch.count <= BATCH && batch.bytes[..HEAD] == [0; HEAD]);
            sink.lock().unwrap().extend_from_slice(&batch.bytes[HEAD..]);
            Ok(1)
        });
        let queue = queue.unwrap();
        let all: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        all.chunks(4).for_each(|number| queue.put(number));
        queue.stop();
        assert_eq!(*taken.lock().unwrap(), all);
        // The collector refused one of each batch.
        let (sent, dropped) = (queue.counts.sent.get(), queue.counts.dropped.get());
        assert_eq!(sent + dropped, 20_000);
        assert!(dropped >= 20_000 / 2048, "{dropped}");
        queue.put(&[1]);
        assert_eq!(queue.counts.dropped.get(), dropped + 1);
    }

    #[test]
    fn what_lies_there_is_sent_though_no_more_comes() {
        let (told, heard) = std::sync::mpsc::channel();
        let queue = Queue::start("numbers", (8, HEAD), move |batch: Batch| {
            told.send(batch.count).map_err(|error| error.to_string())?;
            Ok(0)
        });
        let queue = queue.unwrap();
        queue.put(&[7]);
        assert_eq!(heard.recv_timeout(Duration::from_mins(1)), Ok(1));
        queue.stop();
    }

    #[test]
    fn what_finds_no_room_or_is_not_taken_is_counted_and_nobody_waits() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let queue = Queue::start("numbers", (4, HEAD), move |_: Batch| {
            gate.recv().ok();
            Err("away".to_owned())
        });
        let queue = queue.unwrap();
        // More than a batch in hand and a full queue behind it: whoever puts goes on.
        (0..10_000).for_each(|_| queue.put(&[1]));
        assert!(queue.counts.dropped.get() > 0);
        drop(open);
        queue.stop();
        assert_eq!((queue.counts.sent.get(), queue.counts.dropped.get()), (0, 10_000));
    }
}
