//! Received webhooks: signed requests of other systems, each mapped to one event.
//!
//! A request to `POST /v1/webhooks/{name}` has no token: its signature authenticates it. The
//! configuration `[webhooks.<name>]` has the secrets, the tenant of the events, and the expressions
//! that read the request.

pub mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use parking_lot::RwLock;

use crate::config::{Config, WebhookConfig, WebhookTemplates};
use signature::SignatureError;

/// Webhooks of a node, by name.
#[derive(Debug)]
pub struct Webhooks(RwLock<BTreeMap<String, Arc<Webhook>>>);

/// Webhook with its compiled templates.
#[derive(Debug)]
pub struct Webhook {
    /// Name in the configuration and in the route.
    pub name: String,
    /// Scheme, secrets and tenant.
    pub config: WebhookConfig,
    /// Expressions that read a request.
    pub templates: WebhookTemplates,
    is_rejecting: AtomicBool,
}

impl Webhooks {
    /// Compiles the templates and reads the secrets of all webhooks.
    ///
    /// # Errors
    /// If an expression is invalid, or if a secret cannot be read.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let webhooks = config.webhooks.iter().map(|(name, config)| {
            let webhook = Webhook::new(name, config).with_context(|| format!("webhooks.{name}"))?;
            Ok((name.clone(), Arc::new(webhook)))
        });
        webhooks
            .collect::<anyhow::Result<_>>()
            .map(|webhooks| Self(RwLock::new(webhooks)))
    }

    /// Returns the webhook of a name; a reload replaces it.
    pub fn get(&self, name: &str) -> Option<Arc<Webhook>> {
        self.0.read().get(name).cloned()
    }

    /// Replaces all webhooks. Requests in progress end with the old ones.
    pub fn replace(&self, next: Self) {
        let next = next.0.into_inner();
        *self.0.write() = next;
    }
}

impl Webhook {
    fn new(name: &str, config: &WebhookConfig) -> anyhow::Result<Self> {
        let templates = config.templates().map_err(|errors| {
            let errors: Vec<_> = errors
                .iter()
                .map(|error| format!("{}: {error}", error.path))
                .collect();
            anyhow::Error::msg(errors.join("; "))
        })?;

        // A missing secret is an error of the start or the reload, not of the first request.
        for reference in &config.secrets {
            let key = signature::key(config.scheme, &reference.resolve()?);
            key.with_context(|| format!("invalid secret {reference}"))?;
        }

        Ok(Self {
            name: name.to_owned(),
            config: config.clone(),
            templates,
            is_rejecting: AtomicBool::new(false),
        })
    }

    /// Logs why a signature was rejected. The response does not contain the reason. Anyone can send
    /// such requests, so only the first one in sequence is a warning.
    pub fn log_rejection(&self, error: &SignatureError) {
        let webhook = self.name.as_str();
        if self.is_rejecting.swap(true, Ordering::Relaxed) {
            tracing::debug!(webhook, reason = %error, "webhook rejected");
        } else {
            tracing::warn!(webhook, reason = %error, "webhook rejected; further rejections are \
                logged at debug");
        }
    }

    /// Lets the next rejection be a warning again.
    pub fn end_rejections(&self) {
        self.is_rejecting.store(false, Ordering::Relaxed);
    }
}
