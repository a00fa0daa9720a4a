//! An upstream: a name, what it serves, who speaks to it, and what is agreed.

use std::sync::Arc;

use orlog_model::EffectName;

use crate::policy::Policy;
use crate::provider::Provider;

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
}

/// Which work goes to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serves {
    /// These effects.
    Effects(Vec<EffectName>),
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
        Self { name: name.into(), serves: Serves::Effects(effects), provider, policy }
    }

    /// The Gateway, named `gateway`.
    pub fn gateway(provider: Arc<dyn Provider>, policy: Policy) -> Self {
        Self { name: "gateway".to_owned(), serves: Serves::Commands, provider, policy }
    }
}
