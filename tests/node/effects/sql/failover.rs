//! Failover of a database: effects wait for a writable server, over new connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::sql::SqlConfig;
use orlog_effect::{ProbeResult, TransientCause};
use orlog_testkit::servers;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Database, PROBE, mariadb, order, perform, postgres, troubled};

/// Address of a database that leads to one server after the other, as a name or a virtual address
/// does. Connections that exist stay with their server.
struct Address {
    port: u16,
    server_port: Arc<AtomicU16>,
}

impl Address {
    async fn of(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server_port = Arc::new(AtomicU16::new(server_port));
        let current = Arc::clone(&server_port);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server_port = current.load(Ordering::SeqCst);
                let mut server = TcpStream::connect(("127.0.0.1", server_port))
                    .await
                    .unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        });
        Self { port, server_port }
    }

    fn move_to(&self, server_port: u16) {
        self.server_port.store(server_port, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_is_retried_until_it_is_promoted() {
    let primary = postgres().await;
    primary.stock(9).await;
    let take = json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1" } });
    perform(&primary.upstream(&take), "x.take", 1, json!({}))
        .await
        .unwrap();

    let server = servers::postgres_standby();
    let standby = primary.at_port(servers::postgres().port, server.port);
    let upstream = standby.upstream(&take);
    let rejected = perform(&upstream, "x.take", 2, json!({})).await;
    assert_eq!(troubled(rejected, TransientCause::Unavailable).0, "25006");
    // A probe writes too, so it has no answer yet, instead of an unknown outcome for good.
    let probed = upstream
        .provider
        .probe(&order("x.take", 2, json!({})), PROBE)
        .await;
    assert!(
        matches!(probed, ProbeResult::Unanswered { .. }),
        "{probed:?}"
    );

    standby.run("SELECT pg_promote()").await;
    perform(&upstream, "x.take", 2, json!({})).await.unwrap();
    assert_eq!(standby.free().await, json!(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_a_read_only_server_are_not_used_again() {
    let primary = postgres().await;
    primary.stock(9).await;
    let standby = servers::postgres_standby();
    let address = Address::of(standby.port).await;
    let moving = primary.at_port(servers::postgres().port, address.port);
    let upstream =
        moving.upstream(&json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1" } }));
    let rejected = perform(&upstream, "x.take", 1, json!({})).await;
    assert_eq!(troubled(rejected, TransientCause::Unavailable).0, "25006");

    address.move_to(servers::postgres().port);
    perform(&upstream, "x.take", 1, json!({})).await.unwrap();
    assert_eq!(primary.free().await, json!(8));
}

/// Makes the server read-only, or not. The statements of an effect run in a transaction, which rejects this one.
async fn set_read_only(value: &str) {
    let port = servers::mariadb().port.to_string();
    let statement = format!("SET GLOBAL read_only = {value}");
    let mut client = tokio::process::Command::new("mariadb");
    client.args([
        "--no-defaults",
        "--host=127.0.0.1",
        "--user=orlog",
        "--port",
    ]);
    client.args([&port, "--execute", &statement]);
    let status = client
        .status()
        .await
        .expect("the client is installed with the server");
    assert!(status.success(), "{statement}: {status}");
}

/// A MariaDB that has become a replica is read-only for users without the right READ ONLY ADMIN.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_mariadb_is_retried() {
    let database = mariadb().await;
    database.stock(9).await;
    let user = format!("u{}", uuid::Uuid::new_v4().simple());
    let schema = database.plain_url().rsplit_once('/').unwrap().1.to_owned();
    for statement in [
        format!("CREATE USER {user}@'127.0.0.1'"),
        format!("GRANT SELECT, INSERT, UPDATE, CREATE ON {schema}.* TO {user}@'127.0.0.1'"),
    ] {
        database.run(&statement).await;
    }
    let limited = Database {
        dialect: "mysql",
        url: servers::mariadb()
            .secret(&database.plain_url().replace("orlog@", &format!("{user}@"))),
        _dir: None,
    };
    let upstream =
        limited.upstream(&json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1" } }));
    perform(&upstream, "x.take", 1, json!({})).await.unwrap();

    // The other tests have a user with this right.
    set_read_only("1").await;
    let rejected = perform(&upstream, "x.take", 2, json!({})).await;
    set_read_only("0").await;
    assert_eq!(
        troubled(rejected, TransientCause::Unavailable).0,
        "mysql_1290"
    );
    perform(&upstream, "x.take", 2, json!({})).await.unwrap();
    assert_eq!(database.free().await, json!(7));
}

/// Proxy that withholds the response to the first statement that begins a transaction.
struct SlowBegin {
    port: u16,
    connections: Arc<AtomicUsize>,
    is_withheld: watch::Receiver<bool>,
    release: watch::Sender<bool>,
}

impl SlowBegin {
    async fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (withheld, is_withheld) = watch::channel(false);
        let (release, released) = watch::channel(false);
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", server_port))
                    .await
                    .unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(forward_requests(from_client, to_server, withheld.clone()));
                tokio::spawn(forward_responses(
                    from_server,
                    to_client,
                    withheld.subscribe(),
                    released.clone(),
                ));
            }
        });
        Self {
            port,
            connections,
            is_withheld,
            release,
        }
    }
}

async fn forward_requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    withheld: watch::Sender<bool>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut buffer).await {
        let sent = &buffer[..length];
        if contains(sent, b"BEGIN;") || contains(sent, b"START TRANSACTION") {
            withheld.send_replace(true);
        }
        if server.write_all(sent).await.is_err() {
            return;
        }
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

async fn forward_responses(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    withheld: watch::Receiver<bool>,
    mut released: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = server.read(&mut buffer).await {
        if *withheld.borrow() {
            released.wait_for(|released| *released).await.unwrap();
        }
        if client.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempt_cancelled_while_a_transaction_begins_closes_its_connection() {
    for (database, server_port) in [
        (postgres().await, servers::postgres().port),
        (mariadb().await, servers::mariadb().port),
    ] {
        database.stock(9).await;
        let proxy = SlowBegin::before(server_port).await;
        let url = database.at_port(server_port, proxy.port).url;
        // One connection: the second attempt uses that of the first, if it is in the pool.
        let config: SqlConfig = serde_json::from_value(json!({
            "database": database.dialect, "url": url, "max_concurrency": 1,
            "effects": { "x.look": { "statement": "SELECT free FROM stock", "marker": false } },
        }))
        .unwrap();
        let upstream = Arc::new(config.upstream(UpstreamSite::new("shop")).unwrap());
        let own = Arc::clone(&upstream);
        let attempt = tokio::spawn(async move { perform(&own, "x.look", 1, json!({})).await });
        let mut is_withheld = proxy.is_withheld.clone();
        is_withheld.wait_for(|withheld| *withheld).await.unwrap();
        attempt.abort();
        assert!(attempt.await.unwrap_err().is_cancelled());
        assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);

        proxy.release.send_replace(true);
        perform(&upstream, "x.look", 2, json!({})).await.unwrap();
        assert_eq!(
            proxy.connections.load(Ordering::SeqCst),
            2,
            "{}: the open transaction is in the pool",
            database.dialect
        );
    }
}
