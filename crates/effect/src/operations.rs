//! Operations of a provider: what each effect of an upstream does.

use std::collections::BTreeMap;

use orlog_model::{Effect, EffectName, WorkItem};

use crate::config::Error;
use crate::provider::{ProviderError, effect_of};

pub(crate) struct Operations<O> {
    pub(crate) upstream: String,
    /// Noun of an operation in messages.
    noun: &'static str,
    by_effect: BTreeMap<EffectName, O>,
}

impl<O> Operations<O> {
    /// Creates the operations from the configuration of each effect.
    pub(crate) fn new<C>(
        upstream: &str,
        noun: &'static str,
        effects: &BTreeMap<EffectName, C>,
        compile: impl Fn(&EffectName, &C) -> Result<O, String>,
    ) -> Result<Self, Error> {
        let mut by_effect = BTreeMap::new();
        for (effect, config) in effects {
            let operation = compile(effect, config)
                .map_err(|reason| Error::effect(upstream, effect, reason))?;
            by_effect.insert(effect.clone(), operation);
        }

        Ok(Self {
            upstream: upstream.to_owned(),
            noun,
            by_effect,
        })
    }

    pub(crate) fn effects(&self) -> Vec<EffectName> {
        self.by_effect.keys().cloned().collect()
    }

    /// Returns the operation of an effect.
    pub(crate) fn get(&self, effect: &EffectName) -> Option<&O> {
        self.by_effect.get(effect)
    }

    /// Returns the effect of an item with its operation.
    pub(crate) fn find<'a>(
        &'a self,
        item: &'a WorkItem,
    ) -> Result<(&'a Effect, &'a O), ProviderError> {
        let effect = effect_of(item)?;
        let operation = self.by_effect.get(&effect.name).ok_or_else(|| {
            let message = format!("{} has no {} for {}", self.upstream, self.noun, effect.name);
            ProviderError::permanent("effect_unknown", message)
        })?;

        Ok((effect, operation))
    }
}
