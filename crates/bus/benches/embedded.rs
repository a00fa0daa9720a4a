//! Benchmarks of the embedded bus: single and concurrent publishing, consuming with one ack per
//! message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use orlog_bus::embedded::{Durability, Options};
use orlog_bus::{Acker, Bus, Embedded, MaxInFlight, Message, Subscription};
use orlog_model::{Clock, SteadyTime, Timestamp};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const CONSUMED: u64 = 100_000;
const PUBLISHERS: u64 = 1000;
const EACH: u64 = 20;

fn main() {
    divan::main();
}

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
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

struct Setup {
    bus: Arc<Embedded>,
    runtime: Runtime,
    _dir: TempDir,
}

/// The temporary directory may be in memory, where fsync is free.
fn temp_dir() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap_or_else(|_| TempDir::new().expect("a directory"))
}

fn setup(durability: Durability) -> Setup {
    // The temporary directory may be in memory, where fsync is free.
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap_or_else(|_| TempDir::new().expect("a directory"));
    let options = Options {
        durability,
        ..Options::default()
    };
    let bus =
        Embedded::open(dir.path(), &options, Arc::new(FixedClock)).expect("an empty directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    Setup {
        bus: Arc::new(bus),
        runtime,
        _dir: dir,
    }
}

fn message(number: u64) -> Arc<Message> {
    let pairs = [
        ("ce-specversion", "1.0"),
        ("ce-type", "OrderPlaced"),
        ("ce-source", "urn:shop"),
    ];
    Arc::new(Message {
        subject: format!("tenant.acme.aggregate.event.o-{number}"),
        id: Some(format!("acme:urn%3Ashop:{number}")),
        headers: pairs
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        payload: Bytes::from_static(&[b'x'; 200]),
    })
}

const MODES: [Durability; 2] = [
    Durability::Sync,
    Durability::Interval(Duration::from_millis(50)),
];

#[divan::bench(args = MODES, sample_count = 500, sample_size = 1)]
fn publish_alone(bencher: Bencher, durability: Durability) {
    let setup = setup(durability);
    let mut number = 0;
    bencher
        .with_inputs(|| {
            number += 1;
            vec![message(number)]
        })
        .bench_local_values(|messages| {
            setup
                .runtime
                .block_on(setup.bus.publish(messages))
                .expect("space")
        });
}

/// Measures the journal alone with a record of this size.
#[divan::bench(sample_count = 500, sample_size = 1)]
fn journal_alone(bencher: Bencher) {
    let dir = temp_dir();
    let options = orlog_journal::Options::new([0; 16]);
    let (mut journal, _) =
        orlog_journal::Journal::open(dir.path(), options).expect("an empty directory");
    bencher.bench_local(|| {
        journal.append(&[&[b'x'; 400]]).expect("space");
        journal.sync().expect("a disk")
    });
}

/// Measures the acknowledgement of 1000 messages, in sequence order or backwards.
#[divan::bench(args = [false, true], sample_count = 100, sample_size = 1)]
fn ack(bencher: Bencher, backwards: bool) {
    let Setup { bus, runtime, _dir } = setup(Durability::Sync);
    runtime
        .block_on(bus.publish((0..CONSUMED).map(message).collect()))
        .expect("space");
    let filters = vec![">".to_owned()];
    let subscription = Subscription {
        name: "c".to_owned(),
        filters,
        partition: None,
        start_after: None,
        max_in_flight: MaxInFlight::total(4096),
    };
    let mut consumer = runtime
        .block_on(bus.subscribe(subscription))
        .expect("a new name");
    let acker = consumer.acker();
    let inputs = || {
        let mut sequences = Vec::with_capacity(1000);
        while sequences.len() < 1000 {
            let next = runtime
                .block_on(consumer.next(1000 - sequences.len()))
                .expect("an open bus");
            sequences.extend(next.iter().map(|delivery| delivery.sequence));
        }
        if backwards {
            sequences.reverse();
        }
        sequences
    };
    bencher
        .counter(ItemsCount::new(1000u64))
        .with_inputs(inputs)
        .bench_local_values(|sequences| {
            for sequence in sequences {
                acker.ack(sequence);
            }
        });
}

#[divan::bench(args = MODES, sample_count = 20, sample_size = 1)]
fn publish_among_a_thousand(bencher: Bencher, durability: Durability) {
    let setup = setup(durability);
    let mut round = 0;
    bencher
        .counter(ItemsCount::new(PUBLISHERS * EACH))
        .bench_local(|| {
            round += 1;
            let publisher = |number: u64| {
                let bus = Arc::clone(&setup.bus);
                async move {
                    for turn in 0..EACH {
                        let number = (round * EACH + turn) * PUBLISHERS + number;
                        bus.publish(vec![message(number)]).await.expect("space");
                    }
                }
            };
            setup.runtime.block_on(async {
                let all: tokio::task::JoinSet<()> = (0..PUBLISHERS).map(publisher).collect();
                all.join_all().await;
            });
        });
}

#[divan::bench(args = [64 << 20, 0], sample_count = 10, sample_size = 1)]
fn consume_and_ack(bencher: Bencher, cache_bytes: usize) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap_or_else(|_| TempDir::new().expect("a directory"));
    let options = Options {
        cache_bytes,
        ..Options::default()
    };
    let bus =
        Embedded::open(dir.path(), &options, Arc::new(FixedClock)).expect("an empty directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime
        .block_on(bus.publish((0..CONSUMED).map(message).collect()))
        .expect("space");
    let mut name = 0;
    bencher.counter(ItemsCount::new(CONSUMED)).bench_local(|| {
        name += 1;
        let filters = vec!["tenant.*.aggregate.>".to_owned(), "aggregate.>".to_owned()];
        let subscription = Subscription {
            name: name.to_string(),
            filters,
            partition: None,
            start_after: None,
            max_in_flight: MaxInFlight::total(4096),
        };
        runtime.block_on(async {
            let mut consumer = bus.subscribe(subscription).await.expect("a new name");
            let acker: Arc<dyn Acker> = consumer.acker();
            while acker.ack_floor() < CONSUMED {
                for delivery in consumer.next(512).await.expect("an open bus") {
                    acker.ack(delivery.sequence);
                }
            }
        });
    });
}
