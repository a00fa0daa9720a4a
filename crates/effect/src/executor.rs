//! The effect executor: executes the work items of one upstream, attempt by attempt, until an
//! outcome.
//!
//! Each item passes admission (retry budget, rates, concurrency permit, breaker) and then makes an
//! attempt with a timeout. The outcome, or a delay and the next attempt, follows. While the breaker
//! is open, items wait; they do not fail. No attempt starts after the deadline. Dropping the future
//! releases all its permits.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orlog_model::{AttemptOutcome, Clock, Failure, SteadyTime, WorkItem, WorkOutcome};

use crate::attempt::{self, AttemptWindow, before};
use crate::attempt_start::StoredClaim;
use crate::dispatcher::{Dispatcher, StopToken, is_stopped, stopped};
use crate::effect_execution::{
    EffectExecution, ExecutionProgress, ExecutionResult, FinishedExecution, NextStep,
    attempt_outcome, attempts_exhausted, call_health, final_result, no_response, not_started,
    rejection_of_attempt, success,
};
use crate::in_doubt::{self, Doubt};
use crate::limits::admission::{Admission, AdmissionPermit};
use crate::observer::{AttemptReport, EffectObserver, NoopObserver};
use crate::provider::{Attempt, ProviderError, Reply, TransientCause};
use crate::retry::{FailedAttempt, RetryDecision, RetryLimits};
use crate::upstream::{Upstream, UpstreamStatus};
use crate::worker::{BOARD_CLOSED, withdrawn_failure};

/// Executor of one upstream, shared by all its callers.
pub struct EffectExecutor {
    upstream: Upstream,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn EffectObserver>,
    admission: Admission,
    retired: StopToken,
    serial: u64,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

impl EffectExecutor {
    /// Creates an executor without an observer.
    #[must_use]
    pub fn new(upstream: Upstream, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with_observer(upstream, clock, Arc::new(NoopObserver))
    }

    /// Creates an executor that reports every attempt and every change of the breaker to
    /// `observer`.
    #[must_use]
    pub fn with_observer(
        upstream: Upstream,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn EffectObserver>,
    ) -> Arc<Self> {
        let admission = Admission::new(
            &upstream.name,
            &upstream.policy,
            &clock,
            Arc::clone(&observer),
        );

        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            upstream,
            clock,
            observer,
            admission,
            retired: StopToken::default(),
            serial,
        })
    }

    /// Returns an id that distinguishes executors of one upstream: after a reload an old and a new
    /// one may exist.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.serial
    }

    /// Retires the executor: attempts in flight finish, all other items move to its replacement.
    pub fn retire(&self) {
        self.retired.stop();
    }

    /// Returns whether it was retired.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.is_stopped()
    }

    /// Returns its upstream.
    #[must_use]
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Returns the current status of the upstream.
    #[must_use]
    pub fn status(&self) -> UpstreamStatus {
        let state = self.admission.breaker();
        let tenants = self.upstream.tenants.as_ref();

        UpstreamStatus {
            upstream: self.upstream.name.clone(),
            breaker: state.map(|(state, _)| state),
            breaker_open_count: state.map_or(0, |(_, opened)| opened),
            last_error: self.admission.last_error(),
            in_flight: self.admission.in_flight(),
            waiting: self.admission.waiting(),
            remaining_retries: self.admission.remaining_retries(),
            tenants: tenants.map(|tenants| tenants.iter().map(ToString::to_string).collect()),
        }
    }

    /// Executes an item until it has an outcome, even if the executor is retired meanwhile.
    /// Dropping the future cancels.
    pub async fn execute(&self, item: &WorkItem) -> ExecutionResult {
        self.run_to_completion(item.clone(), ExecutionProgress::default())
            .await
    }

    /// Executes an item whose earlier attempt may have been in flight when the process stopped: it
    /// probes the provider for the result first.
    pub async fn resume(&self, item: &WorkItem) -> ExecutionResult {
        self.run_to_completion(
            item.clone(),
            ExecutionProgress {
                in_doubt: true,
                ..Default::default()
            },
        )
        .await
    }

    /// Executes an item for a dispatcher, from the beginning or from where another executor
    /// stopped. If this one is retired meanwhile, it returns the progress as soon as no attempt is
    /// in flight. During an attempt the trace of the item is the span of the attempt.
    ///
    /// # Errors
    /// The progress, if another executor must continue.
    pub fn execute_for<'a>(
        &'a self,
        item: &'a mut WorkItem,
        progress: ExecutionProgress,
        dispatcher: &'a dyn Dispatcher,
    ) -> impl Future<Output = Result<ExecutionResult, ExecutionProgress>> + Send + 'a {
        self.run(item, progress, Some(dispatcher))
    }

    async fn run_to_completion(
        &self,
        mut item: WorkItem,
        progress: ExecutionProgress,
    ) -> ExecutionResult {
        self.run(&mut item, progress, None)
            .await
            .expect("an executor returns progress only if retirement is respected")
    }

    async fn run(
        &self,
        item: &mut WorkItem,
        progress: ExecutionProgress,
        dispatcher: Option<&dyn Dispatcher>,
    ) -> Result<ExecutionResult, ExecutionProgress> {
        let limits = self.retry_limits(item, &progress);
        let mut execution = EffectExecution::new(limits, item.trace.clone(), progress);
        // A retry under an earlier executor did not subtract from the budget of this one.
        let mut retry_delay = (execution.attempts > 0).then_some(Duration::ZERO);

        loop {
            // A retired executor hands over between attempts only. A caller without a dispatcher
            // has no other executor to continue with.
            if dispatcher.is_some() && self.is_retired() || is_stopped(dispatcher) {
                return Err(execution.into_progress());
            }

            if let Some(delay) = retry_delay.take() {
                // Other items of the dispatcher can be executed during the delay.
                dispatcher.inspect(|dispatcher| dispatcher.wait_started());
                let wait = pin!(self.wait_for_retry(item, &mut execution, delay));
                let waited = self.unless_interrupted(dispatcher, wait).await;
                dispatcher.inspect(|dispatcher| dispatcher.wait_ended());
                // Interrupted: the check at the start of the loop returns the progress.
                if waited.is_none() {
                    continue;
                }
            }

            // A first attempt adds to the retry budget once, not again after a probe.
            if execution.attempts == 0 && execution.probes == 0 {
                self.admission.deposit_first();
            }

            let admitted = self
                .unless_interrupted(dispatcher, pin!(self.admission(item, &execution)))
                .await;
            let Some(admitted) = admitted else { continue };

            let next = match self.step(item, &mut execution, admitted, dispatcher).await {
                // Without the delay of a retry: after a restart before its end is stored, a job is
                // in doubt.
                NextStep::Retry(_) if self.is_withdrawn(item, dispatcher) => {
                    NextStep::Finish(Box::pin(self.withdrawn(item, &mut execution)).await)
                }
                next => next,
            };

            match next {
                NextStep::Finish(mut finished) => {
                    self.reject_undeclared(item, &mut finished);
                    let is_published = self.upstream.provider.publishes_results();
                    return Ok(execution.into_result(finished, is_published));
                }
                NextStep::Retry(delay) => {
                    // No commit follows a retry. Its receipt would otherwise report a lost result
                    // to the worker.
                    execution.result_needs_no_commit();
                    execution.delay = Some(delay);
                    retry_delay = Some(delay);
                }
                NextStep::Stop => return Err(execution.into_progress()),
            }
        }
    }

    /// Removes the facts whose types the upstream does not declare. The result stays: the effect
    /// was executed, and a worker that has published its result cannot change it.
    fn reject_undeclared(&self, item: &WorkItem, finished: &mut FinishedExecution) {
        let types = &self.upstream.facts;
        let Some(first) = types.first_undeclared(&finished.facts) else {
            return;
        };

        let upstream = self.upstream.name.as_str();
        tracing::warn!(
            upstream,
            effect = %item.work.label(),
            tenant = %item.instance.tenant,
            saga = %item.instance.saga,
            correlation = %item.instance.correlation,
            fact = %first,
            "fact of a worker not published; add its type to facts of the upstream"
        );

        let all = finished.facts.len();
        finished.facts.retain(|fact| types.permit(&fact.kind));
        let rejected = all - finished.facts.len();
        self.observer.facts_rejected(upstream, rejected);
    }

    /// Returns the limits of an item. The deadline is converted once in a process: a wall clock
    /// that is set back later does not extend it.
    fn retry_limits(&self, item: &WorkItem, progress: &ExecutionProgress) -> RetryLimits {
        let policy = &self.upstream.policy;
        let deadline = || {
            policy
                .deadline(item)
                .map(|deadline| self.clock.steady_at(deadline))
        };

        RetryLimits {
            max_attempts: policy.max_attempts(item),
            deadline: progress.deadline.or_else(deadline),
        }
    }

    /// Waits for the delay of a retry, then until the retry budget allows it or the deadline has
    /// passed.
    async fn wait_for_retry(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
        mut delay: Duration,
    ) {
        let deadline = execution.limits.deadline.unwrap_or(SteadyTime::MAX);
        loop {
            self.clock
                .sleep_until(self.clock.steady().saturating_add(delay).min(deadline))
                .await;

            let now = self.clock.steady();
            // A budget that allows nothing is no reason to wait beyond the deadline: the item then
            // ends.
            let Err(available) = self.admission.withdraw_retry(now) else {
                return;
            };
            if now >= deadline {
                return;
            }

            // Items without budget do not wait in order: the items of one tenant would delay all
            // others.
            delay = execution.budget_delay(&self.upstream.policy.backoff_for(item), item);
            delay = delay
                .max(available.map_or(Duration::ZERO, |available| available.duration_since(now)));
        }
    }

    /// Runs a future; returns `None` if the executor is retired or the dispatcher stops it first. A
    /// future that is ready at once always completes.
    async fn unless_interrupted<T>(
        &self,
        dispatcher: Option<&dyn Dispatcher>,
        work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let Some(dispatcher) = dispatcher else {
            return Some(work.await);
        };

        tokio::select! {
            biased;
            out = work => Some(out),
            () = self.retired.stopped() => None,
            () = stopped(dispatcher.stop_token()) => None,
        }
    }

    /// Makes one attempt after its admission, or ends at the deadline.
    async fn step(
        &self,
        item: &mut WorkItem,
        execution: &mut EffectExecution,
        admitted: Option<AdmissionPermit<'_>>,
        dispatcher: Option<&dyn Dispatcher>,
    ) -> NextStep {
        // After the admission: an item that only waits for a permit or the breaker leaves no record
        // that makes it doubtful.
        let was_recorded = self.record_start(item, execution, dispatcher).await;

        // The record can take until after the deadline.
        let admitted = admitted.filter(|_| !was_recorded || !self.is_late(execution));
        let Some(admitted) = admitted else {
            return NextStep::Finish(Box::pin(self.finish_late(item, execution)).await);
        };

        // Before the attempt: after a restart or a takeover, an abandoned job must not be offered
        // again.
        if self.is_withdrawn(item, dispatcher) {
            return NextStep::Finish(Box::pin(self.withdrawn(item, execution)).await);
        }

        let claim = self.stored_claim(item, execution, dispatcher);
        let is_claimed = claim
            .as_ref()
            .is_some_and(|claim| claim.until > self.clock.steady());

        // A worker that holds the claim still executes the job: its result is awaited.
        if !is_stopped(dispatcher) && !is_claimed {
            match self.resolve_in_doubt(item, execution).await {
                Doubt::Ended(end) => return NextStep::Finish(end),
                Doubt::ProbeAgain(delay) => return NextStep::Retry(delay),
                // All attempts are used up. The probes only resolved the doubt about the last one.
                Doubt::AttemptAllowed if execution.probes > 0 && execution.is_exhausted() => {
                    return NextStep::Finish(Box::pin(self.exhausted(item, execution)).await);
                }
                Doubt::AttemptAllowed => {}
            }
        }

        // The shard may have been lost while the probe was in flight. Its next owner makes the
        // attempt.
        if is_stopped(dispatcher) {
            return NextStep::Stop;
        }

        execution.attempts += 1;
        // Each attempt has its own number of probes.
        execution.probes = 0;
        let result = self.attempt(item, execution, claim, dispatcher).await;

        admitted.report(
            call_health(&result),
            result
                .as_ref()
                .err()
                .map(|error| error.failure().message.as_str()),
        );

        let is_closed = result
            .as_ref()
            .is_err_and(|error| error.failure().code == BOARD_CLOSED);
        if is_closed && is_stopped(dispatcher) {
            // The next owner of the shard makes the attempt.
            return NextStep::Stop;
        }

        if is_closed && dispatcher.is_some() && !execution.in_doubt && self.is_retired() {
            // No worker had the job: its next upstream makes the attempt.
            execution.undo_attempt();
            return NextStep::Stop;
        }

        self.evaluate(item, execution, result).await
    }

    /// Records the start of the first attempt, unless a doubt about it would change nothing.
    /// Returns whether it did.
    async fn record_start(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
        dispatcher: Option<&dyn Dispatcher>,
    ) -> bool {
        let Some(recorder) = dispatcher.and_then(Dispatcher::start_recorder) else {
            return false;
        };

        let is_first = execution.attempts == 0 && !execution.in_doubt;
        // A record costs a message and its acknowledgement. Only effects whose doubt decides
        // something pay for it.
        if !is_first || !self.upstream.is_doubt_decisive(item) {
            return false;
        }

        execution.in_doubt = recorder.record_start(item).await;
        true
    }

    fn is_late(&self, execution: &EffectExecution) -> bool {
        let deadline = execution.limits.deadline;
        deadline.is_some_and(|deadline| self.clock.steady() >= deadline)
    }

    /// Waits for the admission of an attempt; `None` if the deadline passes first.
    async fn admission(
        &self,
        item: &WorkItem,
        execution: &EffectExecution,
    ) -> Option<AdmissionPermit<'_>> {
        // Without this check, an admission that succeeds at once would start an attempt after the
        // deadline.
        if self.is_late(execution) {
            return None;
        }

        let deadline = execution.limits.deadline;
        let admitted = pin!(self.admission.admit(&item.instance.tenant, item.priority));
        before(self.clock.as_ref(), deadline, admitted).await
    }

    /// Returns the claim of a job by a worker before this process executed it.
    fn stored_claim(
        &self,
        item: &WorkItem,
        execution: &EffectExecution,
        dispatcher: Option<&dyn Dispatcher>,
    ) -> Option<Box<StoredClaim>> {
        let (_, terms) = self.upstream.board.as_ref()?;
        // Only a job from before the start of the process can have a stored claim that the board
        // does not contain.
        if !execution.in_doubt || execution.attempts > 0 {
            return None;
        }

        let claim = dispatcher?.stored_claim(item)?;

        // The clock of the process that stored the claim may be ahead.
        let latest = self.clock.steady().saturating_add(terms.claim_ttl);
        let until = self.clock.steady_at(claim.until).min(latest);
        Some(Box::new(StoredClaim { claim, until }))
    }

    async fn attempt(
        &self,
        item: &mut WorkItem,
        execution: &mut EffectExecution,
        claim: Option<Box<StoredClaim>>,
        dispatcher: Option<&dyn Dispatcher>,
    ) -> Result<Reply, ProviderError> {
        let window = AttemptWindow::new(
            &self.upstream.policy,
            self.clock.as_ref(),
            execution.limits.deadline,
        );

        let started = Instant::now();
        let attempt = Attempt {
            number: execution.attempts,
            timeout: window.timeout,
            at: self.clock.now(),
            in_doubt: execution.in_doubt,
        };

        // The upstream receives the span of the attempt as the parent of its own.
        let parent = self
            .observer
            .attempt_started(item)
            .and_then(|span| item.trace.replace(span));

        let remote = attempt::execute(
            &self.upstream,
            self.clock.as_ref(),
            item,
            attempt,
            window,
            claim,
            dispatcher,
        )
        .await;
        let (result, remote_span) = execution.receive(remote);
        let outcome = result
            .as_ref()
            .map_or(AttemptOutcome::TimedOut, attempt_outcome);
        let result =
            result.unwrap_or_else(|| Err(no_response(&self.upstream.name, attempt.timeout)));

        let report = AttemptReport {
            upstream: &self.upstream.name,
            item,
            parent: parent.as_ref(),
            remote_span: remote_span.as_ref(),
            number: execution.attempts,
            outcome,
            error: result.as_ref().err(),
            at: attempt.at,
            duration: started.elapsed(),
        };

        self.observer.attempt_finished(&report);
        execution.record_attempt(&report);
        execution.record_span(item.trace.as_ref(), remote_span);

        // The next attempt is a sibling of this one, not its child.
        if parent.is_some() {
            item.trace = parent;
        }
        result
    }

    async fn evaluate(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
        result: Result<Reply, ProviderError>,
    ) -> NextStep {
        let (failure, trouble, retry_after) = match result {
            Ok(reply) => return NextStep::Finish(success(item, reply)),
            Err(error) => {
                let rejection = rejection_of_attempt(&error).filter(|_| execution.in_doubt);
                match (final_result(error), rejection) {
                    (Ok(end), None) => return NextStep::Finish(end),
                    (Ok(end), Some(rejection)) => {
                        // Boxed, because it is rare, and its state would enlarge each task.
                        let decided = self.reject_after_doubt(item, execution, rejection, end);
                        return Box::pin(decided).await;
                    }
                    (Err(transient), _) => transient,
                }
            }
        };

        execution.in_doubt |= trouble.is_in_doubt();
        execution.last = Some(failure);

        // The attempt executed nothing and could not determine whether an earlier one was executed:
        // the policy decides, without a probe.
        if trouble == TransientCause::Undetermined
            && let Doubt::Ended(end) =
                in_doubt::unknown(&self.upstream, item, execution, None).await
        {
            return NextStep::Finish(end);
        }

        let tried = FailedAttempt {
            attempts: execution.attempts,
            delay: execution.delay,
            retry_after,
        };

        let backoff = self.upstream.policy.backoff_for(item);
        match execution.next_attempt(&backoff, tried, item, self.clock.steady()) {
            RetryDecision::Retry(delay) => NextStep::Retry(delay),
            // A last probe: the effect may have been executed, and its result is better than a
            // timeout.
            RetryDecision::Abandon => match self.resolve_in_doubt(item, execution).await {
                Doubt::Ended(end) => NextStep::Finish(end),
                // Attempts are used up, but time remains to probe again.
                Doubt::ProbeAgain(delay) if execution.is_exhausted() => NextStep::Retry(delay),
                Doubt::ProbeAgain(_) | Doubt::AttemptAllowed => {
                    NextStep::Finish(Box::pin(self.exhausted(item, execution)).await)
                }
            },
        }
    }

    /// Decides after an attempt was rejected while an earlier one is in doubt. A proxy can have sent
    /// the rejection, or the upstream rejects what it has already executed: it says nothing about
    /// the earlier attempt. `end` applies if a probe finds that nothing was executed.
    async fn reject_after_doubt(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
        rejection: Failure,
        end: FinishedExecution,
    ) -> NextStep {
        execution.last = Some(rejection);
        match self.resolve_in_doubt(item, execution).await {
            Doubt::Ended(end) => NextStep::Finish(end),
            Doubt::ProbeAgain(delay) => NextStep::Retry(delay),
            Doubt::AttemptAllowed if execution.in_doubt => {
                NextStep::Finish(Box::pin(self.exhausted(item, execution)).await)
            }
            Doubt::AttemptAllowed => NextStep::Finish(end),
        }
    }

    /// Returns the outcome after the deadline. An attempt in doubt is probed a last time.
    async fn finish_late(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
    ) -> FinishedExecution {
        match self.resolve_in_doubt(item, execution).await {
            Doubt::Ended(end) => end,
            Doubt::ProbeAgain(_) | Doubt::AttemptAllowed => self.exhausted(item, execution).await,
        }
    }

    /// Returns whether the item is a job that its saga no longer awaits.
    fn is_withdrawn(&self, item: &WorkItem, dispatcher: Option<&dyn Dispatcher>) -> bool {
        self.upstream.board.is_some()
            && dispatcher.is_some_and(|dispatcher| dispatcher.is_abandoned(item))
    }

    /// Returns the outcome of a job that the saga abandoned before its next attempt.
    async fn withdrawn(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
    ) -> FinishedExecution {
        execution.last.get_or_insert_with(withdrawn_failure);

        if execution.in_doubt
            && let Doubt::Ended(end) =
                in_doubt::unknown(&self.upstream, item, execution, None).await
        {
            return end;
        }
        self.exhausted(item, execution).await
    }

    /// Returns the outcome without a further attempt. The work timed out if an attempt may have
    /// reached the upstream; otherwise it failed.
    async fn exhausted(
        &self,
        item: &WorkItem,
        execution: &mut EffectExecution,
    ) -> FinishedExecution {
        let failure = execution.last.take().map_or_else(
            || not_started(&self.upstream.name, self.admission.breaker()),
            |last| {
                attempts_exhausted(
                    &self.upstream.name,
                    last,
                    execution.attempts,
                    execution.in_doubt,
                )
            },
        );

        let outcome = if execution.in_doubt {
            WorkOutcome::TimedOut { failure }
        } else {
            WorkOutcome::Failed {
                event: None,
                failure,
                payload: serde_json::Value::Null,
            }
        };

        // A queue can have a result that is not received yet. It is then the outcome.
        in_doubt::report_outcome(self.upstream.provider.as_ref(), item, outcome).await
    }

    /// Probes earlier attempts that are in doubt, and applies the policy if they stay unknown.
    async fn resolve_in_doubt(&self, item: &WorkItem, execution: &mut EffectExecution) -> Doubt {
        if !execution.in_doubt {
            return Doubt::AttemptAllowed;
        }

        // Rare, and large: without the box, every execution would have the size of its future.
        Box::pin(in_doubt::resolve(
            &self.upstream,
            self.clock.as_ref(),
            self.observer.as_ref(),
            item,
            execution,
        ))
        .await
    }
}
