//! Holds every bus to the conformance suite.

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

mod nats {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use orlog_bus::Bus;
    use orlog_bus::nats::{Connection, NatsStream, Options, StreamPlan, apply};
    use orlog_model::Timestamp;
    use orlog_testkit::bus_suite;
    use orlog_testkit::bus_suite::Ground;
    use orlog_testkit::nats_server::{NatsCluster, NatsServer};

    /// Whatever the suite publishes under.
    const SUBJECTS: [&str; 4] = ["*", "a.>", "b.>", "tenant.>"];

    struct Servers {
        _nodes: Vec<NatsServer>,
        urls: Vec<String>,
        replicas: usize,
        before: Mutex<Option<Arc<NatsStream>>>,
    }

    impl Ground for Servers {
        async fn open(&self) -> Arc<dyn Bus> {
            let before = self.before.lock().expect("no holder panics").take();
            if let Some(before) = before {
                before.save_cursors().await.expect("the servers answer");
            }
            let options =
                Options { servers: self.urls.clone(), name: "test".to_owned(), ..Options::default() };
            let connection = Connection::open(&options).await.expect("the servers answer");
            let plan = StreamPlan::plain("CONFORMANCE", &SUBJECTS, self.replicas, Duration::from_mins(2));
            // A cluster that has just been started takes a moment to agree on who leads.
            let ready = async {
                while apply(&connection, &plan.clone().into(), Timestamp::default()).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), ready).await.expect("the servers agree");
            let bus =
                NatsStream::open(&connection, "CONFORMANCE", "pod-1").await.expect("the stream is there");
            *self.before.lock().expect("no holder panics") = Some(Arc::clone(&bus));
            bus
        }
    }

    fn servers(nodes: Vec<NatsServer>) -> Servers {
        let urls = nodes.iter().map(NatsServer::url).collect();
        Servers { replicas: nodes.len(), urls, _nodes: nodes, before: Mutex::default() }
    }

    mod one_server {
        use super::*;

        bus_suite!(match NatsServer::start() {
            Some(server) => servers(vec![server]),
            None => return,
        });
    }

    mod three_servers {
        use super::*;

        bus_suite!(match NatsCluster::start(3) {
            Some(cluster) => servers(cluster.nodes),
            None => return,
        });
    }
}
