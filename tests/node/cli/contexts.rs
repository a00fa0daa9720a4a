//! `orlog context` and `orlog actor` with a node.

use serde_json::{Value, json};

use crate::harness::process::{Process, orlog};

const KEYS: [&str; 2] =
    ["11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"];

struct Fixture {
    _dir: tempfile::TempDir,
    node: Process,
}

impl Fixture {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let definitions = dir.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        let paths = [dir.path().join("data"), definitions].map(|path| path.display().to_string());
        let node = Process::start(&["--data-dir", &paths[0], "--definitions-dir", &paths[1]]);
        Self { _dir: dir, node }
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
        let mut command = orlog(&[args, &["--url", &self.node.url]].concat());
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, args: &[&str], variables: &[(&str, &str)]) -> Value {
        let (code, output, error) = self.run(&[args, &["--output", "json"]].concat(), variables);
        assert_eq!(code, 0, "{args:?}: {error}");
        serde_json::from_str(&output).unwrap()
    }
}

#[test]
fn context_is_created_changed_and_deleted() {
    let fixture = Fixture::start();
    let run = |args: &[&str]| fixture.run(args, &[]);
    let (code, output, error) =
        run(&["context", "create", "acme", "--admin", "group:leads", "--reader", "user:ada"]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("group:leads") && output.contains("readers user:ada"), "{output}");
    let (code, _, error) = run(&["context", "create", "acme", "--admin", "user:eve"]);
    assert!(code == 1 && error.contains("OR0101"), "{code}: {error}");
    let (code, _, error) = run(&["context", "create", "acme", "--admin", "eve"]);
    assert!(code == 2 && error.contains("write actor:<id>, group:<name> or user:<name>"), "{code}: {error}");
    let changed = fixture.json(
        &[
            "context",
            "set",
            "acme",
            "--add-reader",
            "user:bob",
            "--add-executor",
            "user:robo",
            "--remove-reader",
            "user:ada",
        ],
        &[],
    );
    assert_eq!((&changed["readers"], &changed["executors"]), (&json!(["user:bob"]), &json!(["user:robo"])));
    assert_eq!(changed["admins"], json!(["group:leads"]), "other lists are kept");
    let (code, _, error) = run(&["context", "set", "acme"]);
    assert!(code == 2 && error.contains("--add-reader user:ada"), "{code}: {error}");
    let (code, _, error) = run(&["context", "set", "acme", "--remove-admin", "group:leads"]);
    assert!(code == 1 && error.contains("at least one admin"), "{code}: {error}");
    let (_, listed, _) = run(&["context", "list"]);
    assert!(listed.contains("acme") && listed.contains("user:bob"), "{listed}");
    let (code, output, error) = run(&["context", "delete", "acme"]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("acme: context deleted"), "{output}");
    let (code, _, error) = run(&["context", "show", "acme"]);
    assert!(code == 3 && error.contains("OR0100"), "{code}: {error}");
}

#[test]
fn actor_is_invited_enrolls_rotates_and_revokes_its_key() {
    let fixture = Fixture::start();
    let invited = fixture.json(&["actor", "invite", "runner-1", "--expires-in", "1h"], &[]);
    let invitation = [("ORLOG_INVITATION", invited["token"].as_str().unwrap())];
    let (code, _, error) = fixture.run(&["actor", "enroll", "runner-1", KEYS[0]], &[]);
    assert!(code == 2 && error.contains("ORLOG_INVITATION"), "{code}: {error}");
    let wrong = [("ORLOG_INVITATION", "wrong")];
    let (code, _, error) = fixture.run(&["actor", "enroll", "runner-1", KEYS[0]], &wrong);
    assert!(code != 0 && error.contains("OR0105"), "{code}: {error}");
    let enrolled = fixture.json(&["actor", "enroll", "runner-1", KEYS[0]], &invitation);
    let first = enrolled["keys"][0]["id"].as_str().unwrap();
    assert_eq!(first, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let rotated = fixture.json(&["actor", "key", "add", "runner-1", KEYS[1], "--replaces", first], &[]);
    assert_eq!(rotated["keys"][1]["public_key"], KEYS[1]);
    assert!(rotated["keys"][0]["valid_until"].is_string(), "{rotated}");
    let (code, output, error) = fixture.run(&["actor", "key", "revoke", "runner-1", first], &[]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains(first) && output.contains("no "), "{output}");
    let (_, listed, _) = fixture.run(&["actor", "list"], &[]);
    assert!(listed.contains("runner-1"), "{listed}");
    let created = fixture.json(&["actor", "create", "other", "--address", "https://other.test/"], &[]);
    assert_eq!(created["addresses"], json!(["https://other.test/"]));
}
