//! `orlog context` and `orlog actor` with a node.

use serde_json::{Value, json};

use crate::harness::process::{Process, orlog};

struct Fixture {
    dir: tempfile::TempDir,
    node: Process,
}

impl Fixture {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let definitions = dir.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        let paths = [dir.path().join("data"), definitions].map(|path| path.display().to_string());
        let node = Process::start(&["--data-dir", &paths[0], "--definitions-dir", &paths[1]]);
        Self { dir, node }
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
        let mut command = orlog(&[args, &["--url", &self.node.url]].concat());
        command
            .env("XDG_CONFIG_HOME", self.dir.path())
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
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
    let (code, output, error) = run(&[
        "context",
        "create",
        "acme",
        "--admin",
        "group:leads",
        "--reader",
        "user:ada",
    ]);
    assert_eq!(code, 0, "{error}");
    assert!(
        output.contains("group:leads") && output.contains("readers user:ada"),
        "{output}"
    );
    let (code, _, error) = run(&["context", "create", "acme", "--admin", "user:eve"]);
    assert!(code == 4 && error.contains("OR0101"), "{code}: {error}");
    let (code, _, error) = run(&["context", "create", "acme", "--admin", "eve"]);
    assert!(
        code == 2
            && error.contains(
                "write actor:<id>, context:<context>@<node>, group:<name> or user:<name>"
            ),
        "{code}: {error}"
    );
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
    assert_eq!(
        (&changed["readers"], &changed["executors"]),
        (&json!(["user:bob"]), &json!(["user:robo"]))
    );
    assert_eq!(
        changed["admins"],
        json!(["group:leads"]),
        "other lists are kept"
    );
    let (code, _, error) = run(&["context", "set", "acme"]);
    assert!(
        code == 2 && error.contains("--add-reader user:ada"),
        "{code}: {error}"
    );
    let (code, _, error) = run(&["context", "set", "acme", "--remove-admin", "group:leads"]);
    assert!(
        code == 1 && error.contains("at least one admin"),
        "{code}: {error}"
    );
    let (_, listed, _) = run(&["context", "list"]);
    assert!(
        listed.contains("acme") && listed.contains("user:bob"),
        "{listed}"
    );
    let (code, output, error) = run(&["context", "delete", "acme"]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains("acme: context deleted"), "{output}");
    let (code, _, error) = run(&["context", "show", "acme"]);
    assert!(code == 3 && error.contains("OR0100"), "{code}: {error}");
}

#[test]
fn actor_is_invited_enrolls_rotates_and_revokes_its_key() {
    let fixture = Fixture::start();
    let key = |name: &str| {
        let mut command = orlog(&["key", "new", "--name", name, "--output", "json"]);
        let output = command
            .env("XDG_CONFIG_HOME", fixture.dir.path())
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let keys = ["first", "second", "third"].map(key);
    let public = |index: usize| keys[index]["public_key"].as_str().unwrap();
    let invited = fixture.json(&["actor", "invite", "runner-1", "--expires-in", "1h"], &[]);
    let invitation = [("ORLOG_INVITATION", invited["token"].as_str().unwrap())];
    let (code, _, error) = fixture.run(&["actor", "enroll", "runner-1", "first"], &[]);
    assert!(
        code == 2 && error.contains("ORLOG_INVITATION"),
        "{code}: {error}"
    );
    let wrong = [("ORLOG_INVITATION", "wrong")];
    let (code, _, error) = fixture.run(&["actor", "enroll", "runner-1", "first"], &wrong);
    assert!(code != 0 && error.contains("OR0105"), "{code}: {error}");
    // By the name, by the public key, and by the file of a key: the command creates the proof.
    let enrolled = fixture.json(&["actor", "enroll", "runner-1", "first"], &invitation);
    let first = enrolled["keys"][0]["id"].as_str().unwrap();
    assert_eq!(first, keys[0]["id"]);
    let rotated = fixture.json(
        &[
            "actor",
            "key",
            "add",
            "runner-1",
            public(1),
            "--replaces",
            first,
        ],
        &[],
    );
    assert_eq!(rotated["keys"][1]["public_key"], keys[1]["public_key"]);
    assert!(rotated["keys"][0]["valid_until"].is_string(), "{rotated}");
    let (code, output, error) = fixture.run(&["actor", "key", "revoke", "runner-1", first], &[]);
    assert_eq!(code, 0, "{error}");
    assert!(output.contains(first) && output.contains("no "), "{output}");
    let (_, listed, _) = fixture.run(&["actor", "list"], &[]);
    assert!(listed.contains("runner-1"), "{listed}");
    let file = keys[2]["file"].as_str().unwrap();
    let created = [
        "actor",
        "create",
        "other",
        "--address",
        "https://other.test/",
        "--public-key",
        file,
    ];
    let created = fixture.json(&created, &[]);
    assert_eq!(created["addresses"], json!(["https://other.test/"]));
    assert_eq!(created["keys"][0]["public_key"], keys[2]["public_key"]);
}

/// Requirements: F1.
#[test]
fn key_of_another_user_is_added_with_the_proof_of_this_user() {
    let fixture = Fixture::start();
    let user = tempfile::tempdir().unwrap();
    let of_user = |args: &[&str]| {
        let output = orlog(args)
            .env("XDG_CONFIG_HOME", user.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let key: Value = serde_json::from_str(&of_user(&["key", "new", "--output", "json"])).unwrap();
    let public = key["public_key"].as_str().unwrap();
    fixture.json(&["actor", "create", "runner-1"], &[]);
    let (code, _, error) = fixture.run(&["actor", "key", "add", "runner-1", public], &[]);
    assert!(
        code == 2 && error.contains("orlog key prove"),
        "{code}: {error}"
    );
    // The command that the user sends to the administrator.
    let command = of_user(&["key", "prove", "--actor", "runner-1"]);
    let args: Vec<_> = command.split_whitespace().skip(1).collect();
    let added = fixture.json(&args, &[]);
    assert_eq!(added["keys"][0]["id"], key["id"], "{added}");
    let other = of_user(&["key", "prove", "--actor", "runner-2"]);
    let proof = other.split_whitespace().last().unwrap();
    fixture.json(
        &[
            "actor",
            "key",
            "revoke",
            "runner-1",
            key["id"].as_str().unwrap(),
        ],
        &[],
    );
    let (code, _, error) = fixture.run(
        &["actor", "key", "add", "runner-1", public, "--proof", proof],
        &[],
    );
    assert!(
        code == 1 && error.contains("OR0108") && error.contains("another actor"),
        "{code}: {error}"
    );
}
