//! Runner with checkpoints: one process, a snapshot after each task, and resumption after a crash.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

use crate::backend::{Backend, InstanceId, StoredInstance, Watcher};
use crate::checkpoint::Snapshots;
use crate::clock::Clock;
use crate::definition::Definition;
use crate::driver::{Driver, recover};
use crate::handle::{Handle, Inputs};
use crate::machine::panic_message;
use crate::outcome::{RunError, output, typed_output};
use crate::progress::Progress;
use crate::registry::{TaskRegistry, check_version};
use crate::state::State;
use crate::submit::Submitter;
use crate::value::{Data, Value};
use crate::workflow::Workflow;

/// Number of events that a slow consumer can be behind.
const PROGRESS_BUFFER: usize = 1024;
/// Number of instances that are read concurrently before they are resumed.
const PREPARE_CONCURRENCY: usize = 64;
/// Number of ids in one page of instances to resume.
const RESUME_PAGE: usize = 1000;

/// Runner that stores a snapshot after each task.
///
/// After a crash, [`CheckpointingRunner::resume`] continues an instance: completed tasks are not
/// executed again, the task that was interrupted is. The instances belong to one process at a time:
/// resuming an instance fences off its previous runner.
///
/// ```
/// use std::sync::Arc;
/// use orlog_workflow::{CheckpointingRunner, Context, MemoryBackend, TaskError, Workflow};
///
/// async fn double(_: &Context, number: u32) -> Result<u32, TaskError> {
///     Ok(number * 2)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workflow = Workflow::builder("double").then("double", double).build()?;
/// let runner = CheckpointingRunner::new(Arc::new(MemoryBackend::new()));
/// assert_eq!(runner.run(&workflow, "d-1", 21).await?, 42);
/// assert_eq!(runner.resume(&workflow, "d-1").await?, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CheckpointingRunner {
    submitter: Submitter,
    clock: Clock,
    holder: Arc<str>,
    stop: watch::Sender<bool>,
}

/// Instance that [`CheckpointingRunner::resume_all`] has resumed.
#[derive(Debug)]
pub struct Resumed {
    /// Id of the instance.
    pub id: String,
    /// End without an output, or an error.
    pub result: Result<(), RunError>,
}

impl CheckpointingRunner {
    /// Returns a runner on a backend.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let holder = format!("runner-{}", uuid::Uuid::now_v7()).into();
        Self {
            submitter: Submitter::new(backend),
            clock: Clock::default(),
            holder,
            stop: watch::Sender::new(false),
        }
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Executes a new instance to its end. Dropping the future stops it; it can be resumed.
    ///
    /// # Errors
    /// [`RunError::Exists`] if the id exists; the end of the workflow without an output;
    /// [`RunError::Backend`].
    pub async fn run<In: Data, Out: Data>(
        &self,
        workflow: &Workflow<In, Out>,
        id: &str,
        input: In,
    ) -> Result<Out, RunError> {
        let driver = self.create(workflow, id, input, None).await?;
        typed_output(output(&driver.drive().await?))
    }

    /// Starts a new instance in the background. It is stored when this method returns.
    ///
    /// # Errors
    /// [`RunError::Exists`] if the id exists; [`RunError::Backend`].
    pub async fn start<In: Data, Out: Data>(
        &self,
        workflow: &Workflow<In, Out>,
        id: &str,
        input: In,
    ) -> Result<Handle<Out>, RunError> {
        let (sender, progress) = broadcast::channel(PROGRESS_BUFFER);
        let driver = self.create(workflow, id, input, Some(sender)).await?;

        let id = Arc::clone(&driver.instance);
        let task = tokio::spawn(async move { output(&driver.drive().await?) });
        let inputs = Inputs::Stored(Arc::clone(self.submitter.backend()));
        Ok(Handle::new(id, task, inputs, progress))
    }

    /// Continues an instance to its end. If it has ended, its output is returned.
    ///
    /// # Errors
    /// [`RunError::NotFound`]; [`RunError::Incompatible`] if the instance started with another
    /// version of the workflow; the end of the workflow without an output; [`RunError::Backend`].
    pub async fn resume<In: Data, Out: Data>(
        &self,
        workflow: &Workflow<In, Out>,
        id: &str,
    ) -> Result<Out, RunError> {
        let backend = self.submitter.backend();
        let stored = backend.load(id).await?.ok_or_else(|| not_found(id))?;
        // Before the claim: an incompatible process must not take the instance from its runner.
        check_version(&stored, &workflow.definition, backend.as_ref()).await?;

        let prepared = self
            .prepare(stored, Arc::clone(&workflow.definition))
            .await?;
        typed_output(output(&prepared.drive().await?))
    }

    /// Continues all instances that have not ended, also those of other processes, and waits for
    /// their ends.
    ///
    /// # Errors
    /// [`RunError::Backend`] if the instances cannot be listed. Errors of single instances are in
    /// the result.
    pub async fn resume_all(&self, registry: &TaskRegistry) -> Result<Vec<Resumed>, RunError> {
        let mut ids: Vec<InstanceId> = Vec::new();
        loop {
            let page = self
                .submitter
                .backend()
                .unended(ids.last().map(|id| &**id), RESUME_PAGE)
                .await?;
            if page.is_empty() {
                break;
            }
            ids.extend(page);
        }
        let mut prepared = stream::iter(ids)
            .map(|id| async move {
                let prepared = self.prepare_registered(&id, registry).await;
                (id, prepared)
            })
            .buffer_unordered(PREPARE_CONCURRENCY);

        // All instances at once: one that waits must not block others.
        let mut running = JoinSet::new();
        while let Some((id, prepared)) = prepared.next().await {
            running.spawn(async move {
                let run = async { output(&prepared?.drive().await?).map(drop) };
                // The panic of one instance must not stop the others.
                let result = AssertUnwindSafe(run).catch_unwind().await;
                let result = result.unwrap_or_else(|panic| {
                    Err(RunError::Value {
                        reason: panic_message(&*panic),
                    })
                });
                Resumed {
                    id: id.to_string(),
                    result,
                }
            });
        }

        Ok(running.join_all().await)
    }

    /// Stops the runner and its clones: started tasks end and are stored, no other task starts.
    /// Runs return [`RunError::Suspended`].
    pub fn shutdown(&self) {
        // Not `send`, which changes nothing without a receiver: a later run must stop too.
        self.stop.send_replace(true);
    }

    async fn create<In: Data, Out>(
        &self,
        workflow: &Workflow<In, Out>,
        id: &str,
        input: In,
        progress: Option<broadcast::Sender<Progress>>,
    ) -> Result<Driver<Snapshots>, RunError> {
        let id: InstanceId = id.into();
        let watcher = self.submitter.backend().hub().watch(&id);
        // The watcher is created before the instance exists, so it misses nothing.
        let definition = &workflow.definition;
        let state = State::start(definition, Value::new(input), self.clock.now_ms());
        let stored = self
            .submitter
            .submit(definition, &id, &state, Some(Arc::clone(&self.holder)))
            .await?;

        let mut driver = self.driver(Arc::clone(definition), &stored, state, watcher);
        driver.progress = progress;
        Ok(driver)
    }

    async fn prepare_registered(
        &self,
        id: &str,
        registry: &TaskRegistry,
    ) -> Result<Prepared, RunError> {
        let backend = self.submitter.backend();
        let stored = backend.load(id).await?.ok_or_else(|| not_found(id))?;
        let definition = registry.resolve(&stored, backend.as_ref()).await?;
        self.prepare(stored, definition).await
    }

    /// Takes over an instance, unless it has ended.
    async fn prepare(
        &self,
        stored: StoredInstance,
        definition: Arc<Definition>,
    ) -> Result<Prepared, RunError> {
        let decode = |stored: &StoredInstance| {
            State::decode(&stored.state).map_err(|reason| RunError::Value { reason })
        };
        let state = decode(&stored)?;
        // The decision of an operator about a stuck instance is a signal.
        if state.phase.is_ended() && stored.last_signal == state.last_signal {
            return Ok(Prepared::Ended(state));
        }

        let backend = self.submitter.backend();

        // Before the claim, so that no signal is missed in between.
        let watcher = backend.hub().watch(&stored.id);
        let Some(stored) = backend.take_over(&stored.id, &self.holder).await? else {
            // It has ended meanwhile.
            let ended = backend
                .load(&stored.id)
                .await?
                .ok_or_else(|| not_found(&stored.id))?;
            return decode(&ended).map(Prepared::Ended);
        };

        let mut state = decode(&stored)?;
        recover(&definition, &mut state, self.clock.now_ms());
        let mut driver = self.driver(definition, &stored, state, watcher);
        // `recover` also marks tasks as started, which it does not report as a change.
        driver.is_changed = true;
        Ok(Prepared::Claimed(driver))
    }

    fn driver(
        &self,
        definition: Arc<Definition>,
        stored: &StoredInstance,
        state: State,
        watcher: Watcher,
    ) -> Driver<Snapshots> {
        let backend = Arc::clone(self.submitter.backend());
        let hash = Arc::clone(&definition.hash);
        // Not released while it only waits: the caller waits for the end of the instance.
        let checkpoint = Snapshots::new(backend, stored, hash, &state, watcher, false);

        Driver {
            definition,
            instance: Arc::clone(&stored.id),
            state,
            clock: self.clock,
            checkpoint,
            progress: None,
            stop: Some(self.stop.subscribe()),
            is_changed: false,
        }
    }
}

/// Instance that can be resumed.
enum Prepared {
    Ended(State),
    Claimed(Driver<Snapshots>),
}

impl Prepared {
    /// Returns the state at the end.
    async fn drive(self) -> Result<State, RunError> {
        match self {
            Self::Ended(state) => Ok(state),
            Self::Claimed(driver) => driver.drive().await,
        }
    }
}

impl std::fmt::Debug for CheckpointingRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointingRunner")
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

fn not_found(id: &str) -> RunError {
    RunError::NotFound { id: id.to_owned() }
}
