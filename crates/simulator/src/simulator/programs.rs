//! The definitions of a lab, and which events go to which of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Event, EventType, InstanceKey, SagaName};
use orlog_program::Program;

/// Programs by name; of one name, the last given counts.
#[derive(Clone, Default)]
pub struct Programs {
    by_saga: BTreeMap<SagaName, Arc<dyn Program>>,
    by_event: BTreeMap<EventType, Vec<Arc<dyn Program>>>,
}

impl Programs {
    /// These and no others.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = Arc<dyn Program>>) -> Self {
        let mut this = Self::default();
        for program in programs {
            this.by_saga.insert(program.reference().saga.clone(), program);
        }
        for program in this.by_saga.values() {
            for trigger in &program.manifest().triggers {
                this.by_event.entry(trigger.kind.clone()).or_default().push(Arc::clone(program));
            }
        }
        this
    }

    /// The program of a saga.
    #[must_use]
    pub fn of(&self, saga: &SagaName) -> Option<Arc<dyn Program>> {
        self.by_saga.get(saga).cloned()
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Program>> {
        self.by_saga.values()
    }

    /// The instances an event is for; where it lacks the identifier, the saga and the reason.
    #[must_use]
    pub fn route(&self, event: &Event) -> Vec<Result<InstanceKey, (SagaName, String)>> {
        let takers = self.by_event.get(&event.kind).map_or(&[][..], Vec::as_slice);
        let route = |program: &Arc<dyn Program>| {
            let saga = program.reference().saga.clone();
            match program.correlate(event) {
                Ok(correlation) => Ok(InstanceKey { tenant: event.tenant.clone(), saga, correlation }),
                Err(fault) => Err((saga, fault.to_string())),
            }
        };
        takers.iter().map(route).collect()
    }
}
