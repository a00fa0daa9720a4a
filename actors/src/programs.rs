//! The programs in force: which events they take, and which instance is pinned to which.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{Event, EventType, InstanceKey, SagaName};
use orlog_program::{Fault, Program};

/// All programs of a process. Replaced as a whole: readers see the old set or the new one.
#[derive(Default)]
pub struct Programs {
    table: RwLock<Arc<Table>>,
}

#[derive(Default)]
struct Table {
    by_hash: BTreeMap<[u8; 16], Arc<dyn Program>>,
    newest: BTreeMap<SagaName, Arc<dyn Program>>,
    /// For each type of event, one program a saga: the newest that takes it.
    by_event: BTreeMap<EventType, Vec<Arc<dyn Program>>>,
}

impl Programs {
    /// These programs and no others. Of those with one saga name, the last one is used for new instances.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = Arc<dyn Program>>) -> Self {
        let this = Self::default();
        this.replace(programs);
        this
    }

    /// Puts a new set in force. Give older versions first: of one saga name, the last is used for new instances.
    pub fn replace(&self, programs: impl IntoIterator<Item = Arc<dyn Program>>) {
        let mut table = Table::default();
        for program in programs {
            let reference = program.reference();
            table.by_hash.insert(reference.hash, Arc::clone(&program));
            for trigger in &program.manifest().triggers {
                let takers = table.by_event.entry(trigger.kind.clone()).or_default();
                takers.retain(|other| other.reference().saga != reference.saga);
                takers.push(Arc::clone(&program));
            }
            table.newest.insert(reference.saga.clone(), program);
        }
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The program with this content hash.
    #[must_use]
    pub fn pinned(&self, hash: &[u8; 16]) -> Option<Arc<dyn Program>> {
        self.table().by_hash.get(hash).cloned()
    }

    /// The program for new instances of a saga.
    #[must_use]
    pub fn newest(&self, saga: &SagaName) -> Option<Arc<dyn Program>> {
        self.table().newest.get(saga).cloned()
    }

    /// The programs for new instances, one a saga, in the order of names.
    #[must_use]
    pub fn all_newest(&self) -> Vec<Arc<dyn Program>> {
        self.table().newest.values().cloned().collect()
    }

    /// Every program, older versions included.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<dyn Program>> {
        self.table().by_hash.values().cloned().collect()
    }

    /// The instances an event is for, each with the fault where the event lacks its identifier.
    pub(crate) fn route(&self, event: &Event) -> Vec<Result<InstanceKey, (SagaName, Fault)>> {
        let table = self.table();
        let takers = table.by_event.get(&event.kind).map_or(&[][..], Vec::as_slice);
        takers.iter().map(|program| correlate(program.as_ref(), event)).collect()
    }
}

fn correlate(program: &dyn Program, event: &Event) -> Result<InstanceKey, (SagaName, Fault)> {
    let saga = program.reference().saga.clone();
    match program.correlate(event) {
        Ok(correlation) => Ok(InstanceKey { tenant: event.tenant.clone(), saga, correlation }),
        Err(fault) => Err((saga, fault)),
    }
}
