//! Runs the bus conformance suite on every bus.

mod nats;

mod embedded {
    use std::sync::Arc;

    use orlog_bus::embedded::{Embedded, Options};
    use orlog_model::Timestamp;
    use orlog_testkit::bus_suite::BusFixture;
    use orlog_testkit::{SimClock, bus_suite};
    use tempfile::TempDir;

    struct DirFixture {
        dir: TempDir,
        options: Options,
    }

    impl BusFixture for DirFixture {
        async fn open(&self) -> Arc<dyn orlog_bus::Bus> {
            let clock = SimClock::new(Timestamp::from_millis(1_700_000_000_000));
            Arc::new(
                Embedded::open(self.dir.path(), &self.options, clock)
                    .expect("the directory is free"),
            )
        }
    }

    mod from_memory {
        use super::*;

        fn fixture() -> DirFixture {
            DirFixture {
                dir: TempDir::new().expect("a directory"),
                options: Options::default(),
            }
        }

        bus_suite!(fixture());
    }

    mod from_disk {
        use super::*;

        fn fixture() -> DirFixture {
            let options = Options {
                cache_bytes: 0,
                segment_bytes: 64 << 10,
                ..Options::default()
            };
            DirFixture {
                dir: TempDir::new().expect("a directory"),
                options,
            }
        }

        bus_suite!(fixture());
    }
}
