//! The programs in force: which events they take, and which instance is pinned to which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use orlog_model::{Event, EventType, InstanceKey, SagaName};
use orlog_program::{Fault, Program};

/// All programs of a process. Replaced as a whole: readers see the old set or the new one.
///
/// # Dropping a program
///
/// A program that takes no new instances may be dropped once no instance is pinned to it, and no instance can be *about to
/// be*: it may have been decided by a set that is no longer in force, and not be durable yet. Whoever decides therefore
/// keeps a lease from before it looks a program up until its commit lies with the committer. So, for a program that the
/// set in force gives to no new instance:
///
/// 1. When [`Programs::settled`] answers `true`, every decision by an older set lies with a committer. Later ones are made by
///    the set in force and cannot begin an instance with that program.
/// 2. Committers keep the order of what they are given: a change submitted after 1. and durable means that all of those are.
/// 3. A count of the instances in the store, begun after 2., therefore finds every instance that is pinned to the program,
///    or ever will be.
#[derive(Default)]
pub struct Programs {
    table: RwLock<Arc<Table>>,
    /// Sets that were in force; those that still live are leased.
    replaced: Mutex<Vec<Weak<Table>>>,
}

#[derive(Default)]
struct Table {
    /// As they were given, older versions first.
    all: Vec<Arc<dyn Program>>,
    by_hash: BTreeMap<[u8; 16], Arc<dyn Program>>,
    newest: BTreeMap<SagaName, Arc<dyn Program>>,
    /// For each type of event, one program a saga: the newest that takes it.
    by_event: BTreeMap<EventType, Vec<Arc<dyn Program>>>,
}

/// Somebody decides by the set that was in force when this was taken, or by a newer one.
pub(crate) struct Lease(#[expect(dead_code, reason = "it is held, never read")] Arc<Table>);

impl Table {
    fn of(programs: impl IntoIterator<Item = Arc<dyn Program>>) -> Self {
        let mut table = Table::default();
        for program in programs {
            let reference = program.reference();
            table.all.retain(|other| other.reference().hash != reference.hash);
            table.all.push(Arc::clone(&program));
            table.by_hash.insert(reference.hash, Arc::clone(&program));
            for trigger in &program.manifest().triggers {
                let takers = table.by_event.entry(trigger.kind.clone()).or_default();
                takers.retain(|other| other.reference().saga != reference.saga);
                takers.push(Arc::clone(&program));
            }
            table.newest.insert(reference.saga.clone(), program);
        }
        table
    }
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
        self.put(Table::of(programs));
    }

    /// Drops the programs with these hashes; see [`Programs`] for when that is safe.
    pub fn remove(&self, hashes: &BTreeSet<[u8; 16]>) {
        let table = self.table();
        let left = table.all.iter().filter(|program| !hashes.contains(&program.reference().hash));
        self.put(Table::of(left.cloned()));
    }

    fn put(&self, table: Table) {
        let mut current = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, Arc::new(table));
        // Noted before anybody can see the new set, so that `settled` never misses the old one.
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&old));
        drop(current);
    }

    /// Whether nobody decides by a set that is not in force any more.
    #[must_use]
    pub fn settled(&self) -> bool {
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.retain(|table| table.strong_count() > 0);
        replaced.is_empty()
    }

    /// Taken before a program is looked up to decide by, and kept until the decision lies with the committer.
    pub(crate) fn lease(&self) -> Lease {
        Lease(self.table())
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

    /// Every program, older versions included and first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<dyn Program>> {
        self.table().all.clone()
    }

    /// The instances an event is for, each with the fault where the event lacks its identifier.
    pub fn route(&self, event: &Event) -> Vec<Result<InstanceKey, (SagaName, Fault)>> {
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
    fn a_set_is_settled_when_nobody_decides_by_an_older_one() {
        let programs = Programs::new([program(1)]);
        assert!(programs.settled());
        let (first, second) = (programs.lease(), programs.lease());
        assert!(programs.settled(), "the set in force may be leased");
        programs.replace([program(1), program(2)]);
        let third = programs.lease();
        assert!(!programs.settled());
        drop(first);
        assert!(!programs.settled());
        drop(second);
        assert!(programs.settled());
        programs.replace([program(2)]);
        assert!(!programs.settled());
        drop(third);
        assert!(programs.settled());
    }

    #[test]
    fn what_is_removed_is_gone_and_the_rest_stays_as_it_was() {
        let (one, two) = (program(1), program(2));
        let programs = Programs::new([Arc::clone(&one), Arc::clone(&two)]);
        programs.remove(&BTreeSet::from([one.reference().hash]));
        assert!(programs.pinned(&one.reference().hash).is_none());
        assert!(programs.pinned(&two.reference().hash).is_some());
        assert_eq!(programs.newest(&two.reference().saga).unwrap().reference().version, 2);
        assert_eq!(programs.all().len(), 1);
    }
}
