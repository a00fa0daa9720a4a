//! The flow of `examples/media` with real jobs.

use std::path::Path;
use std::process::Command;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{HELPER, require};
use crate::effects::docs::with;
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/media");

/// Starts a node with the example in a directory that jobs of every user can read.
async fn node(shop: &HttpUpstream) -> (Node, tempfile::TempDir) {
    let dirs = Dirs::new(&[]);
    let film = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        film.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let (bin, lib) = (format!("{EXAMPLE}/bin"), format!("{EXAMPLE}/lib"));
    assert!(
        Command::new("cp")
            .args(["-r", &bin, &lib])
            .arg(film.path())
            .status()
            .unwrap()
            .success()
    );
    let path = film.path().display().to_string();
    let text = std::fs::read_to_string(Path::new(EXAMPLE).join("jobs.toml")).unwrap();
    let text = with(
        &with(&text, "/srv/media", &path),
        "kind = \"script\"",
        &format!("kind = \"script\"\nhelper = {HELPER:?}"),
    );
    dirs.describe("jobs", &text);
    dirs.describe(
        "storage",
        &format!(
            "base_url = {:?}\n[effects.\"storage.delete\"]\npath = \"/delete\"\n",
            shop.url
        ),
    );
    let saga = std::fs::read_to_string(Path::new(EXAMPLE).join("media.saga.yaml")).unwrap();
    dirs.define("media", &saga);
    std::fs::remove_file(dirs.path("definitions").join("payment.saga.yaml")).unwrap();
    let gateway = serde_json::from_value(json!({ "base_url": shop.url })).unwrap();
    (
        dirs.start_with(|config| config.gateway = Some(gateway))
            .await,
        film,
    )
}

async fn send_event(node: &Node, id: &str, kind: &str, data: Value) {
    let event =
        json!({ "specversion": "1.0", "id": id, "source": "urn:test", "type": kind, "data": data });
    let (status, response) = node.ask(Method::POST, "", "/v1/events", &event).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn media_flow_runs_with_real_jobs() {
    require("python3");
    let shop = HttpUpstream::open().await;
    let (node, _film) = node(&shop).await;
    let format = |name: &str| json!({ "name": name, "size": "640x360", "bitrate": "800k" });
    let formats = json!([format("low"), format("mid"), format("high"), format("top")]);
    send_event(
        &node,
        "e-1",
        "VideoUploaded",
        json!({ "videoId": "v1", "source": "s3://in/v1.mov", "formats": formats }),
    )
    .await;
    // The command to the catalogue is the last external call.
    let received = shop.wait_for_requests(1).await;
    assert_eq!(received[0].uri.path(), "/v1/commands");
    send_event(&node, "e-2", "VideoPublished", json!({ "videoId": "v1" })).await;
    let saga = node.end_of("", "media", "v1").await;
    assert_eq!(saga["status"], "completed", "{saga}");
    let state = &saga["state"];
    assert_eq!(
        state["vars"]["files"],
        json!(["v1-low.mp4", "v1-mid.mp4", "v1-high.mp4", "v1-top.mp4"])
    );
    assert_eq!(state["vars"]["manifest"], "v1.m3u8");
    assert_eq!(
        state["flow"]["results"]["probe"],
        json!({ "frames": 250, "source": "s3://in/v1.mov" })
    );
}
