//! Holds every bus to the conformance suite.

#[path = "bus_conformance/nats.rs"]
mod nats;

mod embedded {
    use std::sync::Arc;

    use orlog_bus::embedded::{Embedded, Options};
    use orlog_model::Timestamp;
    use orlog_testkit::bus_suite::Ground;
    use orlog_testkit::{SimClock, bus_suite};
    use tempfile::TempDir;

    struct Folder {
        dir: TempDir,
        options: Options,
    }

    impl Ground for Folder {
        async fn open(&self) -> Arc<dyn orlog_bus::Bus> {
            let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
            Arc::new(Embedded::open(self.dir.path(), &self.options, clock).expect("the folder is free"))
        }
    }

    mod from_memory {
        use super::*;

        fn ground() -> Folder {
            Folder { dir: TempDir::new().expect("a folder"), options: Options::default() }
        }

        bus_suite!(ground());
    }

    mod from_disk {
        use super::*;

        fn ground() -> Folder {
            let options = Options { recent_bytes: 0, segment_bytes: 64 << 10, ..Options::default() };
            Folder { dir: TempDir::new().expect("a folder"), options }
        }

        bus_suite!(ground());
    }
}
