//! Moves of a state: every response to its work, every timer that can fire, and inputs that nothing
//! requested.

use std::sync::Arc;

use orlog_model::{EventType, Instance, Name, Status, WaitKind, Work};
use orlog_program::in_doubt::NOT_EXECUTED;
use orlog_program::{Action, AfterHandler, Definition, Program, Step, TimeLimit, TimeSpec};
use serde_json::Value;
use uuid::Uuid;

use super::payloads::Payloads;
use super::state::{Move, ProofState};
use super::timing::next_timers;
use crate::explore::samples::CORRELATION;
use crate::invariants::{StepStates, is_compensation, is_in_progress};
use crate::responses::{
    ResponseSource, ResponseSpec, WorkTag, is_reminder, response_spec, step_of,
};
use crate::simulator::SimulatedInstance;
use crate::step::{EventStep, OperatorAction, SimulationStep};

/// Move with its class.
pub(super) struct OfferedMove {
    pub(super) proof_move: Move,
    pub(super) class: MoveClass,
}

/// Class of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveClass {
    /// Response, timer, or decision of an operator that the instance waits for.
    Expected,
    /// Event or signal that no step waits for. A run has a limited number.
    Disturbance,
    /// Cancellation: a disturbance that is no progress.
    Cancellation,
    /// Result that nothing waits for: it is late, or it rejects a command that an event confirms.
    /// It is no progress: it may never arrive.
    Unawaited,
}

/// Source of the moves of a definition.
pub(super) struct Moves<'p> {
    pub(super) program: &'p dyn Program,
    pub(super) definition: &'p Definition,
    pub(super) payloads: Payloads,
}

impl Moves<'_> {
    /// Returns whether the due time of a timer may not depend on the time at which it was armed.
    pub(super) fn is_absolute(&self, timer: &str) -> bool {
        // A computed limit can be a point in time, which does not move with the start of the timer.
        let is_computed = |limit: &Option<TimeLimit>| matches!(limit, Some(TimeLimit::Computed(_)));

        if timer == "saga" {
            return is_computed(&self.definition.timeout);
        }

        let (retries, tag) = timer
            .strip_prefix("retry:")
            .map_or((false, timer), |tag| (true, tag));

        let tag = WorkTag::parse(tag);
        let Some(step) = step_of(self.definition, tag.step) else {
            return false;
        };

        let (timeout, retry) = match &step.compensate {
            Some(undo) if tag.is_compensation => (&undo.timeout, &undo.retry),
            _ => (&step.timeout, &step.retry),
        };

        if retries {
            return retry
                .as_ref()
                .is_some_and(|retry| is_computed(&retry.initial_backoff));
        }

        is_computed(timeout)
            || (!tag.is_compensation && matches!(step.action, Action::Wait(TimeSpec::Until(_))))
    }

    /// Returns the states of the steps.
    pub(super) fn step_states(&self, state: &ProofState) -> Arc<StepStates> {
        let key = state.runner.instance();
        state
            .checker
            .step_states_of(key, self.program, state.instance())
    }

    /// Returns all moves of a state; disturbances only if they are permitted, because there are
    /// many and each has a payload.
    pub(super) fn of(
        &self,
        state: &ProofState,
        step_states: &StepStates,
        permits_disturbances: bool,
    ) -> Vec<OfferedMove> {
        let mut expected = Vec::new();
        let mut disturbances = Vec::new();
        let mut unawaited = Vec::new();

        match state.instance() {
            None => {
                self.starts(&mut expected);
                if permits_disturbances {
                    self.events(false, &mut disturbances);
                }
            }
            Some(instance) => {
                self.responses(state, step_states, &mut expected, &mut unawaited);
                self.tasks(state, &mut expected, &mut disturbances);
                self.ends(instance, &mut expected);
                let operator: &[_] = match (instance.paused, instance.status) {
                    (true, _) => &[OperatorAction::Resume],
                    (false, Status::Stuck) => &[
                        OperatorAction::Retry,
                        OperatorAction::Skip,
                        OperatorAction::ForceComplete,
                    ],
                    // A cancellation is a class of its own, and a pause only delays inputs.
                    (false, _) => &[],
                };
                expected.extend(operator.iter().cloned().map(SimulationStep::Operator));
                if permits_disturbances {
                    self.events(true, &mut disturbances);
                }
            }
        }

        let timers = next_timers(&state.runner.simulator, |timer| self.is_absolute(timer));
        let timers = timers
            .into_iter()
            .map(Move::Timer)
            .map(|timer| offered(timer, MoveClass::Expected));
        let of_class = |class| move |step: SimulationStep| offered(Move::Step(step), class);

        let cancel = state
            .instance()
            .filter(|instance| !instance.paused && !instance.status.is_final())
            .map(|_| SimulationStep::Operator(OperatorAction::Cancel("proof".to_owned())));

        timers
            .chain(expected.into_iter().map(of_class(MoveClass::Expected)))
            .chain(unawaited.into_iter().map(of_class(MoveClass::Unawaited)))
            .chain(
                disturbances
                    .into_iter()
                    .map(of_class(MoveClass::Disturbance)),
            )
            .chain(cancel.into_iter().map(of_class(MoveClass::Cancellation)))
            .collect()
    }

    /// Returns the moves of the work that is walked through: a compensation between its first and
    /// its last attempt. The other moves are made before and after, with the same result: they
    /// neither depend on the number of attempts nor change it. An armed timer of other work would
    /// restrict their order. Returns `None` if there is no such work, or if none of its moves is
    /// possible.
    pub(super) fn walked(&self, all: &[OfferedMove], step_states: &StepStates) -> Option<String> {
        let (unit, _) = step_states
            .iter()
            // At most one: compensations run one after another.
            .find(|(unit, state)| self.is_walked(unit, state, step_states))?;

        let tag = format!("compensate:{unit}");
        let is_timer = |offered: &OfferedMove| matches!(offered.proof_move, Move::Timer(_));
        let own = |offered: &OfferedMove| offered.proof_move.tag() == Some(tag.as_str());

        let applies =
            all.iter().any(own) && all.iter().filter(|offered| is_timer(offered)).all(own);
        applies.then_some(tag)
    }

    fn is_walked(&self, unit: &str, state: &str, step_states: &StepStates) -> bool {
        let step = step_of(self.definition, WorkTag::parse(unit).step);
        let compensation = step
            .and_then(|step| step.compensate.as_ref())
            .filter(|compensation| matches!(compensation.action, Action::Command(_)));
        let Some(max) =
            compensation.and_then(|compensation| compensation.retry.as_ref()?.max_attempts)
        else {
            return false;
        };

        let attempts = step_states.attempts(unit);
        match state {
            "compensating" => attempts > 1 && attempts < u64::from(max),
            // The next attempt must not be the last one, whose failure makes the instance stuck.
            "compensation_retrying" => attempts + 2 <= u64::from(max),
            _ => false,
        }
    }

    /// Returns results of work that is not pending: after a crash, work can be executed again. `of`
    /// limits them to the work of one tag.
    pub(super) fn second_results(&self, state: &ProofState, of: Option<&str>) -> Vec<Move> {
        let requested = state
            .entry()
            .into_iter()
            .flat_map(SimulatedInstance::requested_work);

        let settled = requested.filter(|(tag, requested)| {
            of.is_none_or(|of| tag.as_str() == of)
                && !is_pending(state, requested.item.id)
                && self.has_result(tag.as_str())
        });

        settled
            .flat_map(|(tag, _)| [ok(tag, None, self.payloads.usual()), rejection(tag)])
            .map(Move::Step)
            .collect()
    }

    /// Returns whether a result completes the work of a tag, not an event.
    pub(super) fn has_result(&self, tag: &str) -> bool {
        let source = response_spec(self.definition, tag).map(|spec| spec.source);
        matches!(
            source,
            Some(ResponseSource::Acceptance | ResponseSource::Outcome)
        )
    }

    /// Adds the events that end an instance which stays active, when it waits for nothing else.
    fn ends(&self, instance: &Instance, moves: &mut Vec<SimulationStep>) {
        if !self.definition.keep_active {
            return;
        }

        let kinds = self
            .definition
            .on
            .iter()
            .filter(|on| on.then != AfterHandler::Continue)
            .flat_map(|on| &on.event)
            .filter(|kind| {
                let mut waits = instance
                    .waits
                    .iter()
                    .filter(|wait| wait.kind == WaitKind::Event);
                waits.any(|wait| wait.name.as_str() == kind.as_str())
            });
        for kind in kinds {
            moves.extend(
                self.payloads
                    .of_event(kind)
                    .iter()
                    .flat_map(|data| self.deliveries(kind, data)),
            );
        }
    }

    fn starts(&self, moves: &mut Vec<SimulationStep>) {
        let starts = self
            .program
            .manifest()
            .subscriptions
            .iter()
            .filter(|subscription| subscription.starts);
        for kind in starts.map(|subscription| &subscription.kind) {
            moves.extend(
                self.payloads
                    .of_start()
                    .iter()
                    .flat_map(|data| self.deliveries(kind, data)),
            );

            let Some(versions) = self.definition.events.get(kind) else {
                continue;
            };
            // Each accepted version takes another path through the upcasts.
            for version in versions.accepts.iter().filter(|version| **version != 1) {
                let event = EventStep {
                    version: *version,
                    ..event(kind, self.payloads.usual())
                };
                moves.push(SimulationStep::Event(event));
            }
        }
    }

    /// Adds events that no step waits for. Before the start they are early; a start event is then
    /// none of them.
    fn events(&self, started: bool, moves: &mut Vec<SimulationStep>) {
        for subscription in &self.program.manifest().subscriptions {
            // A start event before the start is an expected move and no disturbance.
            if subscription.starts && !started {
                continue;
            }
            let kind = &subscription.kind;
            moves.extend(
                self.payloads
                    .of_event(kind)
                    .iter()
                    .flat_map(|data| self.deliveries(kind, data)),
            );

            if started && self.is_addressed(kind) {
                moves.push(SimulationStep::Signal {
                    kind: kind.clone(),
                    data: self.payloads.usual(),
                });
            }
        }
    }

    /// Returns the event with each combination of the attributes that expressions read.
    fn deliveries(&self, kind: &EventType, data: &Value) -> impl Iterator<Item = SimulationStep> {
        let events = self
            .payloads
            .envelopes
            .combinations(&event(kind, data.clone()));
        events.into_iter().map(SimulationStep::Event)
    }

    /// Returns whether a handler or a step waits for an event that no work causes. Signals have
    /// these types.
    fn is_addressed(&self, kind: &EventType) -> bool {
        let awaits = |step: &Step| match &step.action {
            Action::Event(event) => event.events.contains(kind),
            _ => false,
        };
        self.definition.on.iter().any(|on| on.event.contains(kind))
            || self.definition.steps.iter().any(awaits)
    }

    fn responses(
        &self,
        state: &ProofState,
        step_states: &StepStates,
        moves: &mut Vec<SimulationStep>,
        unawaited: &mut Vec<SimulationStep>,
    ) {
        for (tag, requested) in state
            .entry()
            .into_iter()
            .flat_map(SimulatedInstance::requested_work)
        {
            let timers = state
                .instance()
                .map_or(&[][..], |instance| &instance.timers);

            let pending = PendingResponse {
                tag,
                work: &requested.item.work,
                is_open: !requested.completed && is_pending(state, requested.item.id),
                has_timer: timers.iter().any(|timer| timer.name == *tag),
            };

            match response_spec(self.definition, tag.as_str()) {
                Some(spec) if spec.source == ResponseSource::Event => {
                    if awaits_event(tag.as_str(), step_states) {
                        self.events_of(tag, &spec, moves);
                    }
                    // A rejection of a command that an event confirms may never arrive, so it is no
                    // progress.
                    pending.failures(unawaited);
                }
                Some(spec) if step_states.awaits(tag.as_str()) => {
                    self.results(&pending, &spec, moves);
                }
                Some(spec) => self.results(&pending, &spec, unawaited),
                // The result of a reminder is not awaited, and may never arrive.
                None if pending.is_open && is_reminder(tag.as_str()) => {
                    unawaited.extend([ok(tag, None, self.payloads.usual()), rejection(tag)]);
                }
                // The work of a handler has no step, but its open child sagas can hold up the end.
                None if pending.is_open => {
                    moves.extend([ok(tag, None, self.payloads.usual()), rejection(tag)]);
                }
                None => {}
            }
        }

        // A step that waits for an event requests no work.
        for (tag, _) in step_states
            .iter()
            .filter(|(tag, state)| is_in_progress(state) && !step_states.has_elements(tag))
        {
            let step = step_of(self.definition, WorkTag::parse(tag).step);
            if !step.is_some_and(|step| matches!(step.action, Action::Event(_))) {
                continue;
            }

            if let (Some(spec), Ok(name)) = (response_spec(self.definition, tag), Name::new(tag)) {
                self.events_of(&name, &spec, moves);
            }
        }
    }

    /// Adds the results of work that a result completes.
    fn results(
        &self,
        pending: &PendingResponse<'_>,
        spec: &ResponseSpec<'_>,
        moves: &mut Vec<SimulationStep>,
    ) {
        let tag = pending.tag;
        match spec.source {
            ResponseSource::Acceptance if pending.is_open => moves.push(ok(tag, None, Value::Null)),
            ResponseSource::Outcome if pending.is_open => {
                let payloads = self.payloads.of_step(WorkTag::parse(tag.as_str()).step);
                moves.extend(payloads.iter().map(|data| ok(tag, None, data.clone())));
                moves.extend(
                    spec.ok
                        .iter()
                        .map(|(name, _)| ok(tag, Some(name), self.payloads.usual())),
                );
                moves.extend(
                    spec.fail
                        .iter()
                        .map(|(name, _)| failure(tag, name, self.payloads.usual())),
                );
            }
            ResponseSource::Acceptance
            | ResponseSource::Outcome
            | ResponseSource::Event
            | ResponseSource::User
            | ResponseSource::Timer
            | ResponseSource::None => return,
        }
        pending.failures(moves);
    }

    fn events_of(&self, tag: &Name, spec: &ResponseSpec<'_>, moves: &mut Vec<SimulationStep>) {
        let payloads = self.payloads.of_step(WorkTag::parse(tag.as_str()).step);
        for (name, _) in &spec.ok {
            moves.extend(
                payloads
                    .iter()
                    .map(|data| ok(tag, Some(name), data.clone())),
            );
        }
        for (name, _) in &spec.fail {
            moves.extend(payloads.iter().map(|data| failure(tag, name, data.clone())));
        }
    }

    /// Adds the decisions about open tasks. An effect that was not executed is requested again,
    /// without a limit: this decision is a disturbance.
    fn tasks(
        &self,
        state: &ProofState,
        expected: &mut Vec<SimulationStep>,
        disturbances: &mut Vec<SimulationStep>,
    ) {
        for task in state.entry().into_iter().flat_map(SimulatedInstance::tasks) {
            let payloads = self
                .payloads
                .of_step(WorkTag::parse(task.spec.tag.as_str()).step);
            for outcome in &task.spec.outcomes {
                let moves = if outcome.as_str() == NOT_EXECUTED {
                    &mut *disturbances
                } else {
                    &mut *expected
                };
                moves.extend(payloads.iter().map(|data| SimulationStep::Task {
                    tag: task.spec.tag.to_string(),
                    outcome: Some(outcome.clone()),
                    user: None,
                    data: data.clone(),
                }));
            }
        }
    }
}

/// Returns whether the instance waits for the result of a work item.
fn is_pending(state: &ProofState, work_id: Uuid) -> bool {
    let pending = state
        .instance()
        .map_or(&[][..], |instance| &instance.pending_work);
    pending.iter().any(|work| work.id == work_id)
}

/// Work whose response is known or not.
struct PendingResponse<'s> {
    tag: &'s Name,
    work: &'s Work,
    is_open: bool,
    has_timer: bool,
}

impl PendingResponse<'_> {
    /// Adds the failures that no definition names: a rejection, and an unknown outcome.
    fn failures(&self, moves: &mut Vec<SimulationStep>) {
        if !self.is_open {
            return;
        }

        moves.push(rejection(self.tag));

        let tag = self.tag.to_string();
        // Only effects are in doubt. Other work times out by its timer, or without one by its
        // result.
        if matches!(self.work, Work::Effect(_)) {
            moves.push(SimulationStep::InDoubt { tag });
        } else if !self.has_timer {
            moves.push(SimulationStep::Timeout { tag });
        }
    }
}

/// Returns whether the event of a step or a compensation can still arrive for the first time.
fn awaits_event(tag: &str, step_states: &StepStates) -> bool {
    if let Some(step) = tag.strip_prefix("compensate:") {
        return is_compensation(step_states.get(step));
    }
    let state = step_states.get(tag);
    // Its event can still arrive late, after the step failed or was abandoned.
    is_in_progress(state) || matches!(state, "failed" | "abandoned")
}

fn offered(proof_move: Move, class: MoveClass) -> OfferedMove {
    OfferedMove { proof_move, class }
}

fn event(kind: &EventType, data: Value) -> EventStep {
    EventStep {
        correlation: Some(CORRELATION.to_owned()),
        ..EventStep::new(kind.clone(), data)
    }
}

fn ok(tag: &Name, event: Option<&EventType>, data: Value) -> SimulationStep {
    SimulationStep::Ok {
        tag: tag.to_string(),
        event: event.cloned(),
        data,
    }
}

fn failure(tag: &Name, event: &EventType, data: Value) -> SimulationStep {
    SimulationStep::Fail {
        tag: tag.to_string(),
        event: Some(event.clone()),
        code: None,
        message: None,
        data,
    }
}

fn rejection(tag: &Name) -> SimulationStep {
    SimulationStep::Fail {
        tag: tag.to_string(),
        event: None,
        code: Some("rejected".to_owned()),
        message: None,
        data: Value::Null,
    }
}
