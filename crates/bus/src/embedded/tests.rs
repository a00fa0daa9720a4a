//! Tests of the embedded bus with failing, full and blocked disks, and with crashes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use orlog_model::{SteadyTime, StreamPosition, Timestamp};
use parking_lot::RwLock;
use tempfile::TempDir;

use super::*;
use crate::{Delivery, MaxInFlight};

const DEADLINE: Duration = Duration::from_secs(20);

/// Clock that moves only on request.
#[derive(Default)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn steady(&self) -> SteadyTime {
        SteadyTime::from_millis(self.now().as_millis())
    }

    fn sleep_until(
        &self,
        _: SteadyTime,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// Disk that can be full, fail in fsync, or block between two operations.
#[derive(Debug, Default)]
struct FaultyDisk {
    pause_lock: RwLock<()>,
    full: AtomicBool,
    broken: AtomicBool,
    no_descriptors: AtomicBool,
    syncs: AtomicU64,
}

impl Disk for FaultyDisk {
    fn open(&self, options: &fs::OpenOptions, path: &Path) -> io::Result<File> {
        const TOO_MANY_OPEN_FILES: i32 = 24;
        if self.no_descriptors.load(Ordering::Relaxed) {
            Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES))
        } else {
            LocalDisk.open(options, path)
        }
    }

    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        let _moving = self.pause_lock.read();
        LocalDisk.allocate(file, bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _moving = self.pause_lock.read();
        // Erasing a record with zeros needs no space: it overwrites.
        if self.full.load(Ordering::Relaxed) && bytes.iter().any(|byte| *byte != 0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        LocalDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if self.broken.load(Ordering::Relaxed) {
            Err(io::ErrorKind::Other.into())
        } else {
            LocalDisk.sync(file)
        }
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        LocalDisk.sync_dir(dir)
    }
}

fn small() -> Options {
    Options {
        segment_bytes: 64 << 10,
        retention_bytes: 256 << 10,
        cache_bytes: 16 << 10,
        ..Options::default()
    }
}

fn open(dir: &Path, options: &Options) -> Embedded {
    Embedded::open(dir, options, Arc::new(ManualClock::default())).unwrap()
}

fn message(number: u64) -> Message {
    Message {
        subject: format!("a.{}", number % 3),
        id: Some(format!("m-{number}")),
        headers: vec![("n".into(), number.to_string().into())],
        payload: Bytes::from(vec![b'x'; 200]),
    }
}

async fn publish(bus: &Embedded, numbers: impl Iterator<Item = u64>) -> Vec<PublishAck> {
    bus.publish(numbers.map(|number| Arc::new(message(number))).collect())
        .await
        .unwrap()
}

fn position(bus: &Embedded, sequence: u64) -> StreamPosition {
    StreamPosition::after(bus.stream_id(), sequence)
}

fn subscription(name: &str, filter: &str) -> Subscription {
    Subscription {
        name: name.to_owned(),
        filters: vec![filter.to_owned()],
        partition: None,
        start_after: None,
        max_in_flight: MaxInFlight::total(10_000),
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

/// Polls the condition until it is true.
async fn eventually(label: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + DEADLINE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{label}");
        tokio::task::yield_now().await;
    }
}

/// Copies the directory at one point in time. The disk is blocked, but retention can still rename or
/// remove files: if a file disappears before it is copied, the copy restarts.
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
async fn acknowledged_messages_survive_a_crash() {
    let (dir, copies) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (clock, disk) = (
        Arc::new(ManualClock::default()),
        Arc::new(FaultyDisk::default()),
    );
    let bus =
        Arc::new(Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap());
    for round in 0..10u64 {
        let mut publishers = tokio::task::JoinSet::new();
        for number in round * 100..(round + 1) * 100 {
            let bus = Arc::clone(&bus);
            publishers.spawn(async move { publish(&bus, std::iter::once(number)).await });
        }
        publishers.join_all().await;
        let unconfirmed = Arc::clone(&bus);
        let more = tokio::spawn(async move {
            publish(&unconfirmed, 10_000 + round * 1000..10_500 + round * 1000).await
        });
        let to = copies.path().join(round.to_string());
        {
            // A copy during writes would show a state that never existed on a disk.
            let _pause_guard = disk.pause_lock.write();
            copy(dir.path(), &to);
        }
        let opened = open(&to, &small());
        let repeated = publish(&opened, 0..(round + 1) * 100).await;
        assert!(
            repeated.iter().all(|receipt| receipt.duplicate),
            "round {round}"
        );
        more.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_that_arrive_during_a_write_share_a_record_and_an_fsync() {
    let (dir, disk) = (TempDir::new().unwrap(), Arc::new(FaultyDisk::default()));
    let clock = Arc::new(ManualClock::default());
    // One segment: a new one would be synced too.
    let options = Options {
        segment_bytes: 1 << 20,
        ..small()
    };
    let bus = Embedded::open_on(dir.path(), &options, clock, Arc::clone(&disk) as _).unwrap();
    publish(&bus, 0..1).await;
    let (syncs, record) = (
        disk.syncs.load(Ordering::Relaxed),
        bus.durable_position().position,
    );
    let publishes =
        futures::future::join_all((1..=256).map(|number| publish(&bus, number..=number)));
    let mut publishes = std::pin::pin!(tokio::task::unconstrained(publishes));
    {
        let _pause_guard = disk.pause_lock.write();
        // Sends all of them to the writer, which writes at most one record meanwhile.
        assert!(publishes.as_mut().now_or_never().is_none());
    }
    assert_eq!(publishes.await.len(), 256);
    assert!(
        disk.syncs.load(Ordering::Relaxed) - syncs <= 2,
        "one for the first record, one for the rest"
    );
    assert!(bus.durable_position().position - record <= 2);
}

#[tokio::test]
async fn torn_tail_is_truncated_and_sequence_continues() {
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
        receipts
            .iter()
            .map(|r| (r.sequence, r.duplicate))
            .collect::<Vec<_>>(),
        [(10, true), (11, false), (12, false)]
    );
}

#[tokio::test]
async fn full_disk_rejects_whole_publishes_until_space_is_free() {
    let (dir, disk) = (TempDir::new().unwrap(), Arc::new(FaultyDisk::default()));
    let clock = Arc::new(ManualClock::default());
    let bus = Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap();
    publish(&bus, 0..3).await;
    disk.full.store(true, Ordering::Relaxed);
    assert!(matches!(
        bus.publish(vec![message(3).into(), message(4).into()])
            .await,
        Err(Error::Full(_))
    ));
    disk.full.store(false, Ordering::Relaxed);
    let receipts = publish(&bus, 2..5).await;
    assert_eq!(
        receipts.iter().map(|r| r.sequence).collect::<Vec<_>>(),
        [3, 4, 5]
    );
    assert!(receipts[0].duplicate && !receipts[1].duplicate);
    let mut consumer = bus.subscribe(subscription("c", ">")).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 5).await.len(), 5);
}

#[tokio::test]
async fn failed_rotation_fails_publishes_until_a_descriptor_is_free() {
    let (dir, disk) = (TempDir::new().unwrap(), Arc::new(FaultyDisk::default()));
    let clock = Arc::new(ManualClock::default());
    let bus = Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap();
    disk.no_descriptors.store(true, Ordering::Relaxed);
    let mut stored = 0;
    while bus.publish(vec![message(stored).into()]).await.is_ok() {
        stored += 1;
        assert_eq!(bus.publish_failure(), None);
    }
    let failure = bus.publish_failure().expect("the last publish failed");
    assert!(failure.contains("Too many open files"), "{failure}");
    disk.no_descriptors.store(false, Ordering::Relaxed);
    let receipts = publish(&bus, stored..=stored).await;
    assert_eq!(receipts[0].sequence, stored + 1);
    assert_eq!(bus.publish_failure(), None);
}

#[tokio::test]
async fn failed_fsync_poisons_the_bus_until_reopened() {
    let (dir, disk) = (TempDir::new().unwrap(), Arc::new(FaultyDisk::default()));
    let clock = Arc::new(ManualClock::default());
    let bus = Embedded::open_on(dir.path(), &small(), clock, Arc::clone(&disk) as _).unwrap();
    publish(&bus, 0..1).await;
    disk.broken.store(true, Ordering::Relaxed);
    assert!(matches!(
        bus.publish(vec![message(1).into()]).await,
        Err(Error::Unavailable(_))
    ));
    disk.broken.store(false, Ordering::Relaxed);
    assert!(matches!(
        bus.publish(vec![message(0).into()]).await,
        Err(Error::Unavailable(_))
    ));
    assert_eq!(bus.last_sequence().await.unwrap(), 1);
    drop(bus);
    let bus = open(dir.path(), &small());
    let receipts = publish(&bus, 1..3).await;
    assert_eq!(
        receipts.iter().map(|r| r.sequence).collect::<Vec<_>>(),
        [2, 3]
    );
}

#[tokio::test]
async fn consumers_read_evicted_messages_from_disk() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    for start in (0..3000).step_by(100) {
        publish(&bus, start..start + 100).await;
    }
    let mut all = bus.subscribe(subscription("all", ">")).await.unwrap();
    let mut some = bus
        .subscribe(Subscription {
            start_after: Some(position(&bus, 1500)),
            ..subscription("some", "a.1")
        })
        .await
        .unwrap();
    let deliveries = take(all.as_mut(), 3000).await;
    for (number, delivery) in (0..).zip(&deliveries) {
        assert_eq!(
            (delivery.sequence, &*delivery.message),
            (number + 1, &message(number))
        );
    }
    let deliveries = take(some.as_mut(), 500).await;
    assert!(
        deliveries
            .iter()
            .all(|d| d.sequence > 1500 && d.message.subject == "a.1")
    );
    assert_eq!(deliveries.last().unwrap().sequence, 2999);
    publish(&bus, 3000..3100).await;
    assert_eq!(take(all.as_mut(), 100).await[0].sequence, 3001);
}

#[tokio::test]
async fn large_publish_is_split_in_order() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    let count = GROUP_MESSAGES as u64 + 100;
    let receipts = publish(&bus, 0..count).await;
    assert!(receipts.iter().map(|r| r.sequence).eq(1..=count));
    let big: Vec<_> = (0..9u64)
        .map(|n| {
            Arc::new(Message {
                id: None,
                payload: Bytes::from(vec![0; 1_000_000]),
                ..message(n)
            })
        })
        .collect();
    let receipts = bus.publish(big).await.unwrap();
    assert!(
        receipts
            .iter()
            .map(|r| r.sequence)
            .eq(count + 1..=count + 9)
    );
    let too_big = Message {
        payload: Bytes::from(vec![0; 1 << 20]),
        ..message(0)
    };
    assert!(matches!(
        bus.publish(vec![too_big.into()]).await,
        Err(Error::TooLarge {
            limit: 1_048_576,
            ..
        })
    ));
}

#[tokio::test]
async fn scan_that_failed_in_the_middle_repeats_the_messages_before_the_failure() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    for number in 0..30 {
        publish(&bus, std::iter::once(number)).await;
    }
    let path = fs::read_dir(dir.path().join("log"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| position_in(path, b"m-20").is_some())
        .unwrap();
    let offset = position_in(&path, b"m-20").unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();

    file.write_all_at(b"?", offset).unwrap();
    let mut scan = bus
        .scan(vec![">".to_owned()], ScanStart::Sequence(1))
        .await
        .unwrap();
    scan.next().await.unwrap_err();
    file.write_all_at(b"m", offset).unwrap();
    let mut sequences = Vec::new();
    loop {
        let found = scan.next().await.unwrap();
        if found.is_empty() {
            break;
        }
        sequences.extend(found.iter().map(|delivery| delivery.sequence));
    }
    assert_eq!(sequences, (1..=30).collect::<Vec<_>>());
}

/// Returns the position of a text in a file.
fn position_in(path: &Path, text: &[u8]) -> Option<u64> {
    let bytes = fs::read(path).unwrap();
    let position = bytes
        .windows(text.len())
        .position(|window| window == text)?;
    Some(position as u64)
}

#[tokio::test]
async fn acknowledged_messages_are_dropped_after_the_dedupe_window() {
    let (dir, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::default()));
    let bus = Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    let mut fast = bus.subscribe(subscription("fast", ">")).await.unwrap();
    let mut slow = bus.subscribe(subscription("slow", ">")).await.unwrap();
    for start in (0..4000).step_by(100) {
        publish(&bus, start..start + 100).await;
    }
    let full = bus.log.bytes();
    assert!(full > 2 * small().retention_bytes, "{full}");
    clock.0.store(200_000, Ordering::Relaxed);
    publish(&bus, 5000..5001).await;
    for delivery in take(fast.as_mut(), 4001).await {
        fast.acker().ack(delivery.sequence);
    }
    let deliveries = take(slow.as_mut(), 4001).await;
    assert_eq!(
        bus.log.record_of(1).unwrap(),
        1,
        "the slow consumer still requires it"
    );
    for delivery in deliveries {
        slow.acker().ack(delivery.sequence);
    }
    eventually("the log shrinks", || bus.log.bytes() < full / 2).await;
    let first = bus.log.record_of(1).unwrap();
    assert!(first > 1);
    let mut late_consumer = bus.subscribe(subscription("late", ">")).await.unwrap();
    assert!(
        take(late_consumer.as_mut(), 1).await[0].sequence > 100,
        "it starts at the first remaining message"
    );
}

#[tokio::test]
async fn messages_are_retained_without_subscribers_and_for_lagging_ones() {
    let (dir, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::default()));
    let bus = Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    drop(bus.subscribe(subscription("inactive", ">")).await.unwrap());
    for start in (0..3000).step_by(100) {
        publish(&bus, start..start + 100).await;
    }
    clock.0.store(200_000, Ordering::Relaxed);
    publish(&bus, 5000..5001).await;
    let mut here = bus.subscribe(subscription("here", ">")).await.unwrap();
    for delivery in take(here.as_mut(), 3001).await {
        here.acker().ack(delivery.sequence);
    }
    assert!(matches!(bus.delete_consumer("here"), Err(Error::InUse(_))));
    bus.close();
    drop(bus);
    let bus = Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    assert_eq!(
        bus.log.record_of(1).unwrap(),
        1,
        "an inactive consumer retains all messages"
    );
    let full = bus.log.bytes();
    bus.delete_consumer("inactive").unwrap();
    eventually("the log shrinks", || bus.log.bytes() < full / 2).await;
}

#[tokio::test]
async fn dedupe_window_survives_a_restart() {
    let (dir, clock) = (TempDir::new().unwrap(), Arc::new(ManualClock::default()));
    let open = || Embedded::open(dir.path(), &small(), Arc::clone(&clock) as _).unwrap();
    let bus = open();
    publish(&bus, 0..500).await;
    clock.0.store(100_000, Ordering::Relaxed);
    publish(&bus, 500..501).await;
    drop(bus);
    clock.0.store(120_000, Ordering::Relaxed);
    let bus = open();
    assert_eq!(
        publish(&bus, 499..500).await,
        [PublishAck {
            sequence: 500,
            duplicate: true
        }]
    );
    drop(bus);
    clock.0.store(120_001, Ordering::Relaxed);
    let bus = open();
    assert_eq!(
        publish(&bus, 499..501).await,
        [
            PublishAck {
                sequence: 502,
                duplicate: false
            },
            {
                PublishAck {
                    sequence: 501,
                    duplicate: true,
                }
            }
        ]
    );
}

#[tokio::test]
async fn sequence_numbers_are_not_reused_after_power_loss() {
    let interval = Options {
        durability: Durability::Interval(Duration::from_mins(10)),
        ..small()
    };
    let (dir, saved) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bus = open(dir.path(), &interval);
    // State of the disk if the power fails before the first interval ends.
    copy(dir.path(), saved.path());
    let lost = publish(&bus, 0..10).await;
    drop(bus);
    let bus = open(saved.path(), &small());
    assert_eq!(bus.last_sequence().await.unwrap(), 0);
    let mut consumer = bus
        .subscribe(Subscription {
            start_after: Some(position(&bus, lost[9].sequence)),
            ..subscription("c", ">")
        })
        .await
        .unwrap();
    let receipts = publish(&bus, 20..21).await;
    assert!(receipts[0].sequence > lost[9].sequence);
    assert_eq!(
        take(consumer.as_mut(), 1).await[0].sequence,
        receipts[0].sequence
    );
    // Read from disk, across the gap.
    let bus = open(dir.path(), &small());
    let mut consumer = bus.subscribe(subscription("c", ">")).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 10).await[9].sequence, 10);
}

#[tokio::test]
async fn interval_mode_syncs_within_the_interval() {
    let interval = Options {
        durability: Durability::Interval(Duration::from_millis(5)),
        ..small()
    };
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &interval);
    publish(&bus, 0..10).await;
    eventually("it is synced", || {
        bus.log.synced_to() == bus.log.end().record
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interval_mode_syncs_also_while_publishers_never_pause() {
    // One segment: a new one would be synced too.
    let durability = Durability::Interval(Duration::from_millis(5));
    let (dir, options) = (
        TempDir::new().unwrap(),
        Options {
            durability,
            ..Options::default()
        },
    );
    let bus = Arc::new(open(dir.path(), &options));
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..32_u64 {
        let bus = Arc::clone(&bus);
        publishers.spawn(async move {
            for number in 0.. {
                let number = publisher << 32 | number;
                publish(&bus, number..=number).await;
            }
        });
    }
    eventually("it is synced", || bus.log.synced_to() > 0).await;
    publishers.shutdown().await;
}

#[tokio::test]
async fn closing_wakes_consumers_and_rejects_publishers() {
    let dir = TempDir::new().unwrap();
    let bus = Arc::new(open(dir.path(), &small()));
    let mut consumer = bus.subscribe(subscription("c", ">")).await.unwrap();
    let waiting = tokio::spawn(async move { consumer.next(1).await.map(|_| ()) });
    bus.close();
    let woken = tokio::time::timeout(DEADLINE, waiting)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(woken, Err(Error::Unavailable(_))));
    assert!(matches!(
        bus.publish(vec![message(1).into()]).await,
        Err(Error::Unavailable(_))
    ));
    bus.close();
}

#[tokio::test]
async fn directory_in_use_or_of_another_kind_is_rejected() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    let repeated = Embedded::open(dir.path(), &small(), Arc::new(ManualClock::default()));
    assert!(matches!(
        repeated,
        Err(OpenError::Journal(orlog_journal::Error::Locked { .. }))
    ));
    drop(bus);
    fs::write(dir.path().join("stream-id"), "hello").unwrap();
    let repeated = Embedded::open(dir.path(), &small(), Arc::new(ManualClock::default()));
    assert!(matches!(repeated, Err(OpenError::StreamId { .. })));
}

/// Opening a log that lost its end fails with this text and writes nothing. With the loss accepted, the
/// next message is after every lost one.
async fn check_loss(dir: &Path, options: Options, text: &str, lost: u64) {
    let clock = || Arc::new(ManualClock::default());
    let files = |dir: &Path| fs::read_dir(dir.join("log")).map_or(0, Iterator::count);
    let before = files(dir);
    match Embedded::open(dir, &options, clock()) {
        Err(error @ OpenError::Lost { .. }) => assert!(error.to_string().contains(text), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(files(dir), before, "nothing is written");
    let accepted = Options {
        accept_data_loss: true,
        ..options
    };
    let bus = Embedded::open(dir, &accepted, clock()).unwrap();
    assert!(publish(&bus, 50..51).await[0].sequence > lost);
    drop(bus);
    let bus = open(dir, &small());
    assert!(publish(&bus, 51..52).await[0].sequence > lost);
}

#[tokio::test]
async fn log_that_lost_its_end_is_rejected() {
    for evidence in ["durable position", "checkpoint"] {
        let dir = TempDir::new().unwrap();
        let bus = open(dir.path(), &small());
        publish(&bus, 0..40).await;
        let (durable, stream_id) = (bus.durable_position(), bus.stream_id());
        drop(bus);
        let mut segments: Vec<_> = fs::read_dir(dir.path().join("log"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        segments.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
        segments.sort();
        fs::remove_file(segments.last().unwrap()).unwrap();
        let mut options = small();
        if evidence == "checkpoint" {
            let position = Some(StreamPosition::after(stream_id, 40));
            options.checkpoints = vec![ConsumerCheckpoint {
                name: "c".to_owned(),
                position,
            }];
        } else {
            options.expected = Some(durable);
        }
        let text = if evidence == "checkpoint" {
            "message 40 was read"
        } else {
            "was durable"
        };
        check_loss(dir.path(), options, text, 40).await;
    }
}

#[tokio::test]
async fn consumer_behind_its_cursor_is_rejected() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    publish(&bus, 0..5).await;
    let start_after = Some(position(&bus, 0));
    let mut consumer = bus
        .subscribe(Subscription {
            start_after,
            ..subscription("c", ">")
        })
        .await
        .unwrap();
    let deliveries = take(consumer.as_mut(), 5).await;
    let sequences: Vec<_> = deliveries
        .iter()
        .map(|delivery| delivery.sequence)
        .collect();
    let acker = consumer.acker();
    assert_eq!(acker.ack_position_with(&sequences[..3]).sequence, 3);
    acker.set_cursor(3);
    acker.ack_all(&sequences);
    assert_eq!(acker.ack_floor(), 5);
    let at = |sequence| ConsumerCheckpoint {
        name: "c".to_owned(),
        position: Some(position(&bus, sequence)),
    };
    let checkpoints = [
        at(2),
        at(3),
        ConsumerCheckpoint {
            name: "c".to_owned(),
            position: None,
        },
    ];
    drop((consumer, acker, bus));
    let clock = || Arc::new(ManualClock::default());
    let reopen = |checkpoint: &ConsumerCheckpoint| {
        let options = Options {
            checkpoints: vec![checkpoint.clone()],
            ..small()
        };
        Embedded::open(dir.path(), &options, clock()).map(drop)
    };
    assert!(matches!(
        reopen(&checkpoints[0]),
        Err(OpenError::ConsumerBehind {
            cursor: 3,
            checkpoint: 2,
            ..
        })
    ));
    assert!(matches!(
        reopen(&checkpoints[2]),
        Err(OpenError::ConsumerBehind {
            cursor: 3,
            checkpoint: 0,
            ..
        })
    ));
    reopen(&checkpoints[1]).unwrap();
}

#[tokio::test]
async fn missing_log_is_rejected() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    publish(&bus, 0..40).await;
    let expected = Some(bus.durable_position());
    drop(bus);
    fs::remove_file(dir.path().join("stream-id")).unwrap();
    let clock = || Arc::new(ManualClock::default());
    let rejected = Embedded::open(dir.path(), &small(), clock())
        .unwrap_err()
        .to_string();
    assert!(
        rejected.contains("the file stream-id is missing"),
        "{rejected}"
    );
    fs::remove_dir_all(dir.path()).unwrap();
    let options = Options {
        expected,
        ..small()
    };
    let rejected = Embedded::open(dir.path(), &options, clock())
        .unwrap_err()
        .to_string();
    assert!(rejected.contains("it is missing"), "{rejected}");
    assert!(!dir.path().exists(), "nothing is written");
    let accepted = Options {
        accept_data_loss: true,
        ..options
    };
    assert_eq!(
        publish(
            &Embedded::open(dir.path(), &accepted, clock()).unwrap(),
            0..1
        )
        .await
        .len(),
        1
    );
}

#[tokio::test]
async fn invalid_cursor_restarts_from_the_beginning() {
    let dir = TempDir::new().unwrap();
    let bus = open(dir.path(), &small());
    publish(&bus, 0..3).await;
    let mut consumer = bus.subscribe(subscription("a.b", ">")).await.unwrap();
    for delivery in take(consumer.as_mut(), 3).await {
        consumer.acker().ack(delivery.sequence);
    }
    assert_eq!(consumer.acker().ack_floor(), 3);
    drop(bus);
    fs::write(
        dir.path().join("cursors/a%2Eb"),
        b"OCU1\0\0\0\0\x02\0\0\0\0\0\0\0",
    )
    .unwrap();
    let bus = open(dir.path(), &small());
    let mut consumer = bus.subscribe(subscription("a.b", ">")).await.unwrap();
    assert_eq!(take(consumer.as_mut(), 3).await[0].sequence, 1);
}
