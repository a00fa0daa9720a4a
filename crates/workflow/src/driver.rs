//! Driver: executes one instance until it ends, waits or stops.
//!
//! All runners use it. They differ in where snapshots and inputs come from ([`Checkpoint`]), and in
//! whether an instance that only waits is released. After each event the state is stored; only then
//! the next tasks start.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::{broadcast, watch};
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::definition::Definition;
use crate::execute::{Done, Execution, execute};
use crate::machine::{Attempt, Machine};
use crate::outcome::RunError;
use crate::progress::Progress;
use crate::state::{Phase, State, Work};
use crate::value::Value;

/// Name of the signal that cancels an instance.
pub(crate) const CANCEL: &str = "$cancel";
/// Name of the signal that retries a stuck compensation.
pub(crate) const RETRY: &str = "$retry";
/// Name of the signal that skips a stuck compensation.
pub(crate) const SKIP: &str = "$skip";

/// Number of tasks that are ready at once between two looks at the inputs.
const YIELD_INTERVAL: u32 = 64;

/// Input of an instance from outside.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) payload: Bytes,
    /// Number of a stored signal.
    pub(crate) number: u64,
}

/// Storage of one instance.
pub(crate) trait Checkpoint: Send {
    /// Stores the state. With `is_idle`, nothing is executed until the next due time or input: the
    /// instance may be released.
    fn save(
        &mut self,
        state: &State,
        is_idle: bool,
        now_ms: u64,
    ) -> impl Future<Output = Result<(), RunError>> + Send;

    /// Returns the next inputs after a number, maybe none. Cancellation loses none.
    fn inputs(&mut self, after: u64) -> impl Future<Output = Result<Vec<Input>, RunError>> + Send;

    /// Returns whether inputs are waiting.
    fn has_inputs(&self) -> bool;

    /// Returns whether an instance that only waits is released.
    fn releases_idle(&self) -> bool;
}

/// Instance in execution.
pub(crate) struct Driver<C> {
    pub(crate) definition: Arc<Definition>,
    pub(crate) instance: Arc<str>,
    pub(crate) state: State,
    pub(crate) clock: Clock,
    pub(crate) checkpoint: C,
    pub(crate) progress: Option<broadcast::Sender<Progress>>,
    /// `true` when the runner stops: started tasks end, no other task starts.
    pub(crate) stop: Option<watch::Receiver<bool>>,
    /// Whether the state differs from the last snapshot.
    pub(crate) is_changed: bool,
}

/// Attempts that have not ended. Most attempts end at their first poll: the queue is created for
/// the first that does not.
#[derive(Default)]
struct Running(Option<FuturesUnordered<Execution>>);

impl Running {
    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, FuturesUnordered::len)
    }

    fn push(&mut self, execution: Execution) {
        self.0.get_or_insert_default().push(execution);
    }

    async fn next(&mut self) -> Option<Done> {
        self.0.as_mut()?.next().await
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}

impl<C: Checkpoint> Driver<C> {
    /// Executes the instance until it ends, until it waits and is released, or until the runner
    /// stops.
    pub(crate) async fn drive(mut self) -> Result<State, RunError> {
        let mut running = Running::default();
        let mut immediate = 0_u32;
        let mut now_ms = self.clock.now_ms();

        debug!(instance = %self.instance, workflow = %self.definition.name, "workflow starts");

        loop {
            let is_stopping = self.stop.as_ref().is_some_and(|stop| *stop.borrow());
            // A runner that stops starts no attempt, and waits only for those that run.
            let attempts = if is_stopping {
                Vec::new()
            } else {
                self.start_ready(now_ms)
            };

            let is_idle = running.len() == 0 && attempts.is_empty();
            let leaves = self.has_ended() || is_idle && (is_stopping || self.is_released(now_ms));

            // An attempt with a deadline starts only after the deadline is stored: after a crash,
            // the task has not more time than before.
            if self.is_changed || leaves || attempts.iter().any(has_new_deadline) {
                self.checkpoint.save(&self.state, leaves, now_ms).await?;
                self.is_changed = false;
            }

            if leaves {
                self.log_end();
                return Ok(self.state);
            }

            // A task was ready at once: its result is applied without waiting.
            if let Some(done) = self.launch(attempts, &mut running) {
                now_ms = self.clock.now_ms();
                self.finished(done, now_ms);
                immediate = immediate.wrapping_add(1);
                if immediate.is_multiple_of(YIELD_INTERVAL) {
                    self.receive_waiting(&mut running).await?;
                }
                continue;
            }

            now_ms = self.wait(&mut running, is_stopping).await?;
        }
    }

    fn start_ready(&mut self, now_ms: u64) -> Vec<Attempt> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method is not general over the lifetime"
        )]
        self.machine(now_ms, |machine, instance| machine.start_ready(instance))
    }

    /// Returns whether the instance is released because it only waits.
    fn is_released(&self, now_ms: u64) -> bool {
        let is_waiting = self.state.next_due_ms().is_none_or(|due| due > now_ms);
        // An input that has arrived would make the instance due at once, so it is not released.
        is_waiting && self.checkpoint.releases_idle() && !self.checkpoint.has_inputs()
    }

    /// Returns whether nothing follows. The decision of an operator about a stuck instance is an
    /// input.
    fn has_ended(&self) -> bool {
        self.state.phase.is_ended()
            && !(self.state.phase == Phase::Stuck && self.checkpoint.has_inputs())
    }

    /// Lets other Tokio tasks run and applies inputs: a loop of tasks that are ready at once
    /// neither waits nor returns.
    async fn receive_waiting(&mut self, running: &mut Running) -> Result<(), RunError> {
        tokio::task::yield_now().await;
        // Signals and cancellations reach the instance also if it never waits.
        if self.checkpoint.has_inputs() {
            for input in self.checkpoint.inputs(self.state.last_signal).await? {
                self.input(input, running);
            }
        }
        Ok(())
    }

    /// Starts attempts. An attempt that is alone is polled at once: most trivial tasks are ready
    /// then.
    fn launch(&mut self, attempts: Vec<Attempt>, running: &mut Running) -> Option<Done> {
        let is_concurrent = attempts.len() + running.len() > 1;
        for mut attempt in attempts {
            self.refresh_deadline(&mut attempt);
            let mut execution = execute(attempt, self.clock, is_concurrent);
            if !is_concurrent && let Some(done) = (&mut execution).now_or_never() {
                return Some(done);
            }
            running.push(execution);
        }
        None
    }

    /// Counts the timeout from the start of the task: the snapshot with the deadline took time.
    fn refresh_deadline(&mut self, attempt: &mut Attempt) {
        let Attempt::Task(attempt) = attempt else {
            return;
        };

        let (Some(deadline), Some(timeout)) = (&mut attempt.deadline_ms, attempt.timeout_ms) else {
            return;
        };

        *deadline = self.clock.now_ms().saturating_add(timeout);
        attempt.context.deadline_ms = Some(*deadline);

        // Only in memory: the stored deadline is earlier, so a crash never extends the time of the
        // task.
        if let Some(Work::Task { deadline_ms, .. }) = self
            .state
            .branch_mut(attempt.branch)
            .map(|branch| &mut branch.work)
        {
            *deadline_ms = Some(*deadline);
        }
    }

    /// Waits for the next event, applies it and returns its time. `is_stopping` is the decision
    /// that the caller has applied: a stop since then is an event.
    async fn wait(&mut self, running: &mut Running, is_stopping: bool) -> Result<u64, RunError> {
        let due = self.state.next_due_ms();
        let clock = self.clock;
        let last_signal = self.state.last_signal;

        tokio::select! {
            // Results come first: a task that has ended must not be dropped by a cancellation of
            // the same moment.
            biased;
            Some(done) = running.next(), if running.len() > 0 => {
                let now_ms = clock.now_ms();
                self.finished(done, now_ms);
                // All results that are there share one snapshot.
                while let Some(Some(done)) = running.next().now_or_never() {
                    self.finished(done, now_ms);
                }
                Ok(now_ms)
            }

            // Inputs precede timers: a signal that has arrived does not time out.
            inputs = self.checkpoint.inputs(last_signal) => {
                for input in inputs? {
                    self.input(input, running);
                }
                Ok(clock.now_ms())
            }
            () = async { clock.wait_until(due.unwrap_or(u64::MAX)).await },
                if due.is_some() && !is_stopping =>
            {
                let now_ms = clock.now_ms();
                self.is_changed |= self.machine(now_ms, |machine, _| machine.tick());
                Ok(now_ms)
            }
            () = stopped(&mut self.stop), if !is_stopping => Ok(clock.now_ms()),
        }
    }

    fn finished(&mut self, done: Done, now_ms: u64) {
        self.is_changed = true;
        self.machine(now_ms, |machine, _| match done {
            Done::Task { branch, result } => machine.finished(branch, result),
            Done::Undo(result) => machine.compensated(result),
        });
    }

    fn input(&mut self, input: Input, running: &mut Running) {
        self.is_changed = true;

        // Also for an input without effect: the snapshot then consumes it, and it is not read
        // again.
        self.state.last_signal = self.state.last_signal.max(input.number);
        // During compensation, the running future is that of a compensation, which no input stops.
        let had_tasks = !matches!(self.state.phase, Phase::Compensating | Phase::Stuck);
        self.machine(self.clock.now_ms(), |machine, _| {
            match input.name.as_str() {
                CANCEL => machine.cancel(),
                RETRY => machine.retry_compensation(),
                SKIP => machine.skip_compensation(),
                _ => machine.signal(input.name, Value::Encoded(input.payload)),
            }
        });

        if had_tasks && !self.state.branches.iter().any(|branch| branch.is_running) {
            // A cancellation removes the branches; dropping the futures stops the tasks.
            running.clear();
        }
    }

    /// Applies a change and reports its progress.
    fn machine<R>(
        &mut self,
        now_ms: u64,
        change: impl FnOnce(&mut Machine<'_>, &Arc<str>) -> R,
    ) -> R {
        let mut progress = Vec::new();
        // Progress is a string per step. Without a receiver, it is not built.
        let is_observed = self.progress.is_some() || tracing::enabled!(tracing::Level::INFO);
        let sink = is_observed.then_some(&mut progress);

        let mut machine = Machine::new(&self.definition, &mut self.state, now_ms, sink);
        let result = change(&mut machine, &self.instance);

        // After the change: meanwhile, the machine borrows the state.
        for event in progress {
            self.log(&event);
            if let Some(sender) = &self.progress {
                // Without a receiver the progress is not needed.
                sender.send(event).ok();
            }
        }
        result
    }

    fn log(&self, event: &Progress) {
        let instance = &self.instance;
        let workflow = &self.definition.name;

        match event {
            Progress::TaskFailed {
                step,
                message,
                retry_in,
            } => {
                warn!(%instance, %workflow, step, error = message, ?retry_in, "task failed");
            }
            Progress::CompensationFailed {
                step,
                message,
                retry_in,
            } => {
                warn!(
                    %instance,
                    %workflow,
                    step,
                    error = message,
                    ?retry_in,
                    "compensation failed"
                );
            }
            Progress::Compensating { tasks } => {
                info!(%instance, %workflow, tasks, "compensation starts");
            }
            other => debug!(%instance, %workflow, progress = ?other, "workflow progress"),
        }
    }

    fn log_end(&self) {
        debug!(
            instance = %self.instance,
            workflow = %self.definition.name,
            phase = ?self.state.phase,
            "workflow leaves the runner"
        );
    }
}

/// Prepares a stored state for its execution; returns whether it changed.
pub(crate) fn recover(definition: &Definition, state: &mut State, now_ms: u64) -> bool {
    Machine::new(definition, state, now_ms, None).recover()
}

fn has_new_deadline(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Task(attempt) if attempt.is_deadline_new)
}

async fn stopped(stop: &mut Option<watch::Receiver<bool>>) {
    if let Some(stop) = stop
        && stop.changed().await.is_ok()
    {
        return;
    }
    // Without a sender, nothing stops the instance.
    std::future::pending::<()>().await;
}
