//! Runs of a recording: with the definition of the live instance, and with the candidate.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use orlog_engine::{Decision, DecisionContext, decide};
use orlog_model::{
    ArmedTimer, Commit, ControlAction, ControlRequest, Event, Input, Instance, InstanceKey, Task,
    TaskEventKind, Timer, TimerFired, Timestamp, Work, WorkItem,
};
use orlog_program::Program;
use serde_json::{Value, json};
use uuid::Uuid;

use super::case::{Difference, MAX_OWN_TIMERS, ShadowCase};

const TOO_SLOW: &str = "the computation took too long";

/// Instance that is decided in memory, and all that it requested.
pub(super) struct Run<'a> {
    key: &'a InstanceKey,
    program: &'a dyn Program,
    pub(super) instance: Option<Instance>,
    pub(super) work: Vec<WorkItem>,
    pub(super) armed: Vec<Timer>,
    pub(super) tasks: Vec<Task>,
}

impl<'a> Run<'a> {
    fn new(key: &'a InstanceKey, program: &'a dyn Program) -> Self {
        Self {
            key,
            program,
            instance: None,
            work: Vec::new(),
            armed: Vec::new(),
            tasks: Vec::new(),
        }
    }

    fn decide(&self, now: Timestamp, input: &Input) -> Decision {
        let context = DecisionContext {
            key: self.key,
            instance: self.instance.as_ref(),
            program: self.program,
            now,
            node: "shadow",
            buffered: &[],
            history_payload_bytes: 0,
        };
        decide(&context, input)
    }

    fn follow(&mut self, commit: Commit) {
        if let Some(instance) = commit.instance {
            self.instance = Some(Arc::unwrap_or_clone(instance));
        }
        self.work.extend(commit.work);
        self.armed.extend(commit.arm);

        let opened = commit
            .tasks
            .into_iter()
            .filter(|task| task.event.kind == TaskEventKind::Opened);
        self.tasks.extend(opened.map(|task| task.row.task));
    }

    fn timers(&self) -> &[ArmedTimer] {
        self.instance
            .as_ref()
            .map_or(&[], |instance| &instance.timers)
    }
}

/// Run of the live definition.
pub(super) struct LiveRun<'a> {
    pub(super) run: Run<'a>,
    /// Requests by their ids.
    by_id: BTreeMap<Uuid, usize>,
    /// Armed timers before each input.
    timers: Vec<Vec<TimerFired>>,
}

impl<'a> LiveRun<'a> {
    /// Decides the recorded inputs again.
    ///
    /// # Errors
    /// If the result is not the stored instance, with the reason.
    pub(super) fn of(
        case: &ShadowCase<'a>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, &'static str> {
        let mut run = Run::new(case.key, case.live);
        let mut timers = Vec::new();
        for (at, input) in case.inputs {
            if is_over() {
                return Err(TOO_SLOW);
            }
            if let Input::Control(control) = input
                && matches!(
                    control.action,
                    ControlAction::Migrate { .. } | ControlAction::Replay
                )
            {
                // Such a transition is no decision of the program, so the record cannot reproduce
                // it.
                return Err("it was migrated or replaced");
            }

            // Timers that the live instance also has fire with its recorded inputs.
            timers.push(run.timers().iter().map(fired).collect());
            match run.decide(*at, input) {
                Decision::Commit(commit) if commit.instance.is_some() => run.follow(*commit),
                // Only applied inputs are recorded, so each one must cause a transition again.
                Decision::Commit(_) | Decision::Ignore { .. } | Decision::Reject(_) => {
                    return Err("its record does not reproduce it");
                }
            }
        }

        let stored = case.instance;
        // Not the whole snapshot, which also contains the node and the times of its transitions.
        let is_reproduced = |instance: &Instance| {
            (instance.status, instance.run_id, &instance.state)
                == (stored.status, stored.run_id, &stored.state)
        };
        if !run.instance.as_ref().is_some_and(is_reproduced) {
            return Err("its record does not reproduce it");
        }

        let by_id = run
            .work
            .iter()
            .enumerate()
            .map(|(index, item)| (item.id, index))
            .collect();

        Ok(Self { run, by_id, timers })
    }

    /// Returns the request with this id.
    pub(super) fn request(&self, id: &Uuid) -> Option<&WorkItem> {
        self.by_id.get(id).map(|index| &self.run.work[*index])
    }
}

/// Run of the candidate.
pub(super) struct CandidateRun<'a> {
    pub(super) run: Run<'a>,
    pub(super) found: Vec<Difference>,
    /// Time of the request that has no counterpart, or of the failure. Nothing after it is
    /// compared.
    pub(super) diverged_at: Option<Timestamp>,
    own_timers: usize,
}

/// Input of the candidate.
enum Step<'a> {
    /// Recorded input, with its position.
    Recorded(usize, &'a Input),
    Additional(&'a Event),
}

impl<'a> CandidateRun<'a> {
    /// Decides the recorded inputs and the additional events.
    ///
    /// # Errors
    /// If it takes too long.
    pub(super) fn of(
        case: &ShadowCase<'a>,
        live: &LiveRun<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, &'static str> {
        let run = Run::new(case.key, case.candidate);
        let mut this = Self {
            run,
            found: Vec::new(),
            diverged_at: None,
            own_timers: 0,
        };

        let recorded = case
            .inputs
            .iter()
            .enumerate()
            .map(|(index, (at, input))| (*at, Step::Recorded(index, input)));
        let additional = case
            .additional
            .iter()
            .map(|(at, event)| (*at, Step::Additional(event)));

        // Of the same time, a recorded input precedes an additional event, because the sort is
        // stable.
        let mut steps: Vec<_> = recorded.chain(additional).collect();
        steps.sort_by_key(|(at, _)| *at);

        let mut live_timers: &[TimerFired] = &[];
        for (at, step) in &steps {
            if let Step::Recorded(index, _) = step {
                live_timers = &live.timers[*index];
            }

            this.fire_own_timers(*at, live_timers, live, is_over)?;
            if this.diverged_at.is_some() {
                break;
            }

            match step {
                Step::Recorded(_, input) => this.apply(case, *at, input, live),
                Step::Additional(event) => {
                    this.decide(*at, &Input::Event((*event).clone()), live);
                }
            }
            if is_over() {
                return Err(TOO_SLOW);
            }

            // Without an instance, each later input would be the same difference again.
            if this.run.instance.is_none() && this.diverged_at.is_none() {
                this.does_not_start(*at, &step.label(), None);
            }
            if this.diverged_at.is_some() {
                break;
            }
        }
        Ok(this)
    }

    /// Fires the timers that are due before `until`, unless the live instance has them too: these
    /// fire when its timers did.
    fn fire_own_timers(
        &mut self,
        until: Timestamp,
        live_timers: &[TimerFired],
        live: &LiveRun<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), &'static str> {
        while self.diverged_at.is_none() {
            let own = self
                .run
                .timers()
                .iter()
                .map(fired)
                .filter(|timer| timer.due < until && !live_timers.contains(timer))
                .min_by_key(|timer| timer.due);
            let Some(timer) = own else {
                break;
            };
            if is_over() {
                return Err(TOO_SLOW);
            }

            self.own_timers += 1;
            if self.own_timers > MAX_OWN_TIMERS {
                let kind = format!(
                    "more than {MAX_OWN_TIMERS} timers fire that the live instance does not have"
                );
                self.diverge(timer.due, Difference::new(kind, None, None));
                break;
            }

            self.decide(timer.due, &Input::Timer(timer.clone()), live);
            if let Some(instance) = &mut self.run.instance {
                // A timer fires once, also if its transition did not change the instance.
                instance.timers.retain(|armed| !armed.is(&timer));
            }
        }
        Ok(())
    }

    /// Applies a recorded input by the rules of the candidate.
    fn apply(&mut self, case: &ShadowCase<'_>, at: Timestamp, input: &Input, live: &LiveRun<'_>) {
        if let Some(work_id) = input.completed_work_id() {
            // By id: the candidate has the same id for the same work, so the result of its
            // counterpart fits.
            let is_pending = self.run.instance.as_ref().is_some_and(|instance| {
                instance.pending_work.iter().any(|work| work.id == work_id)
            });
            // Work that the candidate does not request is a difference of the requests.
            if is_pending {
                self.require(at, input, live);
            }
            return;
        }

        match input {
            Input::Event(event) => match rejection_of(case, event) {
                Some(difference) => self.found.push(difference),
                None => self.require(at, input, live),
            },
            Input::Timer(timer) => {
                if self.run.timers().iter().any(|armed| armed.is(timer)) {
                    self.require(at, input, live);
                }
            }
            Input::Control(control) => {
                // Conditions concern the live instance.
                let control = ControlRequest {
                    expected_version: None,
                    wait_token: None,
                    ..control.clone()
                };
                self.require(at, &Input::Control(control), live);
            }
            Input::Workflow(_) | Input::WorkResult(_) | Input::Early(_) => {
                self.require(at, input, live);
            }
        }
    }

    /// Decides an input that the live instance applied; it is a difference if the candidate does
    /// not.
    fn require(&mut self, at: Timestamp, input: &Input, live: &LiveRun<'_>) {
        let Some(reason) = self.decide(at, input, live).map(|reason| json!(reason)) else {
            return;
        };

        if self.run.instance.is_some() {
            let kind = format!("{}: not applied", named(input));
            self.found.push(Difference::new(kind, None, Some(reason)));
        } else {
            self.does_not_start(at, &named(input), Some(reason));
        }
    }

    /// Decides an input; returns the reason if it causes no transition.
    fn decide(&mut self, at: Timestamp, input: &Input, live: &LiveRun<'_>) -> Option<String> {
        // The candidate is new code; its panic must end only this comparison.
        let decision = catch_unwind(AssertUnwindSafe(|| self.run.decide(at, input)));
        let Ok(decision) = decision else {
            self.diverge(
                at,
                Difference::new(
                    format!("{}: the candidate panics", named(input)),
                    None,
                    None,
                ),
            );
            return None;
        };

        match decision {
            Decision::Commit(commit) => {
                // On a node, the input would wait for a redrive, so later inputs would meet another
                // state.
                if let Some(letter) = &commit.dead_letter {
                    let kind = format!("{}: cannot be applied", named(input));
                    self.diverge(at, Difference::new(kind, None, Some(json!(letter.message))));
                    return None;
                }

                let is_transition = commit.instance.is_some();
                // Collected before the commit is consumed; the run includes the transition that
                // diverges.
                let others: Vec<_> = commit
                    .work
                    .iter()
                    .filter_map(|item| without_counterpart(item, live))
                    .collect();

                self.run.follow(*commit);
                for other in others {
                    self.diverge(at, other);
                }
                // Without a transition, the input is buffered for the instance.
                (!is_transition && self.run.instance.is_some()).then(|| "it is buffered".to_owned())
            }
            Decision::Ignore { reason, .. } => Some(reason.into_owned()),
            Decision::Reject(rejection) => Some(rejection.to_string()),
        }
    }

    fn does_not_start(&mut self, at: Timestamp, label: &str, reason: Option<Value>) {
        self.diverge(
            at,
            Difference::new(
                format!("{label}: does not start the candidate"),
                None,
                reason,
            ),
        );
    }

    fn diverge(&mut self, at: Timestamp, difference: Difference) {
        self.found.push(difference);
        self.diverged_at = Some(at);
    }
}

impl Step<'_> {
    fn label(&self) -> String {
        match self {
            Self::Recorded(_, input) => named(input),
            Self::Additional(event) => format!("event {}", event.kind),
        }
    }
}

/// Returns why the candidate would not receive an event that the live instance received.
fn rejection_of(case: &ShadowCase<'_>, event: &Event) -> Option<Difference> {
    let consumes = |program: &dyn Program| {
        program
            .manifest()
            .subscriptions
            .iter()
            .any(|one| one.kind == event.kind)
    };

    // Other events are signals, which have an address.
    if !consumes(case.live) {
        return None;
    }

    if !consumes(case.candidate) {
        return Some(Difference::new(
            format!("event {}: not consumed", event.kind),
            None,
            None,
        ));
    }

    let own = &case.key.correlation;
    let is_routed = case.live.correlate(event).is_ok_and(|id| id == *own);
    let other = match case.candidate.correlate(event) {
        Ok(id) if id == *own => return None,
        Ok(id) => id.to_string(),
        Err(error) => error.to_string(),
    };

    let kind = format!("event {}: belongs to another instance", event.kind);
    is_routed.then(|| Difference::new(kind, Some(json!(own.as_str())), Some(json!(other))))
}

/// Returns the difference if work that has a result has none in the recording.
fn without_counterpart(item: &WorkItem, live: &LiveRun<'_>) -> Option<Difference> {
    let tag = item.work.tag()?;
    let label = item.work.label();
    let payload = || item.work.payload().cloned();
    match live.request(&item.id) {
        None => Some(Difference::new(
            format!(
                "{}: calls {label}, the live instance does not",
                place(tag.as_str())
            ),
            None,
            payload(),
        )),
        Some(other) if other.work.label() != label => Some(Difference::new(
            format!(
                "{}: calls {label} instead of {}",
                place(tag.as_str()),
                other.work.label()
            ),
            other.work.payload().cloned(),
            payload(),
        )),
        Some(_) => None,
    }
}

/// Returns the name of an input in a difference.
fn named(input: &Input) -> String {
    match input {
        Input::Event(event) => format!("event {}", event.kind),
        Input::WorkResult(result) => format!("result of {}", result.outbox_key.destination.name),
        Input::Timer(timer) => format!("timer {}", timer.name),
        Input::Control(control) => format!("control request {}", control.action.label()),
        Input::Workflow(command) => format!("workflow command {}", command.action.label()),
        Input::Early(early) => named(&early.input),
    }
}

/// Returns the name of the step of a tag in a difference.
pub(super) fn place(tag: &str) -> String {
    let reminder = tag.strip_prefix("remind:");
    if let Some((step, number)) = reminder.and_then(|rest| rest.rsplit_once(':')) {
        return format!("reminder {number} of step {step}");
    }

    tag.strip_prefix("compensate:").map_or_else(
        || format!("step {tag}"),
        |step| format!("compensation of step {step}"),
    )
}

fn fired(timer: &ArmedTimer) -> TimerFired {
    TimerFired {
        name: timer.name.clone(),
        token: timer.token,
        due: timer.due,
    }
}

/// Returns whether work is a fact of the saga or another message without a result.
pub(super) fn is_message(work: &Work) -> bool {
    matches!(
        work,
        Work::Fact(_) | Work::CancelChild(_) | Work::NotifyParent(_)
    )
}
