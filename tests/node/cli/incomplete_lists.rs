//! Commands that print the data of one pod of several: they name the other pods, and exit with a code of their own.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::process::{orlog, run};

/// Exit code of a result that lacks the data of other pods.
const INCOMPLETE: i32 = 7;

/// Responds to each request as a pod without the data of two other ones.
async fn partial() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE.as_str(), "application/json"),
        ("x-orlog-partial", "true"),
        ("x-orlog-missing-pods", "pod-b,no%20owner%20of%20shard%203"),
    ];
    let body = json!({
        "items": [], "rows": [], "next_cursor": null, "checks": [], "matched": 0, "has_more": false,
        "counts": { "skipped": 0 }, "to_version": 2
    });
    (headers, body.to_string())
}

/// Returns the URL of such a pod.
async fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(partial);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Returns the names of the subcommands in a help text.
async fn subcommands(of: &[&str]) -> Vec<String> {
    let (_, help, _) = run(orlog(&[of, &["--help"]].concat())).await;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = lines.take_while(|line| !line.is_empty());
    commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_command_names_the_pods_whose_entries_are_missing() {
    let url = serve().await;
    let mut commands = vec![
        vec!["timers".to_owned()],
        vec!["inspect".to_owned(), "saga".to_owned()],
        vec!["dlq".to_owned(), "redrive".to_owned(), "--all".to_owned()],
        ["migrate", "order", "--from", "1"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for command in subcommands(&[]).await {
        if subcommands(&[&command])
            .await
            .iter()
            .any(|name| name == "list")
        {
            commands.push(vec![command, "list".to_owned()]);
        }
    }
    assert!(commands.len() > 12, "{commands:?}");

    for command in &commands {
        for output in ["table", "json"] {
            let mut process = orlog(&[]);
            process
                .args(command)
                .args(["--url", &url, "--output", output]);
            let (code, stdout, stderr) = run(process).await;
            assert_eq!(code, INCOMPLETE, "{command:?}: {stdout}{stderr}");
            assert!(
                stderr.contains("pod-b, no owner of shard 3")
                    || stderr.contains("no owner of shard 3, pod-b"),
                "{command:?}: {stderr}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_warns_that_its_counts_lack_other_pods() {
    let url = serve().await;
    let (_, stdout, stderr) = run(orlog(&["doctor", "--node-only", "--url", &url])).await;
    assert!(stdout.contains("pod-b"), "{stdout}{stderr}");
}
