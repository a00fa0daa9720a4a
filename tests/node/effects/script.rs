//! Scripts with real interpreters: their input, their results and their restrictions.

mod bounds;
mod docs;
mod media;

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::script::ScriptConfig;
use orlog_effect::{Attempt, ProviderError, Reply, Upstream};
use orlog_model::{EffectName, Work, WorkItem};
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::host::missing;
use orlog_testkit::provider_suite::{START, item};
use serde_json::{Value, json};

/// Program that supervises the jobs in these tests.
pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_orlog");

/// Fails the test unless an interpreter is installed in the search path of jobs.
#[track_caller]
fn require(program: &str) {
    if !["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
    {
        missing(program, "setup");
    }
}

fn upstream(more: &Value) -> Upstream {
    let mut config = json!({
        "helper": HELPER, "effects": { "job.python": {}, "job.node": {}, "job.sh": {}, "job.bash": {} },
        // The kernel of a test machine may lack a part of the sandbox.
        "isolation": "best_effort",
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    serde_json::from_value::<ScriptConfig>(config)
        .unwrap()
        .upstream(UpstreamSite::new("scripts"))
        .unwrap()
}

/// Returns the job of a flow, as the engine requests it.
fn job(kind: &str, number: u128, script: &str, more: &Value) -> WorkItem {
    let mut item = item(&EffectName::new(format!("job.{kind}")).unwrap(), number);
    let mut payload = json!({ "job": "step", "type": kind, "script": script, "env": {}, "args": null, "results": {} });
    for (key, value) in more.as_object().unwrap() {
        payload[key] = value.clone();
    }
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    // Tests run in parallel and identify processes by the id.
    item.id = uuid::Uuid::new_v4();
    item
}

async fn perform(upstream: &Upstream, item: &WorkItem) -> Result<Reply, ProviderError> {
    let attempt = Attempt {
        number: 1,
        timeout: Duration::from_mins(1),
        at: START,
        in_doubt: false,
    };
    tokio::time::timeout(WAIT_TIMEOUT, upstream.provider.execute(item, attempt))
        .await
        .expect("it ends")
}

async fn run(kind: &str, script: &str, more: &Value) -> Value {
    let done = perform(&upstream(&json!({})), &job(kind, 1, script, more)).await;
    done.unwrap_or_else(|error| panic!("{error:?}")).payload
}

#[track_caller]
fn failed(result: Result<Reply, ProviderError>, code: &str) -> String {
    match result {
        Err(
            ProviderError::Permanent { failure, .. }
            | ProviderError::Abandoned { failure }
            | ProviderError::Transient { failure, .. },
        ) => {
            assert_eq!(failure.code, code, "{}", failure.message);
            failure.message
        }
        Ok(reply) => panic!("it was done: {reply:?}"),
    }
}

/// Requirements: F3, F4, F5.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_receive_only_the_declared_environment() {
    let input = json!({ "env": { "REGION": "eu", "N": 7 }, "args": { "a": [1] }, "results": { "probe": { "f": 2 } } });
    require("python3");
    require("node");
    let python = "import json, os, sys\nprint('working')\nprint(json.dumps({'in': json.load(sys.stdin), 'env': dict(os.environ)}))";
    let node = "const given = JSON.parse(require('fs').readFileSync(0));\nconsole.log('working');\nconsole.log(JSON.stringify({in: given, env: process.env}))";
    for (kind, script) in [("python", python), ("node", node)] {
        let result = run(kind, script, &input).await;
        let expected_input = json!({ "job": "step", "type": kind, "args": { "a": [1] }, "results": { "probe": { "f": 2 } } });
        assert_eq!(result["in"], expected_input);
        let env = result["env"].as_object().unwrap();
        assert_eq!(
            (&env["REGION"], &env["N"], &env["ORLOG_TENANT"]),
            (&json!("eu"), &json!("7"), &json!("acme"))
        );
        let names: Vec<&str> = env
            .keys()
            .map(String::as_str)
            .filter(|name| *name != "LC_CTYPE")
            .collect();
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
        assert!(
            !Path::new(env["HOME"].as_str().unwrap()).exists(),
            "its directory is deleted"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nonzero_exit_fails_with_code_and_last_stderr_line() {
    let upstream = upstream(
        &json!({ "interpreters": { "ruby": { "command": ["no-such-ruby"] } }, "effects": { "job.sh": {}, "job.ruby": {} } }),
    );
    let script_job = |script: &str| job("sh", 1, script, &json!({}));
    let message = failed(
        perform(
            &upstream,
            &script_job("echo first >&2; echo 'no film' >&2; exit 3"),
        )
        .await,
        "exit_3",
    );
    assert_eq!(message, "job.sh exited with 3: no film");
    let result = perform(&upstream, &script_job("echo '{\"line\": 7}'; exit 65")).await;
    let Err(ProviderError::Permanent { payload, .. }) = &result else {
        panic!("{result:?}")
    };
    assert_eq!(payload, &json!({ "line": 7 }));
    failed(
        perform(&upstream, &script_job("kill -TERM $$")).await,
        "signal_15",
    );
    let message = failed(
        perform(&upstream, &job("ruby", 1, "puts 1", &json!({}))).await,
        "not_begun",
    );
    assert!(
        message.contains("cannot run no-such-ruby (search path"),
        "{message}"
    );
    failed(
        perform(&upstream, &job("sh", 1, "", &json!({ "script": 7 }))).await,
        "invalid_payload",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn job_receives_no_descriptor_that_a_parent_left_open() {
    require("python3");
    let secret = tempfile::tempfile().unwrap();
    // As a library that is written in C opens it, above the descriptors of the interpreter.
    let inherited = rustix::io::fcntl_dupfd_cloexec(&secret, 200).unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let script = format!(
        "import json, os\ntry:\n  os.fstat({})\n  print(json.dumps(True))\nexcept OSError:\n  print(json.dumps(False))",
        inherited.as_raw_fd()
    );
    for isolation in ["best_effort", "none"] {
        let upstream = upstream(&json!({ "isolation": isolation }));
        let done = perform(&upstream, &job("python", 1, &script, &json!({}))).await;
        assert_eq!(done.unwrap().payload, json!(false), "{isolation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stderr_is_stored_as_job_log_with_secrets_scrubbed() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("token");
    std::fs::write(&secret, "canary-77aa").unwrap();
    let token = format!("{{file:{}}}", secret.display());
    let upstream = upstream(&json!({ "effects": { "job.sh": { "env": { "TOKEN": token } } } }));
    let script = "i=0; while [ $i -lt 1200 ]; do echo line $i >&2; i=$((i+1)); done; echo $TOKEN >&2; echo \"{\\\"you\\\": \\\"$TOKEN\\\"}\"";
    let item = job("sh", 1, script, &json!({}));
    assert_eq!(
        perform(&upstream, &item).await.unwrap().payload,
        json!({ "you": "[secret]" })
    );
    let lines = upstream
        .job_logs
        .unwrap()
        .tail(&item.instance.tenant, item.id, usize::MAX)
        .lines;
    assert_eq!(
        (
            lines.len(),
            lines[0].text.as_str(),
            lines[999].text.as_str()
        ),
        (1000, "line 201", "[secret]")
    );
    let reads = job("sh", 1, &format!("cat {}", secret.display()), &json!({}));
    failed(perform(&self::upstream(&json!({})), &reads).await, "exit_1");
}
