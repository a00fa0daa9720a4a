//! Definitions of a simulator, and the routing of events to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Event, EventType, InstanceKey, SagaName};
use orlog_program::{Action, CompiledDefinition, Program, TimeSpec, compile};
use serde_json::Value;

/// Programs by name; if a name occurs twice, the last program applies.
#[derive(Clone, Default)]
pub struct SimulatorPrograms {
    by_saga: BTreeMap<SagaName, Arc<dyn Program>>,
    by_event: BTreeMap<EventType, Vec<Arc<dyn Program>>>,
    /// For the definitions with a restart: the same definition that waits instead.
    without_restart: BTreeMap<SagaName, Arc<dyn Program>>,
}

impl SimulatorPrograms {
    /// Creates the set of these programs.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = Arc<dyn Program>>) -> Self {
        let mut this = Self::default();
        for program in programs {
            this.by_saga
                .insert(program.definition_ref().saga.clone(), program);
        }

        // After all insertions, so that a replaced program receives no events.
        for (saga, program) in &this.by_saga {
            let waiting = program.as_compiled().and_then(without_restart);
            this.without_restart
                .extend(waiting.map(|waiting| (saga.clone(), waiting)));
            for subscription in &program.manifest().subscriptions {
                this.by_event
                    .entry(subscription.kind.clone())
                    .or_default()
                    .push(Arc::clone(program));
            }
        }
        this
    }

    /// Returns the program of a saga.
    #[must_use]
    pub fn of(&self, saga: &SagaName) -> Option<Arc<dyn Program>> {
        self.by_saga.get(saga).cloned()
    }

    /// Returns the program of a saga that waits instead of a restart; `None` if its program does not
    /// restart.
    pub(super) fn without_restart(&self, saga: &SagaName) -> Option<&dyn Program> {
        self.without_restart.get(saga).map(AsRef::as_ref)
    }

    /// Returns all programs, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Program>> {
        self.by_saga.values()
    }

    /// Returns the target instances of an event; for an event without correlation id, the saga and
    /// the reason.
    #[must_use]
    pub fn route(&self, event: &Event) -> Vec<Result<InstanceKey, (SagaName, String)>> {
        let consumers = self
            .by_event
            .get(&event.kind)
            .map_or(&[][..], Vec::as_slice);

        let mut routes = Vec::with_capacity(consumers.len());
        for program in consumers {
            let saga = program.definition_ref().saga.clone();
            routes.push(match program.correlate(event) {
                Ok(correlation) => Ok(InstanceKey {
                    tenant: event.tenant.clone(),
                    saga,
                    correlation,
                }),
                Err(fault) => Err((saga, fault.to_string())),
            });
        }
        routes
    }
}

/// Returns a definition whose restarts are waits, so that the state in which a run ends is visible: a
/// restart replaces it in the same transition.
fn without_restart(compiled: &CompiledDefinition) -> Option<Arc<dyn Program>> {
    let mut definition = compiled.definition().clone();
    let mut restarts = false;
    for step in &mut definition.steps {
        if matches!(step.action, Action::Restart(_)) {
            step.action = Action::Wait(TimeSpec::For(Value::from("1h")));
            restarts = true;
        }
    }
    // A definition that restarts is valid with a wait in the place of the restart.
    let waiting = restarts.then(|| compile(definition).ok()).flatten()?;
    Some(Arc::new(waiting))
}
