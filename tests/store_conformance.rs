//! Holds every store to the conformance suite.

/// Nothing but memory.
mod memory {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, ()) {
        let (writer, reader) = orlog_store::memory(Rig::options());
        (Rig { writer, reader, after: |_| () }, ())
    }

    store_suite!(Some(rig()));
}

/// On disk, everything still in the journal and the overlay.
mod journaled {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::on_disk(|_| ())
    }

    store_suite!(Some(rig()));
}

/// On disk, everything in the tables after each commit.
mod folded {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::on_disk(|writer| writer.flush().expect("there is room"))
    }

    store_suite!(Some(rig()));
}

/// On disk, closed and replayed after each commit.
mod replayed {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::on_disk(|writer| writer.recover().expect("what was written can be read"))
    }

    store_suite!(Some(rig()));
}

/// Following a log, whose entries are so small that most commits take several.
mod replicated {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::following(|_| ())
    }

    store_suite!(Some(rig()));
}

/// Following a log, and taken over again after each commit.
mod retaken {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::following(|writer| writer.recover().expect("the log has everything"))
    }

    store_suite!(Some(rig()));
}

/// Following a log on NATS.
mod on_nats {
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::sync::{LazyLock, Mutex};

    use orlog_bus::nats::{Connection, Options};
    use orlog_testkit::nats_server::NatsServer;
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;
    use tokio::runtime::Runtime;

    /// One server for all cases, and a shard for each.
    struct Servers {
        runtime: Runtime,
        connection: Connection,
        next: AtomicU16,
        _server: NatsServer,
    }

    static SERVERS: LazyLock<Mutex<Option<Servers>>> = LazyLock::new(|| Mutex::new(start()));

    fn start() -> Option<Servers> {
        let server = NatsServer::start()?;
        let runtime = Runtime::new().expect("a runtime");
        let options = Options { servers: vec![server.url()], ..Options::default() };
        let connection = runtime.block_on(Connection::open(&options)).expect("it was just started");
        let plan = orlog::app::replication::plan(1);
        let made = orlog_bus::nats::apply(&connection, &plan, orlog_model::Timestamp::from_millis(0));
        runtime.block_on(made).expect("it is empty");
        Some(Servers { runtime, connection, next: AtomicU16::new(0), _server: server })
    }

    fn rig() -> Option<(Rig, tempfile::TempDir)> {
        let servers = SERVERS.lock().expect("no case panics here");
        let servers = servers.as_ref()?;
        let dir = tempfile::tempdir().expect("a folder");
        let shard = servers.next.fetch_add(1, Ordering::Relaxed);
        let pace = orlog::app::replication::Pace { commits: 2, bytes: 1 << 30 };
        let (folder, options) = (dir.path().to_owned(), Rig::options());
        let opening = orlog::app::replication::open(&servers.connection, shard, 1, folder, options, pace);
        let (writer, reader) = servers.runtime.block_on(opening).expect("a new shard");
        Some((Rig { writer, reader, after: |_| () }, dir))
    }

    store_suite!(rig());
}

fn following(after: fn(&mut orlog_store::Writer)) -> (orlog_testkit::store_suite::Rig, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let log = orlog_testkit::memory_log::MemoryLog::new(400);
    let replication = orlog_store::Replication::new(log.port(), 1);
    let options = orlog_testkit::store_suite::Rig::options();
    let (writer, reader) =
        orlog_store::open_replicated(dir.path(), options, replication).expect("a new store opens");
    (orlog_testkit::store_suite::Rig { writer, reader, after }, dir)
}

fn on_disk(after: fn(&mut orlog_store::Writer)) -> (orlog_testkit::store_suite::Rig, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let (writer, reader) =
        orlog_store::open(dir.path(), orlog_testkit::store_suite::Rig::options()).expect("a new store opens");
    (orlog_testkit::store_suite::Rig { writer, reader, after }, dir)
}
