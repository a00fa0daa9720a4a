//! Conversion of steps to inputs: the event or outcome that completes the work of a tag, and its
//! content.

use std::sync::Arc;

use orlog_model::{
    CURRENT_SCHEMA, ControlAction, ControlRequest, CorrelationId, Event, EventId, EventType,
    Failure, IN_DOUBT, Input, InstanceKey, SagaName, TaskAction, Work, WorkOutcome, WorkResult,
};
use orlog_program::{Action, Definition, Program};
use serde_json::Value;

use super::names::{FailureName, control_action, correlation_field, set_if_absent};
use crate::responses::{ResponseSource, WorkTag, response_spec, step_of};
use crate::simulator::{EndlessSaga, Simulator};
use crate::step::{EventStep, SimulationStep};

/// User of an event, if the step states none.
const STARTER: &str = "starter";
/// Users who complete tasks alternately, if the step states none, so that tasks which exclude the
/// user of the previous task can be completed.
const USERS: [&str; 2] = ["user", "other-user"];

/// Response specification of a tag, with the first names of success and failure.
struct ResponseChoice {
    by: ResponseSource,
    ok: Option<EventType>,
    fail: Option<EventType>,
}

/// Error of a step that cannot be executed now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// No instance has started.
    #[error("no instance of {0} has started")]
    NotStarted(SagaName),
    /// No work with that tag is pending.
    #[error("no pending work with tag `{tag}`; {}", pending_tags(.open))]
    NoPendingWork {
        /// Tag of the step.
        tag: String,
        /// Tags with pending work.
        open: Vec<String>,
    },
    /// The step does not accept this response.
    #[error("{0}")]
    InvalidPayload(String),
    /// There is no previous input.
    #[error("no input to duplicate")]
    NothingToDuplicate,
    /// A saga causes inputs without end.
    #[error("{0}")]
    Endless(EndlessSaga),
}

fn pending_tags(open: &[String]) -> String {
    if open.is_empty() {
        "no work is pending".to_owned()
    } else {
        format!("pending tags: {}", open.join(", "))
    }
}

/// Creates the inputs of steps.
pub(super) struct InputFactory<'r> {
    pub(super) simulator: &'r Simulator,
    /// Saga under test.
    pub(super) saga: &'r SagaName,
    /// Number of inputs so far.
    pub(super) count: &'r mut u64,
}

impl InputFactory<'_> {
    /// Returns the input of a step that targets one instance at the current time.
    pub(super) fn of_step(
        mut self,
        step: &SimulationStep,
        key: &InstanceKey,
    ) -> Result<Input, StepError> {
        match step {
            SimulationStep::InDoubt { tag } => self.in_doubt(key, tag),
            SimulationStep::Ok { tag, event, data } => self.ok(key, tag, event.as_ref(), data),
            SimulationStep::Fail {
                tag,
                event,
                code,
                message,
                data,
            } => {
                let failure = Failure {
                    code: code.clone().unwrap_or_else(|| "failed".to_owned()),
                    message: message.clone().unwrap_or_else(|| format!("{tag} failed")),
                };
                // A code means a rejection of the command itself, even if the definition names a
                // `fail` event.
                let failure_name = match event {
                    Some(event) => FailureName::Event(event),
                    None if code.is_some() => FailureName::Code,
                    None => FailureName::Nothing,
                };
                self.fail(key, tag, failure_name, failure, data)
            }
            SimulationStep::Task {
                tag,
                outcome,
                user,
                data,
            } => self.task(key, tag, outcome.as_ref(), user.as_deref(), data),
            SimulationStep::Operator(action) => Ok(self.control(control_action(action))),
            SimulationStep::Signal { kind, data } => Ok(self.control(ControlAction::Signal {
                kind: kind.clone(),
                data: data.clone(),
                due_at: None,
            })),
            // Time advances until it fires the timer of the work.
            SimulationStep::Timeout { .. }
            | SimulationStep::Event(_)
            | SimulationStep::Advance(_)
            | SimulationStep::At(_)
            | SimulationStep::Duplicate => Err(StepError::InvalidPayload(
                "the step targets no instance".to_owned(),
            )),
        }
    }

    pub(super) fn starts(&self, kind: &EventType) -> bool {
        let program = self.simulator.programs().of(self.saga);
        program.is_some_and(|p| {
            p.manifest()
                .subscriptions
                .iter()
                .any(|t| t.starts && t.kind == *kind)
        })
    }

    pub(super) fn event_from(&mut self, step: &EventStep, focus: Option<&InstanceKey>) -> Event {
        // An event without a correlation id belongs to the instance under test, so that tests need
        // not repeat it.
        let explicit = step
            .correlation
            .as_ref()
            .and_then(|text| CorrelationId::new(text.as_str()).ok());
        let correlation = explicit
            .or_else(|| focus.map(|key| key.correlation.clone()))
            .unwrap_or_else(|| CorrelationId::new("1").expect("a digit is a valid correlation id"));

        Event {
            id: step.id.clone().unwrap_or_else(|| self.next_id()),
            tenant: self.simulator.tenant().clone(),
            kind: step.kind.clone(),
            source: step
                .envelope
                .source
                .clone()
                .unwrap_or_else(|| "urn:simulator".to_owned()),
            subject: step.envelope.subject.clone(),
            time: step.time.unwrap_or(self.simulator.now()),
            correlation: Some(correlation),
            causation: None,
            trace: None,
            schema_version: step.version,
            data: step.data.clone(),
            user: step.user.clone().or_else(|| Some(STARTER.to_owned())),
            attributes: step.envelope.attributes.clone().boxed(),
        }
    }

    fn next_id(&mut self) -> EventId {
        *self.count += 1;
        EventId::new(format!("input-{}", self.count)).expect("the generated id is a valid event id")
    }

    fn ok(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        event: Option<&EventType>,
        data: &Value,
    ) -> Result<Input, StepError> {
        let choice = self.choice(key, tag);

        match choice.by {
            ResponseSource::Event => {
                // An event that nothing requested would be ignored, which would hide a wrong tag in
                // a test.
                self.check_requested(key, tag)?;
                let kind = event.cloned().or(choice.ok);
                let kind = kind.ok_or_else(|| {
                    StepError::InvalidPayload(format!("no event completes `{tag}`"))
                })?;
                Ok(self.event_for(key, kind, data))
            }
            ResponseSource::Acceptance => self.outcome(key, tag, WorkOutcome::Accepted),
            ResponseSource::Outcome => self.outcome(
                key,
                tag,
                WorkOutcome::Succeeded {
                    event: event.cloned(),
                    payload: data.clone(),
                    schema_version: CURRENT_SCHEMA,
                },
            ),
            ResponseSource::User => self.task(key, tag, event, None, data),
            ResponseSource::Timer | ResponseSource::None => Err(StepError::InvalidPayload(
                format!("`{tag}` expects no response; use `advance` if it waits for time"),
            )),
        }
    }

    fn fail(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        failure_name: FailureName<'_>,
        failure: Failure,
        data: &Value,
    ) -> Result<Input, StepError> {
        let choice = self.choice(key, tag);
        let event = match failure_name {
            FailureName::Event(event) => Some(event.clone()),
            FailureName::Code | FailureName::Nothing => None,
        };

        match (choice.by, failure_name) {
            (ResponseSource::Event | ResponseSource::Acceptance, FailureName::Event(kind)) => {
                Ok(self.event_for(key, kind.clone(), data))
            }
            (ResponseSource::Event, FailureName::Nothing) if choice.fail.is_some() => {
                self.check_requested(key, tag)?;
                let kind = choice
                    .fail
                    .ok_or_else(|| StepError::InvalidPayload(format!("`{tag}` has no `fail`")))?;
                Ok(self.event_for(key, kind, data))
            }
            (ResponseSource::Event | ResponseSource::Acceptance | ResponseSource::Outcome, _) => {
                self.outcome(
                    key,
                    tag,
                    WorkOutcome::Failed {
                        event,
                        failure,
                        payload: data.clone(),
                    },
                )
            }
            (ResponseSource::User, _) => {
                let chosen = event.or(choice.fail).ok_or_else(|| {
                    StepError::InvalidPayload(format!(
                        "a user cannot reject `{tag}`: it has no `fail`"
                    ))
                })?;
                self.task(key, tag, Some(&chosen), None, data)
            }
            (ResponseSource::Timer | ResponseSource::None, _) => {
                Err(StepError::InvalidPayload(format!("`{tag}` cannot fail")))
            }
        }
    }

    /// Returns the unknown outcome of an effect or a job; other work is never in doubt.
    pub(super) fn in_doubt(&self, key: &InstanceKey, tag: &str) -> Result<Input, StepError> {
        let requested = self
            .simulator
            .simulated_instance(key)
            .and_then(|entry| entry.requested_work_by_tag(tag));
        if requested.is_some_and(|requested| !matches!(requested.item.work, Work::Effect(_))) {
            return Err(StepError::InvalidPayload(format!(
                "`{tag}` is neither an effect nor a job and is never in doubt"
            )));
        }

        let message = format!("the outcome of {tag} is unknown");
        let failure = Failure {
            code: IN_DOUBT.to_owned(),
            message,
        };
        self.outcome(key, tag, WorkOutcome::TimedOut { failure })
    }

    fn task(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        outcome: Option<&EventType>,
        user: Option<&str>,
        data: &Value,
    ) -> Result<Input, StepError> {
        let open = self
            .simulator
            .simulated_instance(key)
            .and_then(|entry| entry.tasks().find(|task| task.spec.tag.as_str() == tag));

        let Some(task) = open.cloned() else {
            let open = self
                .simulator
                .simulated_instance(key)
                .into_iter()
                .flat_map(crate::simulator::SimulatedInstance::tasks);
            let open = open.map(|task| task.spec.tag.to_string()).collect();
            return Err(StepError::NoPendingWork {
                tag: tag.to_owned(),
                open,
            });
        };

        // The first success of the definition, if the task offers it; an in-doubt task has other
        // outcomes.
        let usual = self
            .choice(key, tag)
            .ok
            .filter(|ok| task.spec.outcomes.contains(ok));

        let chosen = outcome
            .cloned()
            .or(usual)
            .or(task.spec.outcomes.first().cloned());

        let last_user = self
            .simulator
            .instance(key)
            .and_then(|i| i.users.as_ref()?.last_task_user.as_deref());
        // A rule of four eyes may exclude the user of the last task.
        let admitted = USERS
            .into_iter()
            .find(|user| Some(*user) != last_user)
            .map(ToOwned::to_owned);

        let user = user.map(ToOwned::to_owned).or_else(|| {
            task.claimed_by
                .clone()
                .or(task.spec.assignee.clone())
                .or(admitted)
        });

        let order = TaskAction::Complete {
            outcome: chosen,
            data: data.clone(),
        };

        Ok(self.control_by(
            user,
            ControlAction::Task {
                id: task.id,
                order,
                roles: task.spec.roles,
            },
        ))
    }

    fn control(&mut self, action: ControlAction) -> Input {
        self.control_by(None, action)
    }

    fn control_by(&mut self, user: Option<String>, action: ControlAction) -> Input {
        Input::Control(ControlRequest {
            id: self.next_id(),
            action,
            expected_version: None,
            at: self.simulator.now(),
            user,
            reason: None,
            trace: None,
            wait_token: None,
        })
    }

    pub(super) fn outcome(
        &self,
        key: &InstanceKey,
        tag: &str,
        work_outcome: WorkOutcome,
    ) -> Result<Input, StepError> {
        self.check_requested(key, tag)?;
        // The work may have its result already: late and second results are inputs of tests, too.
        let requested = self
            .simulator
            .simulated_instance(key)
            .and_then(|entry| entry.requested_work_by_tag(tag));

        let requested = requested.ok_or_else(|| {
            StepError::InvalidPayload(format!(
                "`{tag}` is completed by an event, not by an outcome"
            ))
        })?;

        Ok(Input::WorkResult(WorkResult {
            work_id: requested.item.id,
            outbox_key: requested.outbox.clone(),
            outcome: work_outcome,
            requested_at: requested.item.created_at,
            attempts: 1,
            at: self.simulator.now(),
            facts: Vec::new(),
            publishes: false,
            trace: None,
            attempt_log: None,
        }))
    }

    /// Checks that the work was requested. A step that waits for an event requests no work.
    fn check_requested(&self, key: &InstanceKey, tag: &str) -> Result<(), StepError> {
        let entry = self.simulator.simulated_instance(key);
        let requested = entry.is_some_and(|entry| entry.requested_work_by_tag(tag).is_some());
        if requested || self.only_awaits_event(key, tag) {
            return Ok(());
        }

        let open = entry
            .into_iter()
            .flat_map(crate::simulator::SimulatedInstance::requested_work)
            .filter(|(_, requested)| !requested.completed)
            .map(|(tag, _)| tag.to_string())
            .collect();
        Err(StepError::NoPendingWork {
            tag: tag.to_owned(),
            open,
        })
    }

    fn only_awaits_event(&self, key: &InstanceKey, tag: &str) -> bool {
        let program = self.program(key);
        let definition = program.as_deref().and_then(definition);
        let step = definition.and_then(|definition| step_of(definition, WorkTag::parse(tag).step));
        step.is_some_and(|step| matches!(step.action, Action::Event(_)))
    }

    /// Returns an event for this instance, regardless of its data. If the definition correlates by
    /// a data field that is absent, the field is set.
    fn event_for(&mut self, key: &InstanceKey, kind: EventType, data: &Value) -> Input {
        let mut event = self.event_from(&EventStep::new(kind, data.clone()), Some(key));
        let program = self.program(key);
        if let Some(path) = program
            .as_deref()
            .and_then(definition)
            .and_then(|d| correlation_field(d, &event.kind))
        {
            set_if_absent(&mut event.data, path, key.correlation.as_str());
        }
        Input::Event(event)
    }

    /// Returns the response of a tag. Without a definition, an outcome completes all work.
    fn choice(&self, key: &InstanceKey, tag: &str) -> ResponseChoice {
        let program = self.program(key);
        let definition = program.as_deref().and_then(definition);
        match definition.and_then(|definition| response_spec(definition, tag)) {
            Some(choice) => ResponseChoice {
                by: choice.source,
                ok: choice.ok.first().map(|(event, _)| (*event).clone()),
                fail: choice.fail.first().map(|(event, _)| (*event).clone()),
            },
            None => ResponseChoice {
                by: ResponseSource::Outcome,
                ok: None,
                fail: None,
            },
        }
    }

    fn program(&self, key: &InstanceKey) -> Option<Arc<dyn Program>> {
        self.simulator.programs().of(&key.saga)
    }
}

fn definition(program: &dyn Program) -> Option<&Definition> {
    program
        .as_compiled()
        .map(orlog_program::CompiledDefinition::definition)
}
