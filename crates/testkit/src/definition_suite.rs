//! Definition suite: four checks that every saga definition must pass.
//!
//! 1. Every input is delivered twice; the second delivery changes nothing.
//! 2. Every step fails in turn, in every possible way. Completed steps are compensated in reverse, or a
//!    join does not need the step, or after a pivot an operator skips it.
//! 3. The same with every compensation confirmed twice.
//! 4. At the end nothing is left: no timer, no wait, no pending work.
//!
//! If an operator decides about steps in doubt, the suite covers these decisions too: executed, not
//! executed, and both during compensation.
//!
//! [`check`] runs all four checks on any compiled definition. [`InstanceDriver`] is one instance that a
//! test controls.

mod driver;
mod ends;
mod outcomes;
mod responses;
mod samples;

use orlog_model::{EventType, InDoubtPolicy, Status};
use orlog_program::in_doubt::{EXECUTED, NOT_EXECUTED};
use orlog_program::{Action, CompiledDefinition, Definition, Program as _, Step};
use serde_json::Value;

pub use driver::InstanceDriver;
pub use outcomes::{failed, in_doubt, succeeded};
use responses::PendingTag;
pub use responses::{
    confirm_compensation, is_in_doubt, pending_tags, resolve_in_doubt, respond_fail, respond_ok,
};
pub use samples::PayloadSamples;

/// Failure of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepFailure {
    /// The gateway or the provider rejects the work, or the child saga fails.
    Rejected,
    /// Event or outcome of failure.
    Event(EventType),
    /// No response in time.
    NoResponse,
}

/// Report of the definition suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuiteReport {
    /// Number of instances that reached their end.
    pub runs: usize,
    /// Number of applied inputs.
    pub inputs: usize,
}

/// Runs the suite with payloads derived from the expressions of the definition.
///
/// # Panics
/// If the definition fails a check; the message contains the location.
#[track_caller]
#[expect(
    clippy::must_use_candidate,
    reason = "called for its panics; the counts are optional"
)]
pub fn check(saga: &CompiledDefinition) -> SuiteReport {
    check_with(saga, &PayloadSamples::of(saga.definition()))
}

/// Runs the suite with these payloads.
///
/// # Panics
/// If the definition fails a check; the message contains the location.
#[track_caller]
#[expect(
    clippy::must_use_candidate,
    reason = "called for its panics; the counts are optional"
)]
pub fn check_with(saga: &CompiledDefinition, samples: &PayloadSamples) -> SuiteReport {
    let mut report = SuiteReport::default();
    for start in &saga.definition().start {
        let scenario = SuiteScenario {
            saga,
            start,
            samples,
        };
        scenario.each_input_twice(&mut report);
        for step in &saga.definition().steps {
            for failure in step_failures(step) {
                scenario.fail_at(step, &failure, Delivery::Once, &mut report);
                scenario.fail_at(step, &failure, Delivery::Twice, &mut report);
            }
            if step.in_doubt == Some(InDoubtPolicy::Ask) {
                for decision in [EXECUTED, NOT_EXECUTED] {
                    scenario.check_in_doubt(step, decision, &mut report);
                    scenario.check_in_doubt_when_cancelled(step, decision, &mut report);
                }
            }
        }
    }
    report
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Delivery {
    Once,
    Twice,
}

/// Returns the possible failures of a step.
fn step_failures(step: &Step) -> Vec<StepFailure> {
    let events = || {
        step.fail
            .iter()
            .map(|reply| StepFailure::Event(reply.event.clone()))
    };
    let mut step_failures = match &step.action {
        Action::Wait(_) | Action::Switch(_) | Action::Repeat(_) | Action::Restart(_) => {
            return Vec::new();
        }
        Action::Event(_) | Action::Human(_) => events().collect(),
        Action::Command(_) if step.ok.is_empty() => vec![StepFailure::Rejected],
        Action::Command(_) => std::iter::once(StepFailure::Rejected)
            .chain(events())
            .collect(),
        Action::Effect(_) | Action::Saga(_) | Action::Job(_) => vec![StepFailure::Rejected],
    };
    step_failures.extend(step.timeout.as_ref().map(|_| StepFailure::NoResponse));
    step_failures
}

/// Program, definition and payloads of an instance.
struct SuiteScenario<'a> {
    saga: &'a CompiledDefinition,
    start: &'a EventType,
    samples: &'a PayloadSamples,
}

/// Maximum number of inputs; greater than the number of steps and elements of the largest definition.
const MAX_INPUTS: usize = 100_000;

impl<'a> SuiteScenario<'a> {
    fn definition(&self) -> &'a Definition {
        self.saga.definition()
    }

    fn start_run(&self) -> InstanceDriver<'a> {
        let mut run = InstanceDriver::new(self.saga);
        if let Err(reason) = run.event(self.start.as_str(), self.samples.start(self.start)) {
            panic!("{} does not start an instance: {reason}", self.start);
        }
        run
    }

    /// Completes the action of a tag; a step that waits for several events receives all of them.
    fn reply(&self, run: &mut InstanceDriver<'_>, tag: &str) -> Result<String, String> {
        let mut note = respond_ok(run, self.saga, tag, self.samples)?;
        let open = PendingTag::of(self.definition(), tag);
        let collects = open
            .is_some_and(|open| matches!(open.action(), Action::Event(event) if event.collects()));
        while collects
            && pending_tags(run, self.definition())
                .iter()
                .any(|pending| pending == tag)
        {
            note = respond_ok(run, self.saga, tag, self.samples)?;
        }
        Ok(note)
    }

    /// Runs to the end with each response delivered twice.
    fn each_input_twice(&self, report: &mut SuiteReport) {
        let mut run = self.start_run();
        let before = run.state().to_vec();
        if self.saga.only_starts(self.start) {
            run.event(self.start.as_str(), self.samples.start(self.start))
                .expect_err("a second start event changes nothing");
            assert_eq!(
                run.state(),
                before,
                "a second {} changed the state",
                self.start
            );
        }
        while let Some(tag) = pending_tags(&run, self.definition()).first().cloned() {
            self.reply(&mut run, &tag)
                .unwrap_or_else(|reason| panic!("{tag} cannot succeed: {reason}"));
            if self.is_awaited_elsewhere(&run, &tag) {
                continue;
            }
            let before = run.state().to_vec();
            let second = self.reply(&mut run, &tag);
            assert!(
                second.is_err(),
                "a second response to {tag} was applied: {second:?}"
            );
            assert_eq!(
                run.state(),
                before,
                "a second response to {tag} changed the state"
            );
        }
        ends::end_active(&mut run, self.definition(), self.samples);
        let saga = &self.saga.definition_ref().saga;
        assert_eq!(
            run.status(),
            Status::Completed,
            "{saga}: {} does not lead to completion: {}",
            self.start,
            run.state_view()
        );
        assert_nothing_remains(&run, "after completion");
        count(&run, report);
    }

    /// Returns whether another step waits for the event that completes a tag, so that a second delivery is
    /// no duplicate.
    fn is_awaited_elsewhere(&self, run: &InstanceDriver<'_>, tag: &str) -> bool {
        let Some(pending_tag) = PendingTag::of(self.definition(), tag).filter(PendingTag::by_event)
        else {
            return false;
        };
        let event = pending_tag.event();
        let others = pending_tags(run, self.definition());
        others
            .iter()
            .filter_map(|other| PendingTag::of(self.definition(), other))
            .any(|other| other.by_event() && other.event() == event)
    }

    /// Runs until that step is in progress. Returns its tag and the steps completed before, or `None` if
    /// the run does not reach it.
    fn run_to(
        &self,
        step: &Step,
        context: &str,
    ) -> Option<(InstanceDriver<'a>, String, Vec<String>)> {
        let mut run = self.start_run();
        let mut done = Vec::new();
        loop {
            let tags = pending_tags(&run, self.definition());
            let of_step = |tag: &&String| {
                PendingTag::of(self.definition(), tag)
                    .is_some_and(|open| !open.compensation && open.step.id == step.id)
            };
            if let Some(tag) = tags.iter().find(of_step) {
                return Some((run, tag.clone(), done));
            }
            let tag = tags.first()?;
            self.reply(&mut run, tag)
                .unwrap_or_else(|reason| panic!("{context}: {tag}: {reason}"));
            if !tag.starts_with("compensate:") {
                done.push(tag.clone());
            }
        }
    }

    /// Runs until that step is in progress and leaves it in doubt; a task for the operator opens once.
    fn leave_in_doubt(
        &self,
        step: &Step,
        context: &str,
    ) -> Option<(InstanceDriver<'a>, String, Vec<String>)> {
        let (mut run, tag, done) = self.run_to(step, context)?;
        run.outcome(&tag, &in_doubt())
            .unwrap_or_else(|reason| panic!("{context}: the step cannot be in doubt: {reason}"));
        assert!(
            is_in_doubt(&run, &tag),
            "{context}: the step is not in doubt: {}",
            run.state_view()
        );
        assert!(
            run.tasks().iter().any(|task| task.tag.as_str() == tag),
            "{context}: no task is open"
        );
        run.outcome(&tag, &in_doubt())
            .expect_err("a second in-doubt result changes nothing");
        Some((run, tag, done))
    }

    /// Checks the decision of an operator. If the effect was executed, the saga continues; otherwise it is
    /// requested once more.
    fn check_in_doubt(&self, step: &Step, decision: &str, report: &mut SuiteReport) {
        let context = format!(
            "{}, {} in doubt, {decision}",
            self.saga.definition_ref().saga,
            step.id
        );
        let Some((mut run, tag, mut done)) = self.leave_in_doubt(step, &context) else {
            return;
        };
        let work_count = run.work().len();
        if decision == EXECUTED {
            self.reply(&mut run, &tag)
                .unwrap_or_else(|reason| panic!("{context}: {reason}"));
            done.push(tag.clone());
        } else {
            deliver_decision(&mut run, &tag, decision, &context);
        }
        let repeated = run.work()[work_count..]
            .iter()
            .filter(|work| work.tag().is_some_and(|t| t.as_str() == tag));
        assert_eq!(
            repeated.count(),
            usize::from(decision == NOT_EXECUTED),
            "{context}: number of repeated requests"
        );
        self.run_to_the_end(&mut run, &mut done, Delivery::Once, &context);
        assert_eq!(run.status(), Status::Completed, "{context}");
        assert_nothing_remains(&run, &context);
        count(&run, report);
    }

    /// Checks the same for a saga that was cancelled meanwhile: it does not end before the decision, and an
    /// executed effect is compensated.
    fn check_in_doubt_when_cancelled(&self, step: &Step, decision: &str, report: &mut SuiteReport) {
        let context = format!(
            "{}, {} in doubt when cancelled, {decision}",
            self.saga.definition_ref().saga,
            step.id
        );
        let Some((mut run, tag, mut done)) = self.leave_in_doubt(step, &context) else {
            return;
        };
        if run.cancel("definition suite").is_err() {
            return;
        }
        for _ in 0..MAX_INPUTS {
            let Some(compensation) = pending_tags(&run, self.definition())
                .into_iter()
                .find(|t| t.starts_with("compensate:"))
            else {
                break;
            };
            self.reply(&mut run, &compensation)
                .unwrap_or_else(|reason| panic!("{context}: {compensation}: {reason}"));
        }
        assert_eq!(
            run.status(),
            Status::Compensating,
            "{context}: the saga ended before the decision"
        );
        if decision == EXECUTED {
            self.reply(&mut run, &tag)
                .unwrap_or_else(|reason| panic!("{context}: {reason}"));
        } else {
            deliver_decision(&mut run, &tag, decision, &context);
        }
        let compensation = format!("compensate:{tag}");
        let compensated = decision == EXECUTED && step.compensate.is_some();
        assert_eq!(
            run.compensated().contains(&compensation),
            compensated,
            "{context}: {compensation}"
        );
        self.run_to_the_end(&mut run, &mut done, Delivery::Once, &context);
        assert_eq!(run.status(), Status::Cancelled, "{context}");
        assert_nothing_remains(&run, &context);
        count(&run, report);
    }

    /// Runs until that step is in progress, fails it, and checks the result.
    fn fail_at(
        &self,
        step: &Step,
        failure: &StepFailure,
        times: Delivery,
        report: &mut SuiteReport,
    ) {
        let saga = &self.saga.definition_ref().saga;
        let context = format!(
            "{saga}, {} failing by {failure:?}, compensated {times:?}",
            step.id
        );
        let Some((mut run, tag, mut done)) = self.run_to(step, &context) else {
            return;
        };
        self.fail(&mut run, &tag, failure)
            .unwrap_or_else(|reason| panic!("{context}: the step cannot fail: {reason}"));
        let may_be_executed = matches!(step.action, Action::Command(_)) && !step.ok.is_empty();
        if may_be_executed && *failure == StepFailure::NoResponse {
            done.push(tag);
        }
        self.run_to_the_end(&mut run, &mut done, times, &context);
        ends::check_end(&run, self.definition(), &done, &context);
        assert_nothing_remains(&run, &context);
        count(&run, report);
    }

    /// Fails the step for every attempt.
    fn fail(
        &self,
        run: &mut InstanceDriver<'_>,
        tag: &str,
        failure: &StepFailure,
    ) -> Result<String, String> {
        loop {
            let note = match failure {
                StepFailure::Rejected => run.outcome(tag, &failed("rejected")),
                StepFailure::Event(kind) => respond_fail(run, self.saga, tag, kind, self.samples),
                StepFailure::NoResponse => {
                    let timeout = run
                        .time_until(tag)
                        .expect("only a step with a timeout fails without a response");
                    run.fire(tag, timeout)
                }
            }?;
            let retry_timer = format!("retry:{tag}");
            if !run.timers().contains(&retry_timer.as_str()) {
                return Ok(note);
            }
            run.fire(&retry_timer, std::time::Duration::from_hours(1))?;
        }
    }

    /// Confirms compensations one after another, skips stuck ones, and completes all other work.
    fn run_to_the_end(
        &self,
        run: &mut InstanceDriver<'_>,
        done: &mut Vec<String>,
        times: Delivery,
        context: &str,
    ) {
        for _ in 0..MAX_INPUTS {
            if run.status() == Status::Stuck {
                run.skip()
                    .unwrap_or_else(|reason| panic!("{context}: still stuck: {reason}"));
            }
            let tags = pending_tags(run, self.definition());
            let mut compensations = tags.iter().filter(|tag| tag.starts_with("compensate:"));
            let (compensation, another) = (compensations.next(), compensations.next());
            assert_eq!(another, None, "{context}: compensations are sequential");
            let Some(tag) = compensation.or_else(|| tags.first()) else {
                return ends::end_active(run, self.definition(), self.samples);
            };
            self.reply(run, tag)
                .unwrap_or_else(|reason| panic!("{context}: {tag}: {reason}"));
            if compensation.is_none() {
                done.push(tag.clone());
            } else if times == Delivery::Twice && !self.is_awaited_elsewhere(run, tag) {
                let before = run.state().to_vec();
                self.reply(run, tag)
                    .expect_err("a second confirmation changes nothing");
                assert_eq!(
                    run.state(),
                    before,
                    "{context}: a second confirmation of {tag} changed the state"
                );
            }
        }
        panic!("{context}: the saga does not end");
    }
}

/// Delivers the decision of an operator twice; the second delivery changes nothing.
fn deliver_decision(run: &mut InstanceDriver<'_>, tag: &str, decision: &str, context: &str) {
    resolve_in_doubt(run, tag, decision, Value::Null)
        .unwrap_or_else(|reason| panic!("{context}: {reason}"));
    let before = run.state().to_vec();
    resolve_in_doubt(run, tag, decision, Value::Null)
        .expect_err("a second decision changes nothing");
    assert_eq!(
        run.state(),
        before,
        "{context}: a second decision changed the state"
    );
}

fn assert_nothing_remains(run: &InstanceDriver<'_>, context: &str) {
    assert!(
        run.timers().is_empty(),
        "{context}: timers remain: {:?}",
        run.timers()
    );
    assert!(
        run.waits().is_empty(),
        "{context}: waits remain: {:?}",
        run.waits()
    );
}

fn count(run: &InstanceDriver<'_>, report: &mut SuiteReport) {
    report.runs += 1;
    report.inputs += run.inputs();
}
