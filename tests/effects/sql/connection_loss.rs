//! The answer to a commit is lost, and the marker tells what became of it.

use std::sync::Arc;

use orlog_effect::{Probe, Reply, Trouble};
use orlog_testkit::servers;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Database, order, perform, postgres, troubled};

/// A line to the server that is cut when the answer to a commit comes back.
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
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut committing = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read {
                Ok(length @ 1..) => {
                    committing |= asked[..length].windows(6).any(|word| word == b"COMMIT");
                    server.write_all(&asked[..length]).await.unwrap();
                }
                Ok(0) | Err(_) => return,
            },
            read = server.read(&mut answered) => match read {
                Ok(length @ 1..) if !committing => client.write_all(&answered[..length]).await.unwrap(),
                Ok(_) | Err(_) => return,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_while_committing_is_found_at_the_marker() {
    let Some(database) = postgres().await else { return };
    let server = servers::postgres().unwrap();
    database.stock(9).await;
    // The table of the markers is made over the good line: its commit would be cut as well.
    let take = json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1 RETURNING free", "answer": "row" } });
    let good = database.upstream(&take);
    perform(&good, "x.take", 1, json!({})).await.unwrap();
    let url = std::fs::read_to_string(database.url.strip_prefix("file:").unwrap()).unwrap();
    let bad_url = url.replace(&format!(":{}/", server.port), &format!(":{}/", cut(server.port).await));
    let bad = Database { dialect: "postgres", url: server.secret(&bad_url), _folder: None };
    let config = json!({ "database": "postgres", "url": bad.url, "effects": take });
    let config: orlog_effect::config::SqlConfig = serde_json::from_value(config).unwrap();
    let upstream = Arc::new(config.upstream("shop").unwrap());
    troubled(perform(&upstream, "x.take", 2, json!({})).await, Trouble::Lost);
    assert_eq!(database.free().await, json!(7));
    let item = order("x.take", 2, json!({}));
    let done = Probe::Done(Reply::from(json!({ "free": 7 })));
    assert_eq!(good.provider.probe(&item).await, done);
    assert_eq!(perform(&good, "x.take", 2, json!({})).await.unwrap().payload, json!({ "free": 7 }));
    assert_eq!(good.provider.probe(&order("x.take", 3, json!({}))).await, Probe::NotDone);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_while_committing_leaves_doubt_and_the_marker_resolves_it() {
    let Some(database) = postgres().await else { return };
    database.stock(9).await;
    database
        .run("CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$")
        .await;
    database
        .run("CREATE CONSTRAINT TRIGGER last AFTER UPDATE ON stock DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()")
        .await;
    let upstream =
        database.upstream(&json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1" } }));
    troubled(perform(&upstream, "x.take", 1, json!({})).await, Trouble::Lost);
    assert_eq!(upstream.provider.probe(&order("x.take", 1, json!({}))).await, Probe::NotDone);
    assert_eq!(database.free().await, json!(9));
}
