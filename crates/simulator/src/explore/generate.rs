//! Generator of the next step: mostly responses to pending work, sometimes another input.

use std::time::Duration;

use fastrand::Rng;
use orlog_model::{EventType, Instance, Name, Status, WaitKind, Work};
use orlog_program::in_doubt::{EXECUTED, NOT_EXECUTED};
use orlog_program::{Action, CompiledDefinition, Definition, Program};
use serde_json::Value;

use super::samples::PayloadSamples;
use crate::invariants::{StepStates, is_compensation, is_in_doubt, is_in_progress};
use crate::responses::{ResponseSource, WorkTag, is_reminder, opens_in_doubt_task, response_spec};
use crate::runner::ScenarioRunner;
use crate::simulator::SimulatedInstance;
use crate::step::{EventStep, OperatorAction, SimulationStep};

/// State that determines the next step.
pub(super) struct StepGenerator<'a> {
    pub(super) program: &'a dyn Program,
    pub(super) samples: &'a PayloadSamples,
    pub(super) runner: &'a ScenarioRunner,
    /// Whether most inputs are successful, so that runs reach late steps.
    pub(super) mostly_successful: bool,
}

impl StepGenerator<'_> {
    /// Returns the next step.
    pub(super) fn next_step(&self, rng: &mut Rng) -> SimulationStep {
        let instance = self
            .runner
            .instance()
            .and_then(|key| self.runner.simulator.instance(key));
        let Some(instance) = instance else {
            return self.start_step(rng);
        };

        let step_states = StepStates::of(self.program, Some(instance));

        // A mostly successful run has a tenth of the faults.
        let roll = if self.mostly_successful && rng.u8(0..10) > 0 {
            0
        } else {
            rng.u8(0..100)
        };

        // Only an operator continues an instance that is paused or stuck.
        let chosen = match (instance.paused, instance.status) {
            (true, _) if roll < 60 => Some(SimulationStep::Operator(OperatorAction::Resume)),
            (false, Status::Stuck) if roll < 60 => Some(Self::operator_decision(rng)),
            _ => None,
        };

        chosen.unwrap_or_else(|| match roll {
            0..=59 => self
                .response(&step_states, rng)
                .or_else(|| self.idle_event(instance, rng))
                .unwrap_or_else(|| self.advance_step(rng)),
            60..=69 => self
                .late_response(&step_states, rng)
                .unwrap_or_else(|| self.advance_step(rng)),
            70..=81 => self.advance_step(rng),
            82..=87 => SimulationStep::Duplicate,
            88..=93 => self.any_event(rng),
            94..=95 => self.signal(rng),
            96..=97 => SimulationStep::Operator(OperatorAction::Cancel("explored".to_owned())),
            98 => SimulationStep::Operator(OperatorAction::Pause),
            _ => Self::operator_decision(rng),
        })
    }

    /// Starts the instance; sometimes an early event precedes the start event.
    fn start_step(&self, rng: &mut Rng) -> SimulationStep {
        if rng.u8(0..10) == 0 {
            return self.any_event(rng);
        }

        let starts: Vec<_> = self
            .program
            .manifest()
            .subscriptions
            .iter()
            .filter(|subscription| subscription.starts)
            .map(|subscription| subscription.kind.clone())
            .collect();
        match rng.choice(starts) {
            Some(kind) => self.event(kind, rng),
            None => self.any_event(rng),
        }
    }

    fn operator_decision(rng: &mut Rng) -> SimulationStep {
        SimulationStep::Operator(match rng.u8(0..8) {
            0..=4 => OperatorAction::Retry,
            5..=6 => OperatorAction::Skip,
            _ => OperatorAction::ForceComplete,
        })
    }

    fn event(&self, kind: EventType, rng: &mut Rng) -> SimulationStep {
        let mut event = EventStep::new(kind, self.samples.payload(rng));

        // All events concern the instance under test.
        event.correlation = Some("o1".to_owned());
        self.samples.envelopes.set_random(&mut event, rng);

        if let Some(event_spec) = self
            .definition()
            .and_then(|definition| definition.events.get(&event.kind))
        {
            // Also a version that the definition does not accept.
            let known = event_spec
                .accepts
                .iter()
                .chain(event_spec.upcast.keys())
                .copied();
            let unknown = event_spec.accepts.iter().max().copied().unwrap_or(1) + 1;

            event.version = rng
                .choice(known.chain([unknown]).collect::<Vec<_>>())
                .unwrap_or(1);
        }

        SimulationStep::Event(event)
    }

    /// Returns an event that the program consumes, at any time.
    fn any_event(&self, rng: &mut Rng) -> SimulationStep {
        let kinds = self
            .program
            .manifest()
            .subscriptions
            .iter()
            .map(|subscription| subscription.kind.clone());

        match rng.choice(kinds.collect::<Vec<_>>()) {
            Some(kind) => self.event(kind, rng),
            None => self.advance_step(rng),
        }
    }

    /// Returns an event for an instance that stays active and whose steps have finished; half of
    /// them may end it.
    pub(super) fn idle_event(&self, instance: &Instance, rng: &mut Rng) -> Option<SimulationStep> {
        let ends: Vec<_> = instance
            .waits
            .iter()
            .filter(|wait| wait.kind == WaitKind::Event)
            .filter_map(|wait| EventType::new(wait.name.as_str()).ok())
            .collect();

        let is_idle = self
            .definition()
            .is_some_and(|definition| definition.keep_active)
            && !ends.is_empty();
        if !is_idle {
            return None;
        }

        if rng.bool() {
            Some(self.any_event(rng))
        } else {
            rng.choice(ends).map(|kind| self.event(kind, rng))
        }
    }

    /// Returns the tags of the child sagas of event handlers that have not ended.
    pub(super) fn open_children(&self) -> Vec<String> {
        self.open_work(|tag, work| {
            matches!(work, Work::StartChild(_)) && tag.as_str().starts_with("on:")
        })
    }

    /// Returns the tags of the reminders without a result.
    fn open_reminders(&self) -> Vec<String> {
        self.open_work(|tag, _| is_reminder(tag.as_str()))
    }

    /// Returns the tags of the work without a result for which the condition holds.
    fn open_work(&self, is_wanted: impl Fn(&Name, &Work) -> bool) -> Vec<String> {
        let instance = self
            .runner
            .instance()
            .and_then(|key| self.runner.simulator.simulated_instance(key));
        let requested = instance
            .into_iter()
            .flat_map(SimulatedInstance::requested_work);

        requested
            .filter(|(tag, work)| !work.completed && is_wanted(tag, &work.item.work))
            .map(|(tag, _)| tag.to_string())
            .collect()
    }

    fn signal(&self, rng: &mut Rng) -> SimulationStep {
        let kinds = self
            .program
            .manifest()
            .subscriptions
            .iter()
            .map(|subscription| subscription.kind.clone());

        match rng.choice(kinds.collect::<Vec<_>>()) {
            Some(kind) => SimulationStep::Signal {
                kind,
                data: self.samples.payload(rng),
            },
            None => self.advance_step(rng),
        }
    }

    /// Advances to the next timer, or by some time.
    fn advance_step(&self, rng: &mut Rng) -> SimulationStep {
        let due = self
            .runner
            .simulator
            .next_due()
            .map(|due| due.duration_since(self.runner.simulator.now()));

        // A step can send many reminders before the timer that ends its wait.
        let mut timers = self.runner.simulator.armed_timers();
        let has_reminders = timers.any(|timer| is_reminder(timer.name.as_str()));
        if has_reminders
            && rng.bool()
            && let Some(time) = time_to_deciding_timer(self.runner)
        {
            return SimulationStep::Advance(time);
        }

        // Mostly to the exact time of a timer, which a random time would rarely meet.
        match due {
            Some(due) if rng.u8(0..10) < 6 => SimulationStep::Advance(due),
            Some(_) | None => SimulationStep::Advance(Duration::from_secs(rng.u64(0..7200))),
        }
    }

    /// Returns a response to pending work or to a pending compensation.
    fn response(&self, step_states: &StepStates, rng: &mut Rng) -> Option<SimulationStep> {
        let mut open = Vec::new();
        for (tag, state) in step_states.iter() {
            if step_states.has_elements(tag) {
                continue;
            }
            let response = if is_in_progress(state) || is_in_doubt(state) {
                (tag.to_owned(), is_in_doubt(state))
            } else if is_compensation(state) {
                (format!("compensate:{tag}"), false)
            } else {
                continue;
            };

            // Work has one result. Only the decision of an operator can follow it.
            let (tag, in_doubt) = &response;
            if *in_doubt || !self.has_result(tag) {
                open.push(response);
            }
        }
        open.extend(self.open_children().into_iter().map(|tag| (tag, false)));

        let (tag, in_doubt) = rng.choice(open)?;
        Some(if in_doubt {
            self.in_doubt_decision(tag, rng)
        } else {
            self.any_response(tag, rng)
        })
    }

    /// Returns the decision of an operator about an effect in doubt.
    pub(super) fn in_doubt_decision(&self, tag: String, rng: &mut Rng) -> SimulationStep {
        let decision = if rng.u8(0..3) > 0 {
            EXECUTED
        } else {
            NOT_EXECUTED
        };

        let outcome = Some(EventType::new(decision).expect("the decision is a valid event type"));
        SimulationStep::Task {
            tag,
            outcome,
            user: None,
            data: self.samples.payload(rng),
        }
    }

    fn any_response(&self, tag: String, rng: &mut Rng) -> SimulationStep {
        if self.can_be_in_doubt(&tag) && rng.u8(0..4) == 0 {
            return SimulationStep::InDoubt { tag };
        }

        // Fewer kinds: most failures and all timeouts are left out.
        let kinds = if self.mostly_successful { 14 } else { 20 };
        match rng.u8(0..kinds) {
            0..=12 => self.ok(tag, rng),
            13..=17 => self.fail(tag, rng),
            _ => SimulationStep::Timeout { tag },
        }
    }

    /// Returns a response to work that is no longer awaited.
    fn late_response(&self, step_states: &StepStates, rng: &mut Rng) -> Option<SimulationStep> {
        let mut late: Vec<_> = step_states
            .iter()
            .filter(|(_, state)| matches!(*state, "failed" | "abandoned" | "retrying"))
            .map(|(tag, _)| tag.to_owned())
            .filter(|tag| !self.has_result(tag))
            .collect();
        late.extend(self.open_reminders());
        let tag = rng.choice(late)?;

        Some(match rng.u8(0..4) {
            0 => SimulationStep::Timeout { tag },
            1 if self.can_be_in_doubt(&tag) => SimulationStep::InDoubt { tag },
            _ => self.ok(tag, rng),
        })
    }

    /// Returns whether the last work of the tag has its result: a work item has one.
    fn has_result(&self, tag: &str) -> bool {
        let source = self
            .definition()
            .and_then(|definition| response_spec(definition, tag))
            .map(|spec| spec.source);
        let by_result = matches!(
            source,
            Some(ResponseSource::Acceptance | ResponseSource::Outcome)
        );

        let instance = self
            .runner
            .instance()
            .and_then(|key| self.runner.simulator.simulated_instance(key));
        let work = instance.and_then(|instance| instance.requested_work_by_tag(tag));
        by_result && work.is_some_and(|work| work.completed)
    }

    /// Returns whether the tag can be in doubt. If the definition requires no decision, an unknown
    /// outcome is a timeout.
    fn can_be_in_doubt(&self, tag: &str) -> bool {
        self.definition()
            .is_some_and(|definition| opens_in_doubt_task(definition, tag))
    }

    pub(super) fn ok(&self, tag: String, rng: &mut Rng) -> SimulationStep {
        let spec = self
            .definition()
            .and_then(|definition| response_spec(definition, &tag));
        let source = spec
            .as_ref()
            .map_or(ResponseSource::Outcome, |spec| spec.source);
        let names = spec
            .into_iter()
            .flat_map(|spec| spec.ok)
            .map(|(event, _)| event.clone());
        let event = rng.choice(names.collect::<Vec<_>>());
        let data = self.samples.payload(rng);

        match source {
            ResponseSource::User => SimulationStep::Task {
                tag,
                outcome: event,
                user: None,
                data,
            },
            ResponseSource::Event => SimulationStep::Ok { tag, event, data },
            // The handler names no event: the conditions decide.
            ResponseSource::Acceptance
            | ResponseSource::Outcome
            | ResponseSource::Timer
            | ResponseSource::None => SimulationStep::Ok {
                tag,
                event: None,
                data,
            },
        }
    }

    fn fail(&self, tag: String, rng: &mut Rng) -> SimulationStep {
        let spec = self
            .definition()
            .and_then(|definition| response_spec(definition, &tag));
        let source = spec
            .as_ref()
            .map_or(ResponseSource::Outcome, |spec| spec.source);
        let names = spec
            .into_iter()
            .flat_map(|spec| spec.fail)
            .map(|(event, _)| event.clone());
        let event = rng.choice(names.collect::<Vec<_>>());
        let data = self.samples.payload(rng);

        match source {
            ResponseSource::User => SimulationStep::Task {
                tag,
                outcome: event,
                user: None,
                data,
            },
            ResponseSource::Event if event.is_some() && rng.bool() => SimulationStep::Fail {
                tag,
                event,
                code: None,
                message: None,
                data,
            },
            ResponseSource::Event
            | ResponseSource::Acceptance
            | ResponseSource::Outcome
            | ResponseSource::Timer
            | ResponseSource::None => SimulationStep::Fail {
                tag,
                event: None,
                code: Some("rejected".to_owned()),
                message: None,
                data: Value::Null,
            },
        }
    }

    fn definition(&self) -> Option<&Definition> {
        self.program
            .as_compiled()
            .map(CompiledDefinition::definition)
    }
}

/// Returns the time until the next timer that is no reminder.
pub(super) fn time_to_deciding_timer(runner: &ScenarioRunner) -> Option<Duration> {
    let timers = runner.simulator.armed_timers();
    let deciding = timers.filter(|timer| !is_reminder(timer.name.as_str()));
    let due = deciding.map(|timer| timer.due).min()?;
    Some(due.duration_since(runner.simulator.now()))
}

/// Returns whether a tag waits only for a timer.
pub(super) fn waits_for_time(definition: Option<&Definition>, tag: &str) -> bool {
    let tag = WorkTag::parse(tag);
    let step = definition.and_then(|definition| crate::responses::step_of(definition, tag.step));
    step.is_some_and(|step| matches!(step.action, Action::Wait(_)))
}
