//! Contract of registries: the journal of a node, and the bucket on NATS.

use std::path::PathBuf;
use std::sync::Arc;

use orlog_bus::Error;
use orlog_bus::embedded::JournalRegistry;
use orlog_bus::nats::{Connection, NatsRegistry, Options, REGISTRY_BUCKET, StreamSet, apply};
use orlog_bus::registry::Registry;
use orlog_model::Timestamp;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::{until, within};
use serde_json::json;
use tempfile::TempDir;

/// Place of a registry.
enum Fixture {
    Journal(TempDir),
    Nats(NatsServer),
}

impl Fixture {
    fn all() -> [Self; 2] {
        [
            Self::Journal(tempfile::tempdir().unwrap()),
            Self::Nats(NatsServer::start()),
        ]
    }

    async fn open(&self) -> Arc<dyn Registry> {
        match self {
            Fixture::Journal(dir) => {
                Arc::new(JournalRegistry::open(&dir.path().join("registry"), None).unwrap())
            }
            Fixture::Nats(server) => Arc::new(open_nats(server).await),
        }
    }
}

async fn open_nats(server: &NatsServer) -> NatsRegistry {
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        ..Options::default()
    };
    let connection = &until("a connection", || async {
        Connection::open(&options).await.ok()
    })
    .await;
    let plan = &StreamSet::from(NatsRegistry::plan(1));
    until("the bucket", || async move {
        apply(connection, plan, Timestamp::default()).await.ok()?;
        NatsRegistry::open(connection).await.ok()
    })
    .await
}

async fn put(registry: &dyn Registry, key: &str, value: &str, seen: u64) -> Option<u64> {
    within("a write", registry.put(key, Some(value.to_owned()), seen))
        .await
        .unwrap()
}

fn records(registry: &dyn Registry) -> Vec<(String, u64, String)> {
    let view = registry.view().borrow().clone();
    assert!(view.is_current);
    view.records
        .iter()
        .map(|(key, record)| (key.clone(), record.revision, record.value.to_string()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn write_requires_the_revision_that_was_read() {
    for fixture in Fixture::all() {
        let registry = &*fixture.open().await;
        assert_eq!(records(registry), []);
        let first = put(registry, "context.acme", "one", 0).await.unwrap();
        assert_eq!(
            put(registry, "context.acme", "two", 0).await,
            None,
            "it exists"
        );
        assert_eq!(put(registry, "context.acme", "two", first + 1).await, None);
        let second = put(registry, "context.acme", "two", first).await.unwrap();
        assert!(second > first);
        assert_eq!(put(registry, "context.acme", "three", first).await, None);
        // Any text can be a key; a quote and a dot have no meaning.
        let other = put(registry, "context.a\"b.*", "other", 0).await.unwrap();
        let mut expected = vec![
            ("context.a\"b.*".to_owned(), other, "other".to_owned()),
            ("context.acme".to_owned(), second, "two".to_owned()),
        ];
        assert_eq!(records(registry), expected);
        assert_eq!(
            registry.put("context.acme", None, first).await.unwrap(),
            None
        );
        let removed = registry
            .put("context.acme", None, second)
            .await
            .unwrap()
            .unwrap();
        expected.pop();
        assert_eq!(records(registry), expected);
        let again = put(registry, "context.acme", "again", 0).await.unwrap();
        assert!(again > removed, "a revision is never used again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_writes_succeeds() {
    for fixture in Fixture::all() {
        let registry = fixture.open().await;
        let writes = (0..8).map(|number| {
            let registry = Arc::clone(&registry);
            async move {
                registry
                    .put("key", Some(number.to_string()), 0)
                    .await
                    .unwrap()
            }
        });
        let revisions = futures::future::join_all(writes).await;
        assert_eq!(revisions.iter().flatten().count(), 1, "{revisions:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_survive_a_restart() {
    for fixture in Fixture::all() {
        let registry = fixture.open().await;
        let kept = put(&*registry, "kept", "value", 0).await.unwrap();
        let gone = put(&*registry, "gone", "value", 0).await.unwrap();
        registry.put("gone", None, gone).await.unwrap().unwrap();
        let position = registry.durable_position();
        assert!(position.is_some());
        drop(registry);
        let registry = fixture.open().await;
        assert_eq!(
            records(&*registry),
            [("kept".to_owned(), kept, "value".to_owned())]
        );
        assert_eq!(registry.durable_position(), position);
        assert!(put(&*registry, "gone", "again", 0).await.unwrap() > gone + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn journal_is_rewritten_when_most_entries_are_outdated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry");
    let open = || JournalRegistry::open(&path, None).unwrap();
    let (registry, value) = (open(), "x".repeat(1000));
    let kept = put(&registry, "kept", "value", 0).await;
    let mut seen = 0;
    for _ in 0..1200 {
        seen = put(&registry, "busy", &value, seen).await.unwrap();
    }
    let bytes = |path: &PathBuf| {
        let files = std::fs::read_dir(path).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum::<u64>()
    };
    let before = (records(&registry), bytes(&path));
    drop(registry);
    let registry = open();
    assert_eq!(records(&registry), before.0);
    assert!(
        bytes(&path) < before.1 / 2,
        "{} of {} bytes remain",
        bytes(&path),
        before.1
    );
    assert!(put(&registry, "busy", &value, seen).await.unwrap() > seen);
    let position = registry.durable_position();
    drop(registry);
    assert_eq!(records(&open()).len(), 2, "kept has revision {kept:?}");

    // A copy has the records and their revisions.
    let copy = dir.path().join("copy");
    let registry = open();
    registry.copy_to(&copy).unwrap();
    assert_eq!(
        records(&JournalRegistry::open(&copy, None).unwrap()),
        records(&registry)
    );
    drop(registry);
    // A registry that lost records is rejected.
    JournalRegistry::open(&path, position).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let lost = JournalRegistry::open(&path, position).err().unwrap();
    assert!(
        matches!(lost, orlog_bus::embedded::OpenError::Lost { .. }),
        "{lost}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_sees_a_change_and_an_outage() {
    let mut server = NatsServer::start();
    let (one, other) = (open_nats(&server).await, open_nats(&server).await);
    let mut view = other.view();
    let revision = put(&one, "key", "value", 0).await.unwrap();
    within(
        "the change",
        view.wait_for(|view| view.revision_of("key") == revision),
    )
    .await
    .unwrap();
    server.kill();
    within("the outage", view.wait_for(|view| !view.is_current))
        .await
        .unwrap();
    assert_eq!(
        view.borrow().revision_of("key"),
        revision,
        "the last state remains"
    );
    // The client can send it after the outage: another revision keeps it without effect.
    let failed = one.put("key", None, revision + 1).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    server.restart();
    within("the recovery", view.wait_for(|view| view.is_current))
        .await
        .unwrap();
    assert_eq!(view.borrow().revision_of("key"), revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_that_lost_its_records_does_not_replace_the_last_state() {
    let server = NatsServer::start();
    let registry = open_nats(&server).await;
    let revision = put(&registry, "key", "value", 0).await.unwrap();
    let mut client = RawNatsClient::connect(server.port);
    client.jetstream(&format!("STREAM.DELETE.KV_{REGISTRY_BUCKET}"), &json!({}));
    let mut view = registry.view();
    within("the loss", view.wait_for(|view| !view.is_current))
        .await
        .unwrap();
    // A node that starts creates the missing bucket.
    let fresh = open_nats(&server).await;
    assert_eq!(records(&fresh), []);
    let limit = std::time::Duration::from_secs(2);
    let is_current = tokio::time::timeout(limit, view.wait_for(|view| view.is_current))
        .await
        .is_ok();
    assert!(!is_current, "a lost record is not a removed one");
    assert_eq!(view.borrow().revision_of("key"), revision);
}
