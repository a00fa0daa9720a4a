//! One instance, awake: takes inputs from its cell in order, has them decided, and hands the commits on.
//!
//! It decides the next input while earlier commits are still on their way to the disk; nothing leaves the process before
//! they are durable. What it holds in memory is never ahead of what the committer has been given.

mod buffered;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use orlog_engine::{Decision, Grounds, Kept, Refusal, Subject, decide, decide_undefined, migrate, set_aside};
use orlog_model::{
    Action, Change, Commit, Control, DeadLetterReason, EventId, Input, Instance, Original, Standing, Status,
    TraceParent,
};
use orlog_program::Program;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::instance::completion::{Answer, Done};
use crate::instance::mailbox::{Cell, Poke};
use crate::instance::registry::Directory;
use crate::runtime::control::{ControlError, Controlled};
use crate::shard::submission::{Committer, Submission};
use crate::telemetry::about;
use crate::telemetry::metrics::{ActorKind, Alive};
use crate::telemetry::trace_context;
use crate::telemetry::tracer::{Decided, Ignored};

/// Inputs taken in one go before other actors get their turn.
const TURN: usize = 64;

/// The actor.
pub(crate) struct Saga;

/// What it needs.
pub(crate) struct SagaArguments {
    pub(crate) cell: Arc<Cell>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) committer: Committer,
}

/// What it holds.
pub(crate) struct State {
    cell: Arc<Cell>,
    directory: Arc<Directory>,
    committer: Committer,
    loaded: bool,
    instance: Option<Instance>,
    /// What is kept for the instance while it does not exist. Of what was kept in this life the numbers are not known.
    early: Vec<Kept>,
    /// Applied since the last time everything was durable; the store cannot know them yet.
    recent: VecDeque<EventId>,
    _alive: Alive,
}

impl Actor for Saga {
    type Msg = Poke;
    type State = State;
    type Arguments = SagaArguments;

    async fn pre_start(
        &self,
        _: ActorRef<Poke>,
        arguments: SagaArguments,
    ) -> Result<State, ActorProcessingErr> {
        let SagaArguments { cell, directory, committer } = arguments;
        let (early, recent) = (Vec::new(), VecDeque::new());
        let alive = directory.context.metrics.begin(ActorKind::Saga);
        Ok(State { cell, directory, committer, loaded: false, instance: None, early, recent, _alive: alive })
    }

    async fn handle(&self, _: ActorRef<Poke>, _: Poke, state: &mut State) -> Result<(), ActorProcessingErr> {
        if !state.loaded {
            state.load().await?;
        }
        let mut taken = 0;
        while state.take_one().await? {
            taken += 1;
            if taken % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        state.directory.rest(&state.cell);
        Ok(())
    }
}

impl State {
    /// Reads the snapshot, after the commits of an actor that died before this one.
    async fn load(&mut self) -> Result<(), ActorProcessingErr> {
        self.cell.durable().await;
        self.instance = self.directory.context.reader.instance(&self.cell.key)?;
        self.loaded = true;
        if self.instance.is_none() {
            self.load_early().await?;
        }
        if self.instance.is_some() && !self.is_paused() {
            self.apply_held().await?;
        }
        Ok(())
    }

    /// Takes the input at the head of the queue; `false` when there is none.
    async fn take_one(&mut self) -> Result<bool, ActorProcessingErr> {
        let Some((input, attempts)) = self.cell.begin() else { return Ok(false) };
        // Held until the commit lies with the committer: see `Programs`.
        let _lease = self.directory.context.programs.lease();
        let begun = self.begin();
        if self.is_repeated(&input)? {
            let why = "it was applied before";
            self.trace_ignored(&input, begun, why);
            self.finish_without_commit(why.into(), None);
            return Ok(true);
        }
        if let Some(to) = self.cell.replacement() {
            self.replace(&input, to).await;
            return Ok(true);
        }
        if self.instance.is_none() && matches!(*input, Input::Timer(_)) {
            self.load_early().await?;
        }
        let waited = self.has_kept();
        match self.decide(&input, attempts) {
            Decision::Commit(mut commit) => {
                let decided = self.follow(&mut commit, &input, begun);
                self.finish_with(*commit, decided, None);
            }
            Decision::Ignore { why, clear: Some(commit) } => {
                self.directory.context.metrics.ignored.inc();
                about!(DEBUG, self.cell.key, input.trace(), input = input.label(), %why, "ignored");
                self.trace_ignored(&input, begun, &why);
                self.finish_with(*commit, None, Some(why));
            }
            Decision::Ignore { why, clear: None } => {
                self.trace_ignored(&input, begun, &why);
                self.finish_without_commit(why, None);
            }
            Decision::Refuse(refusal) => self.finish_without_commit("refused".into(), Some(refusal.into())),
        }
        if waited && self.instance.is_some() && !self.has_kept() {
            self.apply_held().await?;
        }
        Ok(true)
    }

    /// Stands as the replacement says from now on, unless it has moved since that was made.
    async fn replace(&mut self, input: &Input, to: Instance) {
        // The store replaces what it knows.
        self.cell.durable().await;
        let expected = match input {
            Input::Control(control) => control.expected_version.unwrap_or_default(),
            _ => 0,
        };
        let actual = self.instance.as_ref().map_or(0, |instance| instance.version);
        let fits = actual == expected && !self.is_paused();
        if fits {
            self.instance = Some(to);
            self.early.clear();
            self.recent.clear();
        }
        let Some(envelope) = self.cell.finish(usize::from(fits), self.has_ended()) else { return };
        let refused = ControlError::from(Refusal::Version { expected, actual });
        let done = envelope.done.answered(|| if fits { Ok(self.standing(true, None)) } else { Err(refused) });
        match envelope.extra.filter(|_| fits) {
            Some(change) => {
                let cell = Some(Arc::clone(&self.cell));
                self.send(Submission { change, extra: None, done, cell, decided: None });
            }
            None => done.complete(),
        }
    }

    /// Whether inputs may be kept that wait for the instance to begin or to be resumed.
    fn has_kept(&self) -> bool {
        self.instance.as_ref().map_or(!self.early.is_empty(), |instance| instance.paused)
    }

    /// Whether the input was applied before. Only events and instructions carry ids that can come twice; for an
    /// instance that does not exist nothing was applied.
    fn is_repeated(&mut self, input: &Input) -> Result<bool, ActorProcessingErr> {
        if self.instance.is_none() || matches!(input, Input::Outcome(_) | Input::Timer(_)) {
            return Ok(false);
        }
        if self.cell.is_durable() {
            self.recent.clear();
        }
        let id = input.id();
        let context = &self.directory.context;
        if self.recent.contains(&id) {
            return Ok(true);
        }
        let known = context.reader.applied(&self.cell.key, &id, context.clock.now())?;
        Ok(known && !self.is_letter()?)
    }

    /// Whether the input at the head lies among the dead letters: then it was not applied, even if its id was noted when it
    /// was kept for later.
    fn is_letter(&self) -> Result<bool, ActorProcessingErr> {
        let Some((tenant, id)) = self.cell.letter() else { return Ok(false) };
        Ok(self.directory.context.reader.dead_letter(&tenant, id)?.is_some())
    }

    fn decide(&self, input: &Input, attempts: u32) -> Decision {
        let context = &self.directory.context;
        if attempts > context.limits.attempts_per_input {
            let message = format!("its actor died {} times on it", attempts - 1);
            return self.set_aside(input, DeadLetterReason::RetriesExhausted, message, attempts - 1);
        }
        if let Some(program) = self.program() {
            let subject = self.subject(program.as_ref());
            return match self.target(input) {
                Some((to, control)) => migrate(&subject, to.as_ref(), input, control),
                None => decide(&subject, input),
            };
        }
        if self.instance.is_none()
            && let Some(decision) = decide_undefined(&self.cell.key, &self.early, input, context.clock.now())
        {
            return decision;
        }
        let message = "no definition of this saga, or of the version this instance is pinned to, is loaded";
        self.set_aside(input, DeadLetterReason::DefinitionMissing, message.to_owned(), attempts)
    }

    fn subject<'a>(&'a self, program: &'a dyn Program) -> Subject<'a> {
        Subject {
            key: &self.cell.key,
            instance: self.instance.as_ref(),
            program,
            now: self.directory.context.clock.now(),
            node: &self.directory.context.node,
            early: &self.early,
        }
    }

    /// The program that an instruction wants the instance to go on with, where it is known.
    fn target<'a>(&self, input: &'a Input) -> Option<(Arc<dyn Program>, &'a Control)> {
        let Input::Control(control) = input else { return None };
        let Action::Migrate { to } = &control.action else { return None };
        Some((self.directory.context.programs.pinned(to)?, control))
    }

    fn program(&self) -> Option<Arc<dyn Program>> {
        let programs = &self.directory.context.programs;
        match &self.instance {
            Some(instance) => programs.pinned(&instance.program.hash),
            None => programs.newest(&self.cell.key.saga),
        }
    }

    fn set_aside(&self, input: &Input, reason: DeadLetterReason, message: String, attempts: u32) -> Decision {
        let context = &self.directory.context;
        let grounds = Grounds { reason, message, attempts };
        let commit = set_aside(&self.cell.key, input, grounds, context.clock.now(), &context.node);
        Decision::Commit(Box::new(commit))
    }

    /// Takes the head off the queue and sends its consequences on; `ignored` says why there are none but clearing away.
    fn finish_with(
        &mut self,
        mut commit: Commit,
        decided: Option<Box<Decided>>,
        ignored: Option<Cow<'static, str>>,
    ) {
        self.remember(&mut commit);
        let Some(envelope) = self.cell.finish(1, self.has_ended()) else { return };
        let done = envelope.done.answered(|| self.answer(&commit, ignored));
        self.submit(commit, decided, envelope.extra, done);
    }

    fn finish_without_commit(&mut self, why: Cow<'static, str>, refused: Option<ControlError>) {
        let context = &self.directory.context;
        context.metrics.ignored.inc();
        about!(DEBUG, self.cell.key, self.trace(), %why, "ignored");
        // What led to this may not be durable yet, and nobody must hear of it before it is.
        let waits = self.cell.has_extra() || !self.cell.is_durable();
        let Some(envelope) = self.cell.finish(usize::from(waits), self.has_ended()) else { return };
        let done =
            envelope.done.answered(|| refused.map_or_else(|| Ok(self.standing(false, Some(why))), Err));
        match envelope.extra {
            Some(change) => {
                let cell = Some(Arc::clone(&self.cell));
                self.send(Submission { change, extra: None, done, cell, decided: None });
            }
            None if waits => {
                let nothing = Commit::empty(self.cell.key.clone(), envelope.input.at());
                self.submit(nothing, None, None, done);
            }
            None => done.complete(),
        }
    }

    fn remember(&mut self, commit: &mut Commit) {
        commit.before = self.instance.as_ref().map(Standing::of);
        match &commit.hold {
            Some(Input::Early(early)) => {
                self.directory.context.metrics.early_kept.inc();
                self.early.push(Kept { number: 0, id: early.input.id(), until: early.until });
            }
            _ if self.instance.is_none() && !commit.release.is_empty() => self.expired(&commit.release),
            _ => {}
        }
        if let Some(instance) = &commit.instance {
            self.instance = Some(instance.clone());
        }
        self.recent.extend(commit.applied.clone());
        if let Some(Original::Input(input)) = commit.dead_letter.as_ref().map(|letter| &letter.original) {
            let id = input.id();
            self.recent.retain(|recent| *recent != id);
        }
    }

    fn is_paused(&self) -> bool {
        self.instance.as_ref().is_some_and(|instance| instance.paused)
    }

    fn has_ended(&self) -> bool {
        self.instance.as_ref().is_none_or(|instance| instance.status.is_final())
    }

    fn submit(&self, commit: Commit, decided: Option<Box<Decided>>, extra: Option<Change>, done: Done) {
        let change = Change::Apply(Box::new(commit));
        self.send(Submission { change, extra, done, cell: Some(Arc::clone(&self.cell)), decided });
    }

    /// Now, where somebody makes spans.
    fn begin(&self) -> Option<Instant> {
        self.directory.context.tracer.as_ref().map(|_| Instant::now())
    }

    /// Gives what was decided a span, where somebody makes spans.
    fn follow(&self, commit: &mut Commit, input: &Input, begun: Option<Instant>) -> Option<Box<Decided>> {
        trace_context::decided(commit, input, self.instance.as_ref(), begun?)
    }

    /// Tells whoever makes spans that nothing came of an input.
    fn trace_ignored(&self, input: &Input, begun: Option<Instant>, why: &str) {
        let parent = input.trace().filter(|trace| trace.is_sampled());
        if let (Some(tracer), Some(begun), Some(parent)) = (&self.directory.context.tracer, begun, parent) {
            tracer.ignored(&Ignored { key: &self.cell.key, input: input.label(), parent, why, begun });
        }
    }

    /// The trace of the instance, for the log.
    fn trace(&self) -> Option<&TraceParent> {
        self.instance.as_ref()?.trace.as_ref()
    }

    fn send(&self, submission: Submission) {
        if self.committer.submit(submission).is_err() {
            about!(DEBUG, self.cell.key, self.trace(), "the shard is restarting; the input comes again");
        }
    }

    fn answer(&self, commit: &Commit, ignored: Option<Cow<'static, str>>) -> Answer {
        match &commit.dead_letter {
            Some(letter) => Err(ControlError::SetAside(letter.message.clone())),
            None => Ok(self.standing(ignored.is_none(), ignored)),
        }
    }

    fn standing(&self, applied: bool, why: Option<Cow<'static, str>>) -> Controlled {
        Controlled {
            applied,
            why,
            version: self.instance.as_ref().map_or(0, |i| i.version),
            status: self.instance.as_ref().map_or(Status::Running, |i| i.status),
            paused: self.is_paused(),
        }
    }
}
