//! Replicated log of a shard on NATS servers that are paused, killed and replaced; with one node, and
//! with three nodes and a majority.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orlog::app::App;
use orlog::config::{
    BusConfig, BusKind, ClusterMode, Config, NatsConfig, ReplicationMode, StoreConfig,
};
use orlog::replication::{self, SnapshotPolicy};
use orlog_bus::nats::{self, Connection, Options, ShardLog, Snapshots};
use orlog_model::{Event, EventId, EventType, TenantId, Timestamp};
use orlog_store::{Error, Reader, Writer};
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::raw_nats::RawNatsClient;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::replication::groups::{at, everything, group, sized, small};
use crate::replication::wait;

/// Policy without snapshots.
const NEVER: SnapshotPolicy = SnapshotPolicy {
    commits: u64::MAX,
    bytes: u64::MAX,
};

/// Servers and a client that is connected to all of them.
struct NatsFixture {
    runtime: Runtime,
    connection: Connection,
}

impl NatsFixture {
    fn new(servers: Vec<String>, replicas: usize) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let options = Options {
            servers,
            name: "test".to_owned(),
            ..Options::default()
        };
        let connection = until(|| runtime.block_on(Connection::open(&options)));
        until(|| {
            runtime.block_on(nats::apply(
                &connection,
                &replication::stream_specs(replicas),
                at(0),
            ))
        });
        let different = until(|| {
            runtime.block_on(nats::diff(
                &connection,
                &replication::stream_specs(replicas),
                at(0),
            ))
        });
        assert_eq!(different, [], "what was made is what was planned");
        Self {
            runtime,
            connection,
        }
    }

    fn open(
        &self,
        dir: &Path,
        epoch: u64,
        pace: SnapshotPolicy,
    ) -> Result<(Writer, Reader), Error> {
        self.open_with(dir, epoch, pace, false)
    }

    fn open_with(
        &self,
        dir: &Path,
        epoch: u64,
        pace: SnapshotPolicy,
        accept_data_loss: bool,
    ) -> Result<(Writer, Reader), Error> {
        let options = orlog_store::Options {
            max_bytes: 256 << 20,
            accept_data_loss,
            ..small()
        };
        self.runtime.block_on(replication::open(
            &self.connection,
            7,
            Some(epoch),
            watch::channel(false).1,
            dir.to_owned(),
            options,
            pace,
        ))
    }

    fn pod(&self, epoch: u64, pace: SnapshotPolicy) -> Pod {
        let dir = tempfile::tempdir().expect("a directory");
        let (writer, reader) = self
            .open(dir.path(), epoch, pace)
            .expect("the log can be claimed");
        Pod {
            writer,
            reader,
            _dir: dir,
        }
    }

    fn log(&self) -> ShardLog {
        self.runtime
            .block_on(ShardLog::open(&self.connection, 7))
            .expect("the stream is there")
    }
}

struct Pod {
    writer: Writer,
    reader: Reader,
    _dir: TempDir,
}

impl Pod {
    /// Commits like a committer and waits for the log. Returns whether it had to wait.
    fn commit(&mut self, number: u64) -> Result<bool, Error> {
        let mut result = self.writer.commit(&group(number), at(number));
        let (started, mut waited) = (Instant::now(), false);
        while let Err(Error::Unavailable { .. }) = result {
            assert!(started.elapsed() < WAIT_TIMEOUT, "the log stays away");
            (result, waited) = (self.writer.retry_commit(), true);
        }
        result.map(|_| waited)
    }
}

/// Retries until it succeeds.
#[track_caller]
fn until<T, E: std::fmt::Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(
                started.elapsed() < WAIT_TIMEOUT,
                "it never came true: {error}"
            ),
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Asserts that each of these numbers was applied once, and no others.
#[track_caller]
fn assert_exactly(reader: &Reader, numbers: impl Iterator<Item = u64>) {
    let rows = reader
        .inspect_rows("dedupe", None, usize::MAX)
        .expect("the store is open");
    let mut found: HashMap<u64, u32> = HashMap::new();
    for row in &rows {
        let id: uuid::Uuid = row
            .key
            .rsplit(':')
            .next()
            .and_then(|id| id.parse().ok())
            .expect("a dedupe key");
        let number = u64::try_from(id.as_u128()).expect("a number");
        *found.entry(number).or_default() += 1;
    }
    let expected: HashMap<u64, u32> = numbers.map(|number| (number, 1)).collect();
    assert_eq!(found, expected);
    assert_eq!(reader.position(), expected.len() as u64);
    assert_eq!(reader.outbox_depth().expect("open"), expected.len() as u64);
}

#[test]
fn takeover_restores_snapshot_and_log_tail() {
    let server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let mut first = fixture.pod(
        1,
        SnapshotPolicy {
            commits: 10,
            bytes: u64::MAX,
        },
    );
    for number in 1..=45 {
        first
            .writer
            .commit(&sized(number, 3 << 20), at(number))
            .expect("the server is up");
        if number % 15 == 0 {
            let due = number / 15;
            wait(|| {
                first
                    .reader
                    .stats()
                    .replication
                    .expect("replicated")
                    .snapshots
                    >= due
            });
        }
    }
    let expected = everything(&first.reader);
    let started = Instant::now();
    let mut second = fixture.pod(2, NEVER);
    println!(
        "taken over with {} commits in {:?}",
        second.reader.position(),
        started.elapsed()
    );
    assert_eq!(everything(&second.reader), expected);
    let behind = second
        .reader
        .stats()
        .replication
        .expect("replicated")
        .commits_behind_snapshot;
    assert!(
        behind < 45,
        "{behind} commits came from the log, none from a snapshot"
    );
    assert!(matches!(first.commit(46), Err(Error::Fenced { .. })));
    second.commit(46).expect("it owns the log");
    assert_exactly(&second.reader, 1..=46);
}

#[test]
fn corrupt_snapshot_falls_back_to_the_previous_one() {
    let server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let mut pod = fixture.pod(
        1,
        SnapshotPolicy {
            commits: 5,
            bytes: u64::MAX,
        },
    );
    for number in 1..=10 {
        pod.commit(number).expect("the server is up");
        let due = number / 5;
        wait(|| {
            pod.reader
                .stats()
                .replication
                .expect("replicated")
                .snapshots
                >= due
        });
    }
    let snapshots = fixture
        .runtime
        .block_on(Snapshots::open(&fixture.connection, 7))
        .expect("there is a bucket");
    let mut listed = fixture
        .runtime
        .block_on(snapshots.list())
        .expect("the server is up");
    listed.sort_by(|a, b| b.name.cmp(&a.name));
    assert_eq!(listed.len(), 2);
    // A snapshot with the newest position and without content.
    let empty = tempfile::NamedTempFile::new().expect("a file");
    fixture
        .runtime
        .block_on(snapshots.delete(&listed[0].name))
        .expect("the server is up");
    fixture
        .runtime
        .block_on(snapshots.save(&listed[0], empty.path()))
        .expect("the server is up");
    let dir = tempfile::tempdir().expect("a directory");
    let error = fixture
        .runtime
        .block_on(snapshots.load("nothing", &dir.path().join("x")))
        .expect_err("no such");
    assert!(error.to_string().contains("does not exist"), "{error}");
    // Incomplete chunks are swept, chunks of snapshots are not.
    fixture
        .runtime
        .block_on(snapshots.delete_orphans("9"))
        .expect("the server is up");
    fixture
        .runtime
        .block_on(snapshots.delete(&listed[0].name))
        .expect("the server is up");
    let second = fixture.pod(2, NEVER);
    assert_exactly(&second.reader, 1..=10);
}

/// An operator purges the log of a shard that has no snapshot; no pod has a copy.
#[test]
fn purged_log_is_rejected_until_the_loss_is_accepted() {
    let server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let mut pod = fixture.pod(1, NEVER);
    (1..=5).for_each(|number| assert!(pod.commit(number).is_ok()));
    drop(pod);
    RawNatsClient::connect(server.port).jetstream("STREAM.PURGE.ORLOG_LOG", &json!({}));

    let dir = tempfile::tempdir().expect("a directory");
    let error = fixture
        .open(dir.path(), 2, NEVER)
        .expect_err("the log lost all entries");
    assert!(error.to_string().starts_with("OR0061: "), "{error}");
    let accepted = fixture
        .open_with(dir.path(), 2, NEVER, true)
        .expect("the loss is accepted");
    assert_eq!(accepted.1.position(), 0);
    drop(accepted);
    assert_eq!(fixture.pod(3, NEVER).reader.position(), 0);
}

/// Restore of replicated shards in docs/backup.md: the streams have other creation times.
#[test]
fn restored_log_and_snapshots_are_continued() {
    let server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let policy = SnapshotPolicy {
        commits: 5,
        bytes: u64::MAX,
    };
    let mut pod = fixture.pod(1, policy);
    for number in 1..=12 {
        pod.commit(number).expect("the server is up");
        wait(|| {
            let replication = pod.reader.stats().replication.expect("replicated");
            replication.snapshots >= number / 5
        });
    }
    drop(pod);
    let mut wire = RawNatsClient::connect(server.port);
    for stream in ["ORLOG_LOG", "OBJ_orlog-snapshots"] {
        let backup = wire.back_up_stream(stream);
        wire.jetstream(&format!("STREAM.DELETE.{stream}"), &json!({}));
        wire.restore_stream(&backup);
    }
    let mut restored = fixture.pod(2, policy);
    restored.commit(13).expect("it owns the log");
    assert_exactly(&restored.reader, 1..=13);
    let replication = restored.reader.stats().replication.expect("replicated");
    assert!(
        replication.commits_behind_snapshot < 13,
        "the snapshots are used"
    );
}

#[test]
fn server_pause_or_crash_delays_commits_without_duplicates() {
    let mut server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let mut pod = fixture.pod(1, NEVER);
    let (mut number, started) = (0, Instant::now());
    server.pause();
    // It pauses a little after the request.
    let error = loop {
        number += 1;
        match pod.writer.commit(&group(number), at(number)) {
            Ok(_) => assert!(started.elapsed() < WAIT_TIMEOUT, "it does not fall asleep"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(
        pod.reader
            .stats()
            .replication
            .expect("replicated")
            .unavailable
            .is_some()
    );
    server.resume();
    until(|| pod.writer.retry_commit());
    server.kill();
    number += 1;
    let error = pod
        .writer
        .commit(&group(number), at(number))
        .expect_err("the log does not respond");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    server.restart();
    until(|| pod.writer.retry_commit());
    (number + 1..=number + 6).for_each(|number| assert!(pod.commit(number).is_ok()));
    assert_exactly(&fixture.pod(2, NEVER).reader, 1..=number + 6);
}

#[test]
fn takeover_of_a_busy_owner_loses_no_acknowledged_commit() {
    let server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let (mut owner, stop) = (fixture.pod(1, NEVER), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                match owner.commit(number + 1) {
                    Ok(_) => number += 1,
                    Err(Error::Fenced { .. }) => return number,
                    Err(error) => panic!("{error}"),
                }
            }
            panic!("it was never fenced, after {number} commits");
        });
        let log = fixture.log();
        wait(|| {
            fixture
                .runtime
                .block_on(log.last())
                .is_ok_and(|last| last.is_some_and(|(number, _)| number > 50))
        });
        let dir = tempfile::tempdir().expect("a directory");
        let takeover = fixture.open(dir.path(), 2, NEVER);
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !busy.is_finished() && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        let acked = busy.join().expect("it was fenced");
        let (_writer, reader) = takeover.expect("a later lease takes the log");
        assert!(
            reader.position() == acked || reader.position() == acked + 1,
            "{acked}"
        );
        assert_exactly(&reader, 1..=reader.position());
    });
}

#[test]
fn commits_survive_leader_failure_in_order_without_duplicates() {
    let mut cluster = NatsCluster::start(3);
    let fixture = NatsFixture::new(cluster.urls(), 3);
    let mut pod = fixture.pod(1, NEVER);
    (1..=50).for_each(|number| assert!(pod.commit(number).is_ok()));
    let leader = fixture
        .runtime
        .block_on(fixture.log().leader())
        .expect("it is up")
        .expect("there is one");
    let index: usize = leader
        .trim_start_matches('n')
        .parse()
        .expect("n0, n1 or n2");
    cluster.nodes[index].kill();
    let started = Instant::now();
    pod.commit(51).expect("two of three go on");
    println!(
        "the first commit after the leader's death took {:?}",
        started.elapsed()
    );
    (52..=100).for_each(|number| assert!(pod.commit(number).is_ok()));
    cluster.nodes[index].restart();
    (101..=120).for_each(|number| assert!(pod.commit(number).is_ok()));
    let started = Instant::now();
    let next = fixture.pod(2, NEVER);
    println!("taken over in {:?}", started.elapsed());
    assert_exactly(&next.reader, 1..=120);
}

/// Definition of an instance that waits for a day.
const PATIENT: &str = "saga: order\nversion: 1\ncorrelate: orderId\nstart: OrderPlaced\nvars: { orderId: =event.orderId }\n\
     steps:\n  - { id: delay, do: { wait: { for: 1d } } }\n";

fn configured(server: &NatsServer, data: &Path, definitions: Option<PathBuf>) -> Config {
    Config {
        data_dir: data.to_owned(),
        definitions_dir: definitions,
        shards: 2,
        store: StoreConfig {
            replication: ReplicationMode::JetStream,
            ..StoreConfig::default()
        },
        bus: BusConfig {
            kind: BusKind::Nats,
            ..BusConfig::default()
        },
        nats: NatsConfig {
            servers: vec![server.url()],
            manage_aggregate_stream: true,
            ..NatsConfig::default()
        },
        ..Config::default()
    }
}

fn placed(order: u64) -> Event {
    Event {
        id: EventId::new(format!("placed-{order}")).expect("valid"),
        tenant: TenantId::default(),
        kind: EventType::new("OrderPlaced").expect("valid"),
        source: "urn:shop".to_owned(),
        subject: None,
        time: Timestamp::from_millis(1_700_000_000_000),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: serde_json::json!({ "orderId": format!("o-{order}") }),
        user: None,
        attributes: None,
    }
}

fn instances(app: &App) -> usize {
    let rows = app.runtime.readers().map(|reader| {
        reader
            .inspect_rows("saga", None, usize::MAX)
            .map_or(0, |rows| rows.len())
    });
    rows.sum()
}

/// Requirements: E8.
#[tokio::test(flavor = "multi_thread")]
async fn node_with_empty_disk_continues_from_the_log() {
    let server = NatsServer::start();
    let home = tempfile::tempdir().expect("a directory");
    let definitions = home.path().join("definitions");
    std::fs::create_dir(&definitions).expect("a directory");
    std::fs::write(definitions.join("order.saga.yaml"), PATIENT).expect("a file");
    let first = App::start(configured(
        &server,
        &home.path().join("first"),
        Some(definitions),
    ));
    let first = first.await.expect("the server is empty");
    first
        .publish((1..=30).map(placed).collect())
        .await
        .expect("the server is up");
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while instances(&first) < 30 {
        assert!(
            Instant::now() < deadline,
            "{} instances began",
            instances(&first)
        );
        tokio::task::yield_now().await;
    }
    assert_eq!(first.info(&[]).durability["store"], "jetstream, 1 replicas");
    first.stop().await.expect("there is room");
    let second = App::start(configured(&server, &home.path().join("second"), None)).await;
    let second = second.expect("the log has everything, the definitions too");
    assert_eq!(
        (instances(&second), second.definitions.active().len()),
        (30, 1)
    );
    second.stop().await.expect("there is room");
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_does_not_wait_for_deployments_and_replays() {
    let server = NatsServer::start();
    let home = tempfile::tempdir().expect("a directory");
    let mut config = configured(&server, &home.path().join("data"), None);
    config.cluster.mode = ClusterMode::Leases;
    let app = App::start(config).await.expect("the server is empty");
    // Held like by a long replay.
    let replay = app.lock_definitions().await;
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while app.runtime.owned_shards().len() < 2 {
        assert!(
            Instant::now() < deadline,
            "the shards do not start: {:?}",
            app.runtime.owned_shards()
        );
        tokio::task::yield_now().await;
    }
    drop(replay);
    app.stop().await.expect("there is room");
}

#[test]
#[ignore = "a measurement: run it alone, with --release and --nocapture"]
fn measures_commit_and_takeover_latency() {
    let server = NatsServer::start();
    let fixture = NatsFixture::new(vec![server.url()], 1);
    let mut pod = fixture.pod(1, NEVER);
    let mut number = 0;
    for size in [1, 100, 1000] {
        let mut took = Vec::new();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(5) {
            let group: Vec<_> = (0..size)
                .flat_map(|_| {
                    number += 1;
                    sized(number, 400)
                })
                .collect();
            let start = Instant::now();
            pod.writer
                .commit(&group, at(number))
                .expect("the server is up");
            took.push(start.elapsed());
        }
        took.sort();
        let (count, spent) = (took.len(), started.elapsed().as_secs_f64());
        let rate = f64::from(u32::try_from(count).expect("a few thousand")) / spent;
        println!(
            "groups of {size}: {rate:.0} commits/s, {:.0} transitions/s, p50 {:?}, p99 {:?}",
            rate * f64::from(size),
            took[count / 2],
            took[count * 99 / 100],
        );
    }
    let started = Instant::now();
    let next = fixture.pod(2, NEVER);
    println!(
        "taken over from the log alone, {} commits, {number} transitions: {:?}",
        next.reader.position(),
        started.elapsed()
    );
}
