//! Saga actor: serves one live instance after another. It takes inputs from the mailbox in order,
//! computes transitions, and submits the commits.
//!
//! It processes the next input while earlier commits are not durable yet; no output leaves the
//! process before its commit is durable.
//!
//! Unreadable data of one instance must not stop the inputs of other instances. In quarantine, each
//! input becomes a dead letter, and control requests are rejected. A replay or a drop ends the
//! quarantine; then the dead letters can be redriven. Other read errors pass: the actor retries.

mod buffered;
mod decision;
pub(crate) mod offload;
pub(crate) mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_engine::{Decision, Rejection};
use orlog_model::{Change, ControlAction, ControlRequest, Input, Instance};
use orlog_store::{Error as StoreError, RequestKeyUse};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::instance::completion::{ALREADY_APPLIED, ControlError};
use crate::instance::mailbox::{Attempt, RequestKey, SagaMessage};
use crate::instance::saga::state::{SagaDependencies, State};
use crate::shard::submission::Submission;
use crate::telemetry::log_instance;

/// Stop reason of an actor when there are enough idle ones.
pub(crate) const EXCESS: &str = "excess";
/// Maximum number of inputs that the actor processes before it yields to other actors.
const MAX_INPUTS_PER_TURN: usize = 64;
/// Delay before a failed read is retried; it doubles up to the maximum.
const READ_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_READ_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Reason why a request has no effect whose idempotency key belongs to another one.
const KEY_REUSED: &str = "the idempotency key belongs to another request";

/// Saga actor.
pub(crate) struct SagaActor;

/// A saga actor, and the state of the instance that it serves.
pub(crate) struct Serving {
    shared: Arc<SagaDependencies>,
    state: Option<State>,
}

impl Actor for SagaActor {
    type Msg = SagaMessage;
    type State = Serving;
    type Arguments = Arc<SagaDependencies>;

    async fn pre_start(
        &self,
        _: ActorRef<SagaMessage>,
        shared: Self::Arguments,
    ) -> Result<Serving, ActorProcessingErr> {
        Ok(Serving {
            shared,
            state: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SagaMessage>,
        message: SagaMessage,
        serving: &mut Serving,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SagaMessage::Serve(mailbox) => {
                serving.state = Some(State::new(mailbox, Arc::clone(&serving.shared)));
            }
            SagaMessage::Wake => {}
            SagaMessage::Release => {
                // The memory of the instance is dropped first, then the actor can serve another
                // one.
                serving.state = None;
                if let Some(excess) = serving.shared.idle_actors.put(myself) {
                    excess.stop(Some(EXCESS.to_owned()));
                }
            }
        }

        // Also after a wake-up that came too late: an actor without a mailbox has nothing to do.
        if let Some(state) = &mut serving.state {
            state.process_all().await?;
            state.shared.live.check_idle(&state.mailbox);
        }
        Ok(())
    }
}

impl State {
    /// Processes the mailbox until it is empty.
    async fn process_all(&mut self) -> Result<(), ActorProcessingErr> {
        let mut processed = 0;
        let mut delay = READ_RETRY_DELAY;
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
                    log_instance!(
                        WARN, self.mailbox.key, None, %error,
                        "instance read failed; retrying"
                    );
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
            if !self.knows_spilled {
                self.find_spilled()?;
            }
            self.spill_arrivals();
        }

        // A large state waits for its commits here, so that it does not fill the group commits of
        // the shard.
        self.limit_pending_state().await;
        Ok(self.process_next().await? || self.apply_spilled().await?)
    }

    /// Processes the first input of the queue; returns `false` if the queue is empty.
    async fn process_next(&mut self) -> Result<bool, StoreError> {
        let Some(attempt) = self.mailbox.start_attempt() else {
            return Ok(false);
        };
        let Attempt {
            input,
            number: attempts,
            request_key,
        } = attempt;

        // Held until the commit is submitted to the committer: see `ProgramRegistry`.
        let _guard = self.shared.programs.guard();

        let started = self.trace_start(&input);

        if let Some(key) = request_key
            && self
                .is_reused(key)
                .await
                .inspect_err(|_| self.mailbox.retract_attempt())?
        {
            self.trace_ignored(&input, started, KEY_REUSED);
            self.finish_without_commit(KEY_REUSED.into(), Some(Rejection::KeyReused.into()));
            return Ok(true);
        }

        // The bus delivers at least once, and a caller repeats its request: the dedupe keys decide.
        let repeated = self.is_repeated(&input).await;
        if repeated.inspect_err(|_| self.mailbox.retract_attempt())? {
            self.trace_ignored(&input, started, ALREADY_APPLIED);
            self.finish_without_commit(ALREADY_APPLIED.into(), None);
            return Ok(true);
        }

        if let Some(to) = self.mailbox.replacement() {
            self.replace(&input, to).await;
            return Ok(true);
        }

        // Until the buffered inputs are applied, the mailbox must not close. They wait for the
        // first transition of the instance, or for the end of its pause.
        let mut has_buffered = self.has_buffered();
        if has_buffered {
            self.keep_open(true);
        }

        // The decision is a value: nothing has changed until its commit is submitted.
        let decision = self.decide(&input, attempts).await;
        if let Decision::Commit(commit) = &decision
            && commit.buffer.is_some()
        {
            has_buffered = true;
            self.keep_open(true);
        }
        self.carry_out(decision, &input, attempts, started);

        if has_buffered {
            self.unbuffers |= self.instance.is_some() && !self.has_buffered();
            self.keep_open(self.unbuffers);
        }
        Ok(true)
    }

    /// Returns whether another request has the idempotency key of the first input. The key of a
    /// repetition is not recorded again.
    async fn is_reused(&self, key: RequestKey) -> Result<bool, StoreError> {
        // The first request with the key can be in flight.
        self.mailbox.wait_durable().await;

        let found = self.shared.reader.request_key_use(
            &self.mailbox.key.tenant,
            key.key,
            key.fingerprint,
            self.shared.clock.now(),
        )?;
        if found == RequestKeyUse::Same {
            self.mailbox.drop_own_change();
        }
        Ok(found == RequestKeyUse::Other)
    }

    /// Submits the commit of a decision, or completes the input without one.
    fn carry_out(
        &mut self,
        decision: Decision,
        input: &Input,
        attempts: u32,
        started: Option<Instant>,
    ) {
        match decision {
            Decision::Commit(mut commit) => {
                let decided = self.follow(&mut commit, input, started);
                self.finish_with(commit, decided, None);
            }
            Decision::Ignore {
                reason,
                cleanup: Some(commit),
            } => {
                self.shared.metrics.ignored.inc();
                log_instance!(
                    DEBUG, self.mailbox.key, input.trace(), input = input.label(), %reason,
                    "ignored"
                );
                self.record_ignored(input, &reason);
                self.trace_ignored(input, started, &reason);
                self.finish_with(commit, None, Some(reason));
            }
            Decision::Ignore {
                reason,
                cleanup: None,
            } => {
                self.record_ignored(input, &reason);
                self.trace_ignored(input, started, &reason);
                self.finish_without_commit(reason, None);
            }
            // No caller receives the rejection of a signal of the bus.
            Decision::Reject(rejection) if self.is_signal_of_the_bus(input) => {
                let commit = self.subject().rejected_commit(input, &rejection, attempts);
                self.finish_with(Box::new(commit), None, None);
            }
            Decision::Reject(rejection) => {
                self.finish_without_commit("rejected".into(), Some(rejection.into()));
            }
        }
    }

    /// Returns whether the first input is a signal that the bus transported with conditions.
    fn is_signal_of_the_bus(&self, input: &Input) -> bool {
        matches!(input, Input::Control(_)) && self.mailbox.is_from_stream()
    }

    /// Replaces the state of the instance, unless the instance has changed since the replacement
    /// was created. Ends a quarantine: the replacement is complete, and nothing can have changed.
    async fn replace(&mut self, input: &Input, to: Instance) {
        // The store replaces only the state that it has.
        self.mailbox.wait_durable().await;

        let expected = match input {
            Input::Control(control) => control.expected_version.unwrap_or_default(),
            _ => 0,
        };
        let actual = self
            .instance
            .as_ref()
            .map_or(0, |instance| instance.version);
        let fits = self.quarantine.is_some() || actual == expected && !self.is_paused();

        if fits {
            self.reset(Some(to));
        }
        let Some(envelope) = self.mailbox.finish(usize::from(fits), self.has_ended()) else {
            return;
        };

        let rejection = ControlError::from(Rejection::VersionMismatch { expected, actual });
        let done = envelope.completion.with_reply(|| {
            if fits {
                Ok(self.control_result(true, None))
            } else {
                Err(rejection)
            }
        });

        match envelope.extra_change.filter(|_| fits) {
            Some(change) => {
                let mailbox = Some(Arc::clone(&self.mailbox));
                self.send(Submission {
                    change,
                    extra: None,
                    done,
                    mailbox,
                    decided: None,
                });
            }
            None => done.complete(),
        }
    }

    fn enter_quarantine(&mut self, reason: String) {
        if self
            .shared
            .quarantined
            .start(&self.mailbox.key, &self.shared.metrics)
        {
            log_instance!(
                WARN,
                self.mailbox.key,
                None,
                reason,
                "instance quarantined: its data cannot be read; replay or drop it"
            );
        }

        self.quarantine = Some(reason);
        self.loaded = false;
        self.knows_spilled = false;
        // Buffered inputs stay stored.
        self.unbuffers = false;
        self.keep_open(false);
        // Inputs of streams become dead letters; spilled inputs stay stored until the quarantine
        // ends.
        self.mailbox.set_spilled(false);
    }

    async fn process_quarantined(&mut self, reason: String) -> bool {
        let Some(Attempt {
            input,
            number: attempts,
            ..
        }) = self.mailbox.start_attempt()
        else {
            return false;
        };

        // A replay ends the quarantine: its replacement is complete.
        if let Some(to) = self.mailbox.replacement() {
            self.replace(&input, to).await;
            return true;
        }

        // A drop needs no data of the instance. Another control request has a caller, who receives
        // the reason; any other input must not be lost.
        match &*input {
            Input::Control(ControlRequest {
                action: ControlAction::Drop,
                ..
            }) => self.drop_instance().await,
            Input::Control(_) if !self.is_signal_of_the_bus(&input) => {
                let rejection = Rejection::Quarantined { reason };
                self.finish_without_commit("quarantined".into(), Some(rejection.into()));
            }
            _ => {
                if let Decision::Commit(commit) =
                    self.subject().decide_unreadable(&input, reason, attempts)
                {
                    self.finish_with(commit, None, None);
                }
            }
        }
        true
    }

    /// Deletes the unreadable instance, so that it can start again.
    async fn drop_instance(&mut self) {
        // The store deletes only the rows that it has.
        self.mailbox.wait_durable().await;
        self.reset(None);

        let Some(envelope) = self.mailbox.finish(1, true) else {
            return;
        };
        let done = envelope
            .completion
            .with_reply(|| Ok(self.control_result(true, None)));

        let change = Change::DropInstance {
            key: self.mailbox.key.clone(),
        };
        let mailbox = Some(Arc::clone(&self.mailbox));
        self.send(Submission {
            change,
            extra: envelope.extra_change,
            done,
            mailbox,
            decided: None,
        });
    }
}
