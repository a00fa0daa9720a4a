//! Client of pooled workers: starts instances, sends signals, waits for outputs.

use std::sync::Arc;

use bytes::Bytes;

use crate::backend::{Backend, InstanceId};
use crate::clock::Clock;
use crate::driver::{CANCEL, RETRY, SKIP};
use crate::outcome::{RunError, output, typed_output};
use crate::state::{Phase, State};
use crate::submit::Submitter;
use crate::value::{Data, Value, encode};
use crate::workflow::Workflow;

/// Client of the instances of a backend, which pooled workers execute.
#[derive(Clone)]
pub struct Client {
    submitter: Submitter,
    clock: Clock,
}

impl Client {
    /// Returns a client.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            submitter: Submitter::new(backend),
            clock: Clock::default(),
        }
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Stores a new instance; a worker executes it.
    ///
    /// # Errors
    /// [`RunError::Exists`] if the id exists; [`RunError::Value`] and [`RunError::Backend`].
    pub async fn start<In: Data, Out: Data>(
        &self,
        workflow: &Workflow<In, Out>,
        id: &str,
        input: In,
    ) -> Result<(), RunError> {
        let state = State::start(&workflow.definition, Value::new(input), self.clock.now_ms());
        self.submitter
            .submit(&workflow.definition, &id.into(), &state, None)
            .await
            .map(drop)
    }

    /// Waits for the end of an instance and returns its output.
    ///
    /// # Errors
    /// [`RunError::NotFound`]; the end without an output; [`RunError::Value`] and
    /// [`RunError::Backend`].
    pub async fn outcome<Out: Data>(&self, id: &str) -> Result<Out, RunError> {
        let backend = self.submitter.backend();
        let id = InstanceId::from(id);
        // Before the first read, so that no change is missed in between.
        let mut watcher = backend.hub().watch(&id);

        loop {
            let stored = backend.load(&id).await?.ok_or_else(|| not_found(&id))?;
            let state =
                State::decode(&stored.state).map_err(|reason| RunError::Value { reason })?;

            // An operator may have decided about a stuck instance, which has not read the signal
            // yet. Nothing else reads signals after its end.
            let is_decided = state.phase == Phase::Stuck && stored.last_signal != state.last_signal;
            if state.phase.is_ended() && !is_decided {
                return typed_output(output(&state));
            }

            watcher.changed().await;
        }
    }

    /// Sends a signal to the step with this name. It is stored until the step waits for it.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if the instance does not exist or has ended; [`RunError::Value`] and
    /// [`RunError::Backend`].
    pub async fn signal<S: Data>(&self, id: &str, step: &str, payload: &S) -> Result<(), RunError> {
        self.send(
            id,
            step,
            encode(payload).map_err(|reason| RunError::Value { reason })?,
        )
        .await
    }

    /// Cancels an instance: started tasks are dropped, completed ones are compensated.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if the instance does not exist or has ended; [`RunError::Backend`].
    pub async fn cancel(&self, id: &str) -> Result<(), RunError> {
        self.send(id, CANCEL, Bytes::new()).await
    }

    /// Retries the compensation that made an instance stuck.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if the instance does not exist or has ended; [`RunError::Backend`].
    pub async fn retry_compensation(&self, id: &str) -> Result<(), RunError> {
        self.send(id, RETRY, Bytes::new()).await
    }

    /// Skips the compensation that made an instance stuck, and continues with the next one.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if the instance does not exist or has ended; [`RunError::Backend`].
    pub async fn skip_compensation(&self, id: &str) -> Result<(), RunError> {
        self.send(id, SKIP, Bytes::new()).await
    }

    async fn send(&self, id: &str, name: &str, payload: Bytes) -> Result<(), RunError> {
        let is_sent = self
            .submitter
            .backend()
            .send_signal(id, name, payload)
            .await?;
        if is_sent { Ok(()) } else { Err(not_found(id)) }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

fn not_found(id: &str) -> RunError {
    RunError::NotFound { id: id.to_owned() }
}
