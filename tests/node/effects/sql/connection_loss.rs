//! The response to a commit is lost, and the marker reports its result.

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use std::sync::Arc;

use orlog_effect::{ProbeResult, Reply, TransientCause};
use orlog_testkit::servers;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Database, PROBE, order, perform, postgres, troubled};

/// Starts a proxy to the server that closes the connection when the response to a commit arrives.
async fn cut(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::spawn(carry(client, server));
        }
    });
    own
}

async fn carry(mut client: TcpStream, mut server: TcpStream) {
    let (mut request, mut response) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut committing = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read {
                Ok(length @ 1..) => {
                    committing |= request[..length].windows(6).any(|window| window == b"COMMIT");
                    server.write_all(&request[..length]).await.unwrap();
                }
                Ok(0) | Err(_) => return,
            },
            read = server.read(&mut response) => match read {
                Ok(length @ 1..) if !committing => client.write_all(&response[..length]).await.unwrap(),
                Ok(_) | Err(_) => return,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_commit_response_is_resolved_by_the_marker() {
    let database = postgres().await;
    let server = servers::postgres();
    database.stock(9).await;
    // The marker table is created over a direct connection, because the proxy would interrupt its commit
    // too.
    let take = json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1 RETURNING free", "answer": "row" } });
    let direct = database.upstream(&take);
    perform(&direct, "x.take", 1, json!({})).await.unwrap();
    let url = std::fs::read_to_string(database.url.strip_prefix("file:").unwrap()).unwrap();
    let proxied_url = url.replace(
        &format!(":{}/", server.port),
        &format!(":{}/", cut(server.port).await),
    );
    let proxied = Database {
        dialect: "postgres",
        url: server.secret(&proxied_url),
        _dir: None,
    };
    let config = json!({ "database": "postgres", "url": proxied.url, "effects": take });
    let config: orlog_effect::providers::sql::SqlConfig = serde_json::from_value(config).unwrap();
    let upstream = Arc::new(config.upstream(UpstreamSite::new("shop")).unwrap());
    troubled(
        perform(&upstream, "x.take", 2, json!({})).await,
        TransientCause::ResponseLost,
    );
    assert_eq!(database.free().await, json!(7));
    let item = order("x.take", 2, json!({}));
    let done = ProbeResult::Done(Reply::from(json!({ "free": 7 })));
    assert_eq!(direct.provider.probe(&item, PROBE).await, done);
    assert_eq!(
        perform(&direct, "x.take", 2, json!({}))
            .await
            .unwrap()
            .payload,
        json!({ "free": 7 })
    );
    assert_eq!(
        direct
            .provider
            .probe(&order("x.take", 3, json!({})), PROBE)
            .await,
        ProbeResult::NotDone
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_loss_during_commit_is_in_doubt_until_the_marker_resolves_it() {
    let database = postgres().await;
    database.stock(9).await;
    database
        .run("CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$")
        .await;
    database
        .run("CREATE CONSTRAINT TRIGGER last AFTER UPDATE ON stock DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()")
        .await;
    let upstream = database
        .upstream(&json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1" } }));
    troubled(
        perform(&upstream, "x.take", 1, json!({})).await,
        TransientCause::ResponseLost,
    );
    assert_eq!(
        upstream
            .provider
            .probe(&order("x.take", 1, json!({})), PROBE)
            .await,
        ProbeResult::NotDone
    );
    assert_eq!(database.free().await, json!(9));
}
