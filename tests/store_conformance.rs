//! Holds every store to the conformance suite.

/// Nothing but memory.
mod memory {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, ()) {
        let (writer, reader) = orlog_store::memory(Rig::options());
        (Rig { writer, reader, after: |_| () }, ())
    }

    store_suite!(rig());
}

/// On disk, everything still in the journal and the overlay.
mod journaled {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::on_disk(|_| ())
    }

    store_suite!(rig());
}

/// On disk, everything in the tables after each commit.
mod folded {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::on_disk(|writer| writer.flush().expect("there is room"))
    }

    store_suite!(rig());
}

/// On disk, closed and replayed after each commit.
mod replayed {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::on_disk(|writer| writer.recover().expect("what was written can be read"))
    }

    store_suite!(rig());
}

/// Following a log, whose entries are so small that most commits take several.
mod replicated {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::following(|_| ())
    }

    store_suite!(rig());
}

/// Following a log, and taken over again after each commit.
mod retaken {
    use orlog_testkit::store_suite;
    use orlog_testkit::store_suite::Rig;

    fn rig() -> (Rig, tempfile::TempDir) {
        super::following(|writer| writer.recover().expect("the log has everything"))
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
