//! Program registry: the active programs, the events that they consume, and the pinned program of
//! each instance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use orlog_model::{Event, EventType, InstanceKey, SagaName, TenantId};
use orlog_program::{Program, ProgramError, budget};
use parking_lot::{Mutex, RwLock};

use crate::instance::owned_program::{OwnedProgram, Scoped};
use crate::instance::recordings::Recordings;

/// Maximum cost of the correlation ids of one event, in units.
const MAX_ROUTE_COST: u64 = 10_000;

/// All programs of a process. The set is replaced atomically: readers see the old set or the new
/// one.
///
/// # Owners
///
/// A tenant uses the programs of its context and the shared ones. For each saga and each event
/// type, the last one in the order of the set applies to the tenant. Without programs of contexts,
/// a lookup compares no tenants.
///
/// # Removal of a program
///
/// A program that starts no new instances may be removed if no instance is pinned to it and no
/// instance can become pinned to it. A transition of an earlier program set may not be durable yet.
/// Therefore, a saga actor takes a guard before it looks up a program and keeps it until the commit
/// is submitted to the committer. For a program that the current set assigns to no new instance:
///
/// 1. If [`ProgramRegistry::is_quiescent`] returns `true`, all transitions of earlier sets are
///    submitted to a committer. Later transitions use the current set and cannot start an instance
///    with that program.
/// 2. Committers keep the order of submissions: if a change submitted after 1. is durable, all
///    those transitions are durable.
/// 3. A count of the instances in the store that starts after 2. therefore finds every instance
///    that is pinned to the program or ever will be.
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
    all: Vec<OwnedProgram>,
    by_hash: BTreeMap<[u8; 16], Arc<dyn Program>>,
    newest: BTreeMap<SagaName, Scoped<Option<Arc<dyn Program>>>>,
    /// For each event type, one program per saga: the newest that consumes it.
    by_event: BTreeMap<EventType, Scoped<Vec<Arc<dyn Program>>>>,
}

/// Guard of a saga actor that uses the current program set or a newer one.
pub(crate) struct ProgramTableGuard(
    #[expect(dead_code, reason = "held as a guard, never read")] Arc<ProgramTable>,
);

impl ProgramTable {
    fn of(programs: impl IntoIterator<Item = OwnedProgram>) -> Self {
        let mut all: Vec<OwnedProgram> = Vec::new();
        for owned in programs {
            // Removed and added again, because the last one in the order applies.
            all.retain(|other| !other.is_same(&owned));
            all.push(owned);
        }

        let mut table = ProgramTable::default();
        for OwnedProgram { context, program } in &all {
            table
                .by_hash
                .insert(program.definition_ref().hash, Arc::clone(program));
            // A shared program first applies to all tenants; the contexts follow.
            if context.is_none() {
                table.add(program, None);
            }
        }

        let contexts: BTreeSet<_> = all
            .iter()
            .filter_map(|owned| owned.context.as_ref())
            .collect();

        // After the shared programs, which a context may use beside its own.
        for context in contexts {
            table.add_context(context, &all);
        }
        Self { all, ..table }
    }

    /// Adds the programs that a context uses for the sagas of its own ones.
    fn add_context(&mut self, context: &TenantId, all: &[OwnedProgram]) {
        let own = || {
            all.iter()
                .filter(|owned| owned.context.as_ref() == Some(context))
        };
        let saga = |program: &Arc<dyn Program>| program.definition_ref().saga.clone();

        let sagas: BTreeSet<_> = own().map(|owned| saga(&owned.program)).collect();
        // A saga of the context hides the shared saga of the same name, also its subscriptions.
        for event in own().flat_map(|owned| &owned.program.manifest().subscriptions) {
            let consumers = self.by_event.entry(event.kind.clone()).or_default();
            let others = consumers
                .shared
                .iter()
                .filter(|program| !sagas.contains(&saga(program)));
            let others = others.cloned().collect();
            consumers.contexts.insert(context.clone(), others);
        }

        let usable = all
            .iter()
            .filter(|owned| owned.is_usable_by(context))
            .map(|owned| &owned.program);
        for program in usable.filter(|program| sagas.contains(&saga(program))) {
            self.add(program, Some(context));
        }
    }

    /// Adds a program that is newer than those added before.
    fn add(&mut self, program: &Arc<dyn Program>, context: Option<&TenantId>) {
        let saga = &program.definition_ref().saga;
        for event in &program.manifest().subscriptions {
            let consumers = self.by_event.entry(event.kind.clone()).or_default();
            // Without an entry, only shared programs consume the event in the context.
            let Some(consumers) = consumers.of_mut(context) else {
                continue;
            };
            consumers.retain(|other| other.definition_ref().saga != *saga);
            consumers.push(Arc::clone(program));
        }

        let newest = self.newest.entry(saga.clone()).or_default();
        match context {
            None => newest.shared = Some(Arc::clone(program)),
            Some(context) => drop(
                newest
                    .contexts
                    .insert(context.clone(), Some(Arc::clone(program))),
            ),
        }
    }
}

impl ProgramRegistry {
    /// Creates a registry of these programs. Of the programs of one saga that a tenant uses, the
    /// last one is used for new instances.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = impl Into<OwnedProgram>>) -> Self {
        let this = Self::default();
        this.replace(programs);
        this
    }

    /// Activates a new set. Pass older versions first: of one saga, the last one that a tenant uses
    /// is used for new instances.
    pub fn replace(&self, programs: impl IntoIterator<Item = impl Into<OwnedProgram>>) {
        self.put(ProgramTable::of(programs.into_iter().map(Into::into)));
    }

    /// Removes the programs with these hashes; see [`ProgramRegistry`] for the conditions.
    pub fn remove(&self, hashes: &BTreeSet<[u8; 16]>) {
        let table = self.table();
        let remaining = table
            .all
            .iter()
            .filter(|owned| !hashes.contains(&owned.program.definition_ref().hash));
        self.put(ProgramTable::of(remaining.cloned()));
    }

    fn put(&self, table: ProgramTable) {
        let mut current = self.table.write();
        let old = std::mem::replace(&mut *current, Arc::new(table));
        // Recorded before the new set is visible, so that `is_quiescent` never misses the old one.
        self.replaced.lock().push(Arc::downgrade(&old));
        drop(current);
    }

    /// Returns true if no transition uses an earlier program set.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        let mut replaced = self.replaced.lock();
        replaced.retain(|table| table.strong_count() > 0);
        replaced.is_empty()
    }

    /// Returns a guard. Take it before a program lookup and keep it until the transition is
    /// submitted to the committer.
    pub(crate) fn guard(&self) -> ProgramTableGuard {
        ProgramTableGuard(self.table())
    }

    /// Returns the recordings of instances for shadows of these programs.
    #[must_use]
    pub fn recordings(&self) -> &Recordings {
        &self.recordings
    }

    fn table(&self) -> Arc<ProgramTable> {
        Arc::clone(&self.table.read())
    }

    /// Returns the program with this content hash.
    #[must_use]
    pub fn by_hash(&self, hash: &[u8; 16]) -> Option<Arc<dyn Program>> {
        self.table().by_hash.get(hash).cloned()
    }

    /// Returns the program for new instances of a saga of a tenant.
    #[must_use]
    pub fn active(&self, tenant: &TenantId, saga: &SagaName) -> Option<Arc<dyn Program>> {
        self.table().newest.get(saga)?.of(tenant).clone()
    }

    /// Returns the programs for new instances of a tenant, one per saga, ordered by name.
    #[must_use]
    pub fn all_active(&self, tenant: &TenantId) -> Vec<Arc<dyn Program>> {
        self.table()
            .newest
            .values()
            .filter_map(|newest| newest.of(tenant).clone())
            .collect()
    }

    /// Returns all programs, older versions first.
    #[must_use]
    pub fn all(&self) -> Vec<OwnedProgram> {
        self.table().all.clone()
    }

    /// Returns the programs that the instances of a tenant can use, older versions first, each
    /// once.
    #[must_use]
    pub fn usable(&self, tenant: &TenantId) -> Vec<Arc<dyn Program>> {
        let table = self.table();
        let mut seen = BTreeSet::new();
        let mut usable = Vec::new();
        for owned in &table.all {
            let program = &owned.program;
            if owned.is_usable_by(tenant) && seen.insert(program.definition_ref().hash) {
                usable.push(Arc::clone(program));
            }
        }
        usable
    }

    /// Returns whether a program of any owner consumes events of this type. If not, an event has no
    /// instances.
    #[must_use]
    pub fn is_consumed(&self, kind: &EventType) -> bool {
        self.table().by_event.contains_key(kind)
    }

    /// Returns the number of sagas of a tenant that consume events of this type.
    #[must_use]
    pub fn consumers(&self, tenant: &TenantId, kind: &EventType) -> usize {
        self.table()
            .by_event
            .get(kind)
            .map_or(0, |consumers| consumers.of(tenant).len())
    }

    /// Returns the instances of an event, or the error if the event lacks its identifier.
    pub fn route(&self, event: &Event) -> Vec<Result<InstanceKey, (SagaName, ProgramError)>> {
        let table = self.table();
        let consumers = table.by_event.get(&event.kind);
        let consumers =
            consumers.map_or(&[][..], |consumers| consumers.of(&event.tenant).as_slice());

        // One budget for all programs: they run on the thread that reads the events of all tenants
        // of a shard.
        let mut remaining = MAX_ROUTE_COST;
        let mut routes = Vec::with_capacity(consumers.len());
        for program in consumers {
            let correlated = budget::within(remaining, || correlate(program.as_ref(), event));
            let route = if let Ok(correlated) = correlated {
                remaining -= correlated.units;
                correlated.value
            } else {
                remaining = 0;
                Err(too_costly(program.as_ref(), event))
            };
            routes.push(route);
        }
        routes
    }
}

fn too_costly(program: &dyn Program, event: &Event) -> (SagaName, ProgramError) {
    let message = format!(
        "the correlation ids of {} cost more than {MAX_ROUTE_COST} units; read fewer data in \
         `correlate` and in `versions`",
        event.kind
    );
    (
        program.definition_ref().saga.clone(),
        ProgramError::Evaluation(message),
    )
}

fn correlate(
    program: &dyn Program,
    event: &Event,
) -> Result<InstanceKey, (SagaName, ProgramError)> {
    let saga = program.definition_ref().saga.clone();
    match program.correlate(event) {
        Ok(correlation) => Ok(InstanceKey {
            tenant: event.tenant.clone(),
            saga,
            correlation,
        }),
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
        let active = programs.active(&TenantId::default(), &two.definition_ref().saga);
        assert_eq!(active.unwrap().definition_ref().version, 2);
        assert_eq!(programs.all().len(), 1);
    }

    /// Returns a definition that starts with an event, which contains the id of the instance in this field.
    fn consumer(saga: &str, version: u32, start: &str, field: &str) -> Arc<dyn Program> {
        let text = format!(
            "saga: {saga}\nversion: {version}\nstart: {start}\ncorrelate: {field}\nsteps:\n  - {{ id: a, do: {{ effect: x.y }} }}\n"
        );
        Arc::new(orlog_program::load(&text, "a.saga.yaml").unwrap())
    }

    fn of(context: &str, program: Arc<dyn Program>) -> OwnedProgram {
        OwnedProgram {
            context: Some(tenant(context)),
            program,
        }
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn event(of: &str, kind: &str) -> Event {
        Event {
            id: orlog_model::EventId::new("e-1").unwrap(),
            tenant: tenant(of),
            kind: EventType::new(kind).unwrap(),
            source: "urn:test".to_owned(),
            subject: None,
            time: orlog_model::Timestamp::default(),
            schema_version: 1,
            correlation: None,
            causation: None,
            trace: None,
            data: serde_json::json!({ "a": "by-a", "b": "by-b" }),
            user: None,
            attributes: None,
        }
    }

    /// Returns the instances of an event, as saga and correlation id.
    fn routes(programs: &ProgramRegistry, tenant: &str, kind: &str) -> BTreeSet<String> {
        let routes = programs
            .route(&event(tenant, kind))
            .into_iter()
            .map(Result::unwrap);
        routes
            .map(|key| format!("{}/{}", key.saga, key.correlation))
            .collect()
    }

    /// Requirements: F2.
    #[test]
    fn tenant_uses_the_programs_of_its_context_before_the_shared_ones() {
        let programs = ProgramRegistry::new([
            consumer("order", 1, "Placed", "a").into(),
            consumer("fine", 1, "Placed", "a").into(),
            of("acme", consumer("order", 7, "Placed", "b")),
            of("acme", consumer("visa", 1, "Asked", "b")),
        ]);
        let expected = |routes: &[&str]| {
            routes
                .iter()
                .map(|route| (*route).to_owned())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(
            routes(&programs, "beta", "Placed"),
            expected(&["fine/by-a", "order/by-a"])
        );
        assert_eq!(
            routes(&programs, "acme", "Placed"),
            expected(&["fine/by-a", "order/by-b"])
        );
        assert_eq!(routes(&programs, "acme", "Asked"), expected(&["visa/by-b"]));
        assert_eq!(routes(&programs, "beta", "Asked"), expected(&[]));
        let version = |of: &str, saga: &str| {
            let active = programs.active(&tenant(of), &SagaName::new(saga).unwrap());
            active.map(|program| program.definition_ref().version)
        };
        let versions = |of: &str| ["order", "fine", "visa"].map(|saga| version(of, saga));
        assert_eq!(versions("acme"), [Some(7), Some(1), Some(1)]);
        assert_eq!(versions("beta"), [Some(1), Some(1), None]);
        let asked = EventType::new("Asked").unwrap();
        assert!(programs.is_consumed(&asked));
        assert_eq!(
            ["acme", "beta"].map(|of| programs.consumers(&tenant(of), &asked)),
            [1, 0]
        );
        assert_eq!(
            ["acme", "beta"].map(|of| programs.usable(&tenant(of)).len()),
            [4, 2]
        );
    }

    #[test]
    fn shared_program_consumes_events_that_the_program_of_the_context_does_not() {
        let shared = consumer("order", 1, "Placed", "a");
        let programs = ProgramRegistry::new([
            shared.into(),
            of("acme", consumer("order", 2, "Asked", "b")),
        ]);
        // An instance of the tenant can be pinned to the shared definition.
        assert_eq!(
            routes(&programs, "acme", "Placed"),
            BTreeSet::from(["order/by-a".to_owned()])
        );
    }

    #[test]
    fn equal_programs_of_two_owners_are_independent() {
        let program = consumer("order", 1, "Placed", "a");
        let programs = ProgramRegistry::new([
            of("acme", Arc::clone(&program)),
            of("beta", Arc::clone(&program)),
        ]);
        let saga = &program.definition_ref().saga;
        assert_eq!(
            ["acme", "beta", "gamma"].map(|of| programs.active(&tenant(of), saga).is_some()),
            [true, true, false]
        );
        assert_eq!(programs.usable(&tenant("acme")).len(), 1);
    }
}
