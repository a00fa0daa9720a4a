//! `orlog flow logs --follow` over a restart of the node.

use std::io::{BufRead as _, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc;

use axum::http::StatusCode;
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::harness::http::{HttpResponse, client, send};
use crate::harness::process::{Killed, Process, orlog};

/// Returns the URL of a proxy before a node, which can be restarted on another port.
async fn proxy() -> (String, watch::Sender<Option<u16>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, port) = watch::channel(None::<u16>);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let Some(port) = *port.borrow() else { continue };
            tokio::spawn(async move {
                if let Ok(mut node) = TcpStream::connect(("127.0.0.1", port)).await {
                    drop(copy_bidirectional(&mut client, &mut node).await);
                }
            });
        }
    });
    (url, sender)
}

/// Returns the lines of a pipe as they arrive.
fn lines(pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(pipe)
            .lines()
            .map_while(Result::ok)
            .for_each(|line| drop(sender.send(line)));
    });
    lines
}

async fn post(node: &Process, path: &str, headers: &[(&str, &str)], body: &Value) -> HttpResponse {
    send(
        &client(),
        "POST",
        format!("{}{path}", node.url),
        headers,
        Some(body),
    )
    .await
}

/// Claims the job of the flow, and writes a line as its worker.
async fn write(node: &Process, text: &str) {
    let claim = json!({ "effects": ["job.python"], "worker": "w", "wait_seconds": 20 });
    let claimed = post(node, "/v1/work/claim", &[], &claim).await.ok();
    let job = &claimed["jobs"][0];
    let path = format!("/v1/work/jobs/{}/logs", job["job"].as_str().unwrap());
    let logged = post(
        node,
        &path,
        &[],
        &json!({ "claim": job["claim"], "log": [text] }),
    )
    .await;
    assert_eq!(logged.status, StatusCode::NO_CONTENT, "{logged:?}");
}

/// Requirements: F4.
#[tokio::test(flavor = "multi_thread")]
async fn lines_are_followed_over_a_restart_of_the_node() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("definitions")).unwrap();
    let paths = ["data", "definitions"].map(|name| dir.path().join(name).display().to_string());
    let (url, port) = proxy().await;
    let start = || {
        let node = Process::start(&["--data-dir", &paths[0], "--definitions-dir", &paths[1]]);
        port.send_replace(
            node.url
                .rsplit(':')
                .next()
                .and_then(|port| port.parse().ok()),
        );
        node
    };
    let node = start();
    let flow = json!({ "jobs": [{ "id": "a", "type": "python", "script": "x" }] });
    post(&node, "/v1/flows", &[("idempotency-key", "f-1")], &flow)
        .await
        .ok();
    write(&node, "one").await;

    let mut command = orlog(&["flow", "logs", "f-1", "--follow", "--url", &url]);
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut follower = Killed(command.spawn().unwrap());
    let printed = lines(follower.0.stdout.take().unwrap());
    let notes = lines(follower.0.stderr.take().unwrap());
    assert!(
        printed
            .recv_timeout(WAIT_TIMEOUT)
            .unwrap()
            .ends_with("a one")
    );
    port.send_replace(None);
    node.kill();
    let outage = notes.recv_timeout(WAIT_TIMEOUT).unwrap();
    assert!(outage.contains("trying again"), "{outage}");

    let node = start();
    write(&node, "two").await;
    assert!(
        printed
            .recv_timeout(WAIT_TIMEOUT)
            .unwrap()
            .ends_with("a two")
    );
    post(&node, "/v1/flows/f-1/cancel", &[], &json!({}))
        .await
        .ok();
    assert_eq!(follower.wait(), Some(0));
    assert_eq!(printed.iter().collect::<Vec<_>>(), Vec::<String>::new());
    node.stop();
}
