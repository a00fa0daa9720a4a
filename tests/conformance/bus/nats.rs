//! JetStream streams, on one server and on three.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::Bus;
use orlog_bus::nats::{Connection, NatsStream, Options, StreamSet, StreamSpec, apply};
use orlog_model::Timestamp;
use orlog_testkit::bus_suite::BusFixture;
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::{WAIT_TIMEOUT, bus_suite};
use parking_lot::Mutex;

/// All subjects that the suite publishes to.
const SUBJECTS: [&str; 4] = ["*", "a.>", "b.>", "tenant.>"];

struct Servers {
    _nodes: Vec<NatsServer>,
    urls: Vec<String>,
    replicas: usize,
    before: Mutex<Option<Arc<NatsStream>>>,
}

impl BusFixture for Servers {
    async fn open(&self) -> Arc<dyn Bus> {
        let before = self.before.lock().take();
        if let Some(before) = before {
            // Servers drop a request while the consumer of the cursors changes its leader.
            let saved = async {
                let mut again = tokio::time::interval(Duration::from_millis(50));
                while let Err(error) = before.save_cursors().await {
                    eprintln!("cursors not saved: {error}");
                    again.tick().await;
                }
            };
            tokio::time::timeout(WAIT_TIMEOUT, saved)
                .await
                .expect("the servers answer");
        }
        let plan = StreamSpec::new(
            "CONFORMANCE",
            &SUBJECTS,
            self.replicas,
            Duration::from_mins(2),
        )
        .into();
        // A new cluster needs a moment to elect its leaders.
        let ready = async {
            let mut again = tokio::time::interval(Duration::from_millis(50));
            loop {
                again.tick().await;
                if let Some(bus) = opened(&self.urls, &plan).await {
                    return bus;
                }
            }
        };
        let bus = tokio::time::timeout(WAIT_TIMEOUT, ready)
            .await
            .expect("the servers agree");
        *self.before.lock() = Some(Arc::clone(&bus));
        bus
    }
}

async fn opened(urls: &[String], plan: &StreamSet) -> Option<Arc<NatsStream>> {
    let connection = connection_of(urls, Options::default().request_timeout).await?;
    apply(&connection, plan, Timestamp::default()).await.ok()?;
    NatsStream::open(&connection, "CONFORMANCE", "pod-1")
        .await
        .ok()?;
    // The leaders are elected. The suite tests accepted messages: on a slow machine three servers need more
    // time.
    let patient = connection_of(urls, Duration::from_secs(20)).await?;
    NatsStream::open(&patient, "CONFORMANCE", "pod-1")
        .await
        .ok()
}

async fn connection_of(urls: &[String], request_timeout: Duration) -> Option<Connection> {
    let options = Options {
        servers: urls.to_vec(),
        name: "test".to_owned(),
        request_timeout,
        ..Options::default()
    };
    Connection::open(&options).await.ok()
}

fn servers(nodes: Vec<NatsServer>) -> Servers {
    let urls = nodes.iter().map(NatsServer::url).collect();
    Servers {
        replicas: nodes.len(),
        urls,
        _nodes: nodes,
        before: Mutex::default(),
    }
}

mod one_server {
    use super::*;

    bus_suite!(servers(vec![NatsServer::start()]));
}

mod three_servers {
    use super::*;

    bus_suite!(servers(NatsCluster::start(3).nodes));
}
