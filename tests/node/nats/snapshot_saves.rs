//! Snapshots whose last acknowledgement is lost, or whose metadata never arrives.

use std::collections::BTreeMap;

use orlog_bus::nats::{
    self, Connection, Credentials, Options, ShardLogError, Snapshot, Snapshots, StreamSet,
};
use orlog_model::Timestamp;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use serde_json::{Value, json};

use super::cutting_proxy::CuttingProxy;

const SHARD: u16 = 7;

async fn connect(url: &str, credentials: Credentials) -> Connection {
    let options = Options {
        servers: vec![url.to_owned()],
        credentials,
        ..Options::default()
    };
    Connection::open(&options).await.unwrap()
}

/// Creates the bucket, and opens it through a URL.
async fn snapshots(server: &NatsServer, url: &str, credentials: Credentials) -> Snapshots {
    let specs = StreamSet(vec![Snapshots::stream_spec(1)]);
    let direct = connect(&server.url(), Credentials::None).await;
    nats::apply(&direct, &specs, Timestamp::from_millis(0))
        .await
        .unwrap();
    let connection = connect(url, credentials).await;
    Snapshots::open(&connection, SHARD).await.unwrap()
}

fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

fn snapshot(name: &str) -> Snapshot {
    Snapshot {
        name: name.to_owned(),
        metadata: BTreeMap::new(),
        bytes: 7,
    }
}

/// Returns the number of stored chunks.
fn chunks(server: &NatsServer) -> usize {
    let info: Value = RawNatsClient::connect(server.port).jetstream(
        "STREAM.INFO.OBJ_orlog-snapshots",
        &json!({ "subjects_filter": "$O.orlog-snapshots.C.>" }),
    );
    info["state"]["subjects"]
        .as_object()
        .map_or(0, serde_json::Map::len)
}

#[tokio::test]
async fn snapshot_whose_last_acknowledgement_is_lost_is_complete() {
    let server = NatsServer::start();
    // Message 1 is the chunk, message 2 the metadata.
    let proxy = CuttingProxy::cutting_once(server.port, "\"seq\":2").await;
    let snapshots = snapshots(&server, &proxy.url, Credentials::None).await;

    let content = file(b"content");
    snapshots
        .save(&snapshot("a"), content.path())
        .await
        .unwrap();

    assert_eq!(proxy.count(), 1);
    assert_eq!(snapshots.list().await.unwrap(), [snapshot("a")]);
    let loaded = tempfile::NamedTempFile::new().unwrap();
    snapshots.load("a", loaded.path()).await.unwrap();
    assert_eq!(std::fs::read(loaded.path()).unwrap(), b"content");
}

/// The server does not accept the metadata, and accepts no withdrawal: the chunks stay.
#[tokio::test]
async fn chunks_stay_while_the_metadata_may_still_be_stored() {
    let server = NatsServer::start_with(
        "authorization: { users: [ { user: a, password: b }, { user: writer, password: b, \
         permissions: { publish: { deny: \"$O.*.M.>\" } } } ] }\n\
         no_auth_user: a\n",
    );
    let writer = Credentials::User("writer".to_owned(), "b".to_owned());
    let snapshots = snapshots(&server, &server.url(), writer).await;
    let content = file(b"content");
    let error = snapshots
        .save(&snapshot("a"), content.path())
        .await
        .unwrap_err();
    assert!(matches!(error, ShardLogError::Unavailable(_)), "{error}");
    assert_eq!(chunks(&server), 1);
    assert_eq!(snapshots.list().await.unwrap(), []);

    // The next owner deletes them.
    snapshots.delete_orphans("b").await.unwrap();
    assert_eq!(chunks(&server), 0);
}

#[tokio::test]
async fn snapshot_is_not_reported_as_deleted_if_it_cannot_be_read() {
    let mut server = NatsServer::start();
    let snapshots = snapshots(&server, &server.url(), Credentials::None).await;
    snapshots.delete("a").await.unwrap();
    let content = file(b"content");
    snapshots
        .save(&snapshot("a"), content.path())
        .await
        .unwrap();

    server.kill();
    let error = snapshots.delete("a").await.unwrap_err();
    assert!(matches!(error, ShardLogError::Unavailable(_)), "{error}");
    server.restart();
    // The client may not be connected yet.
    let deadline = tokio::time::Instant::now() + orlog_testkit::WAIT_TIMEOUT;
    while let Err(error) = snapshots.delete("a").await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
    }
    assert_eq!(snapshots.list().await.unwrap(), []);
    assert_eq!(chunks(&server), 0);
}
