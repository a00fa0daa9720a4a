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

fn on_disk(after: fn(&mut orlog_store::Writer)) -> (orlog_testkit::store_suite::Rig, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let (writer, reader) =
        orlog_store::open(dir.path(), orlog_testkit::store_suite::Rig::options()).expect("a new store opens");
    (orlog_testkit::store_suite::Rig { writer, reader, after }, dir)
}
