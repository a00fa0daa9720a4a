//! Scripts with real interpreters: what they get, what they answer, and what they cannot do.

#[path = "script/bounds.rs"]
mod bounds;
#[path = "script/docs.rs"]
mod docs;
#[path = "script/media.rs"]
mod media;

use std::path::Path;
use std::time::Duration;

use orlog_effect::config::ScriptConfig;
use orlog_effect::{Attempt, Refusal, Reply, Upstream};
use orlog_model::{EffectName, Work, WorkItem};
use orlog_testkit::provider_suite::{START, item};
use orlog_testkit::servers::skipped;
use serde_json::{Value, json};

use crate::node::PATIENCE;

/// The program that stands over jobs in these tests.
pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_orlog");

/// Whether an interpreter is where jobs look for it.
fn is_there(program: &str) -> bool {
    let there =
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !there {
        skipped(program);
    }
    there
}

fn upstream(more: &Value) -> Upstream {
    let mut config = json!({
        "helper": HELPER, "effects": { "job.python": {}, "job.node": {}, "job.sh": {}, "job.bash": {} },
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    serde_json::from_value::<ScriptConfig>(config).unwrap().upstream("scripts").unwrap()
}

/// The job of a flow, as the engine asks for it.
fn job(kind: &str, number: u128, script: &str, more: &Value) -> WorkItem {
    let mut item = item(&EffectName::new(format!("job.{kind}")).unwrap(), number);
    let mut payload =
        json!({ "job": "step", "type": kind, "script": script, "env": {}, "args": null, "results": {} });
    for (key, value) in more.as_object().unwrap() {
        payload[key] = value.clone();
    }
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    // Tests run side by side, and processes are found by the id.
    item.id = uuid::Uuid::new_v4();
    item
}

async fn perform(upstream: &Upstream, item: &WorkItem) -> Result<Reply, Refusal> {
    let attempt = Attempt { number: 1, timeout: Duration::from_mins(1), at: START };
    tokio::time::timeout(PATIENCE, upstream.provider.perform(item, attempt)).await.expect("it ends")
}

async fn run(kind: &str, script: &str, more: &Value) -> Value {
    let done = perform(&upstream(&json!({})), &job(kind, 1, script, more)).await;
    done.unwrap_or_else(|refusal| panic!("{refusal:?}")).payload
}

#[track_caller]
fn failed(answer: Result<Reply, Refusal>, code: &str) -> String {
    match answer {
        Err(
            Refusal::Final { failure, .. } | Refusal::GaveUp { failure } | Refusal::Transient { failure, .. },
        ) => {
            assert_eq!(failure.code, code, "{}", failure.message);
            failure.message
        }
        Ok(reply) => panic!("it was done: {reply:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_and_node_get_what_they_were_given_and_nothing_else() {
    let given = json!({ "env": { "REGION": "eu", "N": 7 }, "args": { "a": [1] }, "results": { "probe": { "f": 2 } } });
    let mut answers = Vec::new();
    if is_there("python3") {
        let script = "import json, os, sys\nprint('working')\nprint(json.dumps({'in': json.load(sys.stdin), 'env': dict(os.environ)}))";
        answers.push((run("python", script, &given).await, "python"));
    }
    if is_there("node") {
        let script = "const given = JSON.parse(require('fs').readFileSync(0));\nconsole.log('working');\nconsole.log(JSON.stringify({in: given, env: process.env}))";
        answers.push((run("node", script, &given).await, "node"));
    }
    for (answer, kind) in answers {
        let told =
            json!({ "job": "step", "type": kind, "args": { "a": [1] }, "results": { "probe": { "f": 2 } } });
        assert_eq!(answer["in"], told);
        let env = answer["env"].as_object().unwrap();
        assert_eq!(
            (&env["REGION"], &env["N"], &env["ORLOG_TENANT"]),
            (&json!("eu"), &json!("7"), &json!("acme"))
        );
        let names: Vec<&str> = env.keys().map(String::as_str).filter(|name| *name != "LC_CTYPE").collect();
        let expected = [
            "HOME",
            "LANG",
            "N",
            "ORLOG_ATTEMPT",
            "ORLOG_CORRELATION",
            "ORLOG_EFFECT",
            "ORLOG_ID",
            "ORLOG_SAGA",
            "ORLOG_TENANT",
            "PATH",
            "REGION",
            "TMPDIR",
        ];
        assert_eq!(names, expected);
        assert!(!Path::new(env["HOME"].as_str().unwrap()).exists(), "its folder is gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_other_than_zero_fails_with_its_number_and_the_last_line() {
    let upstream = upstream(
        &json!({ "interpreters": { "ruby": { "command": ["no-such-ruby"] } }, "effects": { "job.sh": {}, "job.ruby": {} } }),
    );
    let ends = |script: &str| job("sh", 1, script, &json!({}));
    let message =
        failed(perform(&upstream, &ends("echo first >&2; echo 'no film' >&2; exit 3")).await, "exit_3");
    assert_eq!(message, "job.sh ended with 3: no film");
    let answer = perform(&upstream, &ends("echo '{\"line\": 7}'; exit 65")).await;
    let Err(Refusal::Final { payload, .. }) = &answer else { panic!("{answer:?}") };
    assert_eq!(payload, &json!({ "line": 7 }));
    failed(perform(&upstream, &ends("kill -TERM $$")).await, "signal_15");
    let message = failed(perform(&upstream, &job("ruby", 1, "puts 1", &json!({}))).await, "not_begun");
    assert!(message.contains("no-such-ruby cannot be run"), "{message}");
    failed(perform(&upstream, &job("sh", 1, "", &json!({ "script": 7 }))).await, "bad_payload");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_writes_is_kept_as_lines_and_its_secrets_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("token");
    std::fs::write(&secret, "canary-77aa").unwrap();
    let token = format!("{{file:{}}}", secret.display());
    let upstream = upstream(&json!({ "effects": { "job.sh": { "env": { "TOKEN": token } } } }));
    let script = "i=0; while [ $i -lt 1200 ]; do echo line $i >&2; i=$((i+1)); done; echo $TOKEN >&2; echo \"{\\\"you\\\": \\\"$TOKEN\\\"}\"";
    let item = job("sh", 1, script, &json!({}));
    assert_eq!(perform(&upstream, &item).await.unwrap().payload, json!({ "you": "[secret]" }));
    let lines = upstream.lines.unwrap().of(&item.instance.tenant, item.id).unwrap();
    assert_eq!(
        (lines.len(), lines[0].text.as_str(), lines[999].text.as_str()),
        (1000, "line 201", "[secret]")
    );
    let reads = job("sh", 1, &format!("cat {}", secret.display()), &json!({}));
    failed(perform(&self::upstream(&json!({})), &reads).await, "exit_1");
}
