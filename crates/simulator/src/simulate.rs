//! Simulation of recorded events against definitions in virtual time.
//!
//! Events are applied in the order of their times. Timers fire in between, each at its due time. A
//! policy responds immediately to effects, jobs and accepted commands. A command that is completed
//! by an event gets it from the recording, or from the policy if the policy names one. Memory holds
//! one snapshot per instance, and nothing else of ended instances.

mod compare;
mod report;
mod responses;

use std::sync::Arc;
use std::time::Duration;

use orlog_engine::Decision;
use orlog_model::{Event, Input, InstanceKey, Timestamp, WorkItem};
use orlog_program::document::Document;
use serde_json::Value;

use crate::simulator::{
    DecisionObserver, InputResult, ObservedDecision, Simulator, SimulatorPrograms,
};

pub use compare::{InstanceDiff, SimulationDiff, compare};
use report::SimulationCounters;
pub use report::{DurationStats, SimulationReport, ViolationCount};
pub use responses::{ResponsePolicy, SimulatedResponse};

/// Maximum number of consecutive responses without an event or a timer between them. Stops sagas
/// that loop.
const MAX_RESPONSES: usize = 10_000;

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct SimulateOptions {
    /// Response policy.
    pub responses: ResponsePolicy,
    /// How long time continues after the last event.
    pub run_on_for: Duration,
    /// Whether to record the requested work of each instance, for [`compare`].
    pub record_work: bool,
}

/// Parses a duration in the notation of definitions: `61d`, `1h30m`.
///
/// # Errors
/// The text is not a duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let document =
        Document::read(&Value::from(text).to_string(), "").map_err(|problem| problem.message)?;
    document
        .root()
        .duration()
        .map_err(|problem| problem.message)
}

/// Simulates events, which are ordered by time, and returns the report.
#[must_use]
pub fn simulate(
    programs: Arc<SimulatorPrograms>,
    events: &[Event],
    options: &SimulateOptions,
) -> SimulationReport {
    let start = events
        .first()
        .map_or(Timestamp::default(), |event| event.time);
    let simulator = Simulator::new(programs, start).without_history();
    let mut run = SimulateRun {
        simulator,
        responses: &options.responses,
        counters: SimulationCounters::new(options.record_work),
        stopped: None,
    };

    let mut simulated = 0;
    for event in events {
        run.wait_until(event.time);
        if run.stopped.is_some() {
            break;
        }
        run.publish(event);
        simulated += 1;
    }

    let end = run.simulator.now().saturating_add(options.run_on_for);
    run.wait_until(end);
    SimulationReport {
        stopped: run.stopped,
        ..run.counters.finish(&run.simulator, simulated)
    }
}

struct SimulateRun<'a> {
    simulator: Simulator,
    responses: &'a ResponsePolicy,
    counters: SimulationCounters,
    /// Why the simulation ended early.
    stopped: Option<String>,
}

impl DecisionObserver for SimulationCounters {
    fn on_decision(&mut self, seen: &ObservedDecision<'_>) {
        match seen.decision {
            Decision::Commit(commit) => {
                if let Some(dead_letter) = &commit.dead_letter {
                    self.dead_lettered(dead_letter.reason.as_str(), &dead_letter.message);
                }
                // The timer of a paused instance is only buffered: its commit has no snapshot.
                if let (Input::Timer(timer), Some(_)) = (seen.input, &commit.instance) {
                    self.timer_fired(timer.name.as_str());
                }
                self.work_requested(seen.context.key, &commit.work);
                self.instance_changed(seen.context.instance, commit.instance.as_deref());
                let program = seen.context.program;
                if let Some(ended) = seen.run_end {
                    self.check_invariants(seen.context.key, program, ended);
                }
                if let Some(after) = &commit.instance {
                    self.check_invariants(seen.context.key, program, after);
                }
            }
            Decision::Ignore { reason, .. } if matches!(seen.input, Input::Event(_)) => {
                self.ignored(reason);
            }
            Decision::Ignore { .. } | Decision::Reject(_) => {}
        }
    }
}

impl SimulateRun<'_> {
    /// Advances the time. All follow-ups of a timer get responses before the next timer fires.
    fn wait_until(&mut self, time: Timestamp) {
        // Of all advances together: each of them ends at the next timer.
        let limit = self.simulator.timer_limit();
        let mut fired = 0;
        while self.stopped.is_none()
            && let Some(due) = self.simulator.next_due().filter(|due| *due <= time)
        {
            fired += self.simulator.advance_to(due, &mut self.counters);
            self.respond();

            if fired > limit {
                self.stopped = Some(format!(
                    "more than {limit} timers fired without an event between them, the last ones \
                     at {due}: a saga continues without end; give it a step that waits"
                ));
            }
        }
        if self.stopped.is_some() {
            return;
        }
        // No timer is due any more, so this only advances the time.
        self.simulator.advance_to(time, &mut self.counters);
    }

    fn publish(&mut self, event: &Event) {
        let results = self.simulator.publish(event, &mut self.counters);
        if results.is_empty() {
            self.counters.ignored("no definition consumes the event");
        }

        for result in &results {
            match result {
                Err((_, message)) => self.counters.dead_lettered("schema_mismatch", message),
                // The simulator finds a duplicate before the decision, so the observer does not see
                // it.
                Ok((_, InputResult::Ignored(reason))) if reason == crate::simulator::DUPLICATE => {
                    self.counters.ignored(reason);
                }
                Ok(_) => {}
            }
        }
        self.respond();
    }

    fn respond(&mut self) {
        for _ in 0..MAX_RESPONSES {
            // A response can request further work, which joins the same queue.
            let Some((key, item)) = self.counters.next_pending() else {
                return self.stop_if_endless();
            };
            if let Some(input) = self.reply(&key, &item) {
                self.simulator.deliver(&key, &input, &mut self.counters);
            }
        }

        if let Some((key, _)) = self.counters.next_pending() {
            self.stopped = Some(format!(
                "{MAX_RESPONSES} responses caused further work without an event or a timer between \
                 them, the last one of {}/{}: the saga continues without end",
                key.saga, key.correlation
            ));
        }
        self.stop_if_endless();
    }

    fn stop_if_endless(&mut self) {
        if self.stopped.is_none() {
            self.stopped = self.simulator.endless().map(ToString::to_string);
        }
    }

    fn reply(&self, key: &InstanceKey, item: &WorkItem) -> Option<Input> {
        let requested = self
            .simulator
            .simulated_instance(key)?
            .requested_work_by_tag(item.work.tag()?.as_str())?;

        let awaits_event = self
            .simulator
            .programs()
            .of(&key.saga)
            .is_some_and(|program| responses::awaits_event(program.as_ref(), item));
        self.responses
            .response_to(requested, awaits_event, self.simulator.now())
    }
}

#[cfg(test)]
mod tests;
