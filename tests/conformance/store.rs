//! Runs the store conformance suite on every store.

/// In memory only.
mod memory {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;

    fn fixture() -> (StoreFixture, ()) {
        let (writer, reader) = orlog_store::open_in_memory(StoreFixture::options());
        (
            StoreFixture {
                writer,
                reader,
                after: |_| (),
            },
            (),
        )
    }

    store_suite!(Some(fixture()));
}

/// On disk, with all data in the journal and the memtable.
mod journaled {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;

    fn fixture() -> (StoreFixture, tempfile::TempDir) {
        super::on_disk(|_| ())
    }

    store_suite!(Some(fixture()));
}

/// On disk, with a flush to the tables after each commit.
mod flushed {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;

    fn fixture() -> (StoreFixture, tempfile::TempDir) {
        super::on_disk(|writer| writer.flush().expect("there is room"))
    }

    store_suite!(Some(fixture()));
}

/// On disk, closed and recovered after each commit.
mod replayed {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;

    fn fixture() -> (StoreFixture, tempfile::TempDir) {
        super::on_disk(|writer| writer.recover().expect("what was written can be read"))
    }

    store_suite!(Some(fixture()));
}

/// Replicated, with log entries so small that most commits need several.
mod replicated {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;

    fn fixture() -> (StoreFixture, tempfile::TempDir) {
        super::following(|_| ())
    }

    store_suite!(Some(fixture()));
}

/// Replicated, with a takeover after each commit.
mod retaken {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;

    fn fixture() -> (StoreFixture, tempfile::TempDir) {
        super::following(|writer| writer.recover().expect("the log has everything"))
    }

    store_suite!(Some(fixture()));
}

/// Replicated to NATS.
mod on_nats {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU16, Ordering};

    use orlog_bus::nats::{Connection, Options};
    use orlog_testkit::nats_server::NatsServer;
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::StoreFixture;
    use parking_lot::Mutex;
    use tokio::runtime::Runtime;

    /// One server for all cases, and a shard for each.
    struct Servers {
        runtime: Runtime,
        connection: Connection,
        next: AtomicU16,
        _server: NatsServer,
    }

    static SERVERS: LazyLock<Mutex<Servers>> = LazyLock::new(|| Mutex::new(start()));

    fn start() -> Servers {
        let server = NatsServer::start();
        let runtime = Runtime::new().expect("a runtime");
        let options = Options {
            servers: vec![server.url()],
            ..Options::default()
        };
        let connection = runtime
            .block_on(Connection::open(&options))
            .expect("it was just started");
        let plan = orlog::replication::stream_specs(1);
        let made =
            orlog_bus::nats::apply(&connection, &plan, orlog_model::Timestamp::from_millis(0));
        runtime.block_on(made).expect("it is empty");
        Servers {
            runtime,
            connection,
            next: AtomicU16::new(0),
            _server: server,
        }
    }

    fn fixture() -> (StoreFixture, tempfile::TempDir) {
        let servers = SERVERS.lock();
        let dir = tempfile::tempdir().expect("a directory");
        let shard = servers.next.fetch_add(1, Ordering::Relaxed);
        let pace = orlog::replication::SnapshotPolicy {
            commits: 2,
            bytes: 1 << 30,
        };
        let (store_dir, options) = (dir.path().to_owned(), StoreFixture::options());
        let opening = orlog::replication::open(
            &servers.connection,
            shard,
            None,
            tokio::sync::watch::channel(false).1,
            store_dir,
            options,
            pace,
        );
        let (writer, reader) = servers.runtime.block_on(opening).expect("a new shard");
        (
            StoreFixture {
                writer,
                reader,
                after: |_| (),
            },
            dir,
        )
    }

    store_suite!(Some(fixture()));
}

fn following(
    after: fn(&mut orlog_store::Writer),
) -> (orlog_testkit::store_suite::StoreFixture, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let log = orlog_testkit::memory_log::MemoryLog::new(400);
    let replication = orlog_store::ReplicationOptions::new(log.commit_log(), 1);
    let options = orlog_testkit::store_suite::StoreFixture::options();
    let (writer, reader) =
        orlog_store::open_replicated(dir.path(), options, replication).expect("a new store opens");
    (
        orlog_testkit::store_suite::StoreFixture {
            writer,
            reader,
            after,
        },
        dir,
    )
}

fn on_disk(
    after: fn(&mut orlog_store::Writer),
) -> (orlog_testkit::store_suite::StoreFixture, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let (writer, reader) = orlog_store::open(
        dir.path(),
        orlog_testkit::store_suite::StoreFixture::options(),
    )
    .expect("a new store opens");
    (
        orlog_testkit::store_suite::StoreFixture {
            writer,
            reader,
            after,
        },
        dir,
    )
}
