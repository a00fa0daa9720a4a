//! Processes that are killed with SIGKILL: a checkpointing runner at every change of its backend, and pooled workers at random.
//!
//! The killed process is this test executable, started again with the entry point [`process`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use orlog_testkit::wait::{until, within};
use orlog_workflow::{
    CheckpointingRunner, Client, Context, PooledWorker, RunError, Task, TaskError, TaskRegistry,
    Workflow,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::kills::Crashing;
use crate::support::{BackendKind, number};

/// Task of a process: it records its call in a file, and detects another process that executes it at the same time.
#[derive(Clone)]
struct Recorded(PathBuf);

impl Recorded {
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Size of the recorded calls, which grows by at least 6 bytes with each call.
    fn size(&self) -> u64 {
        std::fs::metadata(self.0.join("calls")).map_or(0, |data| data.len())
    }

    fn record(&self, call: &str) {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.0.join("calls"));
        // One write: concurrent processes do not mix their lines.
        file.expect("the directory exists")
            .write_all(format!("{call}\n").as_bytes())
            .expect("the disk has space");
    }
}

impl Task<u64> for Recorded {
    type Out = u64;

    async fn run(&self, context: &Context, input: u64) -> Result<u64, TaskError> {
        // The system releases the lock of a killed process.
        let lock = File::create(self.0.join(format!("{}.lock", context.instance())))
            .expect("the disk has space");
        match lock.try_lock() {
            Ok(()) => self.record(&format!("{} {}", context.instance(), context.step())),
            Err(TryLockError::WouldBlock) => {
                self.record(&format!("{} concurrent", context.instance()));
            }
            Err(TryLockError::Error(error)) => panic!("{error}"),
        }
        // The task takes as long as a write to the disk.
        lock.sync_all().expect("the disk works");
        Ok(input + 1)
    }
}

fn workflow(directory: &Path) -> Workflow<u64, u64> {
    let task = Recorded(directory.to_owned());
    Workflow::builder("processes")
        .then("a", task.clone())
        .then("b", task.clone())
        .timeout(Duration::from_mins(5))
        .then("c", task)
        .build()
        .expect("valid")
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is set by the test that starts the process"))
}

/// Entry point of the processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "entry point of the processes that other tests kill"]
async fn process() {
    let Ok(role) = std::env::var("ORLOG_TEST_ROLE") else {
        return;
    };
    let directory = PathBuf::from(variable("ORLOG_TEST_DIRECTORY"));
    let kind = BackendKind::ALL
        .into_iter()
        .find(|kind| format!("{kind:?}") == variable("ORLOG_TEST_BACKEND"));
    let backend = kind
        .expect("a backend")
        .connect(&variable("ORLOG_TEST_ADDRESS"))
        .await;
    let workflow = workflow(&directory);
    if role == "worker" {
        let worker = PooledWorker::new("worker", backend, TaskRegistry::new().workflow(&workflow))
            .batch(4)
            .claim_ttl(Duration::from_secs(1))
            .heartbeat_interval(Duration::from_millis(100))
            .spawn();
        return worker.join().await;
    }
    if role == "resume" {
        let runner = CheckpointingRunner::new(backend);
        let result = match runner.resume(&workflow, "p-1").await {
            Err(RunError::NotFound { .. }) => runner.run(&workflow, "p-1", 0).await,
            result => result,
        };
        assert_eq!(result.expect("completes"), 3);
        return println!("completed");
    }
    let (at, is_durable) = (
        variable("ORLOG_TEST_CHANGE").parse().expect("a number"),
        role == "after",
    );
    let crashing = Crashing::new(&backend, at, is_durable);
    let runner = CheckpointingRunner::new(crashing.clone());
    let result = tokio::select! {
        result = runner.run(&workflow, "p-1", 0) => result,
        () = crashing.crashed.notified() => {
            println!("crash");
            std::future::pending().await
        }
    };
    assert_eq!(result.expect("completes"), 3);
    println!("completed");
}

/// Starts a process.
fn start(role: &str, kind: BackendKind, address: &str, directory: &Path, change: usize) -> Child {
    Command::new(std::env::current_exe().expect("the path of the test"))
        .args(["--ignored", "--exact", "--nocapture", "processes::process"])
        .env("ORLOG_TEST_ROLE", role)
        .env("ORLOG_TEST_BACKEND", format!("{kind:?}"))
        .env("ORLOG_TEST_ADDRESS", address)
        .env("ORLOG_TEST_DIRECTORY", directory)
        .env("ORLOG_TEST_CHANGE", change.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the executable of the test starts")
}

/// Starts a process, waits until it has crashed or completed, and kills it. Returns whether it has completed.
async fn completes(
    role: &str,
    kind: BackendKind,
    address: &str,
    directory: &Path,
    change: usize,
) -> bool {
    let mut process = start(role, kind, address, directory, change);
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let completed = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            if line.ends_with("crash") || line.ends_with("completed") {
                return line.ends_with("completed");
            }
        }
        panic!("the process ended without a report");
    };
    let completed = within("the process crashes or completes", completed).await;
    process.kill().await.expect("the process runs");
    completed
}

async fn kill_at_every_change(kind: BackendKind) {
    let mut change = 0;
    loop {
        for is_durable in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let address = kind.new_address(directory.path()).await;
            let role = if is_durable { "after" } else { "before" };
            if completes(role, kind, &address, directory.path(), change).await {
                assert!(change > 3, "the workflow has more than 3 changes");
                return;
            }
            // This process forks: a child would keep the lock of a task until it executes its program.
            let description = format!("{kind:?}, change {change}, durable: {is_durable}");
            assert!(
                completes("resume", kind, &address, directory.path(), change).await,
                "{description}"
            );
            let task = Recorded(directory.path().to_owned());
            let mut calls = task.calls();
            let count = calls.len();
            calls.dedup();
            assert_eq!(calls, ["p-1 a", "p-1 b", "p-1 c"], "{description}");
            assert!(count <= 4, "{description}: at most one task is repeated");
        }
        change += 1;
    }
}

/// Requirements: S2.
#[tokio::test]
async fn a_workflow_survives_sigkill_at_every_change_embedded() {
    kill_at_every_change(BackendKind::Embedded).await;
}

/// Requirements: S2.
#[tokio::test]
async fn a_workflow_survives_sigkill_at_every_change_on_postgres() {
    kill_at_every_change(BackendKind::Postgres).await;
}

/// Requirements: S2.
#[tokio::test]
async fn a_workflow_survives_sigkill_at_every_change_on_nats() {
    kill_at_every_change(BackendKind::Nats).await;
}

/// Kills processes with pooled workers at random; each instance completes once.
async fn kill_worker_processes(kind: BackendKind, kills: u64) {
    let seed = number("ORLOG_SEED", fastrand::u64(..));
    println!("ORLOG_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let address = kind.new_address(directory.path()).await;
    let (workflow, task) = (
        workflow(directory.path()),
        Recorded(directory.path().to_owned()),
    );
    let client = Client::new(kind.connect(&address).await);
    let spawn = || start("worker", kind, &address, directory.path(), 0);
    let mut workers = vec![spawn(), spawn()];
    let mut started = 0;
    for _ in 0..kills {
        // At least three instances are new in a round. Each has three calls of at least six bytes.
        let target = task.size() + random.u64(1..=54);
        for _ in 0..random.u64(3..6) {
            client
                .start(&workflow, &format!("p-{started}"), started)
                .await
                .expect("starts");
            started += 1;
        }
        until("the workers make progress", || async {
            (task.size() >= target).then_some(())
        })
        .await;
        workers
            .swap_remove(random.usize(..workers.len()))
            .kill()
            .await
            .expect("the process runs");
        workers.push(spawn());
    }
    for number in 0..started {
        let result = within(
            "each instance completes",
            client.outcome::<u64>(&format!("p-{number}")),
        )
        .await;
        assert_eq!(result.expect("completes"), number + 3);
    }
    let concurrent = task
        .calls()
        .into_iter()
        .filter(|call| call.ends_with("concurrent"));
    assert_eq!(concurrent.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Requirements: S3.
#[tokio::test]
async fn killed_worker_processes_lose_no_instance_on_postgres() {
    kill_worker_processes(BackendKind::Postgres, 8).await;
}

/// Requirements: S3.
#[tokio::test]
async fn killed_worker_processes_lose_no_instance_on_nats() {
    kill_worker_processes(BackendKind::Nats, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make workflow-kills"]
async fn ten_thousand_kills_lose_no_instance() {
    let kills = number("ORLOG_KILLS", 10_000) / 2;
    tokio::join!(
        kill_worker_processes(BackendKind::Postgres, kills),
        kill_worker_processes(BackendKind::Nats, kills),
    );
}
