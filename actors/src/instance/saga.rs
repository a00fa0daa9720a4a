//! Saga actor of one live instance: takes inputs from its mailbox in order, computes transitions, and
//! submits the commits.
//!
//! It processes the next input while earlier commits are not durable yet; no output leaves the process
//! before its commit is durable. Its memory state is never ahead of the changes that it has submitted
//! to the committer.

mod buffered;
mod quarantine;
mod replacement;
mod size;
mod spans;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use orlog_engine::{
    BufferedInputRef, DeadLetterCause, Decision, DecisionContext, dead_letter_input, decide,
    decide_migration, decide_without_definition,
};
use orlog_model::{
    Change, Commit, ControlAction, ControlRequest, DeadLetterOriginal, DeadLetterReason, DedupeKey, Input,
    Instance, Status, StatusSnapshot,
};
use orlog_program::Program;
use orlog_store::Error as StoreError;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::instance::completion::{Completion, ControlReply};
use crate::instance::mailbox::{Mailbox, Wake};
use crate::instance::registry::InstanceRegistry;
use crate::runtime::control_result::{ControlError, ControlResult};
use crate::shard::submission::{CommitterHandle, Submission};
use crate::telemetry::log_instance;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};
use crate::telemetry::tracer::TransitionSpan;

/// Saga actor.
pub(crate) struct SagaActor;

/// Arguments of a saga actor.
pub(crate) struct SagaActorArguments {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) committer: CommitterHandle,
}

/// State of a saga actor.
pub(crate) struct State {
    mailbox: Arc<Mailbox>,
    instances: Arc<InstanceRegistry>,
    committer: CommitterHandle,
    loaded: bool,
    /// Buffered inputs must be applied before the next input.
    unbuffers: bool,
    /// It is known whether the instance has spilled inputs.
    can_spill: bool,
    /// Reason why the stored data of the instance cannot be read.
    quarantine: Option<String>,
    instance: Option<Instance>,
    /// Inputs buffered while the instance does not exist. Inputs buffered by this actor have no stored
    /// number yet.
    early: Vec<BufferedInputRef>,
    /// Events applied since the last time all commits were durable; the store may not have them yet.
    recent: VecDeque<DedupeKey>,
    _alive: LiveActorGuard,
}

impl Actor for SagaActor {
    type Msg = Wake;
    type State = State;
    type Arguments = SagaActorArguments;

    async fn pre_start(
        &self,
        _: ActorRef<Wake>,
        arguments: SagaActorArguments,
    ) -> Result<State, ActorProcessingErr> {
        let SagaActorArguments { mailbox: cell, instances, committer } = arguments;
        let (early, recent) = (Vec::new(), VecDeque::new());
        let alive = instances.context.metrics.actor_started(ActorKind::Saga);
        Ok(State {
            mailbox: cell,
            instances,
            committer,
            loaded: false,
            unbuffers: false,
            can_spill: false,
            quarantine: None,
            instance: None,
            early,
            recent,
            _alive: alive,
        })
    }

    async fn handle(&self, _: ActorRef<Wake>, _: Wake, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.process_all().await?;
        state.instances.check_idle(&state.mailbox);
        Ok(())
    }
}

impl State {
    /// Loads the snapshot after the commits of a crashed predecessor are durable.
    async fn load(&mut self) -> Result<(), StoreError> {
        self.mailbox.wait_durable().await;
        self.instance = self.instances.context.reader.instance(&self.mailbox.key)?;
        if self.instance.is_none() {
            self.load_early_inputs().await?;
        }
        self.loaded = true;
        self.unbuffers = self.instance.is_some() && !self.is_paused();
        Ok(())
    }

    /// Processes the first input of the queue; returns `false` if the queue is empty.
    async fn process_next(&mut self) -> Result<bool, StoreError> {
        let Some((input, attempts)) = self.mailbox.start_attempt() else { return Ok(false) };
        // Held until the commit is submitted to the committer: see `ProgramRegistry`.
        let _guard = self.instances.context.programs.guard();
        let started = self.trace_start(&input);
        let repeated = self.is_repeated(&input).await;
        if repeated.inspect_err(|_| self.mailbox.retract_attempt())? {
            let reason = "the input was already applied";
            self.trace_ignored(&input, started, reason);
            self.finish_without_commit(reason.into(), None);
            return Ok(true);
        }
        if let Some(to) = self.mailbox.replacement() {
            self.replace(&input, to).await;
            return Ok(true);
        }
        let waited = self.has_buffered();
        match self.decide_within_size(&input, attempts) {
            Decision::Commit(mut commit) => {
                let decided = self.follow(&mut commit, &input, started);
                self.finish_with(*commit, decided, None);
            }
            Decision::Ignore { reason, cleanup: Some(commit) } => {
                self.instances.context.metrics.ignored.inc();
                log_instance!(DEBUG, self.mailbox.key, input.trace(), input = input.label(), %reason, "ignored");
                self.trace_ignored(&input, started, &reason);
                self.finish_with(*commit, None, Some(reason));
            }
            Decision::Ignore { reason, cleanup: None } => {
                self.trace_ignored(&input, started, &reason);
                self.finish_without_commit(reason, None);
            }
            Decision::Reject(rejection) => {
                self.finish_without_commit("rejected".into(), Some(rejection.into()));
            }
        }
        self.unbuffers |= waited && self.instance.is_some() && !self.has_buffered();
        Ok(true)
    }

    /// Returns true if buffered inputs may exist that wait for the start or resume of the instance.
    fn has_buffered(&self) -> bool {
        self.instance.as_ref().map_or(!self.early.is_empty(), |instance| instance.paused)
    }

    /// Returns true if the input was applied before. Only events and control requests have ids that can
    /// repeat; for an instance that does not exist, no input was applied. Also loads the early inputs that
    /// a timer can delete.
    async fn is_repeated(&mut self, input: &Input) -> Result<bool, StoreError> {
        if self.instance.is_none() && matches!(input, Input::Timer(_)) {
            self.load_early_inputs().await?;
        }
        if self.instance.is_none() || !input.has_dedupe_key() {
            return Ok(false);
        }
        if self.mailbox.is_durable() {
            self.recent.clear();
        }
        let id = input.identity();
        let context = &self.instances.context;
        if self.recent.contains(&id) {
            return Ok(true);
        }
        context.reader.is_duplicate(&self.mailbox.key, id, context.clock.now())
    }

    fn decide(&self, input: &Input, attempts: u32) -> Decision {
        let context = &self.instances.context;
        if attempts > context.limits.max_attempts_per_input {
            let message = format!("the actor crashed {} times on this input", attempts - 1);
            return self.dead_letter(input, DeadLetterReason::RetriesExhausted, message, attempts - 1);
        }
        if let Some(program) = self.program() {
            let subject = self.subject(program.as_ref());
            return match self.target(input) {
                Some((to, control)) => decide_migration(&subject, to.as_ref(), input, control),
                None => decide(&subject, input),
            };
        }
        if self.instance.is_none()
            && let Some(decision) =
                decide_without_definition(&self.mailbox.key, &self.early, input, context.clock.now())
        {
            return decision;
        }
        let message = "no definition is loaded for this saga or for the pinned version of this instance";
        self.dead_letter(input, DeadLetterReason::DefinitionMissing, message.to_owned(), attempts)
    }

    fn subject<'a>(&'a self, program: &'a dyn Program) -> DecisionContext<'a> {
        DecisionContext {
            key: &self.mailbox.key,
            instance: self.instance.as_ref(),
            program,
            now: self.instances.context.clock.now(),
            node: &self.instances.context.node,
            buffered: &self.early,
        }
    }

    /// Returns the target program of a control request, if it is known.
    fn target<'a>(&self, input: &'a Input) -> Option<(Arc<dyn Program>, &'a ControlRequest)> {
        let Input::Control(control) = input else { return None };
        let ControlAction::Migrate { to } = &control.action else { return None };
        Some((self.instances.context.programs.by_hash(to)?, control))
    }

    fn program(&self) -> Option<Arc<dyn Program>> {
        let programs = &self.instances.context.programs;
        match &self.instance {
            Some(instance) => programs.by_hash(&instance.definition.hash),
            None => programs.active(&self.mailbox.key.saga),
        }
    }

    fn dead_letter(
        &self,
        input: &Input,
        reason: DeadLetterReason,
        message: String,
        attempts: u32,
    ) -> Decision {
        Decision::Commit(Box::new(self.decide_dead_letter(input, reason, message, attempts)))
    }

    fn decide_dead_letter(
        &self,
        input: &Input,
        reason: DeadLetterReason,
        message: String,
        attempts: u32,
    ) -> Commit {
        let context = &self.instances.context;
        let cause = DeadLetterCause { reason, message, attempts };
        dead_letter_input(&self.mailbox.key, input, cause, context.clock.now(), &context.node)
    }

    /// Removes the first input and submits its consequences; `ignored` is the reason if there is no
    /// transition, only cleanup.
    fn finish_with(
        &mut self,
        mut commit: Commit,
        decided: Option<Box<TransitionSpan>>,
        ignored: Option<Cow<'static, str>>,
    ) {
        self.update_buffered(&mut commit);
        let Some(envelope) = self.mailbox.finish(1, self.has_ended()) else { return };
        let done = envelope.completion.with_reply(|| self.control_reply(&commit, ignored));
        self.submit(commit, decided, envelope.extra_change, done);
    }

    fn finish_without_commit(&mut self, reason: Cow<'static, str>, rejection: Option<ControlError>) {
        let context = &self.instances.context;
        context.metrics.ignored.inc();
        log_instance!(DEBUG, self.mailbox.key, self.trace(), %reason, "ignored");
        // A rejection changes nothing: a dead letter that its instance rejects stays stored.
        let drops = rejection.is_none() && self.mailbox.has_extra_change();
        // The cause of this result may not be durable yet, so the result must not be reported before.
        let waits = drops || !self.mailbox.is_durable();
        let Some(envelope) = self.mailbox.finish(usize::from(waits), self.has_ended()) else { return };
        let done = envelope
            .completion
            .with_reply(|| rejection.map_or_else(|| Ok(self.control_result(false, Some(reason))), Err));
        match envelope.extra_change.filter(|_| drops) {
            Some(change) => {
                let mailbox = Some(Arc::clone(&self.mailbox));
                self.send(Submission { change, extra: None, done, mailbox, decided: None });
            }
            None if waits => {
                let nothing = Commit::empty(self.mailbox.key.clone(), envelope.input.at());
                self.submit(nothing, None, None, done);
            }
            None => done.complete(),
        }
    }

    fn update_buffered(&mut self, commit: &mut Commit) {
        commit.before = self.instance.as_ref().map(StatusSnapshot::from_instance);
        match &commit.buffer {
            Some(Input::Early(early)) => {
                self.instances.context.metrics.inputs_buffered.inc();
                self.early.push(BufferedInputRef {
                    number: 0,
                    key: early.input.identity(),
                    expires_at: early.expires_at,
                });
            }
            _ if self.instance.is_none() && !commit.unbuffer.is_empty() => self.expired(&commit.unbuffer),
            _ => {}
        }
        if let Some(instance) = &commit.instance {
            // A new instance has no spilled inputs.
            self.can_spill |= self.instance.is_none();
            self.instance = Some(instance.clone());
        }
        self.recent.extend(commit.dedupe_key);
        if let Some(DeadLetterOriginal::Input(input)) =
            commit.dead_letter.as_ref().map(|dead_letter| &dead_letter.original)
        {
            let key = input.identity();
            self.recent.retain(|recent| *recent != key);
        }
    }

    fn is_paused(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.paused)
    }

    fn has_ended(&self) -> bool {
        self.instance.as_ref().is_none_or(|instance| instance.status.is_final())
    }

    fn submit(
        &self,
        commit: Commit,
        decided: Option<Box<TransitionSpan>>,
        extra: Option<Change>,
        done: Completion,
    ) {
        let change = Change::Apply(Box::new(commit));
        self.send(Submission { change, extra, done, mailbox: Some(Arc::clone(&self.mailbox)), decided });
    }

    fn send(&self, submission: Submission) {
        if self.committer.submit(submission).is_err() {
            log_instance!(
                DEBUG,
                self.mailbox.key,
                self.trace(),
                "the shard is restarting; the input will be redelivered"
            );
        }
    }

    fn control_reply(&self, commit: &Commit, ignored: Option<Cow<'static, str>>) -> ControlReply {
        match &commit.dead_letter {
            Some(dead_letter) => Err(ControlError::DeadLettered(dead_letter.message.clone())),
            None => Ok(self.control_result(ignored.is_none(), ignored)),
        }
    }

    fn control_result(&self, applied: bool, reason: Option<Cow<'static, str>>) -> ControlResult {
        ControlResult {
            applied,
            reason,
            version: self.instance.as_ref().map_or(0, |i| i.version),
            status: self.instance.as_ref().map_or(Status::Running, |i| i.status),
            paused: self.is_paused(),
        }
    }
}
