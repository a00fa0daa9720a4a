//! The catalog: which upstream performs which work.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{Clock, EffectName, Failure, Lane, Verdict, WorkItem, WorkKind};
use serde_json::Value;

use crate::observer::Observer;
use crate::performer::{Condition, Done, Performer};
use crate::upstream::{Serves, Upstream};

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
    /// Two upstreams would take the commands.
    #[error("both {first:?} and {second:?} take commands; there is one gateway")]
    GatewayTwice {
        /// One of the upstreams.
        first: String,
        /// The other.
        second: String,
    },
}

/// All performers of a process. Does not change: on reload a new one takes its place, with its breakers closed.
#[derive(Default)]
pub struct Catalog {
    upstreams: BTreeMap<String, Arc<Performer>>,
    effects: BTreeMap<String, Arc<Performer>>,
    gateway: Option<Arc<Performer>>,
}

impl Catalog {
    /// Puts a performer before each upstream.
    ///
    /// # Errors
    /// When two upstreams claim one name, one effect or the commands.
    pub fn new(
        upstreams: Vec<Upstream>,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        let mut catalog = Self::default();
        for upstream in upstreams {
            catalog.add(Performer::observed(upstream, Arc::clone(clock), Arc::clone(observer)))?;
        }
        Ok(catalog)
    }

    /// Who performs the work of a lane; `None`: nobody. Facts are the bus's business.
    #[must_use]
    pub fn performer(&self, lane: &Lane) -> Option<Arc<Performer>> {
        match lane.kind {
            WorkKind::Effect => self.effects.get(lane.name.as_str()).cloned(),
            WorkKind::Command => self.gateway.clone(),
            WorkKind::Fact | WorkKind::Saga => None,
        }
    }

    /// Sees an item through, whoever performs it. What nobody performs fails at once with the code `effect_unknown` or
    /// `no_gateway`.
    pub async fn perform(&self, item: &WorkItem) -> Done {
        match self.performer(&item.work.lane()) {
            Some(performer) => performer.perform(item).await,
            None => Done { verdict: self.nobody(item), attempts: 0 },
        }
    }

    /// All performers, in the order of their upstreams' names.
    pub fn performers(&self) -> impl Iterator<Item = &Arc<Performer>> {
        self.upstreams.values()
    }

    /// The effects and the upstream of each, in the order of their names.
    pub fn effects(&self) -> impl Iterator<Item = (&str, &str)> {
        self.effects.iter().map(|(effect, performer)| (effect.as_str(), performer.upstream().name.as_str()))
    }

    /// How each upstream does, in the order of their names.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        self.upstreams.values().map(|performer| performer.condition()).collect()
    }

    fn add(&mut self, performer: Arc<Performer>) -> Result<(), Error> {
        let name = performer.upstream().name.clone();
        match &performer.upstream().serves {
            Serves::Effects(effects) => {
                for effect in effects {
                    self.add_effect(effect, &performer)?;
                }
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

    fn add_effect(&mut self, effect: &EffectName, performer: &Arc<Performer>) -> Result<(), Error> {
        match self.effects.insert(effect.to_string(), Arc::clone(performer)) {
            Some(first) => Err(Error::EffectTwice {
                effect: effect.clone(),
                first: first.upstream().name.clone(),
                second: performer.upstream().name.clone(),
            }),
            None => Ok(()),
        }
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
        let near = self.effects.keys().map(|known| (strsim::jaro_winkler(name, known), known));
        let nearest = near.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(likeness, _)| *likeness > 0.8);
        match nearest {
            Some((_, known)) => format!("no upstream performs {name}; did you mean {known}?"),
            None => format!("no upstream performs {name}"),
        }
    }
}
