//! Runners and backends by kind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orlog_testkit::wait::within;
use orlog_workflow::{
    Backend, CheckpointingRunner, Client, Clock, Data, EmbeddedBackend, InProcessRunner,
    MemoryBackend, PooledWorker, RunError, TaskRegistry, Workflow,
};
use tempfile::TempDir;

use crate::cases::{Interaction, Runner};

/// Returns a number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Backends of the suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendKind {
    Memory,
    Embedded,
    Postgres,
    Nats,
}

/// Backend and its directory.
pub(crate) struct TestBackend {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same instances, as another process sees them.
    pub(crate) other: Arc<dyn Backend>,
    kind: BackendKind,
    address: String,
    _dir: TempDir,
}

impl BackendKind {
    /// All backends.
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::Embedded, Self::Postgres, Self::Nats];

    /// Opens an empty backend.
    pub(crate) async fn open(self) -> TestBackend {
        let dir = tempfile::tempdir().expect("a directory");
        let address = self.new_address(dir.path()).await;
        let backend = self.connect(&address).await;
        let other = if self.is_shared() {
            self.connect(&address).await
        } else {
            Arc::clone(&backend)
        };
        TestBackend {
            backend,
            other,
            kind: self,
            address,
            _dir: dir,
        }
    }

    /// Returns the address of an empty backend; an embedded one is in the directory.
    pub(crate) async fn new_address(self, directory: &Path) -> String {
        match self {
            Self::Memory => String::new(),
            Self::Embedded => directory.join("data").display().to_string(),
            Self::Postgres => new_database().await,
            Self::Nats => format!("{} w{}", nats_url(), uuid::Uuid::now_v7().simple()),
        }
    }

    /// Opens a backend by its address.
    pub(crate) async fn connect(self, address: &str) -> Arc<dyn Backend> {
        match self {
            Self::Memory => Arc::new(MemoryBackend::new()),
            Self::Embedded => {
                Arc::new(EmbeddedBackend::open(address).expect("the directory is writable"))
            }
            Self::Postgres => Arc::new(
                orlog_workflow::PostgresBackend::connect(address)
                    .await
                    .expect("the server responds"),
            ),
            Self::Nats => {
                let (url, prefix) = address
                    .split_once(' ')
                    .expect("an address has a URL and a prefix");
                let backend = orlog_workflow::NatsBackend::connect(url, prefix).await;
                Arc::new(backend.expect("the server responds"))
            }
        }
    }

    /// Returns whether several processes can open the backend.
    fn is_shared(self) -> bool {
        !matches!(self, Self::Memory | Self::Embedded)
    }
}

/// Starts the server that all tests of the process use; returns its URL.
fn nats_url() -> String {
    use orlog_testkit::nats_server::NatsServer;
    static SERVER: std::sync::OnceLock<NatsServer> = std::sync::OnceLock::new();
    SERVER.get_or_init(NatsServer::start).url()
}

/// Creates a database of its own; returns its URL.
async fn new_database() -> String {
    let port = orlog_testkit::servers::postgres().port;
    let url = |database: &str| format!("postgres://orlog@127.0.0.1:{port}/{database}");
    let name = format!("w{}", uuid::Uuid::now_v7().simple());
    let mut connection = <sqlx::PgConnection as sqlx::Connection>::connect(&url("postgres"))
        .await
        .expect("connects");
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::query(create)
        .execute(&mut connection)
        .await
        .expect("the user is the superuser");
    url(&name)
}

impl TestBackend {
    /// Opens the same instances again, like a new process.
    pub(crate) async fn reopen(mut self) -> Self {
        if self.kind != BackendKind::Memory {
            // The directory is locked while a backend uses it.
            let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
            (self.backend, self.other) = (Arc::clone(&memory), memory);
            self.backend = self.kind.connect(&self.address).await;
            self.other = Arc::clone(&self.backend);
        }
        self
    }
}

/// Runners of the suite.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunnerKind {
    InProcess,
    Checkpointing(BackendKind),
    Pooled(BackendKind),
}

impl Runner for RunnerKind {
    async fn run<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
    ) -> Result<Out, RunError> {
        within("the workflow ends", self.run_unlimited(workflow, input)).await
    }

    async fn interact<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
        interaction: Interaction,
        when: impl Fn() -> bool,
    ) -> Result<Out, RunError> {
        let reached = || async { when().then_some(()) };
        match self {
            Self::InProcess => {
                let handle = InProcessRunner::new().start(workflow, input);
                orlog_testkit::wait::until("the condition holds", reached).await;
                match interaction {
                    Interaction::Cancel => handle.cancel().await?,
                    Interaction::Signal(step, payload) => handle.signal(step, &payload).await?,
                }
                within("the workflow ends", handle.outcome()).await
            }
            Self::Checkpointing(kind) => {
                let backend = kind.open().await;
                let handle = CheckpointingRunner::new(Arc::clone(&backend.backend))
                    .start(workflow, "i-1", input)
                    .await?;
                orlog_testkit::wait::until("the condition holds", reached).await;
                match interaction {
                    Interaction::Cancel => handle.cancel().await?,
                    Interaction::Signal(step, payload) => handle.signal(step, &payload).await?,
                }
                within("the workflow ends", handle.outcome()).await
            }
            Self::Pooled(kind) => {
                let backend = kind.open().await;
                let worker = worker(&backend, workflow).spawn();
                let client = Client::new(Arc::clone(&backend.backend));
                client.start(workflow, "i-1", input).await?;
                orlog_testkit::wait::until("the condition holds", reached).await;
                match interaction {
                    Interaction::Cancel => client.cancel("i-1").await?,
                    Interaction::Signal(step, payload) => {
                        client.signal("i-1", step, &payload).await?;
                    }
                }
                let outcome = within("the workflow ends", client.outcome("i-1")).await;
                worker.shutdown();
                worker.join().await;
                outcome
            }
        }
    }
}

impl RunnerKind {
    async fn run_unlimited<In: Data, Out: Data>(
        self,
        workflow: &Workflow<In, Out>,
        input: In,
    ) -> Result<Out, RunError> {
        match self {
            Self::InProcess => InProcessRunner::new().run(workflow, input).await,
            Self::Checkpointing(kind) => {
                let backend = kind.open().await;
                CheckpointingRunner::new(Arc::clone(&backend.backend))
                    .run(workflow, "i-1", input)
                    .await
            }
            Self::Pooled(kind) => {
                let backend = kind.open().await;
                let workers = [
                    worker(&backend, workflow).spawn(),
                    worker(&backend, workflow).spawn(),
                ];
                let client = Client::new(Arc::clone(&backend.backend));
                client.start(workflow, "i-1", input).await?;
                let outcome = client.outcome("i-1").await;
                for worker in workers {
                    worker.shutdown();
                    worker.join().await;
                }
                outcome
            }
        }
    }
}

pub(crate) fn worker<In, Out>(backend: &TestBackend, workflow: &Workflow<In, Out>) -> PooledWorker {
    PooledWorker::new(
        "worker",
        Arc::clone(&backend.backend),
        TaskRegistry::new().workflow(workflow),
    )
    .batch(8)
    .claim_ttl(Duration::from_secs(30))
    .clock(Clock::default())
}
