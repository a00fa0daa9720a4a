//! Loop of a saga actor, and the quarantine of an instance whose stored data cannot be read.
//!
//! Unreadable data of one instance must not stop the inputs of other instances. In quarantine, each
//! input becomes a dead letter, and control requests are rejected. A replay or a drop ends the
//! quarantine; then the dead letters can be redriven. Other read errors pass: the actor retries.

use std::sync::Arc;
use std::time::Duration;

use orlog_engine::Rejection;
use orlog_model::{Change, ControlAction, ControlRequest, DeadLetterReason, Input};
use orlog_store::Error as StoreError;
use ractor::ActorProcessingErr;

use super::State;
use crate::shard::submission::Submission;
use crate::telemetry::log_instance;

/// Maximum number of inputs that the actor processes before it yields to other actors.
const MAX_INPUTS_PER_TURN: usize = 64;
/// Delay before a failed read is retried; it doubles up to the maximum.
const READ_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_READ_RETRY_DELAY: Duration = Duration::from_secs(5);

impl State {
    /// Processes the mailbox until it is empty.
    pub(super) async fn process_all(&mut self) -> Result<(), ActorProcessingErr> {
        let (mut processed, mut delay) = (0, READ_RETRY_DELAY);
        loop {
            match self.step().await {
                Ok(false) => return Ok(()),
                Ok(true) => {
                    processed += 1;
                    delay = READ_RETRY_DELAY;
                    if processed % MAX_INPUTS_PER_TURN == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                Err(_) if self.mailbox.is_closed() => return Ok(()),
                Err(error) if error.is_damage() => self.enter_quarantine(error.to_string()),
                Err(error) => {
                    log_instance!(WARN, self.mailbox.key, None, %error, "instance read failed; retrying");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(MAX_READ_RETRY_DELAY);
                }
            }
        }
    }

    /// Processes the next input; returns `false` if there is none.
    async fn step(&mut self) -> Result<bool, StoreError> {
        if let Some(reason) = self.quarantine.clone() {
            return Ok(self.process_quarantined(reason).await);
        }
        if !self.loaded {
            self.load().await?;
        }
        if self.unbuffers {
            self.apply_buffered().await?;
        }
        if self.instance.is_some() {
            if !self.can_spill {
                self.find_spilled()?;
            }
            self.spill_arrivals();
        }
        self.limit_pending_state().await;
        Ok(self.process_next().await? || self.apply_spilled().await?)
    }

    fn enter_quarantine(&mut self, reason: String) {
        log_instance!(
            ERROR,
            self.mailbox.key,
            None,
            reason,
            "instance quarantined: its data cannot be read; replay or drop it"
        );
        self.instances.start_quarantine(&self.mailbox.key);
        (self.quarantine, self.loaded, self.can_spill) = (Some(reason), false, false);
        // Inputs of streams become dead letters; spilled inputs stay stored until the quarantine ends.
        self.mailbox.set_spilled(false);
    }

    async fn process_quarantined(&mut self, reason: String) -> bool {
        let Some((input, attempts)) = self.mailbox.start_attempt() else { return false };
        if let Some(to) = self.mailbox.replacement() {
            self.replace(&input, to).await;
            return true;
        }
        match &*input {
            Input::Control(ControlRequest { action: ControlAction::Drop, .. }) => self.drop_instance().await,
            Input::Control(_) => {
                let rejection = Rejection::Quarantined { reason };
                self.finish_without_commit("quarantined".into(), Some(rejection.into()));
            }
            _ => {
                let cause = DeadLetterReason::InstanceUnreadable;
                let commit = self.decide_dead_letter(&input, cause, reason, attempts);
                self.finish_with(commit, None, None);
            }
        }
        true
    }

    /// Deletes the unreadable instance, so that it can start again.
    async fn drop_instance(&mut self) {
        // The store deletes only the rows that it has.
        self.mailbox.wait_durable().await;
        self.reset(None);
        let Some(envelope) = self.mailbox.finish(1, true) else { return };
        let done = envelope.completion.with_reply(|| Ok(self.control_result(true, None)));
        let change = Change::DropInstance { key: self.mailbox.key.clone() };
        let mailbox = Some(Arc::clone(&self.mailbox));
        self.send(Submission { change, extra: envelope.extra_change, done, mailbox, decided: None });
    }
}
