//! An upstream: a name, what it serves, who speaks to it, and what is agreed.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog_model::{EffectName, TenantId};

use crate::job_logs::Lines;
use crate::policy::Policy;
use crate::provider::Provider;
use crate::worker::{Board, Terms};

/// Something in the world with which one breaker, one limit and one policy are shared.
#[derive(Clone)]
pub struct Upstream {
    /// Unique in a catalog, for example `payments`.
    pub name: String,
    /// Which work goes there.
    pub serves: Serves,
    /// Who speaks to it.
    pub provider: Arc<dyn Provider>,
    /// What is agreed.
    pub policy: Policy,
    /// For whom it works; `None`: for all tenants.
    pub tenants: Option<BTreeSet<TenantId>>,
    /// What it was made from, as text; two of the same origin do the same. `None`: made by code.
    pub origin: Option<String>,
    /// Where its jobs hang and how long claims last, where workers perform them.
    pub board: Option<(Arc<Board>, Terms)>,
    /// What its jobs write while they run, where they do.
    pub lines: Option<Arc<Lines>>,
}

/// Which work goes to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serves {
    /// These effects.
    Effects(Vec<EffectName>),
    /// All effects that no other upstream performs.
    Rest,
    /// All commands to aggregates: it is the Gateway.
    Commands,
}

impl Upstream {
    /// One that serves these effects.
    pub fn effects(
        name: impl Into<String>,
        effects: Vec<EffectName>,
        provider: Arc<dyn Provider>,
        policy: Policy,
    ) -> Self {
        Self::new(name.into(), Serves::Effects(effects), provider, policy)
    }

    /// One that serves all effects that no other does.
    pub fn rest(name: impl Into<String>, provider: Arc<dyn Provider>, policy: Policy) -> Self {
        Self::new(name.into(), Serves::Rest, provider, policy)
    }

    /// The Gateway, named `gateway`.
    pub fn gateway(provider: Arc<dyn Provider>, policy: Policy) -> Self {
        Self::new("gateway".to_owned(), Serves::Commands, provider, policy)
    }

    /// Works for these tenants only.
    #[must_use]
    pub fn for_tenants(mut self, tenants: Option<BTreeSet<TenantId>>) -> Self {
        self.tenants = tenants;
        self
    }

    /// Was made from this.
    #[must_use]
    pub fn made_from(mut self, origin: String) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Workers find its jobs there.
    #[must_use]
    pub fn on_board(mut self, board: Arc<Board>, terms: Terms) -> Self {
        self.lines = Some(board.lines());
        self.board = Some((board, terms));
        self
    }

    /// Its jobs write lines there.
    #[must_use]
    pub fn writing(mut self, lines: Arc<Lines>) -> Self {
        self.lines = Some(lines);
        self
    }

    /// Whether it performs all of these, and there is one.
    #[must_use]
    pub fn performs_all(&self, effects: &[EffectName]) -> bool {
        match &self.serves {
            Serves::Effects(all) => !effects.is_empty() && effects.iter().all(|effect| all.contains(effect)),
            Serves::Rest => !effects.is_empty(),
            Serves::Commands => false,
        }
    }

    /// Takes over the board of the one whose place it takes: workers that are at its jobs go on.
    pub(crate) fn take_over(mut self, other: &Self) -> Self {
        if let (Some((_, terms)), Some((board, _))) = (&self.board, &other.board) {
            self.board = Some((Arc::clone(board), *terms));
            self.lines.clone_from(&other.lines);
            self.provider = Arc::clone(&other.provider);
        }
        self
    }

    /// Whether the other one does the same in the same way, so that a reload need not disturb what is under way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let provider = Arc::ptr_eq(&self.provider, &other.provider)
            || (self.origin.is_some() && self.origin == other.origin);
        provider
            && self.name == other.name
            && self.serves == other.serves
            && self.policy == other.policy
            && self.tenants == other.tenants
    }

    fn new(name: String, serves: Serves, provider: Arc<dyn Provider>, policy: Policy) -> Self {
        Self { name, serves, provider, policy, tenants: None, origin: None, board: None, lines: None }
    }
}
