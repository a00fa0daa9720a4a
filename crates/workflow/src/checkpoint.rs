//! Checkpoints of an instance: none, or snapshots in a backend.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::backend::{
    After, Backend, BackendError, InstanceId, NEVER_MS, Save, StoredInstance, Watcher,
};
use crate::driver::{Checkpoint, Input};
use crate::outcome::RunError;
use crate::state::{Phase, State};

/// Instance in memory: no snapshots, inputs from a channel.
pub(crate) struct Volatile {
    pub(crate) inputs: Option<mpsc::UnboundedReceiver<Input>>,
}

impl Checkpoint for Volatile {
    async fn save(&mut self, _: &State, _: bool, _: u64) -> Result<(), RunError> {
        Ok(())
    }

    async fn inputs(&mut self, _: u64) -> Result<Vec<Input>, RunError> {
        match &mut self.inputs {
            Some(inputs) => match inputs.recv().await {
                Some(input) => Ok(vec![input]),
                // Without a sender no input follows. Tasks and timers still continue the instance.
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    fn has_inputs(&self) -> bool {
        self.inputs
            .as_ref()
            .is_some_and(|inputs| !inputs.is_empty())
    }

    fn releases_idle(&self) -> bool {
        false
    }
}

/// Claimed instance of a backend.
pub(crate) struct Snapshots {
    backend: Arc<dyn Backend>,
    id: InstanceId,
    hash: Arc<str>,
    epoch: u64,
    watcher: Watcher,
    /// Whether the backend may have signals that the state does not contain.
    has_signals: bool,
    releases_idle: bool,
}

impl Snapshots {
    /// `watcher` was created before the instance was claimed, so that no signal is missed in
    /// between.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        stored: &StoredInstance,
        hash: Arc<str>,
        state: &State,
        watcher: Watcher,
        releases_idle: bool,
    ) -> Self {
        // The watcher does not report signals that were stored before it was created.
        let has_signals = stored.last_signal > state.last_signal;
        Self {
            backend,
            id: Arc::clone(&stored.id),
            hash,
            epoch: stored.epoch,
            watcher,
            has_signals,
            releases_idle,
        }
    }
}

impl Snapshots {
    /// Checks whether another process has taken the instance over: its end is a notification
    /// without a signal.
    async fn check_claim(&self) -> Result<(), BackendError> {
        let stored = self.backend.load(&self.id).await?;
        if stored.is_some_and(|stored| stored.epoch == self.epoch) {
            return Ok(());
        }
        Err(BackendError::Fenced {
            id: Arc::clone(&self.id),
        })
    }
}

impl Checkpoint for Snapshots {
    async fn save(&mut self, state: &State, is_idle: bool, now_ms: u64) -> Result<(), RunError> {
        let then = match state.phase {
            Phase::Completed | Phase::Failed | Phase::Cancelled => After::End { at_ms: now_ms },
            // Only the decision of an operator continues it.
            Phase::Stuck if is_idle => After::Release { wake_ms: NEVER_MS },
            Phase::Running | Phase::Draining | Phase::Compensating if is_idle => After::Release {
                wake_ms: state.next_due_ms().unwrap_or(NEVER_MS),
            },
            Phase::Running | Phase::Draining | Phase::Compensating | Phase::Stuck => After::Keep,
        };

        let encoded = state
            .encode()
            .map_err(|reason| RunError::Value { reason })?;

        let save = Save {
            id: Arc::clone(&self.id),
            epoch: self.epoch,
            hash: Arc::clone(&self.hash),
            state: encoded,
            last_signal: state.last_signal,
            then,
        };
        Ok(self.backend.save(save).await?)
    }

    async fn inputs(&mut self, after: u64) -> Result<Vec<Input>, RunError> {
        if !self.has_signals {
            self.watcher.changed().await;
            self.has_signals = true;
        }

        let signals = self.backend.signals(&self.id, after).await?;

        // A notification without a signal: a process that takes the instance over notifies its
        // former holder.
        if signals.is_empty() {
            self.check_claim().await?;
        }

        // Cleared only after the read: if the future is dropped before, the next call reads again.
        self.has_signals = false;

        let mut inputs = Vec::with_capacity(signals.len());
        for signal in signals {
            inputs.push(Input {
                name: signal.name,
                payload: signal.payload,
                number: signal.number,
            });
        }
        Ok(inputs)
    }

    fn has_inputs(&self) -> bool {
        self.has_signals || self.watcher.has_changed()
    }

    fn releases_idle(&self) -> bool {
        self.releases_idle
    }
}
