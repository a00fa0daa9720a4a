//! Limits that a script cannot exceed.

use std::time::Duration;

use orlog_effect::{Attempt, Upstream};
use orlog_model::WorkItem;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::provider_suite::START;
use serde_json::{Value, json};

use super::{failed, job, perform, require, run, upstream};

/// Returns the number of processes with the job's id in their environment.
fn alive(item: &WorkItem) -> usize {
    let marker = format!("ORLOG_ID={}", item.id).into_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let environments =
        processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    environments
        .filter(|env| {
            env.split(|byte| *byte == 0)
                .any(|variable| variable == marker)
        })
        .count()
}

async fn until_alive(item: &WorkItem, fits: impl Fn(usize) -> bool) {
    let fitting = async {
        while !fits(alive(item)) {
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(WAIT_TIMEOUT, fitting).await;
    assert!(found.is_ok(), "{} processes are alive", alive(item));
}

/// Returns whether a directory of this name is left over.
fn leftovers(result: &Value) -> bool {
    std::path::Path::new(result["home"].as_str().unwrap()).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_job_leaves_no_descendant_process() {
    let hidden =
        "setsid sleep 1000 & (setsid sh -c 'setsid sleep 1000 & sleep 1000' &) ; sleep 1000";
    let (upstream, item) = (upstream(&json!({})), job("sh", 1, hidden, &json!({})));
    let attempt = Attempt {
        number: 1,
        timeout: Duration::from_mins(1),
        at: START,
        in_doubt: false,
    };
    let work = upstream.provider.execute(&item, attempt);
    tokio::select! {
        result = work => panic!("it sleeps, yet {result:?}"),
        () = until_alive(&item, |alive| alive >= 5) => {}
    }
    until_alive(&item, |alive| alive == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_job_leaves_no_process() {
    let script =
        "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 & echo \"{\\\"home\\\": \\\"$HOME\\\"}\"";
    let (upstream, item) = (upstream(&json!({})), job("sh", 1, script, &json!({})));
    let result = perform(&upstream, &item).await.unwrap();
    assert_eq!(alive(&item), 0);
    until_removed(&result.payload).await;
}

async fn until_removed(result: &Value) {
    let removed = async {
        while leftovers(result) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, removed)
        .await
        .expect("its directory is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_limit_is_enforced() {
    for (script, code) in [
        ("yes", "output_too_long"),
        ("yes >&2 & sleep 0.3; kill $!; exit 4", "exit_4"),
    ] {
        let (upstream, item) = (
            upstream(&json!({ "max_output_bytes": 100_000 })),
            job("sh", 1, script, &json!({})),
        );
        failed(perform(&upstream, &item).await, code);
        until_alive(&item, |alive| alive == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_limit_contains_a_fork_bomb() {
    require("python3");
    let bomb = "import os, time, json, sys\nn = 0\ntry:\n  while n < 5000:\n    if os.fork() == 0:\n      time.sleep(1000)\n    n += 1\nexcept OSError as e:\n  print(json.dumps({'n': n, 'errno': e.errno}))";
    let upstream = upstream(&json!({ "limits": { "processes": 30 } }));
    let item = job("python", 1, bomb, &json!({}));
    let result = perform(&upstream, &item).await.unwrap().payload;
    assert_eq!(result["errno"], 11, "{result}");
    // Jobs of other tests that end meanwhile free resources.
    assert!(result["n"].as_u64().unwrap() < 1000, "{result}");
    assert_eq!(alive(&item), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_cpu_and_file_limits_are_enforced() {
    require("python3");
    let limits = json!({ "limits": { "memory_bytes": 200_000_000, "cpu": "1s", "file_bytes": 1000, "open_files": 20 } });
    let upstream = upstream(&limits);
    let python = |script: &str| job("python", 1, script, &json!({}));
    let message = failed(
        perform(&upstream, &python("b = bytearray(1 << 30)")).await,
        "exit_1",
    );
    assert!(message.contains("MemoryError"), "{message}");
    failed(
        perform(&upstream, &python("while True: pass")).await,
        "signal_24",
    );
    let message = failed(
        perform(
            &upstream,
            &python("open('f', 'wb', 0).write(b'x' * 1000 + b'y')\nopen('f', 'ab', 0).write(b'z')"),
        )
        .await,
        "exit_1",
    );
    assert!(message.contains("File too large"), "{message}");
    let message = failed(
        perform(
            &upstream,
            &python("a = [open('/dev/null') for _ in range(30)]"),
        )
        .await,
        "exit_1",
    );
    assert!(message.contains("Too many open files"), "{message}");
}

/// Script that tries an action and reports the error.
const TRY: &str = r"
import json, os, socket, sys
given = json.load(sys.stdin)['args']
def said(what):
    try:
        what()
        return 'done'
    except OSError as error:
        return type(error).__name__
open('own', 'w').write('fine')
print(json.dumps({
    'own': open('own').read(),
    'outside': said(lambda: open(given['outside'], 'w')),
    'mkdir': said(lambda: os.mkdir(given['outside'])),
    'secret': said(lambda: open(given['secret'])),
    'environ': said(lambda: open('/proc/%d/environ' % given['pid']).read()),
    'tcp': said(lambda: socket.create_connection(('127.0.0.1', given['port']))),
    'udp': said(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
    'unix': said(lambda: socket.socket(socket.AF_UNIX)),
    'kill': said(lambda: os.kill(given['pid'], 0)),
    'etc': said(lambda: open('/etc/passwd').read()),
    'config': said(lambda: os.listdir('/etc')),
}))
";

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_blocks_network_foreign_files_and_processes() {
    require("python3");
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "canary").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let args = json!({
        "outside": dir.path().join("outside"), "secret": secret, "pid": std::process::id(),
        "port": listener.local_addr().unwrap().port(),
    });
    let upstream = upstream(&json!({ "isolation": "required" }));
    let result = perform(&upstream, &job("python", 1, TRY, &json!({ "args": args }))).await;
    let result = result.expect("the kernel has Landlock").payload;
    for (name, value) in result.as_object().unwrap() {
        let expected: &[&str] = match name.as_str() {
            "own" => &["fine"],
            "etc" => &["done"],
            // With namespaces, these do not exist for the job.
            "outside" | "mkdir" | "secret" | "environ" | "kill" => {
                &["PermissionError", "FileNotFoundError", "ProcessLookupError"]
            }
            _ => &["PermissionError"],
        };
        assert!(
            expected.contains(&value.as_str().unwrap()),
            "{name}: {result}"
        );
    }
}

/// Script that reports which processes, directories and privileges it sees.
const LOOK: &str = r"
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def denied(call, *arguments):
    return libc.syscall(call, *arguments) == -1 and ctypes.get_errno() == 38
capabilities = [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')]
mounts = open('/proc/self/mountinfo').readlines()
# The first process of the namespace ignores it.
libc.kill(1, 9)
print(json.dumps({
    'processes': sorted(int(name) for name in os.listdir('/proc') if name.isdigit()),
    'capabilities': int(capabilities[0], 16),
    'root': os.path.exists('/root') or os.path.exists('/home') or os.path.exists('/var'),
    'read_only': any(line.split()[4] == '/usr' and line.split()[5].startswith('ro') for line in mounts),
    'interfaces': open('/proc/net/dev').read().count(':'),
    'unshare': denied(272 if os.uname().machine == 'x86_64' else 97, 0x10000000),
    'ptrace': denied(101 if os.uname().machine == 'x86_64' else 117, 0, 0, 0, 0),
}))
";

/// Returns whether this system permits user namespaces, found out with another program.
fn permits_namespaces() -> bool {
    let arguments = [
        "--user",
        "--map-current-user",
        "--pid",
        "--fork",
        "--mount",
        "--mount-proc",
        "true",
    ];
    let status = std::process::Command::new("unshare")
        .args(arguments)
        .status();
    status.is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn job_sees_only_its_own_processes_paths_and_network() {
    require("python3");
    assert!(
        permits_namespaces(),
        "this test requires a kernel that permits user namespaces"
    );
    let result = run("python", LOOK, &json!({})).await;
    let processes: Vec<u64> = serde_json::from_value(result["processes"].clone()).unwrap();
    assert!(processes.len() == 2 && processes[0] == 1, "{result}");
    let mut rest = result;
    rest.as_object_mut().unwrap().remove("processes");
    let expected = json!({
        "capabilities": 0, "root": false, "read_only": true, "interfaces": 1, "unshare": true,
        "ptrace": true,
    });
    assert_eq!(rest, expected);
}

/// The test of the restrictions passes in a user namespace that permits no other namespaces.
#[test]
fn without_namespaces_landlock_restricts_the_job() {
    require("python3");
    assert!(
        permits_namespaces(),
        "this test requires a kernel that permits user namespaces"
    );
    let repeat = "echo 0 > /proc/sys/user/max_user_namespaces && ! unshare --user true 2> /dev/null && \
                  exec setpriv --inh-caps=-all --ambient-caps=-all \"$0\" sandbox_blocks_network_foreign_files_and_processes";
    let mut command = std::process::Command::new("unshare");
    command
        .args([
            "--user",
            "--map-user=1000",
            "--keep-caps",
            "sh",
            "-c",
            repeat,
        ])
        .arg(std::env::current_exe().unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn job_cannot_make_the_node_read_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "canary").unwrap();
    let path = secret.display().to_string();
    let script = format!("ln -s {path} .orlog-failed; echo done");
    let result = run("sh", &script, &json!({})).await;
    assert_eq!(result, json!({ "text": "done" }));
    assert_eq!(
        run("sh", "mkfifo .orlog-failed; echo done", &json!({})).await,
        json!({ "text": "done" })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_allows_configured_paths() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let path = dir.path().display().to_string();
    let upstream: Upstream = upstream(&json!({ "write": [path], "isolation": "best_effort" }));
    let script = format!("echo made > {path}/film && cat {path}/film");
    let result = perform(&upstream, &job("sh", 1, &script, &json!({})))
        .await
        .unwrap();
    assert_eq!(result.payload, json!({ "text": "made" }));
    assert_eq!(
        std::fs::read_to_string(dir.path().join("film")).unwrap(),
        "made\n"
    );
    assert_eq!(run("sh", "cat", &json!({ "args": "é" })).await["args"], "é");
}
