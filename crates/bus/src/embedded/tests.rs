//! The embedded bus on disks that fail, fill up or stand still, and over sudden ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use orlog_model::{StreamPosition, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::Delivery;

const DEADLINE: Duration = Duration::from_secs(20);

/// Stands still until it is moved.
#[derive(Default)]
struct Clockwork(AtomicI64);

impl Clock for Clockwork {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// A disk that can be told to be full, to fail in fsync, or to stand still between two operations.
#[derive(Debug, Default)]
struct Moody {
    still: RwLock<()>,
    full: AtomicBool,
    broken: AtomicBool,
}

impl Disk for Moody {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        let _moving = self.still.read().unwrap();
        LocalDisk.allocate(file, bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _moving = self.still.read().unwrap();
        // Zeros that erase a record find room: they overwrite.
        if self.full.load(Ordering::Relaxed) && bytes.iter().any(|byte| *byte != 0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        LocalDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            Err(io::ErrorKind::Other.into())
        } else {
            LocalDisk.sync(file)
        }
    }

    fn sync_folder(&self, folder: &File) -> io::Result<()> {
        LocalDisk.sync_folder(folder)
    }
}

fn small() -> Options {
    Options {
        segment_bytes: 64 << 10,
        retention_bytes: 256 << 10,
        recent_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open(dir: &Path, options: &Options) -> Embedded {
    Embedded::open(dir, options, Arc::new(Clockwork::default())).unwrap()
}

fn message(number: u64) -> Message {
    Message {
        subject: format!("a.{}", number % 3),
        id: Some(format!("m-{number}")),
        headers: vec![("n".to_owned(), number.to_string())],
        payload: Bytes::from(vec![b'x'; 200]),
    }
}

async fn publish(bus: &Embedded, numbers: impl Iterator<Item = u64>) -> Vec<Receipt> {
    bus.publish(numbers.map(message).collect()).await.unwrap()
}

fn position(bus: &Embedded, sequence: u64) -> StreamPosition {
    StreamPosition::behind(bus.stream_id(), sequence)
}

fn subscription(name: &str, filter: &str) -> Subscription {
    Subscription {
        name: name.to_owned(),
        filters: vec![filter.to_owned()],
        part: None,
        after: None,
        max_in_flight: 10_000,
    }
}

async fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = tokio::time::timeout(DEADLINE, consumer.next(count - all.len())).await;
        all.extend(next.expect("messages arrive in time").unwrap());
    }
    all
}

/// Asks until the answer is yes.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

/// A copy of the folder as it is at one moment. The disk stands still, but files can still be renamed or removed (by retention):
/// where one is gone before it is copied, the copy begins anew.
fn copy(from: &Path, to: &Path) {
    while let Err(error) = try_copy(from, to) {
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        fs::remove_dir_all(to).unwrap();
    }
}

fn try_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            try_copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_confirmed_is_there_after_a_sudden_end() {
    let (dir, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (clock, disk) = (Arc::new(Clockwork::default()), Arc::new(Moody::default()));
    let bus = Arc::new(Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap());
    for round in 0..10u64 {
        let mut publishers = tokio::task::JoinSet::new();
        for number in round * 100..(round + 1) * 100 {
            let bus = Arc::clone(&bus);
            publishers.spawn(async move { publish(&bus, std::iter::once(number)).await });
        }
        publishers.join_all().await;
        let unconfirmed = Arc::clone(&bus);
        let more =
            tokio::spawn(
                async move { publish(&unconfirmed, 10_000 + round * 1000..10_500 + round * 1000).await },
            );
        let to = copies.path().join(round.to_string());
        {
            // A copy made while the files change would show what no disk ever held.
            let _still = disk.still.write().unwrap();
            copy(dir.path(), &to);
        }
        let opened = open(&to, &small());
        let again = publish(&opened, 0..(round + 1) * 100).await;
        assert!(again.iter().all(|receipt| receipt.duplicate), "round {round}");
        more.await.unwrap();
    }
}

#[tokio::test]
async fn a_torn_tail_is_cut_off_and_numbers_go_on() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    publish(&bus, 0..10).await;
    let segment = dir.path().join("log/00000000000000000001.seg");
    let whole = fs::read(&segment).unwrap();
    let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    publish(&bus, 10..20).await;
    drop(bus);
    let torn_at = u64::midpoint(end(&whole), end(&fs::read(&segment).unwrap()));
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[0xff; 100], torn_at).unwrap();
    let bus = open(dir.path(), &small());
    assert_eq!(bus.last_sequence().await.unwrap(), 10);
    let receipts = publish(&bus, 9..12).await;
    assert_eq!(
        receipts.iter().map(|r| (r.sequence, r.duplicate)).collect::<Vec<_>>(),
        [(10, true), (11, false), (12, false)]
    );
}

#[tokio::test]
async fn a_full_disk_refuses_whole_and_accepts_once_there_is_room() {
    let (dir, disk) = (TempDir::new().unwrap(), Arc::new(Moody::default()));
    let clock = Arc::new(Clockwork::default());
    let bus = Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap();
    publish(&bus, 0..3).await;
    disk.full.store(true, Ordering::Relaxed);
    assert!(matches!(bus.publish(vec![message(3), message(4)]).await, Err(Error::Full(_))));
    disk.full.store(false, Ordering::Relaxed);
    let receipts = publish(&bus, 2..5).await;
    assert_eq!(receipts.iter().map(|r| r.sequence).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(receipts[0].duplicate && !receipts[1].duplicate);
    let mut consumer = bus.subscribe(subscription("c", ">")).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 5).await.len(), 5);
}

#[tokio::test]
async fn after_a_failed_fsync_nothing_is_accepted_or_shown_until_it_is_opened_anew() {
    let (dir, disk) = (TempDir::new().unwrap(), Arc::new(Moody::default()));
    let clock = Arc::new(Clockwork::default());
    let bus = Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap();
    publish(&bus, 0..1).await;
    disk.broken.store(true, Ordering::Relaxed);
    assert!(matches!(bus.publish(vec![message(1)]).await, Err(Error::Unavailable(_))));
    disk.broken.store(false, Ordering::Relaxed);
    assert!(matches!(bus.publish(vec![message(0)]).await, Err(Error::Unavailable(_))));
    assert_eq!(bus.last_sequence().await.unwrap(), 1);
    drop(bus);
    let bus = open(dir.path(), &small());
    let receipts = publish(&bus, 1..3).await;
    assert_eq!(receipts.iter().map(|r| r.sequence).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn consumers_read_from_the_disk_what_memory_no_longer_holds() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    for begin in (0..3000).step_by(100) {
        publish(&bus, begin..begin + 100).await;
    }
    let mut all = bus.subscribe(subscription("all", ">")).await.unwrap();
    let mut some = bus
        .subscribe(Subscription { after: Some(position(&bus, 1500)), ..subscription("some", "a.1") })
        .await
        .unwrap();
    let deliveries = take(all.as_mut(), 3000).await;
    for (number, delivery) in (0..).zip(&deliveries) {
        assert_eq!((delivery.sequence, &*delivery.message), (number + 1, &message(number)));
    }
    let deliveries = take(some.as_mut(), 500).await;
    assert!(deliveries.iter().all(|d| d.sequence > 1500 && d.message.subject == "a.1"));
    assert_eq!(deliveries.last().unwrap().sequence, 2999);
    publish(&bus, 3000..3100).await;
    assert_eq!(take(all.as_mut(), 100).await[0].sequence, 3001);
}

#[tokio::test]
async fn a_large_publish_is_cut_into_records_and_stays_in_order() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    let count = GROUP_MESSAGES as u64 + 100;
    let receipts = publish(&bus, 0..count).await;
    assert!(receipts.iter().map(|r| r.sequence).eq(1..=count));
    let big: Vec<_> = (0..9u64)
        .map(|n| Message { id: None, payload: Bytes::from(vec![0; 1_000_000]), ..message(n) })
        .collect();
    let receipts = bus.publish(big).await.unwrap();
    assert!(receipts.iter().map(|r| r.sequence).eq(count + 1..=count + 9));
    let too_big = Message { payload: Bytes::from(vec![0; 1 << 20]), ..message(0) };
    assert!(matches!(bus.publish(vec![too_big]).await, Err(Error::TooLarge { limit: 1_048_576, .. })));
}

#[tokio::test]
async fn what_everybody_has_done_with_is_dropped_once_its_ids_are_forgotten() {
    let (dir, clock) = (TempDir::new().unwrap(), Arc::new(Clockwork::default()));
    let bus = Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    let mut fast = bus.subscribe(subscription("fast", ">")).await.unwrap();
    let mut slow = bus.subscribe(subscription("slow", ">")).await.unwrap();
    for begin in (0..4000).step_by(100) {
        publish(&bus, begin..begin + 100).await;
    }
    let full = bus.log.bytes();
    assert!(full > 2 * small().retention_bytes, "{full}");
    clock.0.store(200_000, Ordering::Relaxed);
    publish(&bus, 5000..5001).await;
    for delivery in take(fast.as_mut(), 4001).await {
        fast.acker().ack(delivery.sequence);
    }
    let deliveries = take(slow.as_mut(), 4001).await;
    assert_eq!(bus.log.record_of(1).unwrap(), 1, "slow still wants it");
    for delivery in deliveries {
        slow.acker().ack(delivery.sequence);
    }
    eventually("the log shrinks", || bus.log.bytes() < full / 2).await;
    let first = bus.log.record_of(1).unwrap();
    assert!(first > 1);
    let mut late = bus.subscribe(subscription("late", ">")).await.unwrap();
    assert!(take(late.as_mut(), 1).await[0].sequence > 100, "it begins with what is left");
}

#[tokio::test]
async fn nothing_is_dropped_while_nobody_has_subscribed_or_a_name_lags() {
    let (dir, clock) = (TempDir::new().unwrap(), Arc::new(Clockwork::default()));
    let bus = Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    drop(bus.subscribe(subscription("gone", ">")).await.unwrap());
    for begin in (0..3000).step_by(100) {
        publish(&bus, begin..begin + 100).await;
    }
    clock.0.store(200_000, Ordering::Relaxed);
    publish(&bus, 5000..5001).await;
    let mut here = bus.subscribe(subscription("here", ">")).await.unwrap();
    for delivery in take(here.as_mut(), 3001).await {
        here.acker().ack(delivery.sequence);
    }
    assert!(matches!(bus.forget("here"), Err(Error::InUse(_))));
    bus.close();
    drop(bus);
    let bus = Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    assert_eq!(bus.log.record_of(1).unwrap(), 1, "the name that is gone keeps everything");
    let full = bus.log.bytes();
    bus.forget("gone").unwrap();
    eventually("the log shrinks", || bus.log.bytes() < full / 2).await;
}

#[tokio::test]
async fn ids_are_remembered_over_a_restart_for_their_window_only() {
    let (dir, clock) = (TempDir::new().unwrap(), Arc::new(Clockwork::default()));
    let open = || Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    let bus = open();
    publish(&bus, 0..500).await;
    clock.0.store(100_000, Ordering::Relaxed);
    publish(&bus, 500..501).await;
    drop(bus);
    clock.0.store(120_000, Ordering::Relaxed);
    let bus = open();
    assert_eq!(publish(&bus, 499..500).await, [Receipt { sequence: 500, duplicate: true }]);
    drop(bus);
    clock.0.store(120_001, Ordering::Relaxed);
    let bus = open();
    assert_eq!(
        publish(&bus, 499..501).await,
        [Receipt { sequence: 502, duplicate: false }, { Receipt { sequence: 501, duplicate: true } }]
    );
}

#[tokio::test]
async fn numbers_that_a_power_failure_may_have_taken_are_not_given_again() {
    let interval = Options { durability: Durability::Interval(Duration::from_mins(10)), ..small() };
    let (dir, saved) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bus = open(dir.path(), &interval);
    // What the disk has if the power fails before the first interval ends.
    copy(dir.path(), saved.path());
    let lost = publish(&bus, 0..10).await;
    drop(bus);
    let bus = open(saved.path(), &small());
    assert_eq!(bus.last_sequence().await.unwrap(), 0);
    let mut consumer = bus
        .subscribe(Subscription { after: Some(position(&bus, lost[9].sequence)), ..subscription("c", ">") })
        .await
        .unwrap();
    let receipts = publish(&bus, 20..21).await;
    assert!(receipts[0].sequence > lost[9].sequence);
    assert_eq!(take(consumer.as_mut(), 1).await[0].sequence, receipts[0].sequence);
    // Read from the disk, over the gap.
    let bus = open(dir.path(), &small());
    let mut consumer = bus.subscribe(subscription("c", ">")).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 10).await[9].sequence, 10);
}

#[tokio::test]
async fn in_interval_mode_the_disk_has_the_messages_soon() {
    let interval = Options { durability: Durability::Interval(Duration::from_millis(5)), ..small() };
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &interval);
    publish(&bus, 0..10).await;
    eventually("it is synced", || bus.log.synced_to() == bus.log.end().record).await;
}

#[tokio::test]
async fn closing_wakes_consumers_and_refuses_publishers() {
    let dir = TempDir::new().unwrap();
    let bus = Arc::new(open(dir.path(), &small()));
    let mut consumer = bus.subscribe(subscription("c", ">")).await.unwrap();
    let waiting = tokio::spawn(async move { consumer.next(1).await.map(|_| ()) });
    bus.close();
    let woken = tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap();
    assert!(matches!(woken, Err(Error::Unavailable(_))));
    assert!(matches!(bus.publish(vec![message(1)]).await, Err(Error::Unavailable(_))));
    bus.close();
}

#[tokio::test]
async fn a_folder_that_is_in_use_or_holds_something_else_is_refused() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    let again = Embedded::open(dir.path(), &small(), Arc::new(Clockwork::default()));
    assert!(matches!(again, Err(OpenError::Journal(orlog_journal::Error::Locked { .. }))));
    drop(bus);
    fs::write(dir.path().join("stream-id"), "hello").unwrap();
    let again = Embedded::open(dir.path(), &small(), Arc::new(Clockwork::default()));
    assert!(matches!(again, Err(OpenError::StreamId { .. })));
}

#[tokio::test]
async fn a_damaged_or_foreign_cursor_means_delivery_from_the_beginning() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    publish(&bus, 0..3).await;
    let mut consumer = bus.subscribe(subscription("a.b", ">")).await.unwrap();
    for delivery in take(consumer.as_mut(), 3).await {
        consumer.acker().ack(delivery.sequence);
    }
    assert_eq!(consumer.acker().floor(), 3);
    drop(bus);
    fs::write(dir.path().join("cursors/a%2Eb"), b"OCU1\0\0\0\0\x02\0\0\0\0\0\0\0").unwrap();
    let bus = open(dir.path(), &small());
    let mut consumer = bus.subscribe(subscription("a.b", ">")).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 3).await[0].sequence, 1);
}
