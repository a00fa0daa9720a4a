//! Buffered inputs of an instance: applied oldest first after start or resume. Spilled inputs:
//! applied, oldest first, when the queue in memory is empty.

use std::sync::Arc;

use orlog_engine::Decision;
use orlog_model::{Commit, Input};
use orlog_store::Error as StoreError;

use crate::instance::completion::Completion;
use crate::instance::saga::state::State;
use crate::telemetry::log_instance;

/// Number of buffered inputs read per page after a resume.
const BUFFER_PAGE: usize = 64;
/// Number of spilled inputs that are applied before the queue in memory is checked again.
const SPILL_PAGE: usize = 32;

impl State {
    /// Applies the inputs that were buffered until the instance started or was resumed, oldest
    /// first.
    pub(super) async fn apply_buffered(&mut self) -> Result<(), StoreError> {
        // The instance exists, so no input is early any more.
        self.early.clear();
        loop {
            // The store numbers the buffered inputs in the order of their commits.
            self.mailbox.wait_durable().await;
            let page = self
                .shared
                .reader
                .buffered_inputs(&self.mailbox.key, BUFFER_PAGE)?;

            let Some((last, _)) = page.last() else {
                self.unbuffers = false;
                self.keep_open(false);
                return Ok(());
            };

            log_instance!(
                DEBUG,
                self.mailbox.key,
                self.trace(),
                count = page.len(),
                last,
                "applying buffered inputs"
            );

            for (number, input) in page {
                self.apply_one_buffered(number, Arc::new(input.into_inner()))
                    .await;
                // A crashed program pauses its instance: the other inputs stay buffered.
                if self.has_buffered() {
                    self.unbuffers = false;
                    self.keep_open(false);
                    return Ok(());
                }
            }
        }
    }

    /// Reads once whether an earlier actor left spilled inputs. Only an instance that exists has
    /// some.
    pub(super) fn find_spilled(&mut self) -> Result<(), StoreError> {
        let spilled = self.shared.reader.spilled_inputs(&self.mailbox.key, 1)?;
        self.mailbox.set_spilled(!spilled.is_empty());
        self.knows_spilled = true;
        Ok(())
    }

    /// Moves the inputs of streams to the store if more are queued than allowed or earlier ones are
    /// there. Each is acknowledged when it is durable.
    pub(super) fn spill_arrivals(&self) {
        for envelope in self.mailbox.take_to_spill(self.shared.max_queued_inputs) {
            self.shared.metrics.inputs_spilled.inc();
            let mut commit = Box::new(Commit::empty(
                self.mailbox.key.clone(),
                self.shared.clock.now(),
            ));
            commit.spill = Some(envelope.input);
            self.submit(commit, None, None, envelope.completion);
        }
    }

    /// Applies some of the spilled inputs; returns `false` if there are none or the instance is
    /// paused.
    pub(super) async fn apply_spilled(&mut self) -> Result<bool, StoreError> {
        if !self.mailbox.is_spilled() || self.is_paused() {
            return Ok(false);
        }
        self.mailbox.wait_durable().await;
        let page = self
            .shared
            .reader
            .spilled_inputs(&self.mailbox.key, SPILL_PAGE)?;

        self.mailbox.set_spilled(!page.is_empty());
        for (number, input) in page {
            self.limit_pending_state().await;
            // Checked now, not when it was spilled: a message that the bus delivered again is
            // stored twice.
            if self.is_repeated(&input).await? {
                self.shared.metrics.ignored.inc();
                let mut commit = Box::new(Commit::empty(
                    self.mailbox.key.clone(),
                    self.shared.clock.now(),
                ));
                commit.unbuffer.push(number);
                self.mailbox.expect_commit(self.has_ended());
                self.submit(commit, None, None, Completion::None);
            } else {
                self.apply_one_buffered(number, Arc::new(input)).await;
            }
            self.shared.metrics.spilled_applied.inc();
            if self.is_paused() {
                break;
            }
        }
        Ok(true)
    }

    async fn apply_one_buffered(&mut self, number: u64, input: Arc<Input>) {
        let _guard = self.shared.programs.guard();
        let started = self.trace_start(&input);
        let attempts = self.mailbox.crashes() + 1;

        let decision = self.decide(&input, attempts).await;
        if let Decision::Ignore { reason, .. } = &decision {
            self.record_ignored(&input, reason);
        }
        let mut commit = match decision {
            Decision::Commit(commit)
            | Decision::Ignore {
                cleanup: Some(commit),
                ..
            } => commit,
            Decision::Reject(rejection) if matches!(*input, Input::Control(_)) => {
                Box::new(self.subject().rejected_commit(&input, &rejection, attempts))
            }
            Decision::Ignore { cleanup: None, .. } | Decision::Reject(_) => Box::new(
                Commit::empty(self.mailbox.key.clone(), self.shared.clock.now()),
            ),
        };

        commit.unbuffer.push(number);
        if commit.dead_letter.is_none() {
            // Also if the input was ignored: it was consumed.
            commit.dedupe_key = input.dedupe_key();
        }

        let decided = self.follow(&mut commit, &input, started);
        self.install(&mut commit);
        self.mailbox.expect_commit(self.has_ended());
        self.submit(commit, decided, None, Completion::None);
    }
}
