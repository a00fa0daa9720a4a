//! Program registry: the active programs, the events that they consume, and the pinned program of each
//! instance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use orlog_model::{Event, EventType, InstanceKey, SagaName};
use orlog_program::{Program, ProgramError};

use crate::instance::recordings::Recordings;

/// All programs of a process. The set is replaced atomically: readers see the old set or the new one.
///
/// # Removal of a program
///
/// A program that starts no new instances may be removed if no instance is pinned to it and no instance
/// can become pinned to it. A transition of an earlier program set may not be durable yet. Therefore, a
/// saga actor takes a guard before it looks up a program and keeps it until the commit is submitted to
/// the committer. For a program that the current set assigns to no new instance:
///
/// 1. If [`ProgramRegistry::is_quiescent`] returns `true`, all transitions of earlier sets are
///    submitted to a committer. Later transitions use the current set and cannot start an instance with
///    that program.
/// 2. Committers keep the order of submissions: if a change submitted after 1. is durable, all those
///    transitions are durable.
/// 3. A count of the instances in the store that starts after 2. therefore finds every instance that is
///    pinned to the program or ever will be.
#[derive(Default)]
pub struct ProgramRegistry {
    table: RwLock<Arc<ProgramTable>>,
    /// Earlier program sets; those that are still alive are guarded.
    replaced: Mutex<Vec<Weak<ProgramTable>>>,
    recordings: Recordings,
}

#[derive(Default)]
struct ProgramTable {
    /// All programs in the given order, older versions first.
    all: Vec<Arc<dyn Program>>,
    by_hash: BTreeMap<[u8; 16], Arc<dyn Program>>,
    newest: BTreeMap<SagaName, Arc<dyn Program>>,
    /// For each event type, one program per saga: the newest that consumes it.
    by_event: BTreeMap<EventType, Vec<Arc<dyn Program>>>,
}

/// Guard of a saga actor that uses the current program set or a newer one.
pub(crate) struct ProgramTableGuard(
    #[expect(dead_code, reason = "held as a guard, never read")] Arc<ProgramTable>,
);

impl ProgramTable {
    fn of(programs: impl IntoIterator<Item = Arc<dyn Program>>) -> Self {
        let mut table = ProgramTable::default();
        for program in programs {
            let reference = program.definition_ref();
            table.all.retain(|other| other.definition_ref().hash != reference.hash);
            table.all.push(Arc::clone(&program));
            table.by_hash.insert(reference.hash, Arc::clone(&program));
            for trigger in &program.manifest().subscriptions {
                let takers = table.by_event.entry(trigger.kind.clone()).or_default();
                takers.retain(|other| other.definition_ref().saga != reference.saga);
                takers.push(Arc::clone(&program));
            }
            table.newest.insert(reference.saga.clone(), program);
        }
        table
    }
}

impl ProgramRegistry {
    /// Creates a registry of these programs. Of the programs of one saga, the last one is used for new
    /// instances.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = Arc<dyn Program>>) -> Self {
        let this = Self::default();
        this.replace(programs);
        this
    }

    /// Activates a new set. Pass older versions first: of one saga, the last one is used for new instances.
    pub fn replace(&self, programs: impl IntoIterator<Item = Arc<dyn Program>>) {
        self.put(ProgramTable::of(programs));
    }

    /// Removes the programs with these hashes; see [`ProgramRegistry`] for the conditions.
    pub fn remove(&self, hashes: &BTreeSet<[u8; 16]>) {
        let table = self.table();
        let remaining = table.all.iter().filter(|program| !hashes.contains(&program.definition_ref().hash));
        self.put(ProgramTable::of(remaining.cloned()));
    }

    fn put(&self, table: ProgramTable) {
        let mut current = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::new(table));
        // Recorded before the new set is visible, so that `is_quiescent` never misses the old one.
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&old));
        drop(current);
    }

    /// Returns true if no transition uses an earlier program set.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.retain(|table| table.strong_count() > 0);
        replaced.is_empty()
    }

    /// Returns a guard. Take it before a program lookup and keep it until the transition is submitted to
    /// the committer.
    pub(crate) fn guard(&self) -> ProgramTableGuard {
        ProgramTableGuard(self.table())
    }

    /// Returns the recordings of instances for shadows of these programs.
    #[must_use]
    pub fn recordings(&self) -> &Recordings {
        &self.recordings
    }

    fn table(&self) -> Arc<ProgramTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the program with this content hash.
    #[must_use]
    pub fn by_hash(&self, hash: &[u8; 16]) -> Option<Arc<dyn Program>> {
        self.table().by_hash.get(hash).cloned()
    }

    /// Returns the program for new instances of a saga.
    #[must_use]
    pub fn active(&self, saga: &SagaName) -> Option<Arc<dyn Program>> {
        self.table().newest.get(saga).cloned()
    }

    /// Returns the programs for new instances, one per saga, ordered by name.
    #[must_use]
    pub fn all_active(&self) -> Vec<Arc<dyn Program>> {
        self.table().newest.values().cloned().collect()
    }

    /// Returns all programs, older versions first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<dyn Program>> {
        self.table().all.clone()
    }

    /// Returns the number of sagas that consume events of this type. If there are none, an event has no instances.
    #[must_use]
    pub fn consumers(&self, kind: &EventType) -> usize {
        self.table().by_event.get(kind).map_or(0, Vec::len)
    }

    /// Returns the instances of an event, or the error if the event lacks its identifier.
    pub fn route(&self, event: &Event) -> Vec<Result<InstanceKey, (SagaName, ProgramError)>> {
        let table = self.table();
        let takers = table.by_event.get(&event.kind).map_or(&[][..], Vec::as_slice);
        takers.iter().map(|program| correlate(program.as_ref(), event)).collect()
    }
}

fn correlate(program: &dyn Program, event: &Event) -> Result<InstanceKey, (SagaName, ProgramError)> {
    let saga = program.definition_ref().saga.clone();
    match program.correlate(event) {
        Ok(correlation) => Ok(InstanceKey { tenant: event.tenant.clone(), saga, correlation }),
        Err(fault) => Err((saga, fault)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(version: u32) -> Arc<dyn Program> {
        let text = format!(
            "saga: order\nversion: {version}\nstart: Placed\nsteps:\n  - {{ id: a, do: {{ effect: x.y }} }}\n"
        );
        Arc::new(orlog_program::load(&text, "order.saga.yaml").unwrap())
    }

    #[test]
    fn program_set_is_quiescent_when_no_guard_holds_an_older_one() {
        let programs = ProgramRegistry::new([program(1)]);
        assert!(programs.is_quiescent());
        let (first, second) = (programs.guard(), programs.guard());
        assert!(programs.is_quiescent(), "the active set may be leased");
        programs.replace([program(1), program(2)]);
        let third = programs.guard();
        assert!(!programs.is_quiescent());
        drop(first);
        assert!(!programs.is_quiescent());
        drop(second);
        assert!(programs.is_quiescent());
        programs.replace([program(2)]);
        assert!(!programs.is_quiescent());
        drop(third);
        assert!(programs.is_quiescent());
    }

    #[test]
    fn removing_a_program_leaves_the_others() {
        let (one, two) = (program(1), program(2));
        let programs = ProgramRegistry::new([Arc::clone(&one), Arc::clone(&two)]);
        programs.remove(&BTreeSet::from([one.definition_ref().hash]));
        assert!(programs.by_hash(&one.definition_ref().hash).is_none());
        assert!(programs.by_hash(&two.definition_ref().hash).is_some());
        assert_eq!(programs.active(&two.definition_ref().saga).unwrap().definition_ref().version, 2);
        assert_eq!(programs.all().len(), 1);
    }
}
