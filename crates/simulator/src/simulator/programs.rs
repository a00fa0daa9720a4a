//! Definitions of a simulator, and the routing of events to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Event, EventType, InstanceKey, SagaName};
use orlog_program::Program;

/// Programs by name; if a name occurs twice, the last program applies.
#[derive(Clone, Default)]
pub struct SimulatorPrograms {
    by_saga: BTreeMap<SagaName, Arc<dyn Program>>,
    by_event: BTreeMap<EventType, Vec<Arc<dyn Program>>>,
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
        for program in this.by_saga.values() {
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
