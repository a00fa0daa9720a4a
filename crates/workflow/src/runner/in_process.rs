//! Runner in process: nothing is stored, values are not encoded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::sync::{broadcast, mpsc};

use crate::checkpoint::Volatile;
use crate::clock::Clock;
use crate::driver::{Driver, Input};
use crate::handle::{Handle, Inputs};
use crate::outcome::{RunError, output, typed_output};
use crate::progress::Progress;
use crate::state::State;
use crate::value::{Data, Value};
use crate::workflow::Workflow;

/// Number of events that a slow consumer can be behind.
const PROGRESS_BUFFER: usize = 1024;

/// Runner that executes workflows in the current process and stores nothing.
///
/// In a test, [`Clock::virtual_time`] lets delays, timeouts and retries take no time:
///
/// ```
/// use std::time::Duration;
/// use orlog_workflow::{Clock, InProcessRunner, Workflow};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let workflow = Workflow::builder("reminder")
///     .delay("week", Duration::from_secs(7 * 24 * 60 * 60))
///     .map("greet", |name: String| async move { Ok(format!("Hello {name}")) })
///     .build()?;
/// let runner = InProcessRunner::new().clock(Clock::virtual_time());
/// assert_eq!(runner.run(&workflow, "Ada".to_owned()).await?, "Hello Ada");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcessRunner {
    clock: Clock,
}

impl InProcessRunner {
    /// Returns a runner.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Executes a workflow to its end. Dropping the future stops it without compensation.
    ///
    /// # Errors
    /// The end of the workflow without an output: [`RunError::Failed`], [`RunError::Stuck`].
    pub async fn run<In: Data, Out: Data>(
        &self,
        workflow: &Workflow<In, Out>,
        input: In,
    ) -> Result<Out, RunError> {
        let state = self
            .driver(workflow, instance_id(), input, None, None)
            .drive()
            .await?;
        typed_output(output(&state))
    }

    /// Starts a workflow in the background.
    pub fn start<In: Data, Out: Data>(
        &self,
        workflow: &Workflow<In, Out>,
        input: In,
    ) -> Handle<Out> {
        let (inputs, receiver) = mpsc::unbounded_channel();
        // Before the instance starts, so that its first events are received.
        let (sender, progress) = broadcast::channel(PROGRESS_BUFFER);
        let id = instance_id();

        let driver = self.driver(
            workflow,
            Arc::clone(&id),
            input,
            Some(receiver),
            Some(sender),
        );

        let task = tokio::spawn(async move { output(&driver.drive().await?) });
        Handle::new(id, task, Inputs::Volatile(inputs), progress)
    }

    fn driver<In: Data, Out>(
        &self,
        workflow: &Workflow<In, Out>,
        instance: Arc<str>,
        input: In,
        inputs: Option<mpsc::UnboundedReceiver<Input>>,
        progress: Option<broadcast::Sender<Progress>>,
    ) -> Driver<Volatile> {
        let definition = Arc::clone(&workflow.definition);
        let state = State::start(&definition, Value::new(input), self.clock.now_ms());

        Driver {
            definition,
            instance,
            state,
            clock: self.clock,
            checkpoint: Volatile { inputs },
            progress,
            // Nothing can be resumed: dropping the future stops the instance.
            stop: None,
            is_changed: false,
        }
    }
}

/// Returns a new id: that of the process, and a number.
fn instance_id() -> Arc<str> {
    // Instances are not stored, so a counter within the process is sufficient.
    static PROCESS: LazyLock<uuid::Uuid> = LazyLock::new(uuid::Uuid::now_v7);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!(
        "{}-{}",
        PROCESS.simple(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
    .into()
}
