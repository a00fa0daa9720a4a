//! `orlog peer` with two nodes.

use serde_json::Value;

use crate::harness::process::{Process, orlog};

/// Node with an identity.
pub(super) struct Fixture {
    _dir: tempfile::TempDir,
    pub(super) name: &'static str,
    pub(super) node: Process,
}

impl Fixture {
    pub(super) fn start(name: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [data, definitions, config] =
            ["data", "definitions", "orlog.toml"].map(|name| dir.path().join(name));
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(&config, format!("[identity]\nname = \"{name}\"\n")).unwrap();
        let [data, definitions, config] =
            [data, definitions, config].map(|path| path.display().to_string());
        let args = [
            "--config",
            &config,
            "--data-dir",
            &data,
            "--definitions-dir",
            &definitions,
        ];
        Self {
            node: Process::start(&args),
            name,
            _dir: dir,
        }
    }

    pub(super) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = orlog(&[args, &["--url", &self.node.url]].concat());
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    #[track_caller]
    pub(super) fn done(&self, args: &[&str]) -> String {
        let (code, output, error) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {error}");
        output
    }

    pub(super) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[args, &["--output", "json"]].concat())).unwrap()
    }
}

#[test]
fn peer_is_added_by_its_fingerprint_checked_and_removed() {
    let (a, b) = (Fixture::start("a.example"), Fixture::start("b.example"));
    let own = b.done(&["peer", "show"]);
    let identity = b.json(&["peer", "show"]);
    let key = identity["key"].as_str().unwrap();
    assert!(
        own.starts_with("node b.example\n") && own.contains(key),
        "{own}"
    );
    let from = ["peer", "add", "--from", b.node.url.as_str()];
    // Without a terminal, a user cannot confirm the key.
    let (code, _, error) = a.run(&from);
    assert!(
        code == 2 && error.contains(&format!("add --fingerprint {key}")),
        "{code}: {error}"
    );
    let (code, _, error) = a.run(&[&from[..], &["--fingerprint", "other"]].concat());
    assert!(code == 1 && error.contains("not other"), "{code}: {error}");
    let (code, _, error) = a.run(&[&from[..], &["c.example", "--fingerprint", key]].concat());
    assert!(
        code == 2 && error.contains("is of b.example, not of c.example"),
        "{code}: {error}"
    );
    assert!(a.done(&["peer", "list"]).contains("no peers"));
    let added = a.done(&[&from[..], &["--fingerprint", key]].concat());
    assert!(
        added.contains("peer b.example") && added.contains(&b.node.url),
        "{added}"
    );
    let (code, _, error) = a.run(&["peer", "check", "b.example"]);
    assert!(code == 1 && error.contains("OR0124"), "{code}: {error}");
    let public = a.json(&["peer", "show"])["public_key"].clone();
    let keys = [
        "--address",
        a.node.url.as_str(),
        "--public-key",
        public.as_str().unwrap(),
    ];
    b.done(&[&["peer", "add", "a.example"], &keys[..]].concat());
    assert!(
        a.done(&["peer", "check", "b.example"])
            .contains("knows this node as a.example")
    );
    assert_eq!(
        b.json(&["peer", "refresh", "a.example"])["keys"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let listed = a.done(&["peer", "list"]);
    assert!(
        listed.contains("b.example") && listed.contains("registry"),
        "{listed}"
    );
    a.done(&["peer", "key", "revoke", "b.example", key]);
    let (code, _, error) = b.run(&["peer", "check", "a.example"]);
    assert!(
        code == 1 && error.contains("HTTP status 401") && error.contains("revoked"),
        "{code}: {error}"
    );
    assert!(a.done(&["peer", "remove", "b.example"]).contains("removed"));
    let (code, _, error) = a.run(&["peer", "show", "b.example"]);
    assert!(code == 3 && error.contains("OR0121"), "{code}: {error}");
}
