//! Decision of one input: the limits of attempts and of the state size, and the program of the
//! instance.

use std::sync::Arc;

use orlog_engine::{
    BufferedInputRef, DeadLetterCause, Decision, DecisionContext, Rejection, dead_letter_input,
    decide, decide_migration, decide_without_definition, emit_facts, mark_unapplied,
    publish_result, without_published,
};
use orlog_model::{
    Commit, ControlAction, ControlRequest, DeadLetterReason, DefinitionRef, Input, Instance,
    InstanceKey, OnExisting, Timestamp,
};
use orlog_program::Program;
use orlog_program::budget::Exceeded;

use crate::instance::program_registry::ProgramRegistry;
use crate::telemetry::log_instance;
use crate::telemetry::metrics::Metrics;

/// An instance in memory, and what decides its next input.
pub(super) struct Subject<'a> {
    pub(super) key: &'a InstanceKey,
    pub(super) instance: Option<&'a Instance>,
    /// Inputs that are buffered for an instance that does not exist.
    pub(super) early: &'a [BufferedInputRef],
    pub(super) programs: &'a ProgramRegistry,
    pub(super) now: Timestamp,
    pub(super) node: &'a str,
    /// Maximum size of the state, in bytes.
    pub(super) max_state_size: usize,
    /// Maximum cost of a decision, in units.
    pub(super) max_cost: u64,
    /// Maximum number of attempts per input.
    pub(super) max_attempts: u32,
    /// Maximum size of each payload in the history, in bytes.
    pub(super) history_payload_bytes: usize,
    pub(super) metrics: &'a Metrics,
}

impl Subject<'_> {
    /// Decides an input. The commit of a work result publishes it, whatever the decision.
    pub(super) fn decide(&self, input: &Input, attempts: u32) -> Decision {
        let mut decision = self.decide_with_limit(input, attempts);
        publish_result(self.key, self.now, input, &mut decision);
        decision
    }

    /// Decides an input. It becomes a dead letter if the state would grow beyond the limit.
    fn decide_with_limit(&self, input: &Input, attempts: u32) -> Decision {
        let decision = self.decide_any_size(input, attempts);
        let Decision::Commit(commit) = &decision else {
            return decision;
        };
        let Some(instance) = &commit.instance else {
            return decision;
        };

        let size = instance.state.len();
        let limit = self.max_state_size;
        if size <= limit / 2 {
            return decision;
        }

        let current = self.instance.map_or(0, |instance| instance.state.len());
        // An instance that is already larger, because the limit was lowered, can still shrink and
        // end.
        if size > limit && size > current {
            let message = format!(
                "the state would have {size} bytes, and limits.max_state_size is {limit}; raise \
                 the limit, then redrive this dead letter"
            );
            return self.dead_letter(input, DeadLetterReason::StateTooLarge, message, attempts);
        }

        self.metrics.large_states.inc();

        // Once, when the state crosses the half: a warning for each transition would hide the
        // others.
        if current <= limit / 2 {
            log_instance!(
                WARN,
                self.key,
                self.instance.and_then(|instance| instance.trace.as_ref()),
                size,
                limit,
                "the state is now larger than half of limits.max_state_size"
            );
        }
        decision
    }

    fn decide_any_size(&self, input: &Input, attempts: u32) -> Decision {
        // An input that crashes its actor each time would otherwise do so forever.
        if attempts > self.max_attempts {
            // The number includes the present attempt, which is not made.
            let message = format!("the actor crashed {} times on this input", attempts - 1);
            return self.dead_letter(
                input,
                DeadLetterReason::RetriesExhausted,
                message,
                attempts - 1,
            );
        }

        if let Some(program) = self.program(input) {
            let subject = self.context(program.as_ref());
            return match self.target(input) {
                Some((to, control)) => decide_migration(&subject, to.as_ref(), input, control),
                None => decide(&subject, input),
            };
        }

        // An instance that does not exist needs no program to expire its early inputs.
        if self.instance.is_none()
            && let Some(decision) = decide_without_definition(self.key, self.early, input, self.now)
        {
            return decision;
        }

        let message =
            "no definition is loaded for this saga or for the pinned version of this instance";
        self.dead_letter(
            input,
            DeadLetterReason::DefinitionMissing,
            message.to_owned(),
            attempts,
        )
    }

    fn context<'a>(&'a self, program: &'a dyn Program) -> DecisionContext<'a> {
        let Self {
            key,
            instance,
            early,
            now,
            node,
            history_payload_bytes,
            ..
        } = *self;
        DecisionContext {
            key,
            instance,
            program,
            now,
            node,
            buffered: early,
            history_payload_bytes,
        }
    }

    /// Returns the target program of a control request, if it is known.
    fn target<'a>(&self, input: &'a Input) -> Option<(Arc<dyn Program>, &'a ControlRequest)> {
        let Input::Control(control) = input else {
            return None;
        };
        let ControlAction::Migrate { to } = &control.action else {
            return None;
        };
        Some((self.programs.by_hash(to)?, control))
    }

    /// Returns the program to which the instance is pinned; the active one for an input that starts
    /// a run.
    fn program(&self, input: &Input) -> Option<Arc<dyn Program>> {
        match self.instance {
            Some(instance) if !restarts(instance, input) => {
                self.programs.by_hash(&instance.definition.hash)
            }
            Some(_) | None => self.programs.active(&self.key.tenant, &self.key.saga),
        }
    }

    /// Decides an input of a quarantined instance: it becomes a dead letter.
    pub(super) fn decide_unreadable(
        &self,
        input: &Input,
        message: String,
        attempts: u32,
    ) -> Decision {
        let mut decision = self.dead_letter(
            input,
            DeadLetterReason::InstanceUnreadable,
            message,
            attempts,
        );
        publish_result(self.key, self.now, input, &mut decision);
        decision
    }

    /// Decides an input whose decision exceeds the cost budget of a transition: it becomes a dead
    /// letter.
    pub(super) fn decide_too_costly(
        &self,
        input: &Input,
        exceeded: &Exceeded,
        attempts: u32,
    ) -> Decision {
        let definition = match self.program(input) {
            Some(program) => {
                let DefinitionRef { saga, version, .. } = program.definition_ref();
                format!("{saga} version {version}")
            }
            None => self.key.saga.to_string(),
        };
        let step = exceeded.step.as_deref();
        let step = step.map_or_else(String::new, |step| format!(", step {step:?}"));
        let expression = exceeded.expression.as_deref();
        let expression = expression.map_or_else(String::new, |text| format!(", `{text}`"));

        let message = format!(
            "the transition exceeds limits.max_transition_cost ({} units) in \
             {definition}{step}{expression}; reduce the data that its expressions read, or raise \
             the limit, then redrive this dead letter",
            self.max_cost
        );

        let reason = DeadLetterReason::TransitionTooCostly;
        let mut decision = self.dead_letter(input, reason, message, attempts);
        publish_result(self.key, self.now, input, &mut decision);
        decision
    }

    fn dead_letter(
        &self,
        input: &Input,
        reason: DeadLetterReason,
        message: String,
        attempts: u32,
    ) -> Decision {
        Decision::Commit(Box::new(
            self.dead_letter_commit(input, reason, message, attempts),
        ))
    }

    /// Returns the commit that stores a rejected signal as a dead letter, because no caller
    /// receives the rejection.
    pub(super) fn rejected_commit(
        &self,
        input: &Input,
        rejection: &Rejection,
        attempts: u32,
    ) -> Commit {
        log_instance!(
            INFO, self.key, input.trace(), input = input.label(), %rejection,
            "signal rejected"
        );
        self.dead_letter_commit(
            input,
            DeadLetterReason::SignalRejected,
            rejection.to_string(),
            attempts,
        )
    }

    /// Returns the commit that stores the input as a dead letter.
    fn dead_letter_commit(
        &self,
        input: &Input,
        reason: DeadLetterReason,
        message: String,
        attempts: u32,
    ) -> Commit {
        let cause = DeadLetterCause {
            reason,
            message,
            attempts,
        };

        // This commit publishes the facts and the result of the input. A redrive must not publish
        // them again.
        let stored = without_published(input);
        let mut commit = dead_letter_input(self.key, &stored, cause, self.now, self.node);
        mark_unapplied(
            self.instance,
            &stored,
            self.now,
            self.node,
            self.history_payload_bytes,
            &mut commit,
        );
        if let Input::WorkResult(result) = input {
            emit_facts(
                self.key,
                self.instance,
                result,
                self.now,
                self.history_payload_bytes,
                &mut commit,
            );
        }
        commit
    }
}

/// Returns whether the input can start a new run of an ended instance.
fn restarts(instance: &Instance, input: &Input) -> bool {
    let Input::Control(ControlRequest {
        action: ControlAction::Start(start),
        ..
    }) = input
    else {
        return false;
    };
    start.on_existing == OnExisting::Restart && instance.is_finished()
}
