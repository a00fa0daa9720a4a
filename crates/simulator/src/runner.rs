//! Scenario runner: executes steps on a simulator for the instance under test.

mod inputs;
mod names;

use std::sync::Arc;

use orlog_model::{Failure, Input, InstanceKey, Name, SagaName, Timestamp, WorkOutcome};

use crate::simulator::{DecisionObserver, InputResult, Simulator};
use crate::step::{EventStep, SimulationStep};
use inputs::InputFactory;
pub use inputs::StepError;

/// Simulator and the instance that steps refer to: the first instance of its saga.
#[derive(Clone)]
pub struct ScenarioRunner {
    /// Simulator.
    pub simulator: Simulator,
    saga: SagaName,
    focus: Option<InstanceKey>,
    /// Last inputs. Shared, because a proof copies the runner for each of its moves.
    last: Arc<[(InstanceKey, Input)]>,
    count: u64,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult {
    /// Time advanced, and this number of timers fired.
    TimeAdvanced(usize),
    /// The input was delivered; one result for each target instance.
    Delivered(Vec<InputResult>),
    /// The input has no target instance; contains the reason.
    NoInstance(String),
}

impl StepResult {
    /// Returns whether anything changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        match self {
            StepResult::TimeAdvanced(fired) => *fired > 0,
            StepResult::Delivered(all) => all.iter().any(|delivered| {
                matches!(delivered, InputResult::Applied(_) | InputResult::Buffered)
            }),
            StepResult::NoInstance(_) => false,
        }
    }
}

impl ScenarioRunner {
    /// Creates a runner with an empty simulator.
    #[must_use]
    pub fn new(simulator: Simulator, saga: SagaName) -> Self {
        Self {
            simulator,
            saga,
            focus: None,
            last: Arc::default(),
            count: 0,
        }
    }

    /// Returns the key of the instance under test, if it is known.
    #[must_use]
    pub fn instance(&self) -> Option<&InstanceKey> {
        self.focus.as_ref()
    }

    /// Returns the saga under test.
    #[must_use]
    pub fn saga(&self) -> &SagaName {
        &self.saga
    }

    fn inputs(&mut self) -> InputFactory<'_> {
        InputFactory {
            simulator: &self.simulator,
            saga: &self.saga,
            count: &mut self.count,
        }
    }

    /// Executes a step on the given instance or on the first one.
    ///
    /// # Errors
    /// The reason why the step cannot be executed; nothing has changed in this case. If a saga
    /// causes inputs without end, [`StepError::Endless`], also for each later step.
    pub fn run_step(
        &mut self,
        step: &SimulationStep,
        at: Option<&InstanceKey>,
        observer: &mut dyn DecisionObserver,
    ) -> Result<StepResult, StepError> {
        let result = self.execute(step, at, observer)?;
        match self.simulator.endless() {
            Some(endless) => Err(StepError::Endless(endless.clone())),
            None => Ok(result),
        }
    }

    fn execute(
        &mut self,
        step: &SimulationStep,
        at: Option<&InstanceKey>,
        observer: &mut dyn DecisionObserver,
    ) -> Result<StepResult, StepError> {
        match step {
            SimulationStep::Event(event) => {
                let focus = at.or(self.focus.as_ref()).cloned();
                Ok(self.event(event, focus.as_ref(), observer))
            }
            SimulationStep::Advance(by) => {
                Ok(self.advance_to(self.simulator.now().saturating_add(*by), observer))
            }
            SimulationStep::At(time) => Ok(self.advance_to(*time, observer)),
            SimulationStep::Duplicate => self.duplicate(observer),
            SimulationStep::Timeout { .. }
            | SimulationStep::InDoubt { .. }
            | SimulationStep::Ok { .. }
            | SimulationStep::Fail { .. }
            | SimulationStep::Task { .. }
            | SimulationStep::Operator(_)
            | SimulationStep::Signal { .. } => {
                let focus = at.or(self.focus.as_ref()).cloned();
                let key = focus.ok_or_else(|| StepError::NotStarted(self.saga.clone()))?;
                self.deliver_step(step, &key, observer)
            }
        }
    }

    /// Fires a timer of the instance under test, also before others that are due earlier. Returns
    /// whether the timer was armed.
    pub(crate) fn fire_timer(&mut self, name: &Name, observer: &mut dyn DecisionObserver) -> bool {
        // Before the start, the timer belongs to the instance that stores early events.
        let key = self
            .simulator
            .armed_timers()
            .find(|timer| timer.name == *name)
            .map(|timer| timer.key.clone());

        key.is_some_and(|key| self.simulator.fire_timer(&key, name, observer))
    }

    /// Returns the result that a step delivers to the instance under test, without delivering it.
    ///
    /// # Errors
    /// The reason why the step cannot be executed now.
    pub(crate) fn preview(&self, step: &SimulationStep) -> Result<Input, StepError> {
        let key = self.focus.as_ref();
        let key = key.ok_or_else(|| StepError::NotStarted(self.saga.clone()))?;
        // A copy: the id of an input that is not delivered is used again.
        let mut count = self.count;
        let inputs = InputFactory {
            simulator: &self.simulator,
            saga: &self.saga,
            count: &mut count,
        };
        inputs.of_step(step, key)
    }

    /// Delivers an input that targets one instance.
    fn deliver_step(
        &mut self,
        step: &SimulationStep,
        key: &InstanceKey,
        observer: &mut dyn DecisionObserver,
    ) -> Result<StepResult, StepError> {
        if let SimulationStep::Timeout { tag } = step {
            return self.timeout(key, tag, observer);
        }

        let input = self.inputs().of_step(step, key)?;
        Ok(self.deliver(key, input, observer))
    }

    fn deliver(
        &mut self,
        key: &InstanceKey,
        input: Input,
        observer: &mut dyn DecisionObserver,
    ) -> StepResult {
        let delivered = self.simulator.deliver(key, &input, observer);
        // Kept as an input, not as a step: a duplicate must have the same ids.
        self.last = Arc::new([(key.clone(), input)]);
        StepResult::Delivered(vec![delivered])
    }

    fn duplicate(&mut self, observer: &mut dyn DecisionObserver) -> Result<StepResult, StepError> {
        if self.last.is_empty() {
            return Err(StepError::NothingToDuplicate);
        }

        let last = Arc::clone(&self.last);
        Ok(StepResult::Delivered(
            last.iter()
                .map(|(key, input)| self.simulator.deliver(key, input, observer))
                .collect(),
        ))
    }

    fn advance_to(&mut self, time: Timestamp, observer: &mut dyn DecisionObserver) -> StepResult {
        StepResult::TimeAdvanced(self.simulator.advance_to(time, observer))
    }

    fn event(
        &mut self,
        step: &EventStep,
        focus: Option<&InstanceKey>,
        observer: &mut dyn DecisionObserver,
    ) -> StepResult {
        let event = self.inputs().event_from(step, focus);
        let routes = self.simulator.programs().route(&event);
        let keys: Vec<_> = routes.iter().flatten().cloned().collect();

        // The first start event determines the instance under test.
        if self.focus.is_none() {
            let of_saga = keys.iter().find(|key| key.saga == self.saga);
            // Only a start event: an early event of another instance must not select it.
            self.focus = of_saga
                .filter(|_| self.inputs().starts(&event.kind))
                .cloned();
        }

        // An event that one saga cannot correlate is an error, also if another one receives it.
        if let Some(Err((saga, reason))) = routes.iter().find(|route| route.is_err()) {
            return StepResult::NoInstance(format!("{saga}: {reason}"));
        }
        if keys.is_empty() {
            return StepResult::NoInstance(format!("no definition consumes {}", event.kind));
        }

        let input = Input::Event(event);
        let delivered = keys
            .iter()
            .map(|key| self.simulator.deliver(key, &input, observer))
            .collect();

        // A duplicate of an event reaches all instances that received it.
        self.last = keys.into_iter().map(|key| (key, input.clone())).collect();
        StepResult::Delivered(delivered)
    }

    fn timeout(
        &mut self,
        key: &InstanceKey,
        tag: &str,
        observer: &mut dyn DecisionObserver,
    ) -> Result<StepResult, StepError> {
        // A timer limits steps with a time limit. Other work times out by its result.
        let due = self.simulator.instance(key).and_then(|instance| {
            instance
                .timers
                .iter()
                .find(|timer| timer.name.as_str() == tag)
                .map(|timer| timer.due)
        });

        // The timer fires because time advances, so timers that are due earlier fire first, as on a
        // node.
        if let Some(due) = due {
            return Ok(self.advance_to(due.max(self.simulator.now()), observer));
        }

        let message = format!("{tag} did not complete in time");
        let failure = Failure {
            code: "timeout".to_owned(),
            message,
        };

        let input = self
            .inputs()
            .outcome(key, tag, WorkOutcome::TimedOut { failure })?;
        Ok(self.deliver(key, input, observer))
    }
}
