//! The catalog: which upstream performs which work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{
    Clock, EffectName, Failure, InstanceKey, Lane, TenantId, Verdict, Work, WorkItem, WorkKind,
};
use serde_json::Value;

use crate::execution::Done;
use crate::executor::{Condition, Performer};
use crate::job_logs::Written;
use crate::observer::Observer;
use crate::upstream::{Serves, Upstream};
use crate::worker::{Board, Terms};

/// Upstreams that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two upstreams have one name.
    #[error("there are two upstreams named {name:?}; rename one")]
    UpstreamTwice {
        /// The name.
        name: String,
    },
    /// Two upstreams would perform one effect.
    #[error("the effect {effect} is performed by {first:?} and by {second:?}; remove it from one")]
    EffectTwice {
        /// The effect.
        effect: EffectName,
        /// One of the upstreams.
        first: String,
        /// The other.
        second: String,
    },
    /// Two upstreams would perform what no other does.
    #[error("both {first:?} and {second:?} perform all effects that no other upstream does; remove one")]
    RestTwice {
        /// One of the upstreams.
        first: String,
        /// The other.
        second: String,
    },
    /// Two upstreams would take the commands.
    #[error("both {first:?} and {second:?} take commands; there is one gateway")]
    GatewayTwice {
        /// One of the upstreams.
        first: String,
        /// The other.
        second: String,
    },
}

/// All performers of a process.
///
/// It can be replaced as a whole: [`Catalog::renewed`] makes the next one, in which upstreams that did not change keep
/// their performers with breakers and limits as they stand, and [`Catalog::adopt`] puts it in force. Whoever looks sees
/// the old one or the new one, never a mixture.
pub struct Catalog {
    table: RwLock<Arc<Table>>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

#[derive(Default)]
struct Table {
    upstreams: BTreeMap<String, Arc<Performer>>,
    effects: BTreeMap<String, Vec<Arc<Performer>>>,
    rest: Option<Arc<Performer>>,
    gateway: Option<Arc<Performer>>,
}

/// What a renewal did.
#[derive(Default)]
pub struct Renewal {
    /// In force from now on.
    pub begun: Vec<Arc<Performer>>,
    /// No longer in force, and retired.
    pub retired: Vec<Arc<Performer>>,
}

impl Catalog {
    /// Puts a performer before each upstream.
    ///
    /// # Errors
    /// When two upstreams claim one name, one effect for the same tenants, or the commands.
    pub fn new(
        upstreams: Vec<Upstream>,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        let empty =
            Self { table: RwLock::default(), clock: Arc::clone(clock), observer: Arc::clone(observer) };
        empty.renewed(upstreams)
    }

    /// The catalog of these upstreams. Those that did not change keep their performers.
    ///
    /// # Errors
    /// As [`Catalog::new`].
    pub fn renewed(&self, upstreams: Vec<Upstream>) -> Result<Self, Error> {
        let (present, mut table) = (self.table(), Table::default());
        for upstream in upstreams {
            let kept = present.upstreams.get(&upstream.name);
            table.add(match kept {
                Some(kept) if kept.upstream().is_same(&upstream) => Arc::clone(kept),
                Some(kept) => self.begin(upstream.take_over(kept.upstream())),
                None => self.begin(upstream),
            })?;
        }
        Ok(Self {
            table: RwLock::new(Arc::new(table)),
            clock: Arc::clone(&self.clock),
            observer: Arc::clone(&self.observer),
        })
    }

    fn begin(&self, upstream: Upstream) -> Arc<Performer> {
        Performer::observed(upstream, Arc::clone(&self.clock), Arc::clone(&self.observer))
    }

    /// The performers that are in `next` and not here.
    #[must_use]
    pub fn fresh(&self, next: &Self) -> Vec<Arc<Performer>> {
        next.table().without(&self.table())
    }

    /// The names of the upstreams that are not the same in `next`, in their order.
    #[must_use]
    pub fn changes(&self, next: &Self) -> Vec<String> {
        let (past, next) = (self.table(), next.table());
        let changed = next.without(&past).into_iter().chain(past.without(&next));
        let names: BTreeSet<_> = changed.map(|performer| performer.upstream().name.clone()).collect();
        names.into_iter().collect()
    }

    /// Puts another one in force and retires the performers that it lacks.
    pub fn adopt(&self, next: &Self) -> Renewal {
        let next = next.table();
        let past = {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *table, Arc::clone(&next))
        };
        let renewal = Renewal { begun: next.without(&past), retired: past.without(&next) };
        renewal.retired.iter().for_each(|performer| performer.retire());
        let stays = |board: &Arc<Board>| next.boards().any(|(other, _)| Arc::ptr_eq(other, board));
        for (board, _) in past.boards().filter(|(board, _)| !stays(board)) {
            board.close();
        }
        renewal
    }

    /// The configuration was read anew: what providers have fetched of their upstreams may be old, though nothing changed here.
    pub fn refresh(&self) {
        self.table().upstreams.values().for_each(|performer| performer.upstream().provider.refresh());
    }

    /// Who performs the work of a lane for a tenant at least; `None`: nobody for anybody. Facts are the bus's business.
    #[must_use]
    pub fn performer(&self, lane: &Lane) -> Option<Arc<Performer>> {
        match lane.kind {
            WorkKind::Effect => {
                let table = self.table();
                let own = table.effects.get(lane.name.as_str()).and_then(|performers| performers.first());
                own.or(table.rest.as_ref()).cloned()
            }
            WorkKind::Command => self.table().gateway.clone(),
            WorkKind::Fact | WorkKind::Saga => None,
        }
    }

    /// Who performs an item; an upstream that names the tenant goes before one for all.
    #[must_use]
    pub fn performer_of(&self, item: &WorkItem) -> Option<Arc<Performer>> {
        match &item.work {
            Work::Effect(effect) => {
                let table = self.table();
                let mut performers = table.effects.get(effect.name.as_str()).into_iter().flatten();
                let own = performers.find(|performer| serves(performer, &item.instance.tenant));
                own.or(table.rest.as_ref()).cloned()
            }
            Work::Command(_) => self.table().gateway.clone(),
            Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => None,
        }
    }

    /// Sees an item through, whoever performs it. What nobody performs fails at once with the code `effect_unknown` or
    /// `no_gateway`.
    pub async fn perform(&self, item: &WorkItem) -> Done {
        match self.performer_of(item) {
            Some(performer) => performer.perform(item).await,
            None => Done::nothing(self.nobody(item)),
        }
    }

    /// All performers, in the order of their upstreams' names.
    #[must_use]
    pub fn performers(&self) -> Vec<Arc<Performer>> {
        self.table().upstreams.values().cloned().collect()
    }

    /// The effects and the upstreams of each, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<(String, Vec<String>)> {
        let name = |performer: &Arc<Performer>| performer.upstream().name.clone();
        let table = self.table();
        let effects = table.effects.iter();
        effects.map(|(effect, all)| (effect.clone(), all.iter().map(name).collect())).collect()
    }

    /// How each upstream does, in the order of their names.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        self.table().upstreams.values().map(|performer| performer.condition()).collect()
    }

    /// The boards on which jobs for workers hang.
    #[must_use]
    pub fn boards(&self) -> Vec<(Arc<Board>, Terms, Arc<Performer>)> {
        let table = self.table();
        let performers = table.upstreams.values();
        let boards = performers.filter_map(|performer| {
            let (board, terms) = performer.upstream().board.as_ref()?;
            Some((Arc::clone(board), *terms, Arc::clone(performer)))
        });
        boards.collect()
    }

    /// What the jobs of an instance have written, whoever performs them, as far as it is kept.
    #[must_use]
    pub fn lines(&self, instance: &InstanceKey) -> Vec<Written> {
        let table = self.table();
        let written = table.upstreams.values().filter_map(|performer| performer.upstream().lines.as_ref());
        written.flat_map(|lines| lines.of_instance(instance)).collect()
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The verdict on work that nobody performs: it fails at once, with the code `effect_unknown` or `no_gateway`.
    #[must_use]
    pub fn nobody(&self, item: &WorkItem) -> Verdict {
        let (code, message) = match item.work.kind() {
            WorkKind::Effect => ("effect_unknown", self.unknown(&item.work.label())),
            WorkKind::Command => {
                ("no_gateway", "commands have nowhere to go: no gateway is configured".to_owned())
            }
            WorkKind::Fact | WorkKind::Saga => {
                ("not_an_effect", "facts and sagas are published, not performed".to_owned())
            }
        };
        Verdict::Failed {
            event: None,
            failure: Failure { code: code.to_owned(), message },
            payload: Value::Null,
        }
    }

    fn unknown(&self, name: &str) -> String {
        let table = self.table();
        if table.effects.contains_key(name) {
            return format!("no upstream performs {name} for this tenant");
        }
        let near = table.effects.keys().map(|known| (strsim::jaro_winkler(name, known), known));
        let nearest = near.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(likeness, _)| *likeness > 0.8);
        match nearest {
            Some((_, known)) => format!("no upstream performs {name}; did you mean {known}?"),
            None => format!("no upstream performs {name}"),
        }
    }
}

impl Table {
    fn boards(&self) -> impl Iterator<Item = &(Arc<Board>, Terms)> {
        self.upstreams.values().filter_map(|performer| performer.upstream().board.as_ref())
    }

    fn without(&self, other: &Self) -> Vec<Arc<Performer>> {
        let is_there = |performer: &Arc<Performer>| {
            let there = other.upstreams.get(&performer.upstream().name);
            there.is_some_and(|there| Arc::ptr_eq(there, performer))
        };
        self.upstreams.values().filter(|performer| !is_there(performer)).cloned().collect()
    }

    fn add(&mut self, performer: Arc<Performer>) -> Result<(), Error> {
        let name = performer.upstream().name.clone();
        match &performer.upstream().serves {
            Serves::Effects(effects) => {
                for effect in effects {
                    self.add_effect(effect, &performer)?;
                }
            }
            Serves::Rest => {
                if let Some(first) = &self.rest {
                    return Err(Error::RestTwice { first: first.upstream().name.clone(), second: name });
                }
                self.rest = Some(Arc::clone(&performer));
            }
            Serves::Commands => {
                if let Some(first) = &self.gateway {
                    return Err(Error::GatewayTwice { first: first.upstream().name.clone(), second: name });
                }
                self.gateway = Some(Arc::clone(&performer));
            }
        }
        match self.upstreams.insert(name.clone(), performer) {
            Some(_) => Err(Error::UpstreamTwice { name }),
            None => Ok(()),
        }
    }

    /// Those for all tenants stand behind those for some.
    fn add_effect(&mut self, effect: &EffectName, performer: &Arc<Performer>) -> Result<(), Error> {
        let all = self.effects.entry(effect.to_string()).or_default();
        if let Some(first) = all.iter().find(|first| contend(first, performer)) {
            return Err(Error::EffectTwice {
                effect: effect.clone(),
                first: first.upstream().name.clone(),
                second: performer.upstream().name.clone(),
            });
        }
        match performer.upstream().tenants {
            Some(_) => all.insert(0, Arc::clone(performer)),
            None => all.push(Arc::clone(performer)),
        }
        Ok(())
    }
}

fn serves(performer: &Performer, tenant: &TenantId) -> bool {
    performer.upstream().tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant))
}

/// Whether there is a tenant for whom it is not said which of the two it is.
fn contend(a: &Performer, b: &Performer) -> bool {
    match (&a.upstream().tenants, &b.upstream().tenants) {
        (None, None) => true,
        (Some(a), Some(b)) => !a.is_disjoint(b),
        (Some(_), None) | (None, Some(_)) => false,
    }
}
